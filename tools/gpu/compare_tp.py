#!/usr/bin/env python3
"""A tiny checkpoint served by one GPU and by several: greedy answers in the exact mode must be equal.

    compare_tp.py HAYATE CHECKPOINT [--tp 2]

Standard library alone."""

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request


def answers(binary, checkpoint, tokenizer, tp, prompts):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    server = subprocess.Popen(
        [binary, "serve", "--port", str(port), "--model-path", checkpoint, "--tokenizer-path", tokenizer, "--device", "cuda",
         "--precision", "exact", "--tp-size", str(tp), "--mem-fraction-static", "0.1"])
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).read()
                break
            except OSError:
                if server.poll() is not None:
                    sys.exit(f"compare_tp: the server ended with {server.returncode}")
                time.sleep(0.05)
        body = {"input_ids": prompts, "sampling_params": {"temperature": 0, "max_new_tokens": 48, "ignore_eos": True}, "return_logprob": True}
        request = urllib.request.Request(f"http://127.0.0.1:{port}/generate", json.dumps(body).encode(), {"Content-Type": "application/json"})
        replies = json.load(urllib.request.urlopen(request, timeout=60))
        return [[entry[1] for entry in reply["meta_info"]["output_token_logprobs"]] for reply in replies]
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(timeout=60)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("checkpoint")
    parser.add_argument("--tp", type=int, default=2)
    args = parser.parse_args()
    with open(os.path.join(args.checkpoint, "config.json")) as file:
        config = file.read()
    vocab_size = json.loads(config)["vocab_size"]
    rng = random.Random(5)
    prompts = [[rng.randrange(vocab_size) for _ in range(length)] for length in (1, 7, 30, 64, 130)]
    with tempfile.TemporaryDirectory() as tokenizer:
        with open(os.path.join(tokenizer, "config.json"), "w") as file:
            file.write(config)
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "make_tokenizer.py")
        subprocess.run([sys.executable, script, str(max(vocab_size, 256)), tokenizer], check=True)
        one = answers(args.binary, args.checkpoint, tokenizer, 1, prompts)
        several = answers(args.binary, args.checkpoint, tokenizer, args.tp, prompts)
    equal = sum(a == b for a, b in zip(one, several))
    print(f"{equal} of {len(prompts)} answers of 48 tokens equal on 1 and {args.tp} GPUs")
    sys.exit(0 if equal == len(prompts) else 1)


if __name__ == "__main__":
    main()
