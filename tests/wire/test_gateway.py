"""The gateway before scripted workers: routing, failure, cancellation, headers, limits, draining."""

import asyncio
import collections
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import openai
import pytest
from gateway_process import ANSWER, GatewayProcess, Reply, ScriptedWorker, event, gateway_before
from patience import patient

CHAT = "/v1/chat/completions"


def chat(prompt: str = "hi", **fields: object) -> dict:
    return {"model": "M", "messages": [{"role": "user", "content": prompt}], **fields}


def shares(workers: list[ScriptedWorker]) -> list[int]:
    return [len(worker.requests) for worker in workers]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "gateway.log"


def test_the_openai_client_talks_through_it(log: Path) -> None:
    with gateway_before([ScriptedWorker(), ScriptedWorker()], log) as gateway:
        client = openai.OpenAI(base_url=gateway.url + "/v1", api_key="none", max_retries=0)
        assert [model.id for model in client.models.list()] == ["M"]
        answer = client.chat.completions.create(**chat())
        assert answer.choices[0].message.content == "hello"
        stream = client.chat.completions.create(**chat(), stream=True)
        assert "".join(chunk.choices[0].delta.content for chunk in stream) == "0 1 2 3 "


@pytest.mark.parametrize("policy", ["round_robin", "power_of_two", "least_load", "cache_aware"])
def test_distinct_requests_spread(log: Path, policy: str) -> None:
    async def slow(reply: Reply) -> None:
        await asyncio.sleep(0.02)
        await reply.send(200, ANSWER)

    workers = [ScriptedWorker(slow) for _ in range(4)]
    with gateway_before(workers, log, "--policy", policy) as gateway, httpx.Client(timeout=patient(30)) as client:
        with ThreadPoolExecutor(16) as pool:
            statuses = list(
                pool.map(
                    lambda i: client.post(gateway.url + CHAT, json=chat(f"{i * 7919} {'x' * 500}")).status_code,
                    range(200),
                )
            )
        assert statuses == [200] * 200
        assert all(20 <= share <= 80 for share in shares(workers)), shares(workers)


def test_a_shared_prefix_stays_together_under_cache_aware(log: Path) -> None:
    workers = [ScriptedWorker() for _ in range(3)]
    with gateway_before(workers, log) as gateway, httpx.Client() as client:
        for i in range(30):
            assert client.post(gateway.url + CHAT, json=chat("s" * 4000 + str(i))).status_code == 200
        assert max(shares(workers)) >= 25, shares(workers)


def test_a_killed_worker_costs_no_plain_request_and_ends_its_streams_with_an_error(log: Path) -> None:
    async def stream_then_hang(reply: Reply) -> None:
        if b'"stream"' not in reply.request.body:
            return await reply.send(200, ANSWER)
        await reply.begin_events()
        await reply.chunk(event("one "))
        await reply.chunk(b'data: {"half": ')
        await reply.wait_for_abort(30)
        return None

    victim, other = ScriptedWorker(stream_then_hang), ScriptedWorker()
    with gateway_before([victim, other], log, "--policy", "round_robin") as gateway:
        client = openai.OpenAI(base_url=gateway.url + "/v1", api_key="none", max_retries=0)
        texts = []
        with pytest.raises(openai.APIError, match="worker"):
            for _ in range(2):  # one of the two goes to the victim
                for chunk in client.chat.completions.create(**chat(), stream=True):
                    texts.append(chunk.choices[0].delta.content)
                    if texts[-1] == "one ":
                        victim.kill()
        assert "one " in texts
        for _ in range(20):
            assert client.chat.completions.create(**chat()).choices[0].message.content == "hello"
        gateway.wait_for_workers(1)
        metrics = gateway.metrics()
        assert metrics["hayate_gateway_broken_streams_total"] == 1
        # The port is taken again: the worker is back.
        revived = ScriptedWorker(port=victim.port)
        gateway.wait_for_workers(2)
        for _ in range(4):
            assert client.chat.completions.create(**chat()).choices[0].message.content == "hello"
        assert len(revived.requests) == 2
        revived.close()


