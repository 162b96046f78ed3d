#!/usr/bin/env python3
"""What a streamed token costs around the model: Hayate and its peers, in interleaved rounds.

    tools/bench_front_end.py [--rounds 5] [--streams 64] [--tokens 1000] [--hayate build/hayate]
                             [--api-bench build/api_bench] [--out bench/results/front-end.json]

Servers run a model that costs next to nothing (tools/tiny_model.py) and stream chats over loopback.
A round starts each server anew, lets it stream once as a warm-up, and then counts the processor time of
the whole process, user and system, for `streams` × `tokens` events:

  hayate      one rank, one http thread; also the share of its http thread alone
  llama.cpp   llama-server, one thread for the model
  stack       the libraries under SGLang's front end (FastAPI, uvicorn with uvloop and httptools, a
              pydantic object an event) with no tokenizer, no detokenizer and no process behind them:
              what SGLang cannot go below

The client takes what has come every few milliseconds instead of waking for each event, as a client on
another machine would not wake this one's processors. With --api-bench it also runs the benches of the
front end alone (src/api/front_end_bench.cc), beside the floor of its writes.
"""

import argparse
import contextlib
import datetime
import json
import os
import platform
import shlex
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

import bench_cpu_peer
import peer_llama_cpp
import tiny_model

ROOT = Path(__file__).resolve().parent.parent
HOST = "127.0.0.1"
START_TIMEOUT_S = 60.0
SWEEP_PERIOD_S = 0.003
STACK_PACKAGES = ["fastapi==0.115.12", "uvicorn==0.34.2", "uvloop==0.21.0", "httptools==0.6.4", "pydantic==2.11.4"]
STACK_APP = """
import asyncio, json, sys, time, uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

class Delta(BaseModel):
    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list | None = None

class Choice(BaseModel):
    index: int
    delta: Delta
    logprobs: dict | None = None
    finish_reason: str | None = None
    matched_stop: int | str | None = None

class Chunk(BaseModel):
    id: str
    object: str = "chat.completion.chunk"
    created: int
    model: str
    choices: list[Choice]
    usage: dict | None = None

app = FastAPI()
queues = set()

@app.get("/health")
async def health():
    return {}

@app.post("/v1/chat/completions")
async def chat(request: Request):
    body = await request.json()
    async def events():
        queue = asyncio.Queue()
        queues.add(queue)
        try:
            for _ in range(body["max_tokens"]):
                text = await queue.get()
                choice = Choice(index=0, delta=Delta(content=text))
                chunk = Chunk(id="chatcmpl-0123456789abcdef", created=int(time.time()), model="tiny", choices=[choice])
                yield f"data: {chunk.model_dump_json()}\\n\\n"
            yield "data: [DONE]\\n\\n"
        finally:
            queues.discard(queue)
    return StreamingResponse(events(), media_type="text/event-stream")

async def engine():
    while True:
        for queue in list(queues):
            if queue.qsize() < 4:
                queue.put_nowait(" the")
        await asyncio.sleep(0)

@app.on_event("startup")
async def start():
    app.state.engine = asyncio.create_task(engine())

uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", loop="uvloop", http="httptools")
"""


