#!/usr/bin/env python3
"""Measures how well cache_aware routing finds the workers' caches: `hayate gateway` beside
sglang-router and an oracle, on one multi-turn trace with skewed prefixes.

    tools/bench_cache_aware.py --binary build/hayate [--requests 6000] [--seed 1]
        [--sglang-router VENV]     a venv with that PyPI package

tools/bench_gateway.py keeps its figures in bench/results/gateway.json.

Eight mock workers live in this process. Each keeps a prefix cache of its own, an LRU of chained
hashes of 64-byte blocks, computes prompts one after the other and outputs beside each other. A conversation begins with one of 20 system prompts, drawn by Zipf's law, and sends its next turn
when it has the answer to the last. The oracle sees the requests in the order in which they reached
the workers behind hayate; it knows every cache, and gives each request to the longest match among
workers that are no more than a fifth ahead of the least used.

hit_rate: cached blocks of all blocks. imbalance: requests of the busiest worker over the mean.
sglang-router runs by its defaults, which let the imbalance grow, and by thresholds of its own that are
stricter: of those runs the best hit rate at an imbalance of at most 1.2 is "sglang-router, balanced".
"""

import argparse
import asyncio
import collections
import hashlib
import json
import random
import socket
import time
import urllib.request

NUM_WORKERS = 8
BLOCK = 64
CACHE_BLOCKS = 6000
CONVERSATIONS_AT_ONCE = 96
OUTPUT_S = 0.15
PROMPT_BLOCKS_PER_S = 2500
MAX_IMBALANCE = 1.2
# --balance-abs-threshold, --balance-rel-threshold and --cache-threshold; 64, 1.5 and 0.3 by default.
STRICTER = ((64, 1.5, 0.8), (16, 1.5, 0.8), (12, 1.5, 0.8), (10, 1.5, 0.8), (8, 1.5, 0.8), (8, 1.5, 0.3), (6, 1.5, 0.3))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def blocks_of(text: bytes) -> list[bytes]:
    blocks, digest = [], b""
    for at in range(0, len(text) - BLOCK + 1, BLOCK):
        digest = hashlib.blake2b(digest + text[at : at + BLOCK], digest_size=8).digest()
        blocks.append(digest)
    return blocks


class PrefixCache:
    def __init__(self) -> None:
        self.lru: collections.OrderedDict[bytes, None] = collections.OrderedDict()

    def match(self, blocks: list[bytes]) -> int:
        return next((index for index, block in enumerate(blocks) if block not in self.lru), len(blocks))

    def insert(self, blocks: list[bytes]) -> None:
        # The end of a prompt is evicted before its beginning.
        for block in reversed(blocks):
            self.lru[block] = None
            self.lru.move_to_end(block)
        while len(self.lru) > CACHE_BLOCKS:
            self.lru.popitem(last=False)


class Trace:
    """Conversations as lists of user turns and answers, the same for every run."""

    def __init__(self, requests: int, seed: int):
        rng = random.Random(seed)
        systems = [self.words(rng, 2048 + rng.randrange(4096)) for _ in range(20)]
        odds = [1 / (rank + 1) for rank in range(20)]
        self.conversations = []
        total = 0
        while total < requests:
            turns = min(2 + rng.randrange(10), requests - total)
            system = rng.choices(systems, odds)[0]
            said = [
                (self.words(rng, 100 + rng.randrange(400)), self.words(rng, 200 + rng.randrange(800)))
                for _ in range(turns)
            ]
            self.conversations.append((system, said))
            total += turns

    @staticmethod
    def words(rng: random.Random, size: int) -> str:
        return "".join(rng.choices("abcdefghijklmnopqrstuvwxyz ", k=size))


