"""Bodies of megabytes: read beside the streams, with the answers and the refusals of small ones."""

import json
import socket
import threading
import time

import httpx
import pytest
from patience import patient
from server_process import ServerProcess
from wire_checks import GREEDY, user, wait_until_idle

LARGE = "x" * 600_000  # more than is read on the thread of the streams
OLLAMA = {"num_predict": 8, "temperature": 0}
BODIES = {
    "/v1/chat/completions": {**GREEDY, "messages": user("Count to five."), "max_tokens": 8},
    "/v1/completions": {**GREEDY, "prompt": "The capital of France is", "max_tokens": 8},
    "/generate": {"text": "The sun is", "sampling_params": {"temperature": 0, "max_new_tokens": 8}},
    "/v1/responses": {**GREEDY, "input": "Count to five.", "max_output_tokens": 8, "store": False},
    "/v1/messages": {**GREEDY, "messages": user("Count to five."), "max_tokens": 8},
    "/v1/embeddings": {"model": "default", "input": "a text"},
    "/v1/score": {"model": "default", "query": "a", "items": ["b"], "label_token_ids": [5, 6]},
    "/v1/rerank": {"model": "default", "query": "a", "documents": ["b", "c"]},
    "/api/chat": {"model": "default", "messages": user("Count to five."), "stream": False, "options": OLLAMA},
    "/api/generate": {"model": "default", "prompt": "hi", "stream": False, "options": OLLAMA},
}
# What differs between two equal requests.
NAMES = {"id", "created", "created_at", "completed_at", "rid"}


def bare(value: object) -> object:
    if isinstance(value, dict):
        return {
            key: bare(inner)
            for key, inner in value.items()
            if key not in NAMES and not key.endswith(("_duration", "latency")) and "cached" not in key
        }
    return [bare(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize("path", BODIES)
def test_a_large_body_has_the_answer_of_a_small_one(http: httpx.Client, path: str) -> None:
    body = BODIES[path]
    small = http.post(path, json=body)
    assert small.status_code == 200, small.text
    large = http.post(path, json={**body, "something_else": LARGE})
    assert large.status_code == 200, large.text
    assert bare(large.json()) == bare(small.json())
    assert large.headers["x-request-id"]


@pytest.mark.parametrize("path", BODIES)
def test_a_large_body_is_refused_in_the_shape_of_its_route(http: httpx.Client, path: str) -> None:
    def error_of(content: bytes) -> object:
        answer = http.post(path, content=content)
        assert answer.status_code == 400, answer.text
        return answer.json()

    broken = json.dumps({**BODIES[path], "something_else": LARGE}).encode()[:-1]
    assert error_of(broken).keys() == error_of(b"{").keys()
    wrong = {**BODIES[path], "stream": 7}
    if path == "/v1/embeddings":
        wrong = {**BODIES[path], "encoding_format": 7}
    elif path in ("/v1/score", "/v1/rerank"):
        wrong = {**BODIES[path], "query": 7}
    large = error_of(json.dumps({**wrong, "something_else": LARGE}).encode())
    assert large == error_of(json.dumps(wrong).encode())


def test_a_large_stream_and_a_pipelined_request_keep_their_order(http: httpx.Client) -> None:
    body = {**BODIES["/v1/chat/completions"], "stream": True, "something_else": LARGE}
    answer = http.post("/v1/chat/completions", json=body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text.endswith("data: [DONE]\n\n")
    assert http.get("/health").status_code == 200


def test_clients_that_leave_while_their_bodies_are_read_are_forgotten(
    http: httpx.Client, server: ServerProcess
) -> None:
    ids = json.dumps({**GREEDY, "prompt": [5] * 3_000_000}).encode()
    for _ in range(4):
        with httpx.Client() as client, pytest.raises(httpx.TimeoutException):
            client.post(server.url + "/v1/completions", content=ids, timeout=httpx.Timeout(5, read=0.001))
    wait_until_idle(server)
    assert http.get("/health").status_code == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": user("word " * 8_000_000)}),
        ("/v1/chat/completions", {"messages": user("w") * 800_000}),
        ("/v1/completions", {"prompt": [1] * 12_000_000}),
        ("/generate", {"text": ["a"] * 4_000_000}),
    ],
    ids=["a long text", "many messages", "many ids", "many prompts"],
)
def test_megabytes_for_one_request_stall_nobody(server: ServerProcess, path: str, body: dict) -> None:
    content = json.dumps({**body, "max_tokens": 1}).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {len(content)}\r\n\r\n"

    def post(
        answer: bytearray,
    ) -> None:  # without a client's own work on the bytes, which would hold up the other thread
        with socket.create_connection(("127.0.0.1", server.port), timeout=patient(120)) as connection:
            connection.sendall(head.encode() + content)
            while piece := connection.recv(1 << 16):
                answer.extend(piece)

    def slowest_beside_it(probe: httpx.Client) -> tuple[float, float]:
        """Seconds of the slowest other request, and of the large one."""
        answer = bytearray()
        thread = threading.Thread(target=post, args=[answer])
        thread.start()
        slowest, begun = 0.0, time.monotonic()
        while thread.is_alive():
            begin = time.monotonic()
            assert probe.get("/health").status_code == 200
            slowest = max(slowest, time.monotonic() - begin)
            time.sleep(0.002)
        assert answer.startswith(b"HTTP/1.1 400 "), answer[:200]
        return slowest, time.monotonic() - begun

    # A stall of the machine is not one of the server: that one would come back every time.
    tries = []
    with httpx.Client(base_url=server.url, timeout=patient(60)) as probe:
        probe.get("/health")
        while len(tries) < 5:
            slowest, whole = slowest_beside_it(probe)
            tries.append((slowest, whole))
            if slowest < max(0.15, whole / 4):
                return
    pytest.fail(f"the slowest request beside each try, and the try: {tries}")