def test_an_answer_that_breaks_before_its_first_byte_is_tried_elsewhere(log: Path) -> None:
    async def die(reply: Reply) -> None:
        if b'"stream": true' in reply.request.body:
            await reply.begin_events()
        else:
            reply.writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
            await reply.writer.drain()
        reply.cut()

    workers = [ScriptedWorker(die), ScriptedWorker()]
    with gateway_before(workers, log, "--policy", "round_robin") as gateway, httpx.Client() as client:
        for _ in range(4):
            assert client.post(gateway.url + CHAT, json=chat()).json() == ANSWER
            assert "[DONE]" in client.post(gateway.url + CHAT, json=chat(stream=True)).text


def test_clients_that_leave_are_noticed_and_forgotten(log: Path) -> None:
    async def wait(reply: Reply) -> None:
        if b"patience" in reply.request.body:
            await reply.wait_for_abort(30)
        else:
            await reply.send(200, ANSWER)

    workers = [ScriptedWorker(wait), ScriptedWorker(wait)]
    with gateway_before(workers, log, "--policy", "least_load") as gateway:
        body = json.dumps(chat("patience")).encode()
        head = (
            f"POST {CHAT} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        clients = [socket.create_connection(("127.0.0.1", gateway.port)) for _ in range(100)]
        for client in clients:
            client.sendall(head.encode() + body)
        deadline = time.monotonic() + patient(10)
        while sum(shares(workers)) < 100 and time.monotonic() < deadline:
            time.sleep(0.01)
        left = time.monotonic()
        for client in clients:
            client.close()
        for worker in workers:
            for request in worker.requests:
                assert request.aborted.wait(patient(5))
        assert time.monotonic() - left < 1.0
        metrics = gateway.metrics()
        assert metrics["hayate_gateway_requests_running"] == 0
        assert all(value == 0 for name, value in metrics.items() if name.startswith("hayate_gateway_worker_requests{"))
        before = shares(workers)
        with httpx.Client() as session:
            for _ in range(100):
                assert session.post(gateway.url + CHAT, json=chat()).status_code == 200
        after = [now - then for now, then in zip(shares(workers), before, strict=True)]
        assert all(40 <= share <= 60 for share in after), after


def test_the_end_of_either_side_reaches_the_other_within_100_ms(log: Path) -> None:
    async def stream_until_told(reply: Reply) -> None:
        await reply.begin_events()
        await reply.chunk(event("one "))
        if b"cut" in reply.request.body:
            await asyncio.sleep(0.05)
            cut_at.append(time.monotonic())
            return reply.cut()
        return await reply.wait_for_abort(30)

    cut_at: list[float] = []
    worker = ScriptedWorker(stream_until_told)
    client_left, worker_left = [], []
    # The best of several: the machine may be busy, the path between may not wait for anything.
    with gateway_before([worker], log) as gateway:
        for _ in range(5):
            with httpx.stream("POST", gateway.url + CHAT, json=chat(stream=True)) as stream:
                next(stream.iter_bytes())
            left = time.monotonic()
            assert worker.requests[-1].aborted.wait(patient(5))
            client_left.append(time.monotonic() - left)
            with httpx.stream("POST", gateway.url + CHAT, json=chat("cut", stream=True)) as stream:
                text = "".join(stream.iter_text())
            worker_left.append(time.monotonic() - cut_at[-1])
            assert '"error"' in text
    assert min(client_left) < 0.1, client_left
    assert min(worker_left) < 0.1, worker_left


def test_bad_requests_and_busy_answers_are_no_faults_and_failures_are(log: Path) -> None:
    mode = {"status": 400}

    async def script(reply: Reply) -> None:
        status = mode["status"]
        fields = ["Retry-After: 7"] if status == 503 else []
        await reply.send(status, ANSWER if status == 200 else {"error": {"message": "no"}}, *fields)

    flags = ["--cb-timeout-duration-secs", "1", "--retry-max-retries", "0", "--cb-success-threshold", "1"]
    flags += ["--queue-timeout-secs", "0"]  # fail at once instead of waiting for the breaker
    with gateway_before([ScriptedWorker(script)], log, *flags) as gateway, httpx.Client() as client:

        def post() -> httpx.Response:
            return client.post(gateway.url + CHAT, json=chat())

        assert [post().status_code for _ in range(50)] == [400] * 50
        mode["status"] = 200
        assert post().status_code == 200
        mode["status"] = 503
        busy = [post() for _ in range(50)]
        assert [answer.status_code for answer in busy] == [503] * 50
        assert all(answer.headers["retry-after"] == "7" for answer in busy)
        mode["status"] = 200
        assert post().status_code == 200
        mode["status"] = 500
        statuses = [post().status_code for _ in range(15)]
        assert statuses[:10] == [500] * 10
        assert statuses[10:] == [503] * 5  # the breaker is open
        mode["status"] = 200
        refused = post()
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "no_healthy_workers"
        assert int(refused.headers["retry-after"]) >= 1
        time.sleep(1.1)
        assert [post().status_code for _ in range(5)] == [200] * 5


def test_requests_wait_for_the_only_worker_to_come_back_up_to_their_deadline(log: Path) -> None:
    worker = ScriptedWorker()
    with gateway_before([worker], log, "--queue-size", "3", "--queue-timeout-secs", "4") as gateway:
        worker.kill()
        answers: list[httpx.Response] = []

        def post() -> None:
            answers.append(httpx.post(gateway.url + CHAT, json=chat(), timeout=patient(20)))

        threads = [threading.Thread(target=post) for _ in range(6)]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + patient(5)
        while len(answers) < 3:  # the room has three places
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert [answer.status_code for answer in answers] == [503] * 3
        assert all(answer.headers["retry-after"] for answer in answers)
        assert gateway.metrics()["hayate_gateway_waiting_room"] == 3
        again = ScriptedWorker(port=worker.port)
        for thread in threads:
            thread.join(patient(20))
        assert sorted(answer.status_code for answer in answers) == [200] * 3 + [503] * 3
        assert gateway.metrics()["hayate_gateway_waiting_room"] == 0
        again.kill()
        begin = time.monotonic()
        late = httpx.post(gateway.url + CHAT, json=chat(), timeout=patient(20))
        assert late.status_code == 503
        assert late.json()["error"]["code"] == "no_healthy_workers"
        assert 3.5 < time.monotonic() - begin < 8
        again.close()


def test_a_worker_that_is_well_but_broke_its_connections_is_tried_again_at_once(log: Path) -> None:
    state = {"break": True}

    async def script(reply: Reply) -> None:
        if state["break"]:
            return reply.cut()
        return await reply.send(200, ANSWER)

    flags = ["--cb-failure-threshold", "2", "--cb-timeout-duration-secs", "600", "--retry-max-retries", "1"]
    with gateway_before([ScriptedWorker(script)], log, *flags) as gateway:
        for _ in range(3):
            assert httpx.post(gateway.url + CHAT, json=chat(), timeout=patient(20)).status_code in (502, 503)
        state["break"] = False
        # Its health route answers, so that nobody waits out the ten minutes of the breaker.
        assert httpx.post(gateway.url + CHAT, json=chat(), timeout=patient(20)).status_code == 200


def test_each_rank_of_a_process_is_a_worker_of_its_own(log: Path) -> None:
    worker = ScriptedWorker(dp_size=3)
    with gateway_before([worker], log, "--dp-aware", "--policy", "round_robin", ready=3) as gateway:
        for _ in range(6):
            assert httpx.post(gateway.url + CHAT, json=chat(x=1)).json() == ANSWER
        bodies = [json.loads(request.body) for request in worker.requests]
        assert sorted(body.pop("data_parallel_rank") for body in bodies) == [0, 0, 1, 1, 2, 2]
        assert bodies == [chat(x=1)] * 6
        listed = httpx.get(gateway.url + "/workers").json()["workers"]
        assert [entry["url"] for entry in listed] == [f"{worker.url}@{rank}" for rank in range(3)]
        empty = httpx.post(gateway.url + CHAT, content=b"{ }", headers={"Content-Type": "application/json"})
        assert empty.status_code == 200
        assert list(json.loads(worker.requests[-1].body)) == ["data_parallel_rank"]
        assert httpx.delete(f"{gateway.url}/workers/{listed[0]['id']}").status_code == 202
        gateway.wait_for_workers(0)


def test_a_slow_answer_is_asked_for_a_second_time_elsewhere(log: Path) -> None:
    async def slow(reply: Reply) -> None:
        await reply.wait_for_abort(30)

    first, second = ScriptedWorker(slow), ScriptedWorker()
    flags = ["--policy", "passthrough", "--hedge-after-ms", "100", "--hedge-max-share", "1"]
    with gateway_before([first, second], log, *flags) as gateway:
        for stream in (False, True):
            answer = httpx.post(gateway.url + CHAT, json=chat(stream=stream), timeout=patient(20))
            assert answer.status_code == 200
            assert "[DONE]" in answer.text if stream else answer.json() == ANSWER
        assert shares([first, second]) == [2, 2]
        assert all(request.aborted.wait(patient(5)) for request in first.requests)
        seen = gateway.metrics()
        assert seen["hayate_gateway_hedges_total"] == seen["hayate_gateway_hedges_won_total"] == 2

        # The slow one fails while the other is on its way: that one answers, and nobody a third time.
        async def fail(reply: Reply) -> None:
            await asyncio.sleep(0.3)
            reply.cut()

        async def late(reply: Reply) -> None:
            await asyncio.sleep(0.6)
            await reply.send(200, ANSWER)

        first.script, second.script = fail, late
        assert httpx.post(gateway.url + CHAT, json=chat(), timeout=patient(20)).json() == ANSWER
        assert shares([first, second]) == [3, 3]


def test_pages_of_allowed_origins_may_read_answers(log: Path) -> None:
    async def script(reply: Reply) -> None:
        await reply.send(200, ANSWER, "Access-Control-Allow-Origin: *")

    flags = ["--cors-allowed-origins", "https://a.test", "--api-key", "secret"]
    with gateway_before([ScriptedWorker(script)], log, *flags) as gateway:
        origin = {"Origin": "https://a.test", "Authorization": "Bearer secret"}
        asked = {**origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
        del asked["Authorization"]
        leave = httpx.options(gateway.url + CHAT, headers=asked)
        assert leave.status_code == 204
        assert leave.headers["access-control-allow-headers"] == "authorization"
        answer = httpx.post(gateway.url + CHAT, json=chat(), headers=origin)
        assert answer.json() == ANSWER
        assert answer.headers.get_list("access-control-allow-origin") == ["https://a.test"]
        refused = httpx.post(gateway.url + CHAT, json=chat(), headers={"Origin": "https://a.test"})
        assert refused.status_code == 401
        assert refused.headers["access-control-allow-origin"] == "https://a.test"
        other = httpx.post(gateway.url + CHAT, json=chat(), headers={**origin, "Origin": "https://b.test"})
        assert "access-control-allow-origin" not in other.headers


def test_end_to_end_fields_pass_both_ways_and_hop_by_hop_ones_do_not(log: Path) -> None:
    async def script(reply: Reply) -> None:
        await reply.send(418, b"tea", "x-w: 1", "Set-Cookie: a=1", "Set-Cookie: b=2", "Connection: x-gone", "x-gone: 1")

    worker = ScriptedWorker(script)
    with gateway_before([worker], log) as gateway:
        fields = [
            ("Authorization", "Bearer t"),
            ("X-Request-Id", "mine"),
            ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
            ("X-Custom", "c"),
            ("Connection", "X-Hop"),
            ("X-Hop", "1"),
            ("Accept-Encoding", "gzip"),
        ]
        answer = httpx.post(gateway.url + CHAT, json=chat(), headers=fields)
        assert answer.status_code == 418
        assert answer.content == b"tea"
        assert answer.headers["x-w"] == "1"
        assert answer.headers.get_list("set-cookie") == ["a=1", "b=2"]
        assert "x-gone" not in answer.headers
        seen = worker.requests[-1]
        for name, value in fields[:4] + fields[6:]:
            assert seen.values(name) == [value], name
        assert seen.values("x-hop") == []
        assert seen.values("host") == [f"127.0.0.1:{worker.port}"]
        made = httpx.post(gateway.url + CHAT, json=chat()).headers["x-request-id"]
        assert made.startswith("chatcmpl-")
        assert worker.requests[-1].values("x-request-id") == [made]
        assert "Bearer t" not in gateway.log_text()


def test_no_worker_is_told_apart_from_an_unknown_model(log: Path, tmp_path: Path) -> None:
    worker = ScriptedWorker()
    dead = ScriptedWorker()
    dead.kill()
    with gateway_before([worker, dead], log, ready=1) as gateway, httpx.Client() as client:
        assert [client.post(gateway.url + CHAT, json=chat()).status_code for _ in range(6)] == [200] * 6
        unknown = client.post(gateway.url + CHAT, json={**chat(), "model": "other"})
        assert unknown.status_code == 404
        assert unknown.json()["error"]["code"] == "model_not_found"
        assert "M" in unknown.json()["error"]["message"]
    empty = GatewayProcess([], tmp_path / "empty.log")
    try:
        empty.wait_until("/health")
        assert httpx.get(empty.url + "/readiness").status_code == 503
        assert httpx.get(empty.url + "/v1/models").json()["data"] == []
        answer = httpx.post(empty.url + CHAT, json=chat(), timeout=1.0)
        assert answer.status_code == 503
        assert "retry-after" in answer.headers
        late = ScriptedWorker()
        assert httpx.post(empty.url + "/workers", json={"url": late.url}).status_code == 202
        empty.wait_for_workers(1)
        assert httpx.post(empty.url + CHAT, json=chat()).json() == ANSWER
        late.close()
    finally:
        empty.stop()


def test_a_removed_worker_finishes_its_streams_and_gets_nothing_new(log: Path) -> None:
    async def slow(reply: Reply) -> None:
        await reply.begin_events()
        for i in range(10):
            await reply.chunk(event(f"{i} "))
            await asyncio.sleep(0.05)
        await reply.chunk(b"data: [DONE]\n\n")
        await reply.end()

    workers = [ScriptedWorker(slow), ScriptedWorker(slow)]
    with gateway_before(workers, log, "--policy", "round_robin") as gateway, ThreadPoolExecutor(4) as pool:
        streams = [pool.submit(httpx.post, gateway.url + CHAT, json=chat(stream=True), timeout=patient(30)) for _ in range(4)]
        while sum(shares(workers)) < 4:
            time.sleep(0.01)
        listed = httpx.get(gateway.url + "/workers").json()
        assert listed["total"] == 2
        number = next(w["id"] for w in listed["workers"] if w["url"] == workers[0].url)
        assert httpx.delete(f"{gateway.url}/workers/{number}").status_code == 202
        for _ in range(3):
            assert "[DONE]" in httpx.post(gateway.url + CHAT, json=chat(stream=True), timeout=patient(30)).text
        assert shares(workers)[0] == 2
        assert all("9 " in stream.result().text and "[DONE]" in stream.result().text for stream in streams)
        deadline = time.monotonic() + patient(5)
        while httpx.get(gateway.url + "/workers").json()["total"] > 1:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert httpx.get(gateway.url + "/list_workers").json()["urls"] == [workers[1].url]


def test_sigterm_drains(log: Path) -> None:
    async def slow(reply: Reply) -> None:
        await reply.begin_events()
        for i in range(20):
            await reply.chunk(event(f"{i} "))
            await asyncio.sleep(0.05)
        await reply.chunk(b"data: [DONE]\n\n")
        await reply.end()

    workers = [ScriptedWorker(slow)]
    with gateway_before(workers, log, "--drain-settle-secs", "3") as gateway, ThreadPoolExecutor(10) as pool:
        streams = [pool.submit(httpx.post, gateway.url + CHAT, json=chat(stream=True), timeout=patient(30)) for _ in range(10)]
        while sum(shares(workers)) < 10:
            time.sleep(0.01)
        gateway.process.terminate()
        gateway.wait_until("/readiness", 503, 2.5)
        assert httpx.get(gateway.url + "/health").status_code == 200
        late = pool.submit(httpx.post, gateway.url + CHAT, json=chat(stream=True), timeout=patient(30))
        for stream in [*streams, late]:
            assert "[DONE]" in stream.result().text
        gateway.stop()


def test_limits_answer_429_in_json_and_queued_requests_run(log: Path) -> None:
    async def slow(reply: Reply) -> None:
        await asyncio.sleep(0.2)
        await reply.send(200, ANSWER)

    flags = ["--max-concurrent-requests", "2", "--queue-size", "2", "--queue-timeout-secs", "5"]
    with gateway_before([ScriptedWorker(slow)], log, *flags) as gateway, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: httpx.post(gateway.url + CHAT, json=chat(), timeout=patient(30)), range(8)))
        counts = collections.Counter(answer.status_code for answer in answers)
        assert counts[200] >= 4
        assert counts[429] == 8 - counts[200]
        refused = next(answer for answer in answers if answer.status_code == 429)
        assert refused.json()["error"]["type"] == "rate_limit_error"
        assert int(refused.headers["retry-after"]) >= 1


