"""Starts `hayate gateway` and scripted workers for its tests."""

import asyncio
import contextlib
import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from patience import patient
from server_process import BINARY, STOP_TIMEOUT_S, free_port, parse_metrics

ANSWER = {
    "id": "mock",
    "object": "chat.completion",
    "created": 1,
    "model": "M",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4},
}


def event(text: str) -> bytes:
    chunk = {
        "id": "mock",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "M",
        "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}],
    }
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


@dataclass
class Received:
    """One request as a worker saw it."""

    method: str
    target: str
    fields: list[tuple[str, str]]
    body: bytes
    aborted: threading.Event = field(default_factory=threading.Event)  # its connection was closed early

    def values(self, name: str) -> list[str]:
        return [value for key, value in self.fields if key.lower() == name.lower()]


class Reply:
    """What a scripted worker may do with a request; raw bytes, so that it can misbehave."""

    def __init__(self, worker: "ScriptedWorker", request: Received, writer: asyncio.StreamWriter):
        self.worker, self.request, self.writer = worker, request, writer

    async def send(self, status: int, body: bytes | dict, *fields: str) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(data)}\r\n"
        if not any(line.lower().startswith("content-type") for line in fields):
            head += "Content-Type: application/json\r\n"
        self.writer.write((head + "".join(line + "\r\n" for line in fields) + "\r\n").encode() + data)
        await self.writer.drain()

    async def begin_events(self) -> None:
        self.writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        await self.writer.drain()

    async def chunk(self, data: bytes) -> None:
        self.writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        await self.writer.drain()

    async def end(self) -> None:
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()

    def cut(self) -> None:
        self.writer.transport.abort()

    async def wait_for_abort(self, seconds: float) -> None:
        """Holds the request until the gateway closes the connection."""
        await asyncio.wait_for(self.worker.watch(self.request), seconds)


Script = Callable[[Reply], "asyncio.Future[None] | None"]


