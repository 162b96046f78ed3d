#!/usr/bin/env python3
"""Hayate and llama.cpp on this machine's CPU, in paired, interleaved rounds.

    tools/bench_cpu_peer.py [--rounds 5] [--out bench/results/NAME.json] [--hayate build/hayate]

Each round times both programs on the same model file, one right after the other, in alternating
order: prefill of 512 tokens and single-stream decode of 128 tokens at 1 and 2 threads, and the
output rate of concurrent streams through HTTP. Clocks and neighbours move both by 20 %, so what
counts is the median of the paired ratios. The peer is built once from its PyPI source archive, in
the cache, for this machine (about 20 minutes on two cores).

At 1 thread each round also reads memory as fast as one core can, and says what share of that rate
decode takes weights and cache from memory at (`read_share_t1`).

Decode is measured with 512 tokens of context; the peer also without any (`decode_d0`), its own
customary figure. --wrap prefixes every timed program, e.g. --wrap 'taskset -c 0,1'.
"""

import argparse
import asyncio
import datetime
import json
import os
import platform
import shlex
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import peer_llama_cpp
import stream_load

ROOT = Path(__file__).resolve().parent.parent
PREFILL = 512
DECODE = 128
STREAM_TOKENS = 128
STREAM_REQUESTS = 2
START_TIMEOUT_S = 60


@dataclass
class Setting:
    hayate: Path
    peer: Path  # folder of llama-bench and llama-server
    model: Path
    wrap: list[str]
    repeats: int


def run_json(command: list) -> dict | list:
    """Runs a program that prints one JSON document on stdout."""
    text = [str(part) for part in command]
    result = subprocess.run(text, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"{shlex.join(text)}: exit status {result.returncode}\n{result.stderr[-2000:]}")
    return json.loads(result.stdout)


def hayate_step(s: Setting, threads: int, what: list[str]) -> dict:
    command = [*s.wrap, s.hayate, "bench", "step", "--model-path", s.model, "--threads", threads, *what, "--json"]
    return run_json(command)


def read_bandwidth(s: Setting) -> float:
    """GB/s that one core reads from memory."""
    command = [*s.wrap, s.hayate, "bench", "ops", "--filter", "rms_norm", "--rounds", "1", "--json"]
    return run_json(command)["read_gb_per_s"]


def hayate_steps(s: Setting, threads: int) -> dict[str, float]:
    decode = hayate_step(s, threads, ["--batch", "1", "--context", str(PREFILL), "--steps", str(DECODE)])
    result = {
        f"prefill_t{threads}": hayate_step(s, threads, ["--prefill", str(PREFILL)])["tokens_per_s"],
        f"decode_t{threads}": decode["tokens_per_s"],
    }
    if threads == 1:
        token_bytes = decode["weight_bytes"] + decode["cache_bytes_per_token"] * (PREFILL + DECODE / 2)
        result["read_gb_per_s"] = read_bandwidth(s)
        result["read_share_t1"] = decode["tokens_per_s"] * token_bytes * 1e-9 / result["read_gb_per_s"]
    return result


def peer_bench(s: Setting, threads: int, prompt: int, steps: int, depth: int) -> float:
    shape = ["-p", prompt, "-n", steps, "-d", depth, "-r", s.repeats]
    command = [*s.wrap, s.peer / "llama-bench", "-m", s.model, "-t", threads, *shape, "-o", "json"]
    (row,) = run_json(command)
    return row["avg_ts"]


def peer_steps(s: Setting, threads: int) -> dict[str, float]:
    return {
        f"prefill_t{threads}": peer_bench(s, threads, PREFILL, 0, 0),
        f"decode_t{threads}": peer_bench(s, threads, 0, DECODE, PREFILL),
        f"decode_d0_t{threads}": peer_bench(s, threads, 0, DECODE, 0),
    }


def serve_and_load(s: Setting, server: list, port: int, streams: int, seed: int) -> dict[str, float]:
    with open(os.devnull, "wb") as null:
        process = subprocess.Popen([str(part) for part in server], stdout=null, stderr=null)
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2).close()
                break
            except (urllib.error.URLError, ConnectionError):
                if process.poll() is not None or time.monotonic() > deadline:
                    sys.exit(f"{shlex.join(str(part) for part in server)}: did not become ready")
                time.sleep(0.05)
        asyncio.run(stream_load.closed_loop("127.0.0.1", port, 2, 1, 16, seed + 1))  # warm-up
        load = stream_load.closed_loop("127.0.0.1", port, streams, STREAM_REQUESTS, STREAM_TOKENS, seed)
        return {f"streams_{streams}": asyncio.run(load)["output_tokens_per_s"]}
    finally:
        process.terminate()
        process.wait(30)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def hayate_streams(s: Setting, threads: int, streams: int, seed: int) -> dict[str, float]:
    port = free_port()
    server = [s.hayate, "serve", "--model-path", s.model, "--port", port, "--threads", threads]
    return serve_and_load(s, server, port, streams, seed)


