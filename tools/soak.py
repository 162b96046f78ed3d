#!/usr/bin/env python3
"""Randomised soak of one server: many clients that ask, stream, hang up, abort and send nonsense.

    tools/soak.py [--clients 64] [--minutes 30] [--seed 1] [--hayate build/hayate] [-- SERVER FLAGS]
    tools/soak.py --reference-flags='--max-total-tokens 6144' -- --speculative-algorithm NGRAM …
    tools/soak.py --model tests/golden/deepseek_v4/ratio_32 --prompt-words 30 --answer-tokens 250

First every request of the mix whose answer is determined (greedy or with a seed; free, with penalties,
of several choices, to a grammar) is answered alone, by the server itself or by one with the reference
flags; those texts and log-probabilities are the references. Lengths are for contexts of 8,192 tokens;
models of shorter ones want shorter prompts and answers. Then the clients run until the time is over.

It fails (exit 1, reasons listed) if the server dies or does not stop with exit 0, such an answer
differs from its solo run, an invalid request gets anything but a 4xx, a valid one anything but 200 or
429, the queue, the running set or any pool of pages do not return to their idle values (after a flush
nothing is cached), or (in runs of five minutes and more) the resident size still grows after the first quarter. By default the KV pool is
small, so that eviction and retraction happen, and so that all of it was touched early.
"""

import argparse
import asyncio
import collections
import contextlib
import json
import random
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import soak_requests
import stream_load
from soak_requests import Sizes
from stream_load import Answer, body_parts, complete, read_head, send

ROOT = Path(__file__).resolve().parent.parent
HOST = "127.0.0.1"
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
REQUEST_TIMEOUT_S = 600.0
SAMPLE_PERIOD_S = 5.0
# What the allocator may keep between a quarter of the run and its end.
MAX_RSS_GROWTH_BYTES = 64 << 20
MIN_MEMORY_RUN_S = 300.0
SMALL_POOL = ["--max-total-tokens", "6144"]
# Gauges that must return to what they were before the first request.
IDLE_GAUGES = (
    "sglang:num_running_reqs",
    "sglang:num_queue_reqs",
    "sglang:num_used_tokens",
    "sglang:token_usage",
    "hayate:kv_pool_used_pages",  # of all cache groups: windows, compressed entries, states, drafters' too
    "hayate:kv_pool_cached_pages",  # after a flush
)
SHOWN_COUNTERS = ("cached_tokens_total", "evicted_tokens_total", "retracted_requests_total", "aborted_requests_total")
MAX_REPORTED_FAILURES = 20


@dataclass
class Soak:
    port: int
    rng: random.Random
    deadline: float
    sizes: Sizes
    bodies: list[tuple[str, dict]]  # requests whose answers are determined: path and body
    references: list[Answer] = field(default_factory=list)
    counts: collections.Counter = field(default_factory=collections.Counter)
    failures: list[str] = field(default_factory=list)
    tokens: int = 0

    def fail(self, message: str) -> None:
        self.counts["failures"] += 1
        if len(self.failures) < MAX_REPORTED_FAILURES:
            self.failures.append(message)


async def request(method: str, port: int, path: str, body: bytes = b"") -> tuple[int, bytes]:
    reader, writer = await send(HOST, port, path, body, method)
    try:
        status, headers = await read_head(reader)
        return status, b"".join([part async for part in body_parts(reader, headers)])
    finally:
        writer.close()


async def metrics(port: int) -> dict[str, float]:
    """Gauges by name, label sets added up."""
    _, text = await request("GET", port, "/metrics")
    sums: dict[str, float] = collections.defaultdict(float)
    for line in text.decode().splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            sums[name.split("{")[0]] += float(value)
    return sums


def expect_served(soak: Soak, what: str, answer: Answer) -> bool:
    """True if the request was answered; a full queue (429) is fair, anything else is a failure."""
    if answer.status == 429:
        soak.counts["refused"] += 1
        return False
    if answer.status != 200 or answer.error:
        soak.fail(f"{what}: status {answer.status}, {answer.error}")
        return False
    soak.tokens += answer.tokens
    return True


async def ask_determined(soak: Soak) -> None:
    index = soak.rng.randrange(len(soak.bodies))
    path, body = soak.bodies[index]
    if soak.rng.random() < 0.6:
        body = {**body, "stream": True, "stream_options": {"include_usage": True}}
    answer = await complete(HOST, soak.port, body, path=path)
    if expect_served(soak, f"determined {index}", answer):
        if body.get("stream") and not answer.done:
            soak.fail(f"determined {index}: the stream ended without [DONE]")
        reference = soak.references[index]
        for what in ("texts", "logprobs", "finish_reasons"):
            said, expected = getattr(answer, what), getattr(reference, what)
            if said != expected:
                soak.fail(f"determined {index}, {what}: {said!r} instead of {expected!r}")
                return
        soak.counts["determined answers that were the solo ones"] += 1