def test_keys_are_needed_and_limited(log: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    keys.write_text(
        json.dumps(
            {"keys": [{"id": "a", "key": "ka", "admin": True}, {"id": "b", "key": "kb", "requests_per_second": 1}]}
        )
    )
    with gateway_before([ScriptedWorker()], log, "--api-key-file", str(keys)) as gateway, httpx.Client() as client:

        def post(key: str) -> int:
            return client.post(gateway.url + CHAT, json=chat(), headers={"Authorization": f"Bearer {key}"}).status_code

        assert client.post(gateway.url + CHAT, json=chat()).status_code == 401
        assert post("wrong") == 401
        assert [post("ka") for _ in range(20)] == [200] * 20
        assert 429 in [post("kb") for _ in range(10)]
        assert client.get(gateway.url + "/workers").status_code == 401
        denied = client.post(gateway.url + "/flush_cache", headers={"Authorization": "Bearer kb"})
        assert denied.status_code == 403
        allowed = client.post(gateway.url + "/flush_cache", headers={"Authorization": "Bearer ka"})
        assert allowed.status_code == 200
        assert client.get(gateway.url + "/health").status_code == 200


def test_large_bodies_flow_through_and_slow_clients_slow_only_themselves(log: Path) -> None:
    blob = b"x" * 4_000_000

    async def script(reply: Reply) -> None:
        if b"flood" in reply.request.body:
            await reply.begin_events()
            for _ in range(300):
                await reply.chunk(b"data: " + b"y" * 65536 + b"\n\n")
            await reply.end()
        else:
            await reply.send(200, {"bytes": len(reply.request.body)})

    with gateway_before([ScriptedWorker(script)], log) as gateway:
        body = json.dumps(chat(blob.decode())).encode()
        for content in (body, (body[i : i + 100_000] for i in range(0, len(body), 100_000))):
            answer = httpx.post(
                gateway.url + CHAT, content=content, headers={"Content-Type": "application/json"}, timeout=patient(60)
            )
            assert answer.json() == {"bytes": len(body)}
        slow = socket.create_connection(("127.0.0.1", gateway.port))
        flood = json.dumps(chat("flood", stream=True)).encode()
        slow.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(flood)}\r\n\r\n".encode() + flood)
        time.sleep(0.5)
        for _ in range(20):
            assert httpx.post(gateway.url + CHAT, json=chat(), timeout=2).status_code == 200
        received = b""
        while b"\r\n0\r\n\r\n" not in received[-16:]:
            piece = slow.recv(1 << 20)
            assert piece
            received = received[-16:] + piece
        slow.close()


