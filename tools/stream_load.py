"""A small closed-loop client for OpenAI-shaped servers: raw asyncio sockets, so that it costs little
of the machine that it shares with the server. Used by the benches and the soak test."""

import asyncio
import json
import random
import time
from dataclasses import dataclass, field

WORDS = [
    *("river", "stone", "wind", "paper", "glass", "winter", "market", "garden", "engine", "letter"),
    *("window", "silver", "music", "shadow", "harbour", "mountain", "copper", "forest", "signal"),
    *("number", "reason", "answer", "question", "bridge", "candle", "ocean", "pattern", "summer"),
]


def prompt(seed: int, words: int) -> str:
    """Text that no other seed begins with, so that no server finds a shared prefix in its cache."""
    rng = random.Random(seed)
    return " ".join(rng.choice(WORDS) for _ in range(words))


@dataclass
class Answer:
    status: int = 0
    # By choice.
    texts: dict[int, str] = field(default_factory=dict)
    logprobs: dict[int, list[float]] = field(default_factory=dict)
    finish_reasons: dict[int, str] = field(default_factory=dict)
    tokens: int = 0  # from usage
    cached_tokens: int = 0
    done: bool = False  # [DONE] arrived
    error: str = ""
    ttft_s: float = 0.0
    total_s: float = 0.0
    chunk_times: list[float] = field(default_factory=list)

    @property
    def text(self) -> str:
        return self.texts.get(0, "")


async def read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in head[1:] if ": " in line)
    return int(head[0].split()[1]), headers


async def body_parts(reader: asyncio.StreamReader, headers: dict[str, str]):
    """The pieces of a response body as they arrive."""
    if headers.get("transfer-encoding") == "chunked":
        while size := int((await reader.readline()).split(b";")[0], 16):
            yield (await reader.readexactly(size + 2))[:-2]
        await reader.readline()
    elif "content-length" in headers:
        yield await reader.readexactly(int(headers["content-length"]))
    else:
        while part := await reader.read(65536):
            yield part


async def send(host: str, port: int, path: str, body: bytes, method: str = "POST"):
    reader, writer = await asyncio.open_connection(host, port, limit=1 << 20)
    head = f"{method} {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode("latin-1") + body)
    await writer.drain()
    return reader, writer


async def complete(
    host: str, port: int, body: dict, *, path: str = "/v1/completions", stop_after_chunks: int | None = None
) -> Answer:
    """One completion or chat completion, streamed or not as the body says. With stop_after_chunks the
    connection is cut after that many events."""
    answer = Answer()
    started = time.monotonic()
    reader, writer = await send(host, port, path, json.dumps(body).encode())
    try:
        answer.status, headers = await read_head(reader)
        if not headers.get("content-type", "").startswith("text/event-stream"):
            text = b"".join([part async for part in body_parts(reader, headers)]).decode()
            take_event(answer, text)
            return answer
        pending = b""
        async for part in body_parts(reader, headers):
            pending += part
            *events, pending = pending.split(b"\n\n")
            for event in events:
                data = event.removeprefix(b"data: ").strip()
                if data == b"[DONE]":
                    answer.done = True
                elif event.startswith(b"data: "):
                    answer.chunk_times.append(time.monotonic() - started)
                    take_event(answer, data.decode())
            if stop_after_chunks is not None and len(answer.chunk_times) >= stop_after_chunks:
                return answer
        return answer
    finally:
        writer.close()
        answer.total_s = time.monotonic() - started
        answer.ttft_s = answer.chunk_times[0] if answer.chunk_times else answer.total_s


def take_event(answer: Answer, text: str) -> None:
    event = json.loads(text)
    if "error" in event:
        answer.error = json.dumps(event["error"])
        return
    for choice in event.get("choices", []):
        index = choice.get("index", 0)
        message = choice.get("delta") or choice.get("message") or {}
        said = choice.get("text") or message.get("content") or ""
        answer.texts[index] = answer.texts.get(index, "") + said
        if logprobs := choice.get("logprobs"):
            chat = [token["logprob"] for token in logprobs.get("content") or []]
            answer.logprobs.setdefault(index, []).extend(logprobs.get("token_logprobs") or chat)
        if reason := choice.get("finish_reason"):
            answer.finish_reasons[index] = reason
    if usage := event.get("usage"):
        answer.tokens = usage["completion_tokens"]
        answer.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0


async def closed_loop(host: str, port: int, streams: int, requests: int, tokens: int, seed: int) -> dict:
    """`streams` clients, each sending `requests` streamed completions one after another."""

    async def client(number: int) -> list[Answer]:
        answers = []
        for turn in range(requests):
            body = {
                "model": "default",
                "prompt": prompt(seed * 1_000_003 + number * 1009 + turn, 64),
                "max_tokens": tokens,
                "temperature": 0,
                "ignore_eos": True,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
            answers.append(await complete(host, port, body))
        return answers

    started = time.monotonic()
    per_client = await asyncio.gather(*(client(number) for number in range(streams)))
    answers = [answer for part in per_client for answer in part]
    wall = time.monotonic() - started
    for answer in answers:
        if answer.status != 200 or answer.error or answer.tokens != tokens:
            raise RuntimeError(f"a request failed: status {answer.status}, {answer.tokens} tokens, {answer.error}")
    ttft = sorted(answer.ttft_s for answer in answers)
    total = sum(answer.tokens for answer in answers)
    return {"output_tokens_per_s": total / wall, "wall_s": wall, "ttft_ms_p50": 1000 * ttft[len(ttft) // 2]}