class ScriptedWorker:
    """A worker on a thread of its own. `script` answers POST; the rest is SGLang's contract."""

    def __init__(
        self, script: Script | None = None, model: str = "M", mode: str = "null", port: int = 0, dp_size: int = 1
    ):
        self.script = script or self.answer
        self.model, self.mode, self.dp_size = model, mode, dp_size
        self.healthy = True
        self.requests: list[Received] = []
        self.running = 0
        self.loop = asyncio.new_event_loop()
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._writers: set[asyncio.StreamWriter] = set()
        self._ready = threading.Event()
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()
        assert self._ready.wait(patient(10))

    async def answer(self, reply: Reply) -> None:
        if b'"stream": true' in reply.request.body or b'"stream":true' in reply.request.body:
            await reply.begin_events()
            for index in range(4):
                await reply.chunk(event(f"{index} "))
            await reply.chunk(b"data: [DONE]\n\n")
            return await reply.end()
        await reply.send(200, ANSWER)
        return None

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.server = self.loop.run_until_complete(
            asyncio.start_server(self._connection, "127.0.0.1", self.port, limit=1 << 26)
        )
        self._ready.set()
        self.loop.run_forever()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, TimeoutError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                lines = head.split("\r\n")
                method, target, _ = lines[0].split(" ", 2)
                fields = [tuple(line.split(": ", 1)) for line in lines[1:] if line]
                names = {key.lower(): value for key, value in fields}
                body = b""
                if "content-length" in names:
                    body = await reader.readexactly(int(names["content-length"]))
                elif names.get("transfer-encoding") == "chunked":
                    while size := int((await reader.readline()).split(b";")[0], 16):
                        body += await reader.readexactly(size)
                        await reader.readline()
                    await reader.readline()
                await self._handle(Received(method, target, fields, body), reader, writer)
        self._writers.discard(writer)
        writer.close()

    async def _handle(self, request: Received, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        reply = Reply(self, request, writer)
        path = request.target.split("?")[0]
        if request.method != "GET":
            self.requests.append(request)
            self.running += 1
            watcher = asyncio.ensure_future(self._notice_close(request, reader, writer))
            try:
                await self.script(reply)
            finally:
                self.running -= 1
                watcher.cancel()
            return
        info = {
            "model_path": self.model,
            "served_model_name": self.model,
            "disaggregation_mode": self.mode,
            "dp_size": self.dp_size,
        }
        models = {"object": "list", "data": [{"id": self.model, "object": "model", "owned_by": "sglang"}]}
        if path == "/health":
            await reply.send(200 if self.healthy else 503, b"")
        elif path == "/server_info":
            await reply.send(200, info)
        elif path == "/v1/models":
            await reply.send(200, models)
        else:
            await reply.send(404, {"error": {"message": "no such route"}})

    async def _notice_close(
        self, request: Received, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while not (reader.at_eof() or writer.transport.is_closing()):
            await asyncio.sleep(0.01)
        request.aborted.set()

    async def watch(self, request: Received) -> None:
        while not request.aborted.is_set():
            await asyncio.sleep(0.01)

    def kill(self) -> None:
        """As kill -9: the port closes and every connection is reset."""

        def stop() -> None:
            self.server.close()
            for writer in list(self._writers):
                writer.transport.abort()

        self.loop.call_soon_threadsafe(stop)
        deadline = time.monotonic() + patient(5)
        while time.monotonic() < deadline:
            try:
                httpx.get(self.url + "/health", timeout=0.2)
            except httpx.TransportError:
                return
            time.sleep(0.01)

    def close(self) -> None:
        async def stop() -> None:
            others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            self.loop.stop()

        self.loop.call_soon_threadsafe(lambda: self.loop.create_task(stop()))
        self.thread.join(patient(5))


class GatewayProcess:
    """One `hayate gateway` before `workers`."""

    def __init__(self, workers: list[str], log_path: Path, *flags: str, port: int = 0):
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log_path = log_path
        command = [str(BINARY), "gateway", "--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--drain-settle-secs", "0.2", "--slow-start-secs", "0"]
        if workers:
            command += ["--worker-urls", *workers]
        with log_path.open("ab") as log:
            self.process = subprocess.Popen([*command, *flags], stdout=log, stderr=subprocess.STDOUT)

    def wait_until(self, path: str = "/readiness", status: int = 200, seconds: float = 20.0) -> None:
        deadline = time.monotonic() + patient(seconds)
        seen: object = None
        while time.monotonic() < deadline:
            assert self.process.poll() is None, f"the gateway exited\n{self.log_text()}"
            try:
                seen = httpx.get(self.url + path, timeout=2.0).status_code
                if seen == status:
                    return
            except httpx.TransportError as error:
                seen = error
            time.sleep(0.02)
        raise AssertionError(f"{path} gave {seen}, not {status}\n{self.log_text()}")

    def wait_for_workers(self, count: int, seconds: float = 20.0) -> None:
        deadline = time.monotonic() + patient(seconds)
        healthy = -1
        while time.monotonic() < deadline:
            try:
                healthy = httpx.get(self.url + "/readiness", timeout=2.0).json()["healthy_workers"]
                if healthy == count:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.02)
        raise AssertionError(f"{healthy} workers are healthy, not {count}\n{self.log_text()}")

    def metrics(self) -> dict[str, float]:
        return parse_metrics(httpx.get(self.url + "/metrics", timeout=patient(10)).text)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(patient(STOP_TIMEOUT_S))
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"still running after SIGTERM\n{self.log_text()}") from None
        assert code == 0, f"exit status {code}\n{self.log_text()}"

    def log_text(self) -> str:
        return self.log_path.read_text(encoding="utf-8", errors="replace")


@contextlib.contextmanager
def gateway_before(
    workers: list[ScriptedWorker], log_path: Path, *flags: str, ready: int | None = None
) -> Iterator[GatewayProcess]:
    """A gateway whose workers have all been found healthy (`ready` of them, if given)."""
    process = GatewayProcess([worker.url for worker in workers], log_path, *flags)
    try:
        process.wait_until("/health")
        process.wait_for_workers(len(workers) if ready is None else ready)
        yield process
    except BaseException:
        process.process.kill()
        process.process.wait()
        raise
    finally:
        for worker in workers:
            worker.close()
    process.stop()
