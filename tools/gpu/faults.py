#!/usr/bin/env python3
"""Faults through a real server on a GPU: each ends in a clear error, and nobody else notices.

    faults.py HAYATE [--device cuda]

A tiny checkpoint gets logits that overflow now and then, a pool that holds a fraction of its requests,
a pool that fits no card, and a device that fails in the middle of answers. Standard library alone."""

import argparse
import concurrent.futures
import json
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
CHECKPOINT = ROOT / "tests" / "golden" / "dense" / "llama"
sys.path.insert(0, str(ROOT / "tests" / "golden"))
from byte_tokenizer import write_tokenizer

TOKENS = 12
# Of the output matrix's row for this token one weight is so large that its product with a final
# hidden value above 1.2 is beyond float32.
HUGE_TOKEN = 250
HUGE_BF16 = struct.pack("<f", 3.4e38 / 1.2)[2:]
OUTPUT = "lm_head.weight"


class Server:
    """`hayate serve` of a checkpoint; its log lies beside it."""

    def __init__(self, binary, device, checkpoint, *flags):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{probe.getsockname()[1]}"
        self.log_path = checkpoint.parent / "server.log"
        command = [binary, "serve", "--device", device, "--model-path", str(checkpoint), *flags]
        if device == "cuda":
            command += ["--mem-fraction-static", "0.1"]
        with self.log_path.open("wb") as log:
            port = self.url.rsplit(":", 1)[1]
            self.process = subprocess.Popen([*command, "--port", port], stdout=log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 60
        while self.process.poll() is None and time.monotonic() < deadline:
            try:
                urllib.request.urlopen(self.url + "/health", timeout=5).read()
                break
            except OSError:
                time.sleep(0.02)

    def ready(self):
        check(self.process.poll() is None, "the server does not start")
        return self

    def log(self):
        return self.log_path.read_text(errors="replace")

    def complete(self, prompt, tokens=TOKENS):
        """Status and the answer's JSON."""
        body = {"model": "default", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
        request = urllib.request.Request(
            self.url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)


def check(condition, what):
    if not condition:
        raise AssertionError(what)


def copy_of_checkpoint(folder):
    copy = Path(folder) / "checkpoint"
    shutil.copytree(CHECKPOINT, copy, dirs_exist_ok=True)
    write_tokenizer(copy)
    return copy


def put_huge_weight(checkpoint):
    path = checkpoint / "model.safetensors"
    raw = bytearray(path.read_bytes())
    (length,) = struct.unpack_from("<Q", raw)
    entry = json.loads(raw[8 : 8 + length])[OUTPUT]
    width = 2 * entry["shape"][1]
    begin = 8 + length + entry["data_offsets"][0] + HUGE_TOKEN * width
    raw[begin : begin + width] = HUGE_BF16 + bytes(width - 2)
    path.write_bytes(raw)


def prompts(seed, count, length):
    pick = random.Random(seed)
    return [[pick.randrange(8, 248) for _ in range(length)] for _ in range(count)]


def text_of(answer):
    return answer["choices"][0]["text"]


def together(server, requests, tokens=TOKENS):
    with concurrent.futures.ThreadPoolExecutor(len(requests)) as pool:
        return list(pool.map(lambda prompt: server.complete(prompt, tokens), requests))


def outcome(answer):
    """What does not depend on neighbours in the fixed order of sums: the text, or the error."""
    status, body = answer
    return (status, text_of(body)) if status == 200 else (status, body["error"]["message"])


def logits_overflow(binary, device, folder):
    checkpoint = copy_of_checkpoint(folder)
    put_huge_weight(checkpoint)
    server = Server(binary, device, checkpoint, "--deterministic").ready()
    crowd = prompts(1, 24, 20)
    alone = [outcome(server.complete(prompt)) for prompt in crowd]
    failures = [message for status, message in alone if status == 500]
    check(0 < len(failures) < len(crowd), f"{len(failures)} of {len(crowd)} answers fail")
    check(all("logits" in message for message in failures), str(failures))
    check([outcome(answer) for answer in together(server, crowd)] == alone, "an outcome depends on neighbours")
    check(server.stop() == 0, server.log())


def pool_too_small(binary, device, folder):
    server = Server(binary, device, copy_of_checkpoint(folder), "--max-total-tokens", "512", "--deterministic").ready()
    crowd = prompts(2, 24, 60)
    alone = [outcome(server.complete(prompt, 120)) for prompt in crowd]
    check(all(status == 200 for status, _ in alone), str(alone))
    check([outcome(answer) for answer in together(server, crowd, 120)] == alone, "an answer differs in a crowd")
    check(server.stop() == 0, server.log())
    server = Server(binary, device, copy_of_checkpoint(folder), "--max-total-tokens", "256").ready()
    status, answer = server.complete(prompts(3, 1, 400)[0])
    check(status == 400 and "256" in answer["error"]["message"], f"beyond the pool: {status} {answer}")
    check(server.stop() == 0, server.log())


def pool_beyond_the_card(binary, device, folder):
    server = Server(binary, device, copy_of_checkpoint(folder), "--max-total-tokens", str(1 << 34))
    check(server.process.wait(timeout=60) == 1, "a server with a pool beyond the card")
    check("--max-total-tokens" in server.log(), "its error does not name the flag")


def device_fails(binary, device, folder):
    drill = ["--fail-rank-at-step", "40", "--speculative-algorithm", "NONE"]
    server = Server(binary, device, copy_of_checkpoint(folder), *drill).ready()
    for status, answer in together(server, prompts(4, 8, 20), 200):
        check(status == 503 and "failed" in answer["error"]["message"], f"as the device fails: {status} {answer}")
    check(server.process.wait(timeout=60) == 1, "the server outlives its device")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    failed = False
    for fault in (logits_overflow, pool_too_small, pool_beyond_the_card, device_fails):
        with tempfile.TemporaryDirectory() as folder:
            try:
                fault(args.binary, args.device, folder)
                print(f"{fault.__name__}: as it should be")
            except AssertionError as error:
                print(f"{fault.__name__}: {error}\n{(Path(folder) / 'server.log').read_text(errors='replace')[-1500:]}")
                failed = True
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