async def ask_sampled(soak: Soak) -> None:
    expect_served(soak, "sampled", await complete(HOST, soak.port, soak_requests.sampled(soak.rng, soak.sizes)))


async def hang_up_while_streaming(soak: Soak) -> None:
    path, body = soak.rng.choice(soak.bodies)
    body = {**body, "stream": True, "max_tokens": soak.sizes.tokens(200), "ignore_eos": True}
    chunks = soak.rng.randrange(1, 30)
    expect_served(soak, "hang-up", await complete(HOST, soak.port, body, path=path, stop_after_chunks=chunks))


async def hang_up_before_answer(soak: Soak) -> None:
    path, body = soak.rng.choice(soak.bodies)
    _, writer = await send(HOST, soak.port, path, json.dumps({**body, "max_tokens": soak.sizes.tokens(200)}).encode())
    await asyncio.sleep(soak.rng.random() * 0.5)
    writer.transport.abort()


async def abort_by_id(soak: Soak) -> None:
    rid = f"soak-{soak.rng.randrange(1 << 60)}"
    body = {
        "rid": rid,
        "text": stream_load.prompt(soak.rng.randrange(1 << 30), soak.sizes.words(50)),
        "sampling_params": {"max_new_tokens": soak.sizes.answer_tokens, "temperature": 0, "ignore_eos": True},
    }
    running = asyncio.create_task(request("POST", soak.port, "/generate", json.dumps(body).encode()))
    await asyncio.sleep(soak.rng.random() * 0.5)
    status, _ = await request("POST", soak.port, "/abort_request", json.dumps({"rid": rid}).encode())
    if status != 200:
        soak.fail(f"/abort_request: status {status}")
    status, _ = await running
    if status >= 500:
        soak.fail(f"an aborted /generate: status {status}")


async def ask_nonsense(soak: Soak) -> None:
    body = soak.rng.choice(soak_requests.INVALID_BODIES)
    path = soak.rng.choice(["/v1/completions", "/v1/chat/completions"])
    if soak.rng.random() < 0.1:
        body, path = b"{}", "/v1/nowhere"
    status, text = await request("POST", soak.port, path, body)
    if not 400 <= status < 500:
        soak.fail(f"{path} {body!r}: status {status} {text[:200]!r}")


async def send_garbage(soak: Soak) -> None:
    _, writer = await asyncio.open_connection(HOST, soak.port)
    writer.write(soak.rng.choice(soak_requests.GARBAGE))
    await asyncio.sleep(soak.rng.random() * 0.2)
    writer.transport.abort()


ACTIONS = [
    (ask_determined, 60),
    (ask_sampled, 12),
    (hang_up_while_streaming, 10),
    (hang_up_before_answer, 5),
    (abort_by_id, 5),
    (ask_nonsense, 6),
    (send_garbage, 2),
]


async def client(soak: Soak) -> None:
    actions, weights = zip(*ACTIONS, strict=True)
    while time.monotonic() < soak.deadline:
        (action,) = soak.rng.choices(actions, weights)
        soak.counts[action.__name__] += 1
        try:
            await asyncio.wait_for(action(soak), REQUEST_TIMEOUT_S)
        except TimeoutError:
            soak.fail(f"{action.__name__}: no end within {REQUEST_TIMEOUT_S} s")
        except (OSError, asyncio.IncompleteReadError, ValueError, IndexError) as error:
            # A peer may see its garbage cut off; everybody else is owed an answer.
            if action is not send_garbage:
                soak.fail(f"{action.__name__}: {error!r}")
        if soak.rng.random() < 0.2:
            await asyncio.sleep(soak.rng.random())


def rss_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


async def watch(soak: Soak, process: subprocess.Popen, samples: list[dict]) -> None:
    started = time.monotonic()
    while True:
        if process.poll() is not None:
            soak.fail(f"the server exited with {process.returncode}")
            soak.deadline = 0.0
            return
        gauges = await metrics(soak.port)
        sample = {name.split(":")[1]: gauges[name] for name in IDLE_GAUGES if name in gauges}
        samples.append({"s": round(time.monotonic() - started), "rss_bytes": rss_bytes(process.pid), **sample})
        print(json.dumps(samples[-1]), file=sys.stderr)
        await asyncio.sleep(SAMPLE_PERIOD_S)


async def wait_until_idle(soak: Soak, idle: dict[str, float]) -> None:
    deadline = time.monotonic() + 60.0
    while True:
        await request("POST", soak.port, "/flush_cache")
        now = await metrics(soak.port)
        differing = {name: now[name] for name in IDLE_GAUGES if name in idle and now[name] != idle[name]}
        if not differing:
            return
        if time.monotonic() > deadline:
            before = {name: idle[name] for name in differing}
            soak.fail(f"not back to idle: {differing}, before the run {before}")
            return
        await asyncio.sleep(0.5)


