#!/usr/bin/env python3
"""Storms of a thousand bad connections on one server, while a few good clients go on.

    tools/storm.py [--connections 1000] [--rounds 6] [--hayate build/hayate] [--out FILE.json]

The model costs next to nothing (tools/tiny_model.py), so that all of the load is the front end's. A
round is four storms, one after another:

  readers      ask for long streams and read none of it for a while, then all
  writers      send their request a few bytes at a time and never finish it
  hang-ups     reset the connection at any point: in the head, after the body, inside the stream
  silence      connect and say nothing, then go

Beside them good clients stream greedy answers, before the others in the queue: what is looked at is the
front end, not a queue of a thousand. It fails (exit 1, reasons listed) if a good client gets
anything but the answer of a quiet server, or waits for one longer than --patience; if queue, running set
and page pool are not idle after a round, or descriptors are left open; if the resident size of later
rounds exceeds that of the second by more than --growth bytes; or if the server does not stop with exit 0.
"""

import argparse
import asyncio
import contextlib
import datetime
import json
import os
import random
import shlex
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import bench_cpu_peer
import soak
import stream_load
import tiny_model

ROOT = Path(__file__).resolve().parent.parent
HOST = "127.0.0.1"
GOOD_CLIENTS = 4
GOOD_BODY = {"model": "default", "max_tokens": 64, "temperature": 0, "ignore_eos": True, "stream": True}
LONG_TOKENS = 400
STORM_S = 6.0