# Each would let two parsers disagree on where a request ends, or what it says.
AMBIGUOUS_FIELDS = {
    "both lengths": b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "both lengths, the other order": b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "two lengths": b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    "two equal lengths": b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "a list of lengths": b"Content-Length: 5, 5\r\n\r\nhello",
    "a signed length": b"Content-Length: +5\r\n\r\nhello",
    "a negative length": b"Content-Length: -1\r\n\r\n",
    "a hexadecimal length": b"Content-Length: 0x5\r\n\r\nhello",
    "a length with a fraction": b"Content-Length: 5.0\r\n\r\nhello",
    "a length beyond 64 bits": b"Content-Length: 18446744073709551621\r\n\r\nhello",
    "no length": b"Content-Length:\r\n\r\n",
    "a blank before the colon": b"Content-Length : 5\r\n\r\nhello",
    "another coding": b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked is not the last": b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "chunked twice": b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "two codings": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "almost chunked": b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunked behind a control": b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "chunked in quotes": b'Transfer-Encoding: "chunked"\r\n\r\n0\r\n\r\n',
    "a folded line": b"X: 1\r\n folded\r\nContent-Length: 0\r\n\r\n",
    "a folded coding": b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "a folded first line": b" X: 1\r\nContent-Length: 0\r\n\r\n",
    "a bare LF behind a line": b"X: 1\nContent-Length: 0\r\n\r\n",
    "a bare LF at the end": b"Content-Length: 0\r\n\n",
    "a bare CR": b"X: a\rb\r\nContent-Length: 0\r\n\r\n",
    "a bare CR for a line end": b"X: a\rContent-Length: 5\r\n\r\nhello",
    "two CRs": b"X: a\r\r\nContent-Length: 0\r\n\r\n",
    "a NUL": b"X: a\x00b\r\nContent-Length: 0\r\n\r\n",
    "a line without a colon": b"GET /admin HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
    "a name with a blank": b"X Y: 1\r\nContent-Length: 0\r\n\r\n",
    "no name": b": 1\r\nContent-Length: 0\r\n\r\n",
    "two hosts": b"Host: b\r\nContent-Length: 0\r\n\r\n",
}
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
AMBIGUOUS_CHUNKS = {
    "a blank behind the size": b"5 \r\nhello\r\n0\r\n\r\n",
    "a blank before the size": b" 5\r\nhello\r\n0\r\n\r\n",
    "a prefix of the size": b"0x5\r\nhello\r\n0\r\n\r\n",
    "a negative size": b"-5\r\nhello\r\n0\r\n\r\n",
    "a size beyond 64 bits": b"10000000000000005\r\nhello\r\n0\r\n\r\n",
    "no size": b"\r\nhello\r\n0\r\n\r\n",
    "an extension without a size": b";a=b\r\nhello\r\n0\r\n\r\n",
    "a bare LF behind the size": b"5\nhello\r\n0\r\n\r\n",
    "a bare LF in an extension": b"5;a=\nb\r\nhello\r\n0\r\n\r\n",
    "a bare CR in an extension": b"5;a=\rb\r\nhello\r\n0\r\n\r\n",
    "an endless extension": b"5;a=" + b"x" * 100_000 + b"\r\nhello\r\n0\r\n\r\n",
    "more data than the size": b"5\r\nhelloGET / HTTP/1.1\r\n\r\n0\r\n\r\n",
    "a bare LF behind the data": b"5\r\nhello\n0\r\n\r\n",
    "a bare LF behind the last chunk": b"5\r\nhello\r\n0\n\n",
    "a control in a trailer": b"0\r\nX: a\x00b\r\n\r\n",
}
AMBIGUOUS_REQUESTS = {
    "bare LFs": b"POST /v1/completions HTTP/1.1\nHost: a\nContent-Length: 0\n\n",
    "a coding in HTTP/1.0": b"POST /v1/completions HTTP/1.0\r\nHost: a\r\n" + CHUNKED + b"0\r\n\r\n",
    "no host": b"POST /v1/completions HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
    "a blank in the target": b"POST /v1/completions x HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
    "a control in the target": b"POST /v1/\x01 HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
    "no version": b"POST /v1/completions\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
    **{what: b"POST /v1/completions HTTP/1.1\r\nHost: a\r\n" + lines for what, lines in AMBIGUOUS_FIELDS.items()},
    **{
        what: b"POST /v1/completions HTTP/1.1\r\nHost: a\r\n" + CHUNKED + body
        for what, body in AMBIGUOUS_CHUNKS.items()
    },
}
AMBIGUOUS_ANSWERS = {
    "bare LFs": b"HTTP/1.1 200 OK\nContent-Length: 2\n\n{}",
    "no HTTP": b"garbage\r\n\r\n",
    "another version": b"HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    "a status of two digits": b"HTTP/1.1 20 OK\r\nContent-Length: 2\r\n\r\n{}",
    "a coding in HTTP/1.0": b"HTTP/1.0 200 OK\r\n" + CHUNKED + b"0\r\n\r\n",
    **{
        what: b"HTTP/1.1 200 OK\r\n" + lines
        for what, lines in AMBIGUOUS_FIELDS.items()
        if what not in ("two hosts", "a line without a colon")
    },
    "a line without a colon": b"HTTP/1.1 200 OK\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    **{what: b"HTTP/1.1 200 OK\r\n" + CHUNKED + body for what, body in AMBIGUOUS_CHUNKS.items()},
}


