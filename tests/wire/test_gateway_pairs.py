"""Prefill/decode pairs in SGLang's protocol, before scripted workers."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from gateway_process import ANSWER, GatewayProcess, Reply, ScriptedWorker, event
from patience import patient

CHAT = "/v1/chat/completions"
BODY = {"model": "M", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "gateway.log"


@contextmanager
def pair(
    prefill: list[ScriptedWorker], decode: list[ScriptedWorker], log: Path, *flags: str
) -> Iterator[GatewayProcess]:
    named = ["--pd-disaggregation"]
    for worker in prefill:
        named += ["--prefill", worker.url, "9001"]
    for worker in decode:
        named += ["--decode", worker.url]
    process = GatewayProcess([], log, *named, *flags)
    try:
        process.wait_until("/health")
        process.wait_for_workers(len(prefill) + len(decode))
        yield process
    except BaseException:
        process.process.kill()
        process.process.wait()
        raise
    finally:
        for worker in [*prefill, *decode]:
            worker.close()
    process.stop()


def test_both_legs_get_the_body_with_one_rendezvous(log: Path) -> None:
    prefill, decode = ScriptedWorker(mode="prefill"), ScriptedWorker(mode="decode")
    with pair([prefill], [decode], log) as gateway:
        rooms = set()
        for _ in range(20):
            assert httpx.post(gateway.url + CHAT, json={**BODY, "x": [1]}).json() == ANSWER
            first, second = (json.loads(worker.requests[-1].body) for worker in (prefill, decode))
            assert first == second
            assert first["bootstrap_host"] == "127.0.0.1"
            assert first["bootstrap_port"] == 9001
            assert 0 <= first["bootstrap_room"] < 2**63
            assert first["x"] == [1]
            rooms.add(first["bootstrap_room"])
        assert len(rooms) == 20
        assert "[DONE]" in httpx.post(gateway.url + CHAT, json={**BODY, "stream": True}).text
        httpx.post(gateway.url + "/generate", json={"text": ["a", "b"], "sampling_params": {}})
        sent = json.loads(decode.requests[-1].body)
        assert len(set(sent["bootstrap_room"])) == 2
        assert sent["bootstrap_port"] == [9001, 9001]


def test_decodes_answer_waits_for_prefill(log: Path) -> None:
    go = threading.Event()

    async def wait(reply: Reply) -> None:
        while not go.is_set():
            await asyncio.sleep(0.01)
        await reply.send(200, ANSWER)

    prefill, decode = ScriptedWorker(wait, mode="prefill"), ScriptedWorker(mode="decode")
    with pair([prefill], [decode], log) as gateway, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(httpx.post, gateway.url + CHAT, json={**BODY, "stream": True}, timeout=patient(20))
        time.sleep(0.3)
        assert not answer.done()
        go.set()
        text = answer.result().text
        assert [f'"{i} "' in text for i in range(4)] == [True] * 4


def test_prompt_logprobs_come_from_prefill(log: Path) -> None:
    async def prefill_answer(reply: Reply) -> None:
        await reply.send(200, {"text": "x", "meta_info": {"input_token_logprobs": [[-1.0, 1, None], [-2.0, 2, None]]}})

    async def decode_answer(reply: Reply) -> None:
        await reply.send(200, {"text": "y", "meta_info": {"input_token_logprobs": [], "id": "d"}})

    prefill, decode = ScriptedWorker(prefill_answer, mode="prefill"), ScriptedWorker(decode_answer, mode="decode")
    with pair([prefill], [decode], log) as gateway:
        answer = httpx.post(gateway.url + "/generate", json={"text": "a", "return_logprob": True}).json()
        assert answer["meta_info"]["input_token_logprobs"] == [[-1.0, 1, None], [-2.0, 2, None]]
        assert answer["text"] == "y"


def test_prompt_logprobs_stand_in_every_event_of_a_stream(log: Path) -> None:
    async def prefill_answer(reply: Reply) -> None:
        await reply.begin_events()
        await reply.chunk(b'data: {"meta_info": {"input_token_logprobs": [[-1.0, 1, null]]}}\n\ndata: [DONE]\n\n')
        await reply.end()

    async def decode_answer(reply: Reply) -> None:
        await reply.begin_events()
        for text in ("y", "yy"):
            chunk = {"text": text, "meta_info": {"input_token_logprobs": [], "id": "d"}}
            data = b"data: " + json.dumps(chunk).encode() + b"\n\n"
            await reply.chunk(data[:20])
            await reply.chunk(data[20:])
        await reply.chunk(b"data: [DONE]\n\n")
        await reply.end()

    prefill, decode = ScriptedWorker(prefill_answer, mode="prefill"), ScriptedWorker(decode_answer, mode="decode")
    with pair([prefill], [decode], log) as gateway:
        body = {"text": "a", "return_logprob": True, "stream": True}
        lines = httpx.post(gateway.url + "/generate", json=body).text.split("\n\n")
        events = [json.loads(line.removeprefix("data: ")) for line in lines[:2]]
        assert [entry["text"] for entry in events] == ["y", "yy"]
        assert all(entry["meta_info"]["input_token_logprobs"] == [[-1.0, 1, None]] for entry in events)
        assert lines[2] == "data: [DONE]"


def test_ranks_of_both_legs_are_named_in_their_bodies(log: Path) -> None:
    prefill, decode = ScriptedWorker(mode="prefill", dp_size=2), ScriptedWorker(mode="decode", dp_size=2)
    flags = ["--pd-disaggregation", "--prefill", prefill.url, "9001", "--decode", decode.url]
    flags += ["--dp-aware", "--policy", "round_robin", "--decode-policy", "round_robin"]
    process = GatewayProcess([], log, *flags)
    try:
        process.wait_for_workers(4)
        for _ in range(6):
            assert httpx.post(process.url + CHAT, json=BODY).json() == ANSWER
        first = [json.loads(request.body) for request in prefill.requests]
        second = [json.loads(request.body) for request in decode.requests]
        assert {body["routed_dp_rank"] for body in first} == {0, 1}
        assert {body["routed_dp_rank"] for body in second} == {0, 1}
        ranks = {body["bootstrap_room"]: body["routed_dp_rank"] for body in first}
        assert all(body["disagg_prefill_dp_rank"] == ranks[body["bootstrap_room"]] for body in second)
    finally:
        prefill.close()
        decode.close()
        process.stop()


@pytest.mark.parametrize("fault", ["refuses", "503", "dies"])
def test_a_failing_decode_frees_prefill_and_is_retried_on_another(log: Path, fault: str) -> None:
    async def prefill_waits(reply: Reply) -> None:
        # As the real one: it answers when its cache has been taken.
        await asyncio.sleep(0.3)
        if not reply.request.aborted.is_set():
            await reply.send(200, ANSWER)

    async def bad(reply: Reply) -> None:
        if fault == "503":
            await reply.send(503, {"error": {"message": "full"}})
        reply.cut()

    prefill = ScriptedWorker(prefill_waits, mode="prefill")
    failing, good = ScriptedWorker(bad, mode="decode"), ScriptedWorker(mode="decode")
    with pair([prefill], [failing, good], log, "--decode-policy", "round_robin") as gateway:
        if fault == "refuses":
            failing.kill()
        for _ in range(4):
            assert httpx.post(gateway.url + CHAT, json=BODY, timeout=patient(10)).json() == ANSWER
        assert len(good.requests) == 4
        if fault != "refuses":
            assert failing.requests
        aborted = len(prefill.requests) - 4
        deadline = time.monotonic() + patient(2)
        while sum(request.aborted.is_set() for request in prefill.requests) < aborted:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_failing_prefill_cancels_decode_and_its_mistakes_are_told(log: Path) -> None:
    mode = {"status": 400}

    async def prefill_script(reply: Reply) -> None:
        # Not before the other leg is there: a leg that is cancelled on its way is seen by nobody.
        for _ in range(200):
            if len(decode.requests) >= len(prefill.requests):
                break
            await asyncio.sleep(0.01)
        await reply.send(mode["status"], {"error": {"message": "600 tokens are over the limit of 512"}})

    async def decode_waits(reply: Reply) -> None:
        await reply.wait_for_abort(10)

    prefill, decode = ScriptedWorker(prefill_script, mode="prefill"), ScriptedWorker(decode_waits, mode="decode")
    with pair([prefill], [decode], log, "--retry-max-retries", "0") as gateway:
        for stream in (False, True):
            answer = httpx.post(gateway.url + CHAT, json={**BODY, "stream": stream}, timeout=patient(5))
            assert answer.status_code == 400
            assert "600 tokens" in answer.json()["error"]["message"]
            assert decode.requests[-1].aborted.wait(patient(2))
        mode["status"] = 500
        answer = httpx.post(gateway.url + CHAT, json=BODY, timeout=patient(5))
        assert answer.status_code == 502
        assert answer.json()["error"]["code"] == "prefill_error"
        assert decode.requests[-1].aborted.wait(patient(2))


def test_a_decode_that_dies_in_its_stream_ends_it_with_an_error(log: Path) -> None:
    async def die(reply: Reply) -> None:
        await reply.begin_events()
        await reply.chunk(event("one "))
        await asyncio.sleep(0.2)
        reply.cut()

    prefill, decode = ScriptedWorker(mode="prefill"), ScriptedWorker(die, mode="decode")
    with pair([prefill], [decode], log) as gateway:
        text = httpx.post(gateway.url + CHAT, json={**BODY, "stream": True}, timeout=patient(10)).text
        assert '"one "' in text
        assert '"error"' in text
        assert "[DONE]" not in text


def test_a_client_that_leaves_cancels_both_legs(log: Path) -> None:
    async def wait(reply: Reply) -> None:
        await reply.wait_for_abort(10)

    prefill, decode = ScriptedWorker(wait, mode="prefill"), ScriptedWorker(wait, mode="decode")
    with pair([prefill], [decode], log) as gateway:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(gateway.url + CHAT, json=BODY, timeout=0.3)
        assert prefill.requests[0].aborted.wait(patient(1))
        assert decode.requests[0].aborted.wait(patient(1))