def peer_streams(s: Setting, threads: int, streams: int, seed: int) -> dict[str, float]:
    port = free_port()
    context = streams * 1024
    server = [s.peer / "llama-server", "-m", s.model, "-t", threads, "-np", streams, "-c", context, "--port", port]
    return serve_and_load(s, server, port, streams, seed)


def cpu_description() -> dict:
    info = Path("/proc/cpuinfo").read_text(encoding="ascii")
    fields = dict(line.split(":", 1) for line in info.split("\n\n")[0].splitlines() if ":" in line)
    fields = {key.strip(): value.strip() for key, value in fields.items()}
    interesting = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx_vnni", "amx_int8", "amx_bf16")
    flags = [flag for flag in interesting if flag in fields.get("flags", "").split()]
    names = {"model name": "name", "cpu family": "family", "model": "model"}
    return {names[key]: fields.get(key) for key in names} | {"cores": os.cpu_count(), "flags": flags}


def summarise(rounds: list[dict]) -> dict:
    """Per measure: medians, best of each side, and the median of the paired ratios."""
    summary = {}
    sides = ("hayate", "peer")
    for measure in rounds[0]["peer"]:
        values = {side: [r[side][measure] for r in rounds if measure in r.get(side, {})] for side in sides}
        row = {f"{side}_median": round(statistics.median(v), 1) for side, v in values.items() if v}
        row |= {f"{side}_best": round(max(v), 1) for side, v in values.items() if v}
        ours = measure.replace("_d0", "")
        pairs = [r["hayate"][ours] / r["peer"][measure] for r in rounds if ours in r.get("hayate", {})]
        if pairs:
            row["ratio_median"] = round(statistics.median(pairs), 3)
            row["ratio_min"] = round(min(pairs), 3)
        summary[measure] = row
    for measure in ("read_gb_per_s", "read_share_t1"):
        values = [r["hayate"][measure] for r in rounds if measure in r.get("hayate", {})]
        if values:
            summary[measure] = {"median": round(statistics.median(values), 3), "min": round(min(values), 3)}
    return summary


def one_round(s: Setting, number: int, args: argparse.Namespace) -> dict:
    result = {"load_average": os.getloadavg()[0], "hayate": {}, "peer": {}}
    order = ["hayate", "peer"] if number % 2 == 0 else ["peer", "hayate"]
    if args.peer_only:
        order = ["peer"]
    steps = {"hayate": hayate_steps, "peer": peer_steps}
    streams = {"hayate": hayate_streams, "peer": peer_streams}
    for threads in args.threads:
        for side in order:
            result[side] |= steps[side](s, threads)
    if args.streams:
        for side in order:
            result[side] |= streams[side](s, max(args.threads), args.streams, number)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description="Paired CPU bench against llama.cpp.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=3, help="runs inside one llama-bench call")
    parser.add_argument("--threads", type=int, nargs="+", default=[2, 1])
    parser.add_argument("--streams", type=int, default=8, help="concurrent HTTP streams; 0 leaves them out")
    parser.add_argument("--hayate", type=Path, default=ROOT / "build" / "hayate")
    parser.add_argument("--model", type=Path, help="default: the default model")
    parser.add_argument("--peer-dir", type=Path, help="where the peer is or will be built")
    parser.add_argument("--peer-only", action="store_true")
    parser.add_argument("--wrap", default="", help="command put before every timed program")
    parser.add_argument("--out", type=Path, help="result file; default: print only")
    args = parser.parse_args()

    model = args.model
    if model is None:
        script = ROOT / "tools" / "fetch_model.sh"
        model = Path(subprocess.run([script], check=True, stdout=subprocess.PIPE, text=True).stdout.strip())
    peer = peer_llama_cpp.ensure(args.peer_dir)
    setting = Setting(args.hayate, peer, model, shlex.split(args.wrap), args.repeats)
    rounds = []
    for number in range(args.rounds):
        rounds.append(one_round(setting, number, args))
        print(json.dumps(rounds[-1]), file=sys.stderr)

    version = "none"
    if not args.peer_only:
        output = subprocess.run([args.hayate, "version"], stdout=subprocess.PIPE, text=True, check=True)
        version = output.stdout.strip()
    result = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["tools/bench_cpu_peer.py", *sys.argv[1:]]),
        "cpu": cpu_description(),
        "kernel": platform.release(),
        "hayate": version,
        "peer": peer_llama_cpp.describe(),
        "model": model.name,
        "summary": summarise(rounds),
        "rounds": rounds,
    }
    text = json.dumps(result, indent=1) + "\n"
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(text, encoding="utf-8")
    print(json.dumps(result["summary"], indent=1))


if __name__ == "__main__":
    main()
