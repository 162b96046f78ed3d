"""Tool calls under a grammar and in free text, whole and streamed, through the official client too."""

import json
from collections.abc import Callable

import httpx
import jsonschema
import openai
import pytest
from patience import patient
from server_process import ServerProcess
from wire_checks import GREEDY, user

ADD = {
    "type": "object",
    "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}, "b": {"type": "integer", "maximum": 99}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
SAY = {
    "type": "object",
    "properties": {"text": {"type": "string", "maxLength": 20}},
    "required": ["text"],
    "additionalProperties": False,
}
SCHEMAS = {"add": ADD, "say": SAY}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": schema}} for name, schema in SCHEMAS.items()
]
DIALECTS = [
    "hermes", "llama3", "mistral", "deepseekv3", "deepseekv31", "deepseekv32", "deepseekv4", "deepseekv41",
    "qwen3_coder", "none",
]  # fmt: skip


@pytest.fixture(scope="module", params=DIALECTS)
def dialect_http(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    log = tmp_path_factory.mktemp("tools") / "server.log"
    with (
        ServerProcess(["--tool-call-parser", request.param], log) as process,
        httpx.Client(base_url=process.url, timeout=patient(120)) as http,
    ):
        yield http


def ask(http: httpx.Client, **fields) -> dict:
    body = {**GREEDY, "messages": user("Compute 3*12 and 11+49."), "tools": TOOLS, "max_tokens": 250, **fields}
    response = http.post("/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]


def ask_streamed(http: httpx.Client, **fields) -> dict:
    """The same answer, joined from its events, with the rules of a stream of calls checked."""
    body = {**GREEDY, "messages": user("Compute 3*12 and 11+49."), "tools": TOOLS, "max_tokens": 250, **fields}
    content, finish, calls = "", None, []
    with http.stream("POST", "/v1/chat/completions", json={**body, "stream": True}) as response:
        assert response.status_code == 200
        for line in response.iter_lines():
            if not line.startswith("data: {"):
                continue
            (choice,) = json.loads(line[6:])["choices"]
            assert finish is None
            finish = choice["finish_reason"]
            content += choice["delta"].get("content") or ""
            for call in choice["delta"].get("tool_calls") or []:
                if call["index"] == len(calls):
                    assert call["id"] and call["type"] == "function" and call["function"]["name"]
                    calls.append({"id": call["id"], "name": call["function"]["name"], "arguments": ""})
                else:
                    assert call["index"] == len(calls) - 1 and "id" not in call
                calls[call["index"]]["arguments"] += call["function"]["arguments"]
    return {"content": content, "finish_reason": finish, "calls": calls}


def calls_of(choice: dict) -> list[tuple[str, dict]]:
    found = []
    for call in choice["message"]["tool_calls"] or []:
        arguments = json.loads(call["function"]["arguments"])
        jsonschema.validate(arguments, SCHEMAS[call["function"]["name"]])
        found.append((call["function"]["name"], arguments))
    return found


def test_a_demanded_call_satisfies_its_schema_in_every_dialect_b044(dialect_http: httpx.Client):
    for choice in ({"type": "function", "function": {"name": "add"}}, "required"):
        for seed in range(3):
            fields = {"tool_choice": choice, "parallel_tool_calls": False, "temperature": 1.0, "seed": seed}
            answer = ask(dialect_http, **fields)
            calls = calls_of(answer)
            assert len(calls) == 1 and answer["finish_reason"] == "tool_calls", answer
            assert choice == "required" or calls[0][0] == "add"
            assert answer["message"]["content"] is None
            streamed = ask_streamed(dialect_http, **fields)
            assert streamed["content"] == "" and streamed["finish_reason"] == "tool_calls"
            assert [(c["name"], json.loads(c["arguments"])) for c in streamed["calls"]] == calls


def test_parallel_calls_have_indexes_and_ids_of_their_own_b046(dialect_http: httpx.Client):
    streamed = ask_streamed(dialect_http, tool_choice="required", temperature=1.0, seed=3)
    assert len(streamed["calls"]) >= 1
    assert len({call["id"] for call in streamed["calls"]}) == len(streamed["calls"])


@pytest.fixture(scope="module")
def hermes(tmp_path_factory: pytest.TempPathFactory):
    log = tmp_path_factory.mktemp("hermes") / "server.log"
    with ServerProcess(["--tool-call-parser", "hermes"], log) as process:
        yield process


@pytest.fixture
def hermes_http(hermes: ServerProcess):
    with httpx.Client(base_url=hermes.url, timeout=patient(120)) as http:
        yield http


def test_choices_that_cannot_be_met_are_refused_b044(hermes_http: httpx.Client):
    named = {"type": "function", "function": {"name": "nope"}}
    for fields in (
        {"tools": TOOLS, "tool_choice": named},
        {"tools": [], "tool_choice": "required"},
        {"tool_choice": "required"},
        {"tools": TOOLS, "tool_choice": "maybe"},
        {"tools": [{"type": "function"}]},
        {"tools": [{"type": "function", "function": {"name": "a b"}}]},
    ):
        response = hermes_http.post("/v1/chat/completions", json={**GREEDY, "messages": user("x"), **fields})
        assert response.status_code == 400, fields
        assert response.json()["error"]["param"].startswith("tool")


def test_no_call_comes_when_none_is_wanted_b043(hermes_http: httpx.Client):
    for seed in range(10):
        fields = {"tool_choice": "none", "temperature": 1.0, "seed": seed, "max_tokens": 40}
        choice = ask(hermes_http, **fields)
        assert not choice["message"]["tool_calls"] and choice["finish_reason"] in ("stop", "length")
        streamed = ask_streamed(hermes_http, **fields)
        assert streamed["calls"] == [] and streamed["content"] == choice["message"]["content"]


def test_broken_and_literal_markup_comes_back_as_content_b047_b049(hermes_http: httpx.Client):
    lines = ['<tool_call>{"name": "add", "arguments": {"a": <', "the tag <tool_call> opens a call"]
    for line in lines:
        for seed in range(6):
            fields = {
                "messages": user(f"Repeat this line and nothing else: {line}"),
                "temperature": 0.5,
                "seed": seed,
                "max_tokens": 40,
            }
            whole = ask(hermes_http, **fields)
            streamed = ask_streamed(hermes_http, **fields)
            assert streamed["content"] == (whole["message"]["content"] or "")
            plain = ask(hermes_http, **fields, tool_choice="none")
            assert plain["finish_reason"] in ("stop", "length")


def test_the_official_client_reads_calls(hermes: ServerProcess):
    with openai.OpenAI(base_url=hermes.url + "/v1", api_key="none", max_retries=0) as client:
        answer = client.chat.completions.create(
            model="default", messages=user("Add 2 and 3."), tools=TOOLS, tool_choice="required", max_tokens=200
        )
        (call, *_) = answer.choices[0].message.tool_calls
        jsonschema.validate(json.loads(call.function.arguments), SCHEMAS[call.function.name])
        assert call.id.startswith("call_")
        stream = client.chat.completions.create(
            model="default", messages=user("Add."), tools=TOOLS, tool_choice="required", max_tokens=200, stream=True
        )
        names = [
            call.function.name
            for chunk in stream
            for call in chunk.choices[0].delta.tool_calls or []
            if call.function.name
        ]
        assert names and set(names) <= set(SCHEMAS)


@pytest.mark.parametrize("arguments", ['{"a": ', '"Beijing"', "[1]", "", '{"a":2,"b":3}', {"a": 2, "b": 3}])
@pytest.mark.parametrize("content", [None, "", "absent"])
def test_old_calls_in_the_history_never_break_the_chat_b035_b037(http: httpx.Client, arguments, content):
    turn = {
        "role": "assistant",
        "content": content,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": arguments}}],
    }
    if content == "absent":
        del turn["content"]
    messages = [*user("add 2 and 3"), turn, {"role": "tool", "tool_call_id": "c1", "content": "5"}]
    body = {**GREEDY, "messages": messages, "tools": TOOLS, "max_tokens": 5}
    assert http.post("/v1/chat/completions", json=body).status_code == 200


def test_arguments_reach_the_template_once_b037(start_server: Callable[..., ServerProcess], tmp_path):
    template = tmp_path / "template.jinja"
    template.write_text(
        "{% for m in messages %}{% if m.tool_calls %}{% for c in m.tool_calls %}"
        "CALL {{ c.function.arguments | tojson }}{% endfor %}{% else %}{{ m.content }}{% endif %}\n{% endfor %}"
    )
    server = start_server("--chat-template", str(template))
    turn = {"role": "assistant", "content": None}
    calls = [{"id": "c", "type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}}]
    messages = [*user("hi"), {**turn, "tool_calls": calls}, {"role": "tool", "tool_call_id": "c", "content": "5"}]
    with httpx.Client(base_url=server.url) as http:
        ids = http.post("/tokenize", json={"messages": messages}).json()["tokens"]
        text = http.post("/detokenize", json={"tokens": ids}).json()
    assert 'CALL {"a": 2}' in json.dumps(text, ensure_ascii=False).replace("\\", "")
