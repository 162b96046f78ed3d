"""The gateway's bounds of time and size, the fields it lets through, and its log of requests."""

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from gateway_process import ANSWER, Reply, ScriptedWorker, event, gateway_before
from patience import patient

CHAT = "/v1/chat/completions"
BODY = {"model": "M", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "gateway.log"


async def hang(reply: Reply) -> None:
    await reply.wait_for_abort(30)


def test_a_worker_that_does_not_begin_to_answer_is_given_up(log: Path) -> None:
    with gateway_before([ScriptedWorker(hang)], log, "--request-timeout-secs", "0.3", "--disable-retries") as gateway:
        begin = time.monotonic()
        answer = httpx.post(gateway.url + CHAT, json=BODY, timeout=patient(20))
        assert time.monotonic() - begin > 0.25
        assert answer.status_code == 504
        assert answer.json()["error"]["type"] == "timeout_error"


def test_another_one_is_asked_instead(log: Path) -> None:
    slow, quick = ScriptedWorker(hang), ScriptedWorker()
    with gateway_before([slow, quick], log, "--request-timeout-secs", "0.3", "--policy", "round_robin") as gateway:
        answers = [httpx.post(gateway.url + CHAT, json=BODY, timeout=patient(20)) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200] * 4
        assert slow.requests
        assert all(request.aborted.wait(patient(5)) for request in slow.requests)


@contextlib.contextmanager
def port_that_accepts_nothing(port: int) -> Iterator[None]:
    """Its listener's queue is full: the kernel drops whatever asks for a connection."""
    with contextlib.ExitStack() as sockets:
        listener = sockets.enter_context(socket.socket())
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(0)
        for _ in range(4):
            waiting = sockets.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.1", port))
        with pytest.raises(TimeoutError):
            socket.create_connection(("127.0.0.1", port), timeout=0.2)
        yield


# No health check finds out first.
UNREACHABLE = ["--connect-timeout-secs", "0.3", "--health-check-interval-secs", "600"]


def test_a_worker_that_accepts_no_connection_is_given_up_and_another_one_asked(log: Path) -> None:
    lost, other = ScriptedWorker(), ScriptedWorker()
    with gateway_before([lost, other], log, *UNREACHABLE, "--policy", "round_robin") as gateway:
        lost.kill()
        with port_that_accepts_nothing(lost.port):
            seconds = []
            for _ in range(6):
                begin = time.monotonic()
                answer = httpx.post(gateway.url + CHAT, json=BODY, timeout=patient(20))
                seconds.append(time.monotonic() - begin)
                assert answer.status_code == 200
        assert len(other.requests) == 6
        assert 0.25 < max(seconds) < 3
        # From the first one on the worker counts as down: nobody else waits for it.
        assert sum(s > 0.25 for s in seconds) == 1


def test_without_another_worker_the_client_hears_that_it_cannot_be_reached(log: Path) -> None:
    lost = ScriptedWorker()
    with gateway_before([lost], log, *UNREACHABLE, "--disable-retries") as gateway:
        lost.kill()
        with port_that_accepts_nothing(lost.port):
            begin = time.monotonic()
            answer = httpx.post(gateway.url + CHAT, json={**BODY, "stream": True}, timeout=patient(20))
            assert 0.25 < time.monotonic() - begin < 3
        assert answer.status_code == 502
        error = answer.json()["error"]
        assert (error["type"], error["code"]) == ("server_error", "upstream_unreachable")
        assert "connection" in error["message"]


def test_with_retries_it_is_waited_for_up_to_the_deadline(log: Path) -> None:
    lost = ScriptedWorker()
    with gateway_before([lost], log, *UNREACHABLE, "--queue-timeout-secs", "1") as gateway:
        lost.kill()
        with port_that_accepts_nothing(lost.port):
            begin = time.monotonic()
            answer = httpx.post(gateway.url + CHAT, json=BODY, timeout=patient(20))
            assert 1 < time.monotonic() - begin < 5
        assert answer.status_code == 503
        assert answer.headers["retry-after"]
        assert answer.json()["error"]["code"] == "no_healthy_workers"


def test_a_stream_that_falls_silent_ends_with_an_error(log: Path) -> None:
    async def begin_and_hang(reply: Reply) -> None:
        await reply.begin_events()
        await reply.chunk(event("one "))
        await reply.wait_for_abort(30)

    with gateway_before([ScriptedWorker(begin_and_hang)], log, "--stream-idle-timeout-secs", "0.3") as gateway:
        with httpx.stream("POST", gateway.url + CHAT, json={**BODY, "stream": True}, timeout=patient(20)) as stream:
            text = "".join(stream.iter_text())
        assert "one " in text
        assert '"error"' in text
        assert gateway.metrics()["hayate_gateway_broken_streams_total"] == 1


def test_a_body_over_the_bound_is_refused_however_it_comes(log: Path) -> None:
    worker = ScriptedWorker()
    with gateway_before([worker], log, "--max-payload-size", "3000000") as gateway:
        large = json.dumps({**BODY, "user": "x" * 2_900_000})
        assert httpx.post(gateway.url + CHAT, content=large, timeout=patient(20)).status_code == 200
        assert len(worker.requests) == 1
        # By its announced length, before a byte of it is read.
        with socket.create_connection(("127.0.0.1", gateway.port)) as client:
            client.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: a\r\nContent-Length: 3000001\r\n\r\n".encode())
            client.settimeout(10)
            assert client.recv(65536).startswith(b"HTTP/1.1 413")
        # By what came, while most of it was on its way to the worker already.
        answer = httpx.post(gateway.url + CHAT, content=(b"x" * 500_000 for _ in range(8)), timeout=patient(20))
        assert answer.status_code == 413
        assert answer.json()["error"]["type"] == "invalid_request_error"
        assert len(worker.requests) == 1


def test_only_allowed_fields_pass_when_there_is_a_list(log: Path) -> None:
    worker = ScriptedWorker()
    with gateway_before([worker], log, "--forward-headers", "x-ours", "x-too") as gateway:
        fields = {
            "X-Ours": "1",
            "X-Other": "2",
            "Cookie": "c",
            "Authorization": "Bearer t",
            "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "X-Request-Id": "mine",
        }
        assert httpx.post(gateway.url + CHAT, json=BODY, headers=fields).status_code == 200
        (seen,) = worker.requests
        assert seen.values("x-ours") == ["1"]
        assert seen.values("x-other") == []
        assert seen.values("cookie") == []
        for name in ("Authorization", "traceparent", "X-Request-Id"):
            assert seen.values(name) == [fields[name]]


def test_the_access_log_has_a_line_for_each_request(log: Path, tmp_path: Path) -> None:
    async def script(reply: Reply) -> None:
        if b"bad" in reply.request.body:
            return await reply.send(400, {"error": {"message": "bad"}})
        await asyncio.sleep(0.02)
        return await reply.send(200, ANSWER)

    worker = ScriptedWorker(script)
    lines = tmp_path / "access.log"
    with gateway_before([worker], log, "--access-log", str(lines)) as gateway:
        assert httpx.post(gateway.url + CHAT, json=BODY, headers={"X-Request-Id": "one"}).status_code == 200
        assert httpx.post(gateway.url + CHAT, json={**BODY, "user": "bad"}).status_code == 400
        assert httpx.post(gateway.url + CHAT, json={**BODY, "model": "none"}).status_code == 404
    # Stopped, so all of it is written.
    good, bad, unknown = map(json.loads, lines.read_text(encoding="utf-8").splitlines())
    assert good["request_id"] == "one"
    assert (good["status"], good["end"], good["model"], good["path"]) == (200, "ok", "M", CHAT)
    assert good["worker"] == worker.url
    assert good["bytes_in"] == len(json.dumps(BODY, separators=(",", ":")))
    assert good["total_ms"] >= good["first_byte_ms"] >= 15
    assert bad["status"] == 400
    assert (unknown["status"], unknown["worker"]) == (404, "")