class Worker:
    """Speaks as much of SGLang's worker contract as both routers need."""

    def __init__(self, index: int, arrivals: list[tuple[int, list[bytes]]]):
        self.index, self.arrivals = index, arrivals
        self.cache = PrefixCache()
        self.hits = self.blocks = self.requests = 0
        self.prefill = asyncio.Lock()

    async def start(self) -> None:
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0, limit=1 << 22)
        self.url = f"http://127.0.0.1:{self.server.sockets[0].getsockname()[1]}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                if head[0].startswith("PRI "):
                    break
                fields = {k.lower(): v for k, _, v in (line.partition(": ") for line in head[1:])}
                body = await reader.readexactly(int(fields.get("content-length", "0")))
                status, answer = await self.answer(head[0].split(" ")[1], body)
                data = json.dumps(answer).encode()
                writer.write(f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n".encode())
                writer.write(f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def answer(self, target: str, body: bytes) -> tuple[int, dict]:
        match target.split("?")[0]:
            case "/health":
                return 200, {}
            case "/server_info" | "/get_server_info":
                tokens = CACHE_BLOCKS * BLOCK // 4
                return 200, {"model_path": "m", "served_model_name": "m", "max_total_num_tokens": tokens}
            case "/model_info" | "/get_model_info":
                return 200, {"model_path": "m", "is_generation": True}
            case "/v1/models":
                return 200, {"object": "list", "data": [{"id": "m", "object": "model", "owned_by": "sglang"}]}
            case "/v1/chat/completions":
                return 200, await self.complete(json.loads(body))
        return 404, {"error": {"message": "no such route"}}

    async def complete(self, request: dict) -> dict:
        text = "".join(f"<{m['role']}>{m['content']}" for m in request["messages"])
        blocks = blocks_of(text.encode())
        hit = self.cache.match(blocks)
        self.cache.insert(blocks)
        self.hits += hit
        self.blocks += len(blocks)
        self.requests += 1
        self.arrivals.append((self.index, blocks))
        async with self.prefill:
            await asyncio.sleep((len(blocks) - hit) / PROMPT_BLOCKS_PER_S)
        await asyncio.sleep(OUTPUT_S)
        message = {"role": "assistant", "content": "done"}
        return {
            "id": "x",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }


async def post(port: int, body: bytes, connection: list) -> int:
    if not connection:
        connection.extend(await asyncio.open_connection("127.0.0.1", port))
    reader, writer = connection
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
    writer.write(f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    length = int(head.split("content-length: ")[1].split("\r\n")[0])
    await reader.readexactly(length)
    return int(head.split(" ")[1])


async def converse(port: int, waiting: collections.deque, failed: list[int], latencies: list[float]) -> None:
    connection: list = []
    while waiting:
        system, turns = waiting.popleft()
        messages = [{"role": "system", "content": system}]
        for said, answer in turns:
            messages.append({"role": "user", "content": said})
            begin = time.monotonic()
            status = await post(port, json.dumps({"model": "m", "messages": messages}).encode(), connection)
            latencies.append(time.monotonic() - begin)
            if status != 200:
                failed.append(status)
            messages.append({"role": "assistant", "content": answer})
    if connection:
        connection[1].close()


def wait_ready(port: int) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/workers", timeout=2) as answer:
                workers = json.load(answer)["workers"]
                if sum(worker["is_healthy"] for worker in workers) == NUM_WORKERS:
                    return
        except OSError:
            pass
        if time.monotonic() > deadline:
            raise SystemExit("bench_cache_aware: the router is not ready")
        time.sleep(0.1)


async def run_router(command: list[str], trace: Trace) -> tuple[dict, list]:
    arrivals: list = []
    workers = [Worker(index, arrivals) for index in range(NUM_WORKERS)]
    for worker in workers:
        await worker.start()
    port = free_port()
    command = [*command, "--host", "127.0.0.1", "--port", str(port), "--policy", "cache_aware"]
    command += ["--worker-urls", *(worker.url for worker in workers)]
    devnull = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*command, stdout=devnull, stderr=devnull)
    try:
        await asyncio.to_thread(wait_ready, port)
        waiting = collections.deque(trace.conversations)
        failed: list[int] = []
        latencies: list[float] = []
        begin = time.monotonic()
        await asyncio.gather(*(converse(port, waiting, failed, latencies) for _ in range(CONVERSATIONS_AT_ONCE)))
        seconds = time.monotonic() - begin
    finally:
        process.kill()
        await process.wait()
        for worker in workers:
            worker.server.close()
    counts = [worker.requests for worker in workers]
    result = {
        "hit_rate": round(sum(w.hits for w in workers) / sum(w.blocks for w in workers), 4),
        "imbalance": round(max(counts) * NUM_WORKERS / sum(counts), 3),
        "latency_ms_mean": round(1000 * sum(latencies) / len(latencies), 1),
        "latency_ms_p99": round(1000 * sorted(latencies)[int(0.99 * len(latencies))], 1),
        "requests": sum(counts),
        "failed": len(failed),
        "seconds": round(seconds, 1),
    }
    return result, [blocks for _, blocks in arrivals]


def run_oracle(arrivals: list[list[bytes]]) -> dict:
    caches = [PrefixCache() for _ in range(NUM_WORKERS)]
    given = [0] * NUM_WORKERS
    hits = total = 0
    for blocks in arrivals:
        least = min(given)
        matches = {i: caches[i].match(blocks) for i in range(NUM_WORKERS) if given[i] <= least * 1.2 + 8}
        best = max(matches, key=lambda i: (matches[i], -given[i]))
        caches[best].insert(blocks)
        given[best] += 1
        hits += matches[best]
        total += len(blocks)
    return {"hit_rate": round(hits / total, 4), "imbalance": round(max(given) * NUM_WORKERS / sum(given), 3)}


def run_sglang_router(venv: str, trace: Trace, thresholds: tuple[float, ...]) -> dict:
    command = [f"{venv}/bin/sglang-router", "launch", "--prometheus-port", str(free_port())]
    names = ("--balance-abs-threshold", "--balance-rel-threshold", "--cache-threshold")
    flags = [word for name, value in zip(names, thresholds, strict=False) for word in (name, str(value))]
    result, _ = asyncio.run(run_router([*command, *flags], trace))
    result["flags"] = " ".join(flags)
    print("sglang-router", result, flush=True)
    return result


def run_all(binary: str, sglang_router: str | None, requests: int, seed: int) -> dict:
    trace = Trace(requests, seed)
    results = {}
    results["hayate"], arrivals = asyncio.run(run_router([binary, "gateway"], trace))
    results["oracle"] = run_oracle(arrivals)
    if sglang_router:
        results["sglang-router"] = run_sglang_router(sglang_router, trace, ())
        runs = [run_sglang_router(sglang_router, trace, thresholds) for thresholds in STRICTER]
        even = [run for run in runs if run["imbalance"] <= MAX_IMBALANCE]
        if even:
            results["sglang-router, balanced"] = max(even, key=lambda run: run["hit_rate"])
    for name, result in results.items():
        result["of_oracle"] = round(result["hit_rate"] / results["oracle"]["hit_rate"], 4)
        print(name, result, flush=True)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="build/hayate")
    parser.add_argument("--sglang-router", metavar="VENV")
    parser.add_argument("--requests", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    run_all(options.binary, options.sglang_router, options.requests, options.seed)


if __name__ == "__main__":
    main()
