#!/usr/bin/env python3
"""Decode speed with drafts from the request's own text against plain decoding, one client.

Starts `hayate serve` twice, with and without the flags under test, and lets both answer the same prompts in
turns, so that a machine that slows down slows both. Answers must be equal. Writes one JSON object.

    tools/bench_speculation.py --binary build/hayate --model model.gguf --output result.json
"""

import argparse
import statistics
import time

from measured_server import MeasuredServer, add_arguments, report

RECORD = '  {{"id": {i}, "name": "user{i}", "email": "user{i}@example.com", "roles": ["reader", "writer"], "active": true}},\n'
CODE = '''class Account:
    """A bank account."""

    def __init__(self, owner, balance=0):
        self.owner = owner
        self.balance = balance

    def deposit(self, amount):
        if amount <= 0:
            raise ValueError("amount must be positive")
        self.balance += amount
        return self.balance

    def withdraw(self, amount):
        if amount <= 0:
            raise ValueError("amount must be positive")
        if amount > self.balance:
            raise ValueError("insufficient funds")
        self.balance -= amount
        return self.balance
'''
WORKLOADS = {
    "json": [{"text": "[\n" + "".join(RECORD.format(i=i) for i in range(s, s + 12))} for s in (10, 200, 3000)],
    "code_edit": [
        {"text": f"Original:\n{CODE}\nThe same with `balance` renamed to `{name}`:\n" + CODE[:140].replace("balance", name)}
        for name in ("funds", "total", "amount_left")
    ],
    "prose": [
        {"text": text, "sampling_params": {"temperature": 1.0, "sampling_seed": 7}}
        for text in (
            "The old lighthouse keeper looked out over the sea and thought about",
            "In the spring of that year, the city council decided to",
            "My grandmother always said that a good soup begins with",
        )
    ],
}


class Server(MeasuredServer):
    def generate(self, request: dict, tokens: int) -> dict:
        sampling = {"temperature": 0, "ignore_eos": True, **request.get("sampling_params", {}), "max_new_tokens": tokens}
        return self.post("/generate", {"text": request["text"], "sampling_params": sampling})

    def seconds(self, request: dict, tokens: int) -> tuple[float, dict]:
        begin = time.perf_counter()
        answer = self.generate(request, tokens)
        return time.perf_counter() - begin, answer


def measure(plain: Server, drafting: Server, requests: list[dict], options: argparse.Namespace) -> dict:
    """Decode speed: the time of a long answer less that of its first token, over its other tokens."""
    speeds: dict[str, list[float]] = {"plain": [], "speculative": []}
    accept_lengths = []
    for _ in range(options.rounds):
        for request in requests:
            answers = {}
            for name, server in (("plain", plain), ("speculative", drafting)):
                first, _ = server.seconds(request, 1)
                whole, answers[name] = server.seconds(request, options.tokens)
                speeds[name].append((options.tokens - 1) / (whole - first))
            assert answers["plain"]["output_ids"] == answers["speculative"]["output_ids"], request["text"][:60]
            meta = answers["speculative"]["meta_info"]
            verifies = meta.get("spec_verify_ct", 0)
            steps = options.tokens - meta.get("spec_accept_token_num", 0)
            accept_lengths.append({"tokens_per_step": options.tokens / steps, "verifying_steps": verifies / steps})
    ratios = [s / p for s, p in zip(speeds["speculative"], speeds["plain"], strict=True)]
    return {
        "plain_tokens_per_s": statistics.median(speeds["plain"]),
        "speculative_tokens_per_s": statistics.median(speeds["speculative"]),
        "ratio_median": statistics.median(ratios),
        "ratio_min": min(ratios),
        "ratio_max": max(ratios),
        "tokens_per_step": statistics.mean(a["tokens_per_step"] for a in accept_lengths),
        "share_of_verifying_steps": statistics.mean(a["verifying_steps"] for a in accept_lengths),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--flags", default="--speculative-algorithm NGRAM", help="of the server under test")
    options = parser.parse_args()

    plain, drafting = Server(options, []), Server(options, options.flags.split())
    try:
        workloads = {name: measure(plain, drafting, requests, options) for name, requests in WORKLOADS.items()}
    finally:
        plain.stop()
        drafting.stop()
    report(options, {"flags": options.flags, "workloads": workloads})


if __name__ == "__main__":
    main()
