"""What the wire tests share: prompts with a known answer, and the shapes every answer must have.

Test names carry the ids of the field cases they show (B002, B008, …).
"""

import json
import time

import httpx
from patience import patient

GREEDY = {"model": "default", "temperature": 0}
PROBE = {**GREEDY, "prompt": "The capital of France is", "max_tokens": 8}


def repeated(line: str) -> str:
    """A prompt that the greedy model continues with `line` and a line end, whatever `line` says."""
    return (line + "\n") * 6


def user(text: str) -> list[dict]:
    return [{"role": "user", "content": text}]


def complete(http: httpx.Client, **fields) -> dict:
    """A whole answer of /v1/completions, greedy unless the fields say otherwise."""
    response = http.post("/v1/completions", json={**GREEDY, **fields})
    assert response.status_code == 200, response.text
    return response.json()


def complete_text(http: httpx.Client, **fields) -> str:
    return complete(http, **fields)["choices"][0]["text"]


def chat(http: httpx.Client, messages: list[dict], **fields) -> dict:
    response = http.post("/v1/chat/completions", json={**GREEDY, "messages": messages, **fields})
    assert response.status_code == 200, response.text
    return response.json()


def generate(http: httpx.Client, text: str | list[str], **fields) -> dict | list[dict]:
    sampling = {"temperature": 0, **fields.pop("sampling_params", {})}
    response = http.post("/generate", json={"text": text, "sampling_params": sampling, **fields})
    assert response.status_code == 200, response.text
    return response.json()


def tokenize(http: httpx.Client, text: str) -> list[int]:
    response = http.post("/tokenize", json={"prompt": text, "add_special_tokens": False})
    assert response.status_code == 200, response.text
    return response.json()["tokens"]


def prompt_of_tokens(http: httpx.Client, count: int, salt: int = 0) -> list[int]:
    """`count` token ids of plausible text; different salts share no prefix."""
    ids = tokenize(
        http, f"Story {salt}. " + "Once upon a time there was a small house by the river. " * (count // 10 + 1)
    )
    return ids[:count]


def check_error(response: httpx.Response, status: int, *mentions: str, param: str | None = None) -> dict:
    """OpenAI's error envelope, as plain JSON; its message names each of `mentions`."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"].startswith("application/json")
    error = json.loads(response.content.decode("utf-8"))["error"]
    assert set(error) == {"message", "type", "param", "code"}
    for mention in mentions:
        assert mention in error["message"], error
    if param is not None:
        assert error["param"] == param, error
    return error


def parse_sse(body: str) -> list[dict]:
    """The events of a finished stream: each one line of JSON, the last one [DONE]."""
    blocks = body.split("\n\n")
    assert blocks[-1] == "" and blocks[-2] == "data: [DONE]", body[-200:]
    events = []
    for block in blocks[:-2]:
        assert block.startswith("data: ") and "\n" not in block, block
        events.append(json.loads(block.removeprefix("data: ")))
    return events


def stream_events(http: httpx.Client, path: str, body: dict) -> list[dict]:
    response = http.post(path, json={**body, "stream": True})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    return parse_sse(response.text)


def joined_stream(events: list[dict]) -> dict[int, dict]:
    """Checks the shape of a chat or completion stream; gives text and finish reason by index."""
    assert len({(event["id"], event["created"], event["model"]) for event in events}) == 1
    choices: dict[int, dict] = {}
    for event in events:
        for part in event["choices"]:
            choice = choices.get(part["index"])
            if choice is None:
                choice = choices[part["index"]] = {"text": "", "finish_reason": None, "logprobs": []}
                if "delta" in part:
                    assert part["delta"]["role"] == "assistant"
            else:
                assert "role" not in part.get("delta", {})
            assert choice["finish_reason"] is None, "an event after the end of its choice"
            assert "finish_reason" in part and part["finish_reason"] != ""
            choice["finish_reason"] = part["finish_reason"]
            choice["text"] += part["delta"].get("content", "") if "delta" in part else part["text"]
            if part.get("logprobs"):
                choice["logprobs"].append(part["logprobs"])
    assert all(choice["finish_reason"] for choice in choices.values())
    return choices


def check_same_in_stream(http: httpx.Client, path: str, body: dict) -> dict:
    """Streamed and whole answers of a greedy request agree, usage included; gives the whole answer."""
    response = http.post(path, json=body)
    assert response.status_code == 200, response.text
    whole = response.json()
    events = stream_events(http, path, {**body, "stream_options": {"include_usage": True}})
    streamed = joined_stream(events)
    assert len(streamed) == len(whole["choices"])
    for choice in whole["choices"]:
        text = choice["message"]["content"] if "message" in choice else choice["text"]
        assert streamed[choice["index"]]["text"] == text
        assert streamed[choice["index"]]["finish_reason"] == choice["finish_reason"]
    assert events[-1]["choices"] == []
    for count in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert events[-1]["usage"][count] == whole["usage"][count]
    return whole


def check_alive(http: httpx.Client) -> None:
    """The server is healthy and still answers the probe."""
    assert http.get("/health").status_code == 200
    assert complete_text(http, **PROBE).startswith(" Paris")


def metric(server, name: str) -> float:
    values = [value for key, value in server.metrics().items() if key.split("{")[0] == f"sglang:{name}"]
    assert len(values) == 1, f"{len(values)} samples of {name}"
    return values[0]


def wait_until_idle(server, timeout_s: float = 5.0) -> None:
    """Running, waiting and used KV are back at zero, and no page is lost."""
    deadline = time.monotonic() + patient(timeout_s)
    while True:
        busy = {name: metric(server, name) for name in ("num_running_reqs", "num_queue_reqs", "num_used_tokens")}
        if not any(busy.values()):
            break
        assert time.monotonic() < deadline, busy
        time.sleep(0.02)
    assert metric(server, "kv_available_tokens") == metric(server, "max_total_num_tokens")
