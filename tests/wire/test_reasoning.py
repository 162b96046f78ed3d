"""Thinking told apart from the answer, its budget, and grammars that begin after it."""

import json
from collections.abc import Iterator

import httpx
import pytest
from patience import patient
from server_process import ServerProcess
from wire_checks import GREEDY, user

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n"
    "{% else %}<think>\n{% endif %}"
)


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("thinker")
    (folder / "template.jinja").write_text(TEMPLATE)
    with (
        ServerProcess(["--chat-template", str(folder / "template.jinja")], folder / "server.log") as process,
        httpx.Client(base_url=process.url, timeout=patient(120)) as http,
    ):
        yield http


def ask(http: httpx.Client, **fields) -> tuple[dict, dict]:
    body = {**GREEDY, "messages": user("What is 2 + 2?"), **fields}
    response = http.post("/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    return response.json()["choices"][0], response.json()["usage"]


def ask_streamed(http: httpx.Client, **fields) -> tuple[str, str, str]:
    """Joined thinking and content, and the finish reason; thinking never follows content."""
    body = {**GREEDY, "messages": user("What is 2 + 2?"), "stream": True, **fields}
    thinking, content, finish = "", "", ""
    with http.stream("POST", "/v1/chat/completions", json=body) as response:
        assert response.status_code == 200
        for line in response.iter_lines():
            if not line.startswith("data: {"):
                continue
            (choice,) = json.loads(line[6:])["choices"]
            if choice["delta"].get("reasoning_content"):
                assert not content
                thinking += choice["delta"]["reasoning_content"]
            content += choice["delta"].get("content") or ""
            finish = choice["finish_reason"] or finish
    return thinking, content, finish


@pytest.mark.parametrize("budget", [0, 1, 7, 20])
def test_the_budget_ends_the_thinking(thinker: httpx.Client, budget: int):
    choice, usage = ask(thinker, thinking_budget=budget, max_tokens=60, regex="[a-z]{1,8}!")
    message = choice["message"]
    assert message["content"].isascii() and message["content"].endswith("!"), message
    assert "think>" not in (message["reasoning_content"] or "") + message["content"]
    # The end marker itself takes a few tokens more.
    assert usage["reasoning_tokens"] <= budget + 6
    assert usage["completion_tokens_details"]["reasoning_tokens"] == usage["reasoning_tokens"]


def test_every_cut_gives_the_same_parts_whole_and_streamed_b050(thinker: httpx.Client):
    for limit in [1, 2, 5, 9, 10, 11, 12, 13, 14, 15, 16, 20, 40]:
        fields = {"thinking_budget": 8, "max_tokens": limit}
        choice, _ = ask(thinker, **fields)
        message = choice["message"]
        for interval in (1, 7):
            thinking, content, finish = ask_streamed(thinker, **fields, stream_interval=interval)
            assert thinking == (message["reasoning_content"] or "")
            assert content == (message["content"] or "")
            assert finish == choice["finish_reason"]
            assert "think>" not in thinking + content


def test_a_schema_begins_after_the_thinking(thinker: httpx.Client):
    schema = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
    fields = {
        "thinking_budget": 10,
        "max_tokens": 100,
        "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}},
    }
    choice, _ = ask(thinker, **fields)
    assert choice["finish_reason"] == "stop"
    assert isinstance(json.loads(choice["message"]["content"])["sum"], int)
    assert choice["message"]["reasoning_content"]
    thinking, content, _ = ask_streamed(thinker, **fields)
    assert (thinking, content) == (choice["message"]["reasoning_content"], choice["message"]["content"])


def test_thinking_can_be_switched_off(thinker: httpx.Client):
    for fields in (
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"reasoning_effort": "none"},
        {"reasoning": {"enabled": False}},
    ):
        choice, usage = ask(thinker, max_tokens=20, **fields)
        assert choice["message"]["reasoning_content"] is None
        assert choice["message"]["content"]
        assert usage["reasoning_tokens"] == 0


def test_thinking_may_stay_in_the_content(thinker: httpx.Client):
    choice, _ = ask(thinker, separate_reasoning=False, thinking_budget=5, max_tokens=40)
    assert choice["message"]["reasoning_content"] is None
    assert "</think>" in choice["message"]["content"]


def test_thinking_may_come_in_one_piece(thinker: httpx.Client):
    body = {
        **GREEDY,
        "messages": user("What is 2 + 2?"),
        "stream": True,
        "stream_reasoning": False,
        "thinking_budget": 8,
        "max_tokens": 40,
    }
    pieces = []
    with thinker.stream("POST", "/v1/chat/completions", json=body) as response:
        for line in response.iter_lines():
            if line.startswith("data: {"):
                (choice,) = json.loads(line[6:])["choices"]
                pieces.append(choice["delta"].get("reasoning_content"))
    assert len([piece for piece in pieces if piece]) == 1


def test_effort_is_one_of_its_levels(thinker: httpx.Client):
    body = {**GREEDY, "messages": user("x"), "reasoning_effort": "huge"}
    response = thinker.post("/v1/chat/completions", json=body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "reasoning_effort"