def test_ambiguous_requests_are_refused_and_never_reach_a_worker(log: Path) -> None:
    worker = ScriptedWorker()
    with gateway_before([worker], log) as gateway:
        for what, head in AMBIGUOUS_REQUESTS.items():
            with socket.create_connection(("127.0.0.1", gateway.port)) as client:
                client.sendall(head + b"GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n")
                client.settimeout(10)
                answer = b""
                while piece := client.recv(65536):
                    answer += piece
            assert answer.split(b" ", 2)[1] in (b"400", b"501"), (what, answer)
            # One refusal, and what follows is not taken for a request.
            assert answer.count(b"HTTP/1.1") == 1, (what, answer)
        assert worker.requests == []


def test_chunk_extensions_end_at_the_gateway(log: Path) -> None:
    async def script(reply: Reply) -> None:
        body = json.dumps(ANSWER).encode()
        reply.writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n" + CHUNKED)
        reply.writer.write(f"{len(body):x}".encode() + b';a="b"\r\n' + body + b"\r\n0;c\r\nX: trailer\r\n\r\n")
        await reply.writer.drain()

    worker = ScriptedWorker(script)
    with gateway_before([worker], log) as gateway:
        body = json.dumps(chat()).encode()
        with socket.create_connection(("127.0.0.1", gateway.port)) as client:
            client.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n".encode() + CHUNKED)
            client.sendall(f"{len(body):x}".encode() + b';x="y z"\r\n' + body + b"\r\n0;q=1\r\nX: trailer\r\n\r\n")
            client.settimeout(10)
            answer = b""
            while piece := client.recv(65536):
                answer += piece
        assert answer.startswith(b"HTTP/1.1 200"), answer
        assert json.dumps(ANSWER).encode() in answer
        assert b'a="b"' not in answer
        assert b"trailer" not in answer
        (request,) = worker.requests
        assert request.body == body
        assert request.values("transfer-encoding") == []


def test_ambiguous_answers_become_502(log: Path) -> None:
    answer = b""

    async def script(reply: Reply) -> None:
        reply.writer.write(answer)
        await reply.writer.drain()
        await asyncio.sleep(0.05)
        reply.cut()

    flags = ["--disable-retries", "--disable-circuit-breaker", "--disable-outlier-ejection"]
    with gateway_before([ScriptedWorker(script)], log, *flags) as gateway:
        for what, answer in AMBIGUOUS_ANSWERS.items():
            seen = httpx.post(gateway.url + CHAT, json=chat())
            assert seen.status_code == 502, (what, seen.text)
            assert seen.json()["error"]["type"] == "server_error", what
