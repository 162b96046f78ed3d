#!/usr/bin/env python3
"""The default model through the real server, on the GPU and on the CPU: greedy answers must be equal
wherever the CPU's exact mode sees its two best logits apart.

    compare_devices.py HAYATE [--margin 0.05] [--json FILE]

An answer is compared up to its first difference; what follows is another text. Standard library
alone. HAYATE_MODEL names the model file."""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

PROMPTS = [
    "The capital of Japan is",
    "Write a haiku about the sea.",
    "def fibonacci(n):",
    "The three primary colours are",
    "Once upon a time, in a small village,",
    "Water boils at",
    "To make a good cup of tea, first",
    "The theory of evolution was proposed by",
    "1, 2, 3, 4, 5,",
    "Dear Sir or Madam,",
]
TOKENS = 48


class Server:
    def __init__(self, binary, *flags):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        command = [binary, "serve", "--port", str(self.port), "--model-path", os.environ["HAYATE_MODEL"], *flags]
        self.started = time.monotonic()
        self.process = subprocess.Popen(command)
        while True:
            if self.process.poll() is not None:
                sys.exit(f"compare_devices: {' '.join(command)} ended with {self.process.returncode}")
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5).read()
                break
            except OSError:
                time.sleep(0.02)
        self.ready_s = time.monotonic() - self.started

    def generate(self, **body):
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/generate",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        return json.load(urllib.request.urlopen(request, timeout=120))

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)


def answer(server, **prompt):
    """Greedy ids and, per token, the ids and log-probabilities of the two best."""
    reply = server.generate(
        **prompt,
        sampling_params={"temperature": 0, "max_new_tokens": TOKENS, "ignore_eos": True},
        return_logprob=True,
        top_logprobs_num=2,
    )
    meta = reply["meta_info"]
    ids = [entry[1] for entry in meta["output_token_logprobs"]]
    best = [[(entry[1], entry[0]) for entry in row] for row in meta["output_top_logprobs"]]
    return ids, best


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--margin", type=float, default=0.05)
    parser.add_argument("--json")
    args = parser.parse_args()

    cpu = Server(args.binary, "--device", "cpu", "--precision", "exact", "--kv-cache-dtype", "f32", "--threads", "8")
    gpus = {
        "exact": Server(args.binary, "--device", "cuda", "--precision", "exact", "--mem-fraction-static", "0.2"),
        "fast": Server(args.binary, "--device", "cuda", "--mem-fraction-static", "0.2"),
    }
    report = {"cpu_ready_s": cpu.ready_s}
    failed = False
    for mode, gpu in gpus.items():
        equal = compared = 0
        flips = []
        for prompt in PROMPTS:
            ids, best = answer(cpu, text=prompt)
            own, _ = answer(gpu, text=prompt)
            for i, (mine, theirs) in enumerate(zip(own, ids)):
                compared += 1
                equal += mine == theirs
                if mine != theirs:
                    margin = best[i][0][1] - best[i][1][1]
                    flips.append(margin)
                    break  # what follows is another text
        report[mode] = {
            "ready_s": gpu.ready_s,
            "compared": compared,
            "equal": equal,
            "flipped_margins": flips,
        }
        print(f"{mode}: ready after {gpu.ready_s:.2f} s, {equal} of {compared} tokens equal, margins of flips {flips}")
        failed |= any(margin >= args.margin for margin in flips)
    for server in [cpu, *gpus.values()]:
        code = server.stop()
        if code != 0:
            print(f"a server ended with {code} after SIGTERM")
            failed = True
    if args.json:
        with open(args.json, "w") as file:
            json.dump(report, file, indent=1)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
