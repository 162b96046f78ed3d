#!/usr/bin/env python3
"""What structured output costs and brings, with `hayate serve` on the default model or another.

  constrained  decode speed under a JSON schema against free text, without drafts, in turns
  forced       the same schema with and without drafts of the text that it forces; answers must be equal
               (the two tell tokens a second, and the server's CPU time a token, which other work on the machine
               changes little)
  neighbours   the longest gap between two tokens of a plain stream, alone and beside requests that want new
               schemas compiled and chats of 100,000 tokens

Writes one JSON object.

    tools/bench_structured.py --binary build/hayate --model model.gguf --output result.json
"""

import argparse
import concurrent.futures
import http.client
import itertools
import json
import os
import statistics
import threading
import time
import urllib.error
import urllib.request

from measured_server import MeasuredServer, add_arguments, report

PROMPT = "Customers as a JSON array of objects that follow this schema: {}\n"
SHORT = {
    "type": "array",
    "minItems": 50,
    "items": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "city": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name", "city", "age"],
    },
}
LONG_NAMES = [
    "customer_identification_number",
    "preferred_delivery_address_line",
    "last_successful_login_timestamp",
    "marketing_communication_consent_given",
    "outstanding_invoice_amount_in_cents",
]
LONG = {
    "type": "array",
    "minItems": 50,
    "items": {
        "type": "object",
        "properties": {name: {"type": "integer", "minimum": 0, "maximum": 9999} for name in LONG_NAMES},
        "required": LONG_NAMES,
    },
}


class Server(MeasuredServer):
    def generate(self, tokens: int, schema: dict | None, count: int = 1) -> tuple[float, list]:
        """Seconds and the answers' ids of `count` equal requests at once."""
        sampling = {"temperature": 0, "ignore_eos": True, "max_new_tokens": tokens}
        if schema is not None:
            sampling["json_schema"] = json.dumps(schema)
        begin = time.perf_counter()
        prompt = PROMPT.format(json.dumps((schema or SHORT)["items"]))
        answers = self.post("/generate", {"text": [prompt] * count, "sampling_params": sampling})
        return time.perf_counter() - begin, [answer["output_ids"] for answer in answers]

    def cpu_seconds(self) -> float:
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def speed(self, tokens: int, schema: dict | None, count: int = 1) -> tuple[float, float, list]:
        """Tokens a second and CPU milliseconds a token, both behind the first one; and the answers."""
        cpu = [self.cpu_seconds()]
        first, _ = self.generate(1, schema, count)
        cpu.append(self.cpu_seconds())
        whole, answers = self.generate(tokens, schema, count)
        cpu.append(self.cpu_seconds())
        generated = count * (tokens - 1)
        return generated / (whole - first), 1e3 * (cpu[2] - 2 * cpu[1] + cpu[0]) / generated, answers


def compare(names: tuple[str, str], pairs: list[tuple[tuple, tuple]]) -> dict:
    """Medians of paired runs; a ratio above 1: the second is better."""
    result = {}
    for i, name in enumerate(names):
        result[f"{name}_tokens_per_s"] = statistics.median(pair[i][0] for pair in pairs)
        result[f"{name}_cpu_ms_per_token"] = statistics.median(pair[i][1] for pair in pairs)
    result["speed_ratio"] = statistics.median(second[0] / first[0] for first, second in pairs)
    result["cpu_ratio"] = statistics.median(first[1] / second[1] for first, second in pairs)
    return result


def constrained(plain: Server, options: argparse.Namespace) -> dict:
    result = {}
    for count in (1, 8):
        pairs = [
            (plain.speed(options.tokens, None, count), plain.speed(options.tokens, SHORT, count))
            for _ in range(options.rounds)
        ]
        result[f"{count} at once"] = compare(("free", "schema"), pairs)
    return result


def forced(plain: Server, drafting: Server, options: argparse.Namespace) -> dict:
    result = {}
    for name, schema in (("short names", SHORT), ("long names", LONG)):
        for count in (1, 8):
            pairs = []
            for _ in range(options.rounds):
                single = plain.speed(options.tokens, schema, count)
                drafted = drafting.speed(options.tokens, schema, count)
                assert single[2] == drafted[2]
                pairs.append((single, drafted))
            result[f"{name}, {count} at once"] = compare(("plain", "forced"), pairs)
    return result


def stream_gaps(server: Server, tokens: int) -> list[float]:
    """Milliseconds between the events of a streamed answer, shortest first."""
    body = {
        "text": "Once upon a time",
        "stream": True,
        "sampling_params": {"ignore_eos": True, "max_new_tokens": tokens},
    }
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
    connection.request("POST", "/generate", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    times = []
    while line := response.readline():
        if line.startswith(b"data: {"):
            times.append(time.perf_counter())
    connection.close()
    return sorted((b - a) * 1e3 for a, b in itertools.pairwise(times))


def hostile_schema(i: int) -> dict:
    """Another one each time, so that every one is compiled."""
    return {"type": "object", "properties": {f"p{i}": {"type": "string", "maxLength": 200 + i}}, "required": [f"p{i}"]}


def disturb(server: Server, kind: str, stop: threading.Event) -> int:
    count = 0
    chat = "word " * 100_000
    while not stop.is_set():
        if kind == "schemas":
            response = {"type": "json_schema", "json_schema": {"name": "f", "schema": hostile_schema(count)}}
            body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1, "response_format": response}
        else:
            body = {"messages": [{"role": "user", "content": chat}], "max_tokens": 1}
        try:
            server.post("/v1/chat/completions", body)
        except urllib.error.HTTPError as error:
            error.read()  # longer than the model's context: refused
        count += 1
    return count


def summary(gaps: list[float]) -> dict:
    return {"p50_ms": gaps[len(gaps) // 2], "p99_ms": gaps[len(gaps) * 99 // 100], "max_ms": gaps[-1]}


def neighbours(server: Server, options: argparse.Namespace) -> dict:
    result = {"alone": summary(stream_gaps(server, options.stream_tokens))}
    for kind in ("schemas", "chats"):
        stop = threading.Event()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            disturber = pool.submit(disturb, server, kind, stop)
            gaps = stream_gaps(server, options.stream_tokens)
            stop.set()
            result[f"beside {kind}"] = {**summary(gaps), "requests": disturber.result()}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--stream-tokens", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--parts", default="constrained,forced,neighbours")
    options = parser.parse_args()

    parts = options.parts.split(",")
    plain = Server(options, ["--speculative-algorithm", "NONE"])
    drafting = Server(options, ["--speculative-algorithm", "GRAMMAR"])
    measured = {}
    try:
        if "constrained" in parts:
            measured["constrained"] = constrained(plain, options)
        if "forced" in parts:
            measured["forced"] = forced(plain, drafting, options)
        if "neighbours" in parts:
            measured["neighbours"] = neighbours(drafting, options)
    finally:
        plain.stop()
        drafting.stop()
    report(options, measured)


if __name__ == "__main__":
    main()
