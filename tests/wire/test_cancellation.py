"""Clients that leave: what they asked for stops at once."""

import json
import socket
import time

import httpx
import pytest
from patience import patient
from wire_checks import PROBE, complete_text, metric, user, wait_until_idle

LONG = {"temperature": 0, "ignore_eos": True, "max_tokens": 6000}


def wait_until_running(server, count: int) -> None:
    deadline = time.monotonic() + patient(20)
    while metric(server, "num_running_reqs") < count:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_closed_stream_frees_its_request_within_a_second(client, server):
    wait_until_idle(server)
    stream = client.chat.completions.create(
        model="default", messages=user("Tell me a story"), stream=True, max_tokens=6000, extra_body={"ignore_eos": True}
    )
    for _, _ in zip(range(4), stream, strict=False):
        pass
    stream.close()
    wait_until_idle(server, timeout_s=1.0)


@pytest.mark.parametrize("fields", [{"stream": False}, {"stream": False, "n": 4}, {"stream": True, "n": 4}])
def test_a_client_that_hangs_up_frees_all_it_asked_for(server, fields):
    wait_until_idle(server)
    body = json.dumps({**LONG, "prompt": "Once upon a time", **fields}).encode()
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        wait_until_running(server, fields.get("n", 1))
    wait_until_idle(server, timeout_s=1.0)


def test_a_client_that_leaves_during_the_prefill_is_forgotten(server, http):
    wait_until_idle(server)
    prompt = "A quick brown fox jumps over the lazy dog. " * 150
    for wait_s in (0.01, 0.05):
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(server.url + "/v1/completions", json={**LONG, "prompt": prompt}, timeout=wait_s)
    wait_until_idle(server, timeout_s=10.0)  # steps in flight end first
    assert complete_text(http, **PROBE).startswith(" Paris")
