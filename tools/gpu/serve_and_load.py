#!/usr/bin/env python3
"""Starts the server with dummy weights and loads it over HTTP: time to the first token after the start,
TTFT without load, a closed loop of clients, and answers beside which long prompts arrive, each as a line of JSON.

    serve_and_load.py HAYATE --model DIR [--json FILE] [--device cuda] [--clients 64] [--requests 320] [--input-len 1024]
        [--output-len 256] [--prompt-len 8000] [--prompts 8] [-- SERVE FLAGS]

The tokenizer is made up (make_tokenizer.py). Standard library alone."""

import argparse
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def with_tokenizer(model, folder):
    """A folder with the model's config and a tokenizer of its vocabulary."""
    target = os.path.join(folder, os.path.basename(model))
    os.mkdir(target)
    shutil.copy(os.path.join(model, "config.json"), target)
    with open(os.path.join(model, "config.json")) as file:
        vocab_size = json.load(file)["vocab_size"]
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "make_tokenizer.py")
    subprocess.run([sys.executable, script, str(vocab_size), target], check=True)
    return target


def first_token_s(port, started, deadline_s=120, server=None):
    """From the start of the process `server` to the first streamed token, asking again until it answers."""
    body = json.dumps({"input_ids": list(range(16)), "stream": True, "sampling_params": {"max_new_tokens": 4}})
    while time.monotonic() - started < deadline_s:
        try:
            request = urllib.request.Request(f"http://127.0.0.1:{port}/generate", body.encode(), {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=60) as reply:
                reply.readline()
                return time.monotonic() - started
        except OSError:
            if server is not None and server.poll() is not None:
                sys.exit(f"serve_and_load: the server ended with {server.returncode}")
            time.sleep(0.005)
    sys.exit("serve_and_load: no answer")


def start_load(binary, port, *, requests, clients, prompt, answer, warmup=2, flags=()):
    command = [binary, "bench", "serve", "--port", str(port), "--dataset-name", "random", "--json"]
    command += ["--num-prompts", str(requests), "--max-concurrency", str(clients), "--random-range-ratio", "1.0"]
    command += ["--random-input-len", str(prompt), "--random-output-len", str(answer), "--warmup-requests", str(warmup)]
    command += flags
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finished(load):
    out, errors = load.communicate()
    if load.returncode != 0:
        sys.exit(f"serve_and_load: bench serve: {errors}")
    return json.loads(out.strip().splitlines()[-1])


def quantiles(values):
    ordered = sorted(values)
    return {f"p{p}": round(ordered[len(ordered) * p // 100], 3) for p in (50, 99)} if ordered else {}


def last_steps(port, count):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/trace?steps={count}", timeout=30) as reply:
        return [event for event in json.load(reply)["traceEvents"] if event["ph"] == "X"]


def busy_steps(port, clients, after=-1):
    """Of the server's last steps behind step `after`, at most 4096, between the first and the last that serves half of
    the clients: the engine thread's work, the share of time in which the device had nothing queued, and how long the
    device took with prompts and without."""
    events = [event for event in last_steps(port, 4096) if event["args"]["step"] > after]
    of = {name: [event for event in events if event["name"] == name] for name in ("plan", "commit", "forward")}
    forward = sorted(of["forward"], key=lambda event: event["ts"])
    busy = [i for i, event in enumerate(forward) if 2 * event["args"]["rows"] >= clients]
    forward = forward[busy[0] : busy[-1] + 1] if busy else []
    idle_us = [max(0.0, b["ts"] - a["ts"] - a["dur"]) for a, b in itertools.pairwise(forward)]
    span_us = forward[-1]["ts"] + forward[-1]["dur"] - forward[0]["ts"] if forward else 1.0
    host = {event["args"]["step"]: 0.0 for event in forward}
    for event in of["plan"] + of["commit"]:
        if event["args"]["step"] in host:
            host[event["args"]["step"]] += event["dur"]
    figures = {"steps": len(forward), "host_us": quantiles(host.values()), "idle_share": round(sum(idle_us) / span_us, 5)}
    for name, wanted in (("decode", (False, True)), ("mixed", (True, True)), ("prefill", (True, False))):
        ms = [e["dur"] / 1e3 for e in forward if (e["args"]["prefill_tokens"] > 0, e["args"]["decode_tokens"] > 0) == wanted]
        figures[f"{name}_ms"] = {"steps": len(ms), **quantiles(ms)}
    return figures


def main():
    argv, serve_flags = sys.argv[1:], []
    if "--" in argv:
        at = argv.index("--")
        argv, serve_flags = argv[:at], argv[at + 1 :]
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--model", required=True)
    parser.add_argument("--json")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--input-len", type=int, default=1024)
    parser.add_argument("--output-len", type=int, default=256)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--requests", type=int, default=320)
    parser.add_argument("--prompt-len", type=int, default=8000, help="of the prompts that arrive beside answers")
    parser.add_argument("--prompts", type=int, default=8, help="how many of them")
    args = parser.parse_args(argv)

    folder = tempfile.TemporaryDirectory()
    model = with_tokenizer(args.model, folder.name)
    port = free_port()
    command = [args.binary, "serve", "--port", str(port), "--device", args.device, "--load-format", "dummy"]
    command += ["--model-path", model, *serve_flags]
    started = time.monotonic()
    server = subprocess.Popen(command)
    lines = []

    def report(what, **figures):
        line = {"what": what, "model": os.path.basename(args.model), "flags": serve_flags, **figures}
        lines.append(line)
        print(json.dumps(line), flush=True)

    try:
        report("start", first_token_s=first_token_s(port, started, server=server))
        load = [args.binary, port]
        figures = finished(start_load(*load, requests=20, clients=1, prompt=args.input_len, answer=8))
        report("unloaded", clients=1, requests=20, output_len=8, result=figures)
        shape = {"requests": args.requests, "clients": args.clients, "answer": args.output_len}
        figures = finished(start_load(*load, prompt=args.input_len, **shape))
        report("clients", clients=args.clients, requests=args.requests, output_len=args.output_len, result=figures,
               steps=busy_steps(port, args.clients))
        # Answers under way while long prompts arrive one after the other.
        after = max(event["args"]["step"] for event in last_steps(port, 1))
        answers = start_load(*load, requests=args.clients, clients=args.clients, prompt=16, answer=2 * args.output_len, warmup=0)
        prompts = finished(start_load(*load, requests=args.prompts, clients=1, prompt=args.prompt_len, answer=1, warmup=0))
        report("arrivals", clients=args.clients, prompt_len=args.prompt_len, result=finished(answers), prompts=prompts,
               steps=busy_steps(port, args.clients, after))
    finally:
        server.send_signal(signal.SIGTERM)
        code = server.wait(timeout=60)
    if args.json:
        with open(args.json, "a") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
    sys.exit(code)


if __name__ == "__main__":
    main()
