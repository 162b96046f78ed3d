"""Bodies and connections that a polite client never makes."""

import json
import socket

import pytest
from patience import patient
from wire_checks import check_alive, check_error, parse_sse, user

CHAT = "/v1/chat/completions"
BODY = {"messages": user("hi"), "max_tokens": 1, "temperature": 0}


def post_raw(http, body: bytes, content_type: str = "application/json"):
    return http.post(CHAT, content=body, headers={"Content-Type": content_type})


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/json; charset=utf-8",
        "APPLICATION/JSON",
        "application/vnd.api+json",
    ],
)
def test_b062_a_body_that_is_json_is_read_whatever_its_type_says(http, content_type):
    headers = {"Content-Type": content_type} if content_type else {}
    assert http.post(CHAT, content=json.dumps(BODY), headers=headers).status_code == 200


@pytest.mark.parametrize(
    "body", [b"", b"{", b"nonsense", b"[]", b'"text"', b"null", b'{"messages": [}', b"\x00", b"{}}"]
)
def test_a_body_that_is_no_json_object_is_refused(http, body):
    check_error(post_raw(http, body), 400)


@pytest.mark.parametrize("depth", [50, 20_000])
def test_b064_deep_nesting_is_bounded(http, depth):
    nest = "[" * depth + "]" * depth
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "examples": "NEST"}}}
    bodies = [
        {**BODY, "unknown": "NEST"},
        {**BODY, "metadata": "NEST"},
        {**BODY, "tools": [tool]},
        {**BODY, "chat_template_kwargs": {"x": "NEST"}},
        {**BODY, "messages": [{"role": "user", "content": "hi", "extra": "NEST"}]},
    ]
    for body in bodies:
        response = post_raw(http, json.dumps(body).replace('"NEST"', nest).encode())
        assert response.elapsed.total_seconds() < patient(1)
        if depth == 50:
            assert response.status_code == 200, response.text
        else:
            check_error(response, 400)
    check_error(post_raw(http, nest.encode()), 400)
    deep_format = json.dumps({**BODY, "response_format": "NEST"}).replace('"NEST"', nest)
    check_error(post_raw(http, deep_format.encode()), 400)
    check_alive(http)


def with_content(content: bytes) -> bytes:
    return b'{"messages":[{"role":"user","content":"' + content + b'"}],"max_tokens":1}'


@pytest.mark.parametrize("bad", [b"\xc4\xe3", b"\xff", b"\xc0\xaf", b"\xed\xa0\xbd", b"\\ud83d", b"\\ud83d\\u0041"])
def test_b065_bytes_that_are_no_utf8_are_refused(http, bad):
    response = post_raw(http, with_content(bad))
    if bad.startswith(b"\\") and response.status_code == 200:
        return  # a lone surrogate escape may become U+FFFD
    check_error(response, 400)
    check_alive(http)


def test_b065_a_zero_character_cuts_nothing(http):
    whole = post_raw(http, with_content(b"one\\u0000two")).json()
    cut = post_raw(http, with_content(b"one")).json()
    assert whole["usage"]["prompt_tokens"] > cut["usage"]["prompt_tokens"]
    for body in (b'{"prompt":"a","stop":"\\u0000","max_tokens":2}', b'{"prompt":"a","x\\u0000y":1,"max_tokens":2}'):
        assert http.post("/v1/completions", content=body).status_code == 200


def test_errors_quote_little_of_what_the_client_sent(http):
    huge = "x" * 100_000
    for body in (
        {**BODY, "model": huge},
        {**BODY, "logit_bias": {huge: 1}},
        {**BODY, "messages": [{"role": "user", "content": [{"type": huge}]}]},
    ):
        response = http.post(CHAT, json=body)
        assert response.status_code in (400, 404) and len(response.content) < 1000


class Connection:
    """One socket, read answer by answer."""

    def __init__(self, server):
        self.socket = socket.create_connection(("127.0.0.1", server.port), timeout=patient(20))
        self.file = self.socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()
        self.socket.close()

    def send(self, *requests: bytes) -> None:
        self.socket.sendall(b"".join(requests))

    def answer(self, head_only: bool = False) -> tuple[int, dict[bytes, bytes], bytes]:
        status = int(self.file.readline().split()[1])
        headers = {}
        while (line := self.file.readline().strip()) != b"":
            name, _, value = line.partition(b":")
            headers[name.lower()] = value.strip()
        if head_only:
            return status, headers, b""
        if headers.get(b"transfer-encoding") == b"chunked":
            body = b""
            while (size := int(self.file.readline(), 16)) > 0:
                body += self.file.read(size)
                self.file.readline()
            self.file.readline()
            return status, headers, body
        return status, headers, self.file.read(int(headers[b"content-length"]))


def request(body: dict | bytes, method: str = "POST", path: str = CHAT) -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


def chunked(body: dict) -> bytes:
    content = json.dumps(body).encode()
    half = len(content) // 2
    pieces = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (content[:half], content[half:]))
    return f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode() + pieces + b"0\r\n\r\n"


def test_b067_a_refused_body_does_not_spoil_its_connection(server):
    with Connection(server) as connection:
        connection.send(request({**BODY, "n": 0}))
        assert connection.answer()[0] == 400
        connection.send(request(BODY))
        status, _, body = connection.answer()
        assert status == 200 and json.loads(body)["usage"]["completion_tokens"] == 1


def test_b067_requests_written_at_once_are_answered_in_order(server):
    with Connection(server) as connection:
        bodies = [{**BODY, "max_tokens": count} for count in (3, 1, 2)]
        connection.send(request(bodies[0]), chunked(bodies[1]), request(bodies[2]))
        counts = [json.loads(connection.answer()[2])["usage"]["completion_tokens"] for _ in bodies]
        assert counts == [3, 1, 2]


def test_b067_a_connection_goes_on_after_a_stream(server):
    with Connection(server) as connection:
        for _ in range(2):
            connection.send(request({**BODY, "stream": True}))
            status, headers, body = connection.answer()
            assert status == 200 and headers[b"content-type"].startswith(b"text/event-stream")
            assert parse_sse(body.decode())[-1]["choices"][0]["finish_reason"]
        connection.send(request(b"", "HEAD", "/health"))
        assert connection.answer(head_only=True)[0] == 200
        connection.send(request(b"", "OPTIONS"))
        assert connection.answer()[0] == 405
        connection.send(request(BODY))
        assert connection.answer()[0] == 200