def process_seconds(pid: int) -> float:
    """Processor time of a process, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def thread_seconds(pid: int, name: str) -> float:
    """The same of its threads whose names begin so, to the nanosecond."""
    seconds = 0.0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if (task / "comm").read_text(encoding="utf-8").startswith(name):
                seconds += int((task / "schedstat").read_text(encoding="ascii").split()[0]) * 1e-9
    return seconds


def stream_all(port: int, streams: int, tokens: int) -> int:
    """Streams so many chats at once to their end; gives the number of events."""
    body = {
        "model": "default",
        "messages": [{"role": "user", "content": "Say the and the."}],
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
    }
    raw = json.dumps(body).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {HOST}:{port}\r\nContent-Type: application/json\r\n"
    request = f"{head}Content-Length: {len(raw)}\r\nConnection: close\r\n\r\n".encode() + raw
    sockets = []
    for _ in range(streams):
        connection = socket.create_connection((HOST, port))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        connection.sendall(request)
        connection.setblocking(False)
        sockets.append(connection)
    events = 0
    tails = dict.fromkeys(sockets, b"")
    while tails:
        time.sleep(SWEEP_PERIOD_S)
        for connection in list(tails):
            try:
                while part := connection.recv(1 << 18):
                    text = tails[connection] + part
                    events += text.count(b"data: {")
                    cut = text.rfind(b"data: {")
                    tails[connection] = text[-6:] if cut < len(text) - 6 else text[cut + 7 :]
                connection.close()
                del tails[connection]
            except BlockingIOError:
                pass
    return events


@contextlib.contextmanager
def serving(command: list, port: int, log: Path):
    with log.open("wb") as out:
        process = subprocess.Popen([str(part) for part in command], stdout=out, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=2) as probe:
                probe.sendall(f"GET /health HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode())
                if b" 200 " in probe.recv(4096):
                    break
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"{shlex.join(map(str, command))}: not ready\n{log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.1)
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def measure(command: list, port: int, folder: Path, args: argparse.Namespace) -> dict:
    with serving(command, port, folder / "server.log") as process:
        stream_all(port, args.streams, 50)
        cpu, http = process_seconds(process.pid), thread_seconds(process.pid, "http")
        started = time.monotonic()
        events = stream_all(port, args.streams, args.tokens)
        wall = time.monotonic() - started
        cpu = process_seconds(process.pid) - cpu
        http = thread_seconds(process.pid, "http") - http
    wanted = args.streams * args.tokens
    if not wanted <= events <= wanted + 4 * args.streams:
        sys.exit(f"{shlex.join(map(str, command))}: {events} events instead of {wanted}")
    row = {"cpu_us_per_event": cpu / events * 1e6, "events_per_cpu_s": events / cpu, "events_per_s": events / wall}
    if http > 0:
        row["http_thread_us_per_event"] = http / events * 1e6
        row["http_thread_events_per_cpu_s"] = events / http
    return row


def stack_python(folder: Path) -> Path:
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *STACK_PACKAGES], check=True, stdout=sys.stderr)
    return python


def front_end_alone(bench: Path) -> dict:
    """Per benchmark: processor time of an event (or of a request), and the rate that a core would reach."""
    names = "BM_TokenToBytes|BM_TokenToSocket|BM_SendFloor|BM_PacedStreams|BM_Request"
    flags = [f"--benchmark_filter={names}", "--benchmark_min_time=0.2", "--benchmark_format=json"]
    load_average = os.getloadavg()[0]
    output = subprocess.run([bench, *flags], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    results = {}
    for row in json.loads(output.stdout)["benchmarks"]:
        facts = {}
        if rate := row.get("items_per_second"):
            facts = {"us_per_event": round(1e6 / rate, 2), "events_per_cpu_s": round(rate)}
        else:
            facts = {"us_per_request": round(row["cpu_time"] * 1e-3, 1)}
        if "delivered_per_s" in row:
            facts["delivered_per_s"] = round(row["delivered_per_s"])
        results[row["name"].replace("/manual_time", "").removeprefix("BM_")] = facts
    floor = [results[f"{name}/64"]["us_per_event"] for name in ("TokenToSocket", "SendFloor")]
    return {"load_average": load_average, "times_the_floor_of_64_streams": round(floor[0] / floor[1], 2), **results}


def one_round(number: int, commands: dict, folder: Path, args: argparse.Namespace) -> dict:
    names = list(commands)
    turned = names[number % len(names) :] + names[: number % len(names)]
    result = {"load_average": os.getloadavg()[0]}
    for name in turned:
        port = bench_cpu_peer.free_port()
        result[name] = measure(commands[name](port), port, folder, args)
    return result


def median(values: list[float], digits: int = 2) -> float:
    return round(statistics.median(values), digits)


def summarise(rounds: list[dict], names: list[str]) -> dict:
    summary = {}
    for name in names:
        rows = [r[name] for r in rounds]
        summary[name] = {key: median([row[key] for row in rows]) for key in rows[0]}
        if name != "hayate":
            pairs = [r[name]["cpu_us_per_event"] / r["hayate"]["cpu_us_per_event"] for r in rounds]
            summary[name]["hayate_is_times_cheaper"] = {"median": median(pairs), "min": round(min(pairs), 2)}
            pairs = [r[name]["cpu_us_per_event"] / r["hayate"]["http_thread_us_per_event"] for r in rounds]
            summary[name]["hayates_http_thread_is_times_cheaper"] = {
                "median": median(pairs),
                "min": round(min(pairs), 2),
            }
    return summary


def main() -> None:
    parser = argparse.ArgumentParser(description="What a streamed token costs around the model.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=1000)
    parser.add_argument("--hayate", type=Path, default=ROOT / "build" / "hayate")
    parser.add_argument("--api-bench", type=Path, help="also measure the front end alone")
    parser.add_argument("--only", nargs="+", choices=["hayate", "llama.cpp", "stack"])
    parser.add_argument("--out", type=Path, help="result file; its other parts stay as they are")
    args = parser.parse_args()

    folder = Path(tempfile.mkdtemp(prefix="hayate-front-end-"))
    model = folder / "tiny.gguf"
    tiny_model.write(model)
    context = args.streams * (args.tokens + 64)
    flags = ["--threads", "1", "--max-running-requests", args.streams, "--max-total-tokens", context]
    commands = {"hayate": lambda port: [args.hayate, "serve", "--model-path", model, "--port", port, *flags]}
    if args.only is None or "llama.cpp" in args.only:
        server = peer_llama_cpp.ensure() / "llama-server"
        peer_flags = ["-t", "1", "-np", args.streams, "-c", context, "--no-warmup"]
        commands["llama.cpp"] = lambda port: [server, "-m", model, "--port", port, *peer_flags]
    if args.only is None or "stack" in args.only:
        python = stack_python(peer_llama_cpp.cache_dir() / "peers" / "http-stack-venv")
        (folder / "stack.py").write_text(STACK_APP, encoding="utf-8")
        commands["stack"] = lambda port: [python, folder / "stack.py", port]

    rounds = []
    for number in range(args.rounds):
        rounds.append(one_round(number, commands, folder, args))
        print(json.dumps(rounds[-1]), file=sys.stderr)
    result = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["tools/bench_front_end.py", *sys.argv[1:]]),
        "cpu": bench_cpu_peer.cpu_description(),
        "kernel": platform.release(),
        "peers": {"llama.cpp": peer_llama_cpp.describe(), "stack": STACK_PACKAGES},
        "streams": args.streams,
        "tokens": args.tokens,
        "summary": summarise(rounds, list(commands)),
        "rounds": rounds,
    }
    if args.out:
        whole = json.loads(args.out.read_text(encoding="utf-8")) if args.out.exists() else {}
        whole["servers"] = result
        if args.api_bench:
            whole["alone"] = front_end_alone(args.api_bench)
        args.out.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result["summary"], indent=1))


if __name__ == "__main__":
    main()