async def answer_alone(soak: Soak, port: int) -> None:
    for path, body in soak.bodies:
        answer = await complete(HOST, port, body, path=path)
        if answer.status != 200:
            sys.exit(f"soak: a solo run failed with status {answer.status}: {answer.error}")
        soak.references.append(answer)


async def run(soak: Soak, process: subprocess.Popen, clients: int) -> list[dict]:
    idle = await metrics(soak.port)
    missing = [name for name in IDLE_GAUGES if name not in idle]
    if missing:
        soak.fail(f"/metrics has no {', '.join(missing)}")
    if not soak.references:
        await answer_alone(soak, soak.port)
    length = soak.deadline
    soak.deadline += time.monotonic()
    samples: list[dict] = []
    watcher = asyncio.create_task(watch(soak, process, samples))
    await asyncio.gather(*(client(soak) for _ in range(clients)))
    watcher.cancel()
    if process.poll() is None:
        await wait_until_idle(soak, idle)
        check_memory(soak, samples, length, rss_bytes(process.pid))
    return samples


async def show_counters(soak: Soak) -> None:
    shown = {
        name.split(":")[1]: value
        for name, value in (await metrics(soak.port)).items()
        if name.endswith(SHOWN_COUNTERS) or (":spec_" in name and "_bucket" not in name)
    }
    print(json.dumps(shown))


def check_memory(soak: Soak, samples: list[dict], length: float, end: int) -> None:
    if length < MIN_MEMORY_RUN_S:
        return
    early = [sample["rss_bytes"] for sample in samples if sample["s"] <= length / 4 + SAMPLE_PERIOD_S]
    if early and end > max(early) + MAX_RSS_GROWTH_BYTES:
        soak.fail(f"resident size grew from {max(early)} to {end} bytes after the first quarter")


async def wait_until_ready(port: int, process: subprocess.Popen, log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            status, _ = await request("GET", port, "/health")
            if status == 200:
                return
        except (OSError, asyncio.IncompleteReadError):
            pass
        if process.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"soak: the server did not become ready\n{log.read_text(errors='replace')[-3000:]}")
        await asyncio.sleep(0.05)


@contextlib.contextmanager
def serve(args: argparse.Namespace, flags: list[str]) -> Iterator[tuple[subprocess.Popen, int, Path]]:
    """A server with its port and its log, which still runs at the end; whoever wants its exit status waits for it."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = probe.getsockname()[1]
    log = Path(tempfile.mkstemp(prefix="hayate-soak-", suffix=".log")[1])
    command = [args.hayate, "serve", "--host", HOST, "--port", str(port), "--enable-metrics", *flags]
    if args.model:
        command += ["--model-path", args.model]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
    try:
        yield process, port, log
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def ask_reference(args: argparse.Namespace, soak: Soak) -> None:
    async def everything(process: subprocess.Popen, port: int, log: Path) -> None:
        await wait_until_ready(port, process, log)
        await answer_alone(soak, port)

    with serve(args, shlex.split(args.reference_flags)) as server:
        asyncio.run(everything(*server))


def main() -> int:
    parser = argparse.ArgumentParser(description="Randomised soak of one server.")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hayate", type=Path, default=ROOT / "build" / "hayate")
    parser.add_argument("--model", help="default: the default model")
    parser.add_argument("--prompt-words", type=int, default=Sizes.prompt_words, help="of the longest prompt")
    parser.add_argument("--answer-tokens", type=int, default=Sizes.answer_tokens, help="of the longest answer")
    parser.add_argument("--reference-flags", help="of a server that gives the references; default: the server itself")
    parser.add_argument("flags", nargs="*", help=f"flags of hayate serve, after --; default: {' '.join(SMALL_POOL)}")
    args = parser.parse_args()

    sizes = Sizes(args.prompt_words, args.answer_tokens)
    bodies = soak_requests.determined(args.seed, sizes)
    soak = Soak(0, random.Random(args.seed), 60.0 * args.minutes, sizes, bodies)
    if args.reference_flags is not None:
        ask_reference(args, soak)

    async def everything(process: subprocess.Popen, log: Path) -> list[dict]:
        await wait_until_ready(soak.port, process, log)
        samples = await run(soak, process, args.clients)
        if process.poll() is None:
            await show_counters(soak)
        return samples

    with serve(args, args.flags or SMALL_POOL) as (process, port, log):
        soak.port = port
        samples = asyncio.run(everything(process, log))
    if process.returncode != 0:
        soak.fail(f"exit status of the server: {process.returncode}")
    peak = max((sample["rss_bytes"] for sample in samples), default=0)
    print(json.dumps({"seed": args.seed, "clients": args.clients, "minutes": args.minutes, "log": str(log)}))
    print(json.dumps({"counts": soak.counts, "tokens": soak.tokens, "rss_peak_bytes": peak}))
    for failure in soak.failures:
        print(f"soak: {failure}")
    print(f"soak: {soak.counts['failures']} failures")
    return 1 if soak.failures else 0


if __name__ == "__main__":
    sys.exit(main())