@dataclass
class Storm:
    port: int
    connections: int
    rng: random.Random
    patience: float
    reference: dict[int, str] = field(default_factory=dict)
    times: dict[str, list[float]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    phase: str = "quiet"

    def fail(self, message: str) -> None:
        self.failures.append(f"{self.phase}: {message}")


def request_bytes(tokens: int) -> bytes:
    body = json.dumps({**GOOD_BODY, "prompt": "the and the", "max_tokens": tokens, "logprobs": 5}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def connect(storm: Storm, buffer: int | None = None) -> socket.socket:
    """A plain socket: asyncio's streams would read by themselves."""
    made = socket.socket()
    if buffer:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    made.setblocking(False)
    await asyncio.get_running_loop().sock_connect(made, (HOST, storm.port))
    return made


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.close()


async def slow_reader(storm: Storm) -> None:
    loop = asyncio.get_running_loop()
    connection = await connect(storm, 4096)
    with contextlib.closing(connection):
        await loop.sock_sendall(connection, request_bytes(LONG_TOKENS))
        await asyncio.sleep(STORM_S * storm.rng.random())
        with contextlib.suppress(OSError):
            text = b""
            while not text.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"):
                part = await loop.sock_recv(connection, 1 << 16)
                if not part:  # cut as too slow, or refused: both are fair
                    break
                text = text[-64:] + part


async def slow_writer(storm: Storm) -> None:
    loop = asyncio.get_running_loop()
    connection = await connect(storm)
    with contextlib.closing(connection), contextlib.suppress(OSError):
        deadline = time.monotonic() + STORM_S
        for byte in request_bytes(8):
            await loop.sock_sendall(connection, bytes([byte]))
            await asyncio.sleep(storm.rng.random())
            if time.monotonic() > deadline:
                return


async def hang_up(storm: Storm) -> None:
    loop = asyncio.get_running_loop()
    deadline = time.monotonic() + STORM_S
    whole = request_bytes(LONG_TOKENS)
    while time.monotonic() < deadline:
        connection = await connect(storm)
        with contextlib.suppress(OSError):
            place = storm.rng.random()
            sent = whole if place > 0.3 else whole[: storm.rng.randrange(len(whole))]
            await loop.sock_sendall(connection, sent)
            if place > 0.6:
                await loop.sock_recv(connection, 4096)
            await asyncio.sleep(0.2 * storm.rng.random())
        reset(connection)
        await asyncio.sleep(storm.rng.random())


async def silence(storm: Storm) -> None:
    connection = await connect(storm)
    await asyncio.sleep(STORM_S * storm.rng.random())
    connection.close()


STORMS = {"readers": slow_reader, "writers": slow_writer, "hang-ups": hang_up, "silence": silence}


async def good_client(storm: Storm, number: int, stop: asyncio.Event) -> None:
    body = {**GOOD_BODY, "prompt": stream_load.prompt(number, 8), "priority": 100}
    while not stop.is_set():
        started = time.monotonic()
        try:
            answer = await asyncio.wait_for(stream_load.complete(HOST, storm.port, body), storm.patience)
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            storm.fail(f"good client {number}: {error!r} after {time.monotonic() - started:.1f} s")
            continue
        if answer.status == 429:  # a full queue says so at once
            storm.times.setdefault("refused", []).append(time.monotonic() - started)
            await asyncio.sleep(0.05)
            continue
        expected = storm.reference.setdefault(number, answer.text)
        if answer.status != 200 or not answer.done or answer.text != expected:
            storm.fail(f"good client {number}: status {answer.status} {answer.error} {answer.text[:80]!r}")
        storm.times.setdefault(storm.phase, []).append(time.monotonic() - started)
        await asyncio.sleep(0.02)


async def run_storm(storm: Storm, name: str) -> None:
    storm.phase = name
    started = time.monotonic()
    outcomes = await asyncio.gather(*(STORMS[name](storm) for _ in range(storm.connections)), return_exceptions=True)
    unexpected = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    if unexpected:
        storm.fail(f"{len(unexpected)} connections: {unexpected[0]!r}")
    await asyncio.sleep(max(0.0, STORM_S - (time.monotonic() - started)))


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


async def settle(storm: Storm, pid: int, idle: dict, open_files: int) -> None:
    storm.phase = "after the storms"
    deadline = time.monotonic() + 30
    while True:
        now = await soak.metrics(storm.port)
        busy = {name: now[name] for name in soak.IDLE_GAUGES if now[name] != idle[name]}
        if not busy and descriptors(pid) <= open_files + 1:  # the reading itself holds one
            return
        if time.monotonic() > deadline:
            storm.fail(f"not idle: {busy}, {descriptors(pid)} descriptors instead of {open_files}")
            return
        await asyncio.sleep(0.2)


async def run(storm: Storm, process: subprocess.Popen, rounds: int) -> list[dict]:
    pid = process.pid
    idle, open_files = await soak.metrics(storm.port), descriptors(pid)
    rows = []
    for number in range(rounds + 1):  # the first is quiet
        stop = asyncio.Event()
        storm.phase = "quiet"
        good = [asyncio.create_task(good_client(storm, client, stop)) for client in range(GOOD_CLIENTS)]
        if number == 0:
            await asyncio.sleep(STORM_S)
        else:
            for name in STORMS:
                await run_storm(storm, name)
        stop.set()
        await asyncio.gather(*good)
        await settle(storm, pid, idle, open_files)
        rows.append({"round": number, "rss_bytes": soak.rss_bytes(pid), "descriptors": descriptors(pid)})
        print(json.dumps(rows[-1]), file=sys.stderr)
        if process.poll() is not None:
            storm.fail(f"the server exited with {process.returncode}")
            break
    return rows


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main() -> int:
    parser = argparse.ArgumentParser(description="Storms of bad connections on one server.")
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--patience", type=float, default=10.0, help="seconds that a good client waits")
    parser.add_argument("--growth", type=int, default=16 << 20, help="bytes that the resident size may grow")
    parser.add_argument("--hayate", type=Path, default=ROOT / "build" / "hayate")
    parser.add_argument("--out", type=Path, help="result file")
    args = parser.parse_args()

    folder = Path(tempfile.mkdtemp(prefix="hayate-storm-"))
    model, log = folder / "tiny.gguf", folder / "server.log"
    tiny_model.write(model)
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = probe.getsockname()[1]
    flags = ["--max-running-requests", "64", "--max-total-tokens", "131072", "--max-queued-requests", "2048"]
    flags += ["--schedule-policy", "priority"]
    command = [args.hayate, "serve", "--model-path", model, "--port", str(port), "--threads", "1", "--enable-metrics"]
    with log.open("wb") as out:
        process = subprocess.Popen([*command, *flags], stdout=out, stderr=subprocess.STDOUT)
    storm = Storm(port, args.connections, random.Random(args.seed), args.patience)

    async def everything() -> list[dict]:
        await soak.wait_until_ready(port, process, log)
        return await run(storm, process, args.rounds)

    try:
        rows = asyncio.run(everything())
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            code = "none: it had to be killed"
    if code != 0:
        storm.fail(f"exit status of the server: {code}")
    later = [row["rss_bytes"] for row in rows[2:]]
    if len(later) > 1 and max(later[1:]) > later[0] + args.growth:
        storm.fail(f"resident size grew from {later[0]} to {max(later[1:])} bytes")
    times = {
        phase: {
            "answers": len(values),
            "ms_p50": round(statistics.median(values) * 1e3, 1),
            "ms_p99": round(percentile(values, 0.99) * 1e3, 1),
        }
        for phase, values in storm.times.items()
    }
    result = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["tools/storm.py", *sys.argv[1:]]),
        "cpu": bench_cpu_peer.cpu_description(),
        "load_average": os.getloadavg()[0],
        "connections": args.connections,
        "good_clients": times,
        "rounds": rows,
        "failures": storm.failures[:20],
    }
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))
    return 1 if storm.failures else 0


if __name__ == "__main__":
    sys.exit(main())
