"""/v1/messages and /v1/messages/count_tokens through Anthropic's official client and in the raw."""

import json
from collections.abc import Callable, Iterator

import anthropic
import httpx
import jsonschema
import openai
import pytest
from patience import patient
from server_process import ServerProcess
from wire_checks import check_alive, user, wait_until_idle

MODEL = "default"
# The client has no argument for it.
GREEDY = {"extra_body": {"temperature": 0}}
ADD = {
    "type": "object",
    "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}, "b": {"type": "integer", "maximum": 99}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
TOOLS = [{"name": "add", "description": "Adds two numbers.", "input_schema": ADD}]


@pytest.fixture
def claude(server: ServerProcess) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=patient(120)) as made:
        yield made


def check_refused(response: httpx.Response, status: int, kind: str, mention: str = "") -> None:
    """Anthropic's envelope, as plain JSON."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"].startswith("application/json")
    body = response.json()
    assert set(body) == {"type", "error"} and body["type"] == "error"
    assert body["error"]["type"] == kind and mention in body["error"]["message"], body


def stream(http: httpx.Client, **fields) -> list[dict]:
    """The events of a stream; each names itself twice, blocks count up from 0 and do not overlap."""
    response = http.post("/v1/messages", json={"model": MODEL, "temperature": 0, "stream": True, **fields})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    events, blocks, open_block = [], 0, False
    for chunk in response.text.removesuffix("\n\n").split("\n\n"):
        name, data = chunk.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == "event: " + event["type"]
        events.append(event)
        if event["type"] == "content_block_start":
            assert not open_block and event["index"] == blocks
            open_block, blocks = True, blocks + 1
        elif event["type"] == "content_block_delta":
            assert open_block and event["index"] == blocks - 1
        elif event["type"] == "content_block_stop":
            assert open_block and event["index"] == blocks - 1
            open_block = False
    assert [event["type"] for event in events[:2]] == ["message_start", "ping"]
    assert [event["type"] for event in events[-2:]] == ["message_delta", "message_stop"]
    assert not open_block
    return events


def joined(events: list[dict], field: str) -> str:
    return "".join(event["delta"].get(field, "") for event in events if event["type"] == "content_block_delta")


def test_a_message_is_answered(claude: anthropic.Anthropic):
    message = claude.messages.create(
        model=MODEL, max_tokens=40, system="Answer briefly.", messages=user("What is the capital of France?"),
        metadata={"user_id": "u"}, **GREEDY,
    )  # fmt: skip
    assert message.type == "message" and message.role == "assistant" and message.id.startswith("msg_")
    assert message.stop_reason == "end_turn" and message.stop_sequence is None
    (block,) = message.content
    assert block.type == "text" and "Paris" in block.text
    assert message.usage.output_tokens > 0


def test_messages_give_the_answer_of_the_chat(claude: anthropic.Anthropic, client: openai.OpenAI):
    turns = [
        {"role": "user", "content": "Name a colour."},
        {"role": "assistant", "content": "Blue."},
        {"role": "user", "content": [{"type": "text", "text": "Another"}, {"type": "text", "text": " one."}]},
    ]
    system = {"role": "system", "content": "You are terse."}
    chat = client.chat.completions.create(model=MODEL, messages=[system, *turns], temperature=0, max_tokens=20)
    message = claude.messages.create(
        model=MODEL,
        max_tokens=20,
        messages=turns,
        system=[{"type": "text", "text": system["content"]}],
        **GREEDY,
    )
    assert message.content[0].text == chat.choices[0].message.content
    counted = claude.messages.count_tokens(model=MODEL, messages=turns, system=system["content"])
    assert counted.input_tokens == chat.usage.prompt_tokens
    assert message.usage.input_tokens + message.usage.cache_read_input_tokens == chat.usage.prompt_tokens


def test_a_stream_adds_up_to_the_whole_message(http: httpx.Client):
    fields = {"messages": user("Tell me about rivers."), "max_tokens": 24}
    whole = http.post("/v1/messages", json={"model": MODEL, "temperature": 0, **fields}).json()
    events = stream(http, **fields)
    assert joined(events, "text") == whole["content"][0]["text"]
    assert events[-2]["delta"]["stop_reason"] == whole["stop_reason"]
    assert events[-2]["usage"]["output_tokens"] == whole["usage"]["output_tokens"]
    assert events[0]["message"]["content"] == [] and events[0]["message"]["stop_reason"] is None


def test_the_official_client_accumulates_a_stream(claude: anthropic.Anthropic):
    with claude.messages.stream(model=MODEL, max_tokens=12, messages=user("Say hello."), **GREEDY) as events:
        text = "".join(events.text_stream)
        message = events.get_final_message()
    assert message.content[0].text == text != ""
    assert message.usage.output_tokens > 0


def test_repeated_prompts_are_read_from_the_cache(claude: anthropic.Anthropic):
    fields = {"model": MODEL, "max_tokens": 2, "messages": user("The river runs to the sea. " * 60)}
    first = claude.messages.create(**fields).usage
    again = claude.messages.create(**fields).usage
    assert again.cache_read_input_tokens > first.cache_read_input_tokens
    assert first.input_tokens + first.cache_read_input_tokens == again.input_tokens + again.cache_read_input_tokens
    assert again.cache_creation_input_tokens == 0


def test_a_stop_sequence_ends_the_message_and_is_named_b008(claude: anthropic.Anthropic):
    whole = claude.messages.create(model=MODEL, max_tokens=40, messages=user("Count from one to ten."), **GREEDY)
    text = whole.content[0].text
    stop = text[5:9]
    cut = claude.messages.create(
        model=MODEL, max_tokens=40, messages=user("Count from one to ten."), stop_sequences=["@@", stop], **GREEDY
    )
    assert cut.stop_reason == "stop_sequence" and cut.stop_sequence == stop
    assert "".join(block.text for block in cut.content) == text[: text.index(stop)]


def test_a_limit_is_told_b013(claude: anthropic.Anthropic):
    message = claude.messages.create(model=MODEL, max_tokens=3, messages=user("Count to a hundred."))
    assert message.stop_reason == "max_tokens" and message.usage.output_tokens == 3


def test_an_assistants_last_text_is_gone_on_with(claude: anthropic.Anthropic):
    turns = [*user("What is the capital of France?"), {"role": "assistant", "content": "The capital of France is"}]
    message = claude.messages.create(model=MODEL, max_tokens=5, messages=turns, **GREEDY)
    assert message.content[0].text.startswith(" Paris")


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "add"}])
def test_a_demanded_call_comes_whole_and_streamed_b044(http: httpx.Client, choice: dict):
    fields = {
        "messages": user("Add 3 and 4."), "tools": TOOLS, "max_tokens": 200,
        "tool_choice": {**choice, "disable_parallel_tool_use": True},
    }  # fmt: skip
    whole = http.post("/v1/messages", json={"model": MODEL, "temperature": 0, **fields}).json()
    (block,) = whole["content"]
    assert whole["stop_reason"] == "tool_use" and block["type"] == "tool_use" and block["name"] == "add"
    jsonschema.validate(block["input"], ADD)
    events = stream(http, **fields)
    start = events[2]
    assert start["type"] == "content_block_start" and start["content_block"]["input"] == {}
    assert start["content_block"]["id"].startswith("toolu_")
    assert json.loads(joined(events, "partial_json")) == block["input"]
    assert events[-2]["delta"]["stop_reason"] == "tool_use"


def test_a_tools_answer_goes_back(claude: anthropic.Anthropic):
    turns = user("Add 3 and 4.")
    first = claude.messages.create(
        model=MODEL, max_tokens=200, messages=turns, tools=TOOLS, tool_choice={"type": "any"}, **GREEDY
    )
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": [{"type": "text", "text": "7"}]}
        for block in first.content
    ]
    turns += [
        {"role": "assistant", "content": [block.model_dump() for block in first.content]},
        {"role": "user", "content": [*results, {"type": "text", "text": "What is it?"}]},
    ]
    second = claude.messages.create(
        model=MODEL, max_tokens=20, messages=turns, tools=TOOLS, tool_choice={"type": "none"}, **GREEDY
    )
    assert second.stop_reason in ("end_turn", "max_tokens") and second.content[0].type == "text"
    assert claude.messages.count_tokens(model=MODEL, messages=turns, tools=TOOLS).input_tokens > 0


def test_a_schema_is_kept(http: httpx.Client):
    config = {"format": {"type": "json_schema", "schema": ADD}}
    body = {"messages": user("Two numbers."), "max_tokens": 100, "output_config": config, "temperature": 0}
    whole = http.post("/v1/messages", json=body).json()
    jsonschema.validate(json.loads(whole["content"][0]["text"]), ADD)


def test_a_client_that_leaves_frees_its_answer_b064(http: httpx.Client, server: ServerProcess):
    body = {"messages": user("Tell a long story."), "max_tokens": 4000, "ignore_eos": True, "stream": True}
    with http.stream("POST", "/v1/messages", json=body) as response:
        next(response.iter_lines())
    wait_until_idle(server)
    check_alive(http)


@pytest.mark.parametrize(
    ("fields", "mention"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "system", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "messages[0].content[0].type"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"thinking": {"type": "enabled", "budget_tokens": 50}}, "thinking.budget_tokens"),
        ({"temperature": -1, "stream": True}, "temperature"),
        ({"messages": [{"role": "user", "content": "word " * 20000}]}, "tokens"),
    ],
)
def test_a_wrong_request_is_refused_in_anthropics_shape_b007(http: httpx.Client, fields: dict, mention: str):
    body = {"model": MODEL, "max_tokens": 8, "messages": user("x"), **fields}
    check_refused(http.post("/v1/messages", json=body), 400, "invalid_request_error", mention)
    check_alive(http)


def test_other_errors_have_anthropics_shape_too(http: httpx.Client, claude: anthropic.Anthropic):
    check_refused(http.post("/v1/messages", content="{"), 400, "invalid_request_error", "JSON")
    check_refused(http.post("/v1/messages/count_tokens", json={}), 400, "invalid_request_error", "messages")
    body = {"model": "other", "max_tokens": 1, "messages": user("x")}
    check_refused(http.post("/v1/messages", json=body), 404, "not_found_error", "other")
    with pytest.raises(anthropic.NotFoundError):
        claude.messages.create(**body)
    check_refused(http.get("/v1/messages/other"), 404, "not_found_error")


def test_the_key_may_come_in_either_header(start_server: Callable[..., ServerProcess]):
    server = start_server("--api-key", "secret")
    body = {"messages": user("Hi."), "max_tokens": 2}
    with httpx.Client(base_url=server.url, timeout=patient(60)) as http:
        check_refused(http.post("/v1/messages", json=body), 401, "authentication_error")
        for headers in ({"x-api-key": "secret"}, {"Authorization": "Bearer secret"}):
            assert http.post("/v1/messages", json=body, headers=headers).status_code == 200
        check_refused(http.post("/v1/messages", json=body, headers={"x-api-key": "other"}), 401, "authentication_error")
    with anthropic.Anthropic(base_url=server.url, api_key="secret", max_retries=0) as claude:
        assert claude.messages.create(model=MODEL, **body).content


TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n"
    "{% else %}<think>\n{% endif %}"
)


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("thinker")
    (folder / "template.jinja").write_text(TEMPLATE)
    with ServerProcess(["--chat-template", str(folder / "template.jinja")], folder / "server.log") as process:
        yield process


@pytest.mark.parametrize("budget", [3, 7, 20])
def test_the_budget_ends_the_thinking(thinker: ServerProcess, budget: int):
    fields = {
        "max_tokens": budget + 30, "messages": user("What is 2 + 2?"),
        "thinking": {"type": "enabled", "budget_tokens": budget},
    }  # fmt: skip
    with anthropic.Anthropic(base_url=thinker.url, api_key="none", max_retries=0) as claude:
        message = claude.messages.create(model=MODEL, **GREEDY, **fields)
        thinking, *rest = message.content
        assert thinking.type == "thinking" and thinking.signature == ""
        assert all(block.type == "text" for block in rest)
        counted = claude.messages.count_tokens(model=MODEL, messages=user(thinking.thinking)).input_tokens
        empty = claude.messages.count_tokens(model=MODEL, messages=user("")).input_tokens
        # Two spellings of one text may differ by a token or two.
        assert counted - empty <= budget + 4
    with httpx.Client(base_url=thinker.url, timeout=patient(60)) as http:
        events = stream(http, **fields)
        assert joined(events, "thinking") == thinking.thinking
        assert joined(events, "text") == "".join(block.text for block in rest)
        hidden = stream(http, **{**fields, "thinking": {**fields["thinking"], "display": "omitted"}})
        assert joined(hidden, "thinking") == "" and joined(hidden, "text") == joined(events, "text")


def test_thinking_that_is_not_asked_for_is_off(thinker: ServerProcess):
    with httpx.Client(base_url=thinker.url, timeout=patient(60)) as http:
        body = {"max_tokens": 10, "messages": user("What is 2 + 2?"), "temperature": 0}
        for extra in ({}, {"thinking": {"type": "disabled"}}):
            content = http.post("/v1/messages", json={**body, **extra}).json()["content"]
            assert [block["type"] for block in content] == ["text"]
