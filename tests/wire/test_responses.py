"""/v1/responses through the official client and in the raw: streams, tools, formats, the store, the background."""

import json
import time
from collections.abc import Callable, Iterator

import httpx
import jsonschema
import openai
import pytest
from patience import patient
from server_process import ServerProcess
from wire_checks import check_alive, check_error, user, wait_until_idle

MODEL = "default"
ADD = {
    "type": "object",
    "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}, "b": {"type": "integer", "maximum": 99}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
TOOLS = [{"type": "function", "name": "add", "description": "Adds.", "parameters": ADD, "strict": True}]
SUM = {
    "type": "object",
    "properties": {"sum": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["sum"],
    "additionalProperties": False,
}


def post(http: httpx.Client, **fields) -> dict:
    response = http.post("/v1/responses", json={"model": MODEL, "temperature": 0, **fields})
    assert response.status_code == 200, response.text
    return response.json()


def stream(http: httpx.Client, **fields) -> list[dict]:
    """The events of a stream; each names itself twice and they count up from 0."""
    body = {"model": MODEL, "temperature": 0, "stream": True, **fields}
    response = http.post("/v1/responses", json=body)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    events = []
    for block in response.text.removesuffix("\n\n").split("\n\n"):
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == "event: " + event["type"]
        assert event["sequence_number"] == len(events)
        events.append(event)
    return events


def wait_for(client: openai.OpenAI, name: str, *statuses: str) -> openai.types.responses.Response:
    deadline = time.monotonic() + patient(60)
    while True:
        response = client.responses.retrieve(name)
        if response.status in statuses:
            return response
        assert time.monotonic() < deadline, response.status
        time.sleep(0.02)


def test_a_text_is_answered(client: openai.OpenAI):
    response = client.responses.create(
        model=MODEL, input="What is the capital of France?", instructions="Answer briefly.", temperature=0,
        max_output_tokens=40, metadata={"team": "a"}, user="u", service_tier="auto",
    )  # fmt: skip
    assert response.status == "completed" and "Paris" in response.output_text
    assert response.id.startswith("resp_") and response.object == "response"
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens
    assert response.metadata == {"team": "a"} and response.instructions == "Answer briefly."
    (item,) = response.output
    assert item.type == "message" and item.role == "assistant" and item.status == "completed"


def test_messages_give_the_answer_of_the_chat(client: openai.OpenAI):
    turns = [
        {"role": "system", "content": "You are terse."},
        {"role": "user", "content": "Name a colour."},
        {"role": "assistant", "content": "Blue."},
        {"role": "user", "content": "Another one."},
    ]
    chat = client.chat.completions.create(model=MODEL, messages=turns, temperature=0, max_tokens=20)
    response = client.responses.create(model=MODEL, input=turns, temperature=0, max_output_tokens=20)
    assert response.output_text == chat.choices[0].message.content
    assert response.usage.input_tokens == chat.usage.prompt_tokens


def test_a_stream_adds_up_to_the_whole_response(http: httpx.Client):
    fields = {"input": "Tell me about rivers.", "max_output_tokens": 24}
    whole = post(http, **fields)
    events = stream(http, **fields)
    assert [event["type"] for event in events[:4]] == [
        "response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
    ]  # fmt: skip
    assert [event["type"] for event in events[-4:]] == [
        "response.output_text.done", "response.content_part.done", "response.output_item.done",
        "response.incomplete" if whole["status"] == "incomplete" else "response.completed",
    ]  # fmt: skip
    last = events[-1]["response"]
    assert last["output"][0]["content"] == whole["output"][0]["content"]
    assert {k: v for k, v in last["usage"].items() if k != "input_tokens_details"} == {
        k: v for k, v in whole["usage"].items() if k != "input_tokens_details"
    }
    text = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
    assert text == whole["output"][0]["content"][0]["text"]


def test_the_official_client_accumulates_a_stream(client: openai.OpenAI):
    question = "What is the capital of France?"
    fields = {"model": MODEL, "instructions": "Answer briefly.", "temperature": 0, "max_output_tokens": 40}
    with client.responses.stream(input=question, **fields) as events:
        text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        final = events.get_final_response()
    assert final.output_text == text != ""


def test_a_limit_makes_it_incomplete_b013(client: openai.OpenAI):
    response = client.responses.create(model=MODEL, input="Count to a hundred.", max_output_tokens=3)
    assert response.status == "incomplete" and response.incomplete_details.reason == "max_output_tokens"
    assert response.usage.output_tokens == 3


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "add"}])
def test_a_demanded_call_comes_whole_and_streamed_b044(http: httpx.Client, choice):
    fields = {
        "input": "Add 3 and 4.", "tools": TOOLS, "tool_choice": choice, "parallel_tool_calls": False,
        "max_output_tokens": 200,
    }  # fmt: skip
    (call,) = post(http, **fields)["output"]
    assert call["type"] == "function_call" and call["name"] == "add" and call["call_id"].startswith("call_")
    jsonschema.validate(json.loads(call["arguments"]), ADD)
    events = stream(http, **fields)
    assert [event["type"] for event in events[2:4]] == [
        "response.output_item.added", "response.function_call_arguments.delta",
    ]  # fmt: skip
    assert events[2]["item"]["arguments"] == ""
    deltas = [e["delta"] for e in events if e["type"] == "response.function_call_arguments.delta"]
    assert "".join(deltas) == call["arguments"] and len(deltas) > 1
    (done,) = [e for e in events if e["type"] == "response.output_item.done"]
    assert done["item"]["arguments"] == call["arguments"]


def test_a_tools_answer_goes_back(client: openai.OpenAI):
    first = client.responses.create(
        model=MODEL, input="Add 3 and 4.", tools=TOOLS, tool_choice="required", parallel_tool_calls=False,
        max_output_tokens=200,
    )  # fmt: skip
    (call,) = first.output
    second = client.responses.create(
        model=MODEL, previous_response_id=first.id, tools=TOOLS, tool_choice="none", max_output_tokens=20,
        input=[{"type": "function_call_output", "call_id": call.call_id, "output": "7"}],
    )  # fmt: skip
    assert second.output_text and second.previous_response_id == first.id
    kinds = [item.type for item in client.responses.input_items.list(second.id, order="asc")]
    assert kinds == ["message", "function_call", "function_call_output"]


def test_a_schema_is_kept_whole_and_streamed_b054(http: httpx.Client):
    text = {"format": {"type": "json_schema", "name": "sum", "schema": SUM, "strict": True}}
    fields = {"input": "What is 2 + 2?", "text": text, "max_output_tokens": 100}
    whole = post(http, **fields)["output"][0]["content"][0]["text"]
    jsonschema.validate(json.loads(whole), SUM)
    joined = "".join(e["delta"] for e in stream(http, **fields) if e["type"] == "response.output_text.delta")
    assert joined == whole


def test_scores_come_when_included(client: openai.OpenAI):
    response = client.responses.create(
        model=MODEL, input="Hi.", include=["message.output_text.logprobs"], top_logprobs=2, max_output_tokens=4,
        temperature=0,
    )  # fmt: skip
    scores = response.output[0].content[0].logprobs
    assert len(scores) == response.usage.output_tokens
    assert all(len(entry.top_logprobs) == 2 and entry.top_logprobs[0].token == entry.token for entry in scores)


def test_a_conversation_goes_on_by_id(client: openai.OpenAI):
    first = client.responses.create(model=MODEL, input="My name is Ada.", max_output_tokens=16, temperature=0)
    second = client.responses.create(
        model=MODEL, input="What is my name?", previous_response_id=first.id, max_output_tokens=16, temperature=0
    )
    by_hand = client.responses.create(
        model=MODEL, max_output_tokens=16, temperature=0,
        input=[*user("My name is Ada."), {"role": "assistant", "content": first.output_text},
               *user("What is my name?")],
    )  # fmt: skip
    assert second.output_text == by_hand.output_text
    assert second.usage.input_tokens == by_hand.usage.input_tokens
    items = client.responses.input_items.list(second.id, order="asc", limit=2)
    assert [item.id for item in items.data] and items.has_more
    assert len(list(items)) == 3  # the client turns the pages
    newest = client.responses.input_items.list(second.id).data[0]
    assert newest.content[0].text == "What is my name?"


def test_a_response_is_kept_until_it_is_deleted(client: openai.OpenAI):
    made = client.responses.create(model=MODEL, input="Hi.", max_output_tokens=4)
    assert client.responses.retrieve(made.id) == made
    client.responses.delete(made.id)
    for call in (client.responses.retrieve, client.responses.delete, client.responses.cancel):
        with pytest.raises(openai.NotFoundError):
            call(made.id)
    with pytest.raises(openai.BadRequestError, match="previous_response_id"):
        client.responses.create(model=MODEL, input="Hi.", previous_response_id=made.id)
    unkept = client.responses.create(model=MODEL, input="Hi.", max_output_tokens=4, store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(unkept.id)


def test_an_answer_is_made_in_the_background(client: openai.OpenAI):
    begun = client.responses.create(model=MODEL, input="Hi.", background=True, max_output_tokens=8, temperature=0)
    assert begun.status == "queued" and begun.output == [] and begun.usage is None
    done = wait_for(client, begun.id, "completed", "incomplete")
    assert done.output_text and done.usage.output_tokens <= 8 and done.created_at == begun.created_at
    with pytest.raises(openai.BadRequestError, match="is over"):
        client.responses.cancel(begun.id)


def test_what_fails_in_the_background_is_told(client: openai.OpenAI):
    begun = client.responses.create(model=MODEL, input="word " * 20000, background=True)
    failed = wait_for(client, begun.id, "failed")
    assert failed.error.code == "invalid_prompt" and "tokens" in failed.error.message


def test_a_background_answer_is_cancelled(client: openai.OpenAI, server: ServerProcess):
    begun = client.responses.create(
        model=MODEL,
        input="Tell a long story.",
        background=True,
        max_output_tokens=2000,
        extra_body={"ignore_eos": True},
    )
    wait_for(client, begun.id, "in_progress")
    assert client.responses.cancel(begun.id).status == "cancelled"
    assert client.responses.cancel(begun.id).status == "cancelled"
    wait_until_idle(server)
    assert client.responses.retrieve(begun.id).status == "cancelled"


def test_a_background_stream_outlives_its_client(client: openai.OpenAI):
    events = client.responses.create(
        model=MODEL, input="Hi.", background=True, stream=True, max_output_tokens=60, temperature=0,
        extra_body={"ignore_eos": True},
    )  # fmt: skip
    name = next(iter(events)).response.id
    events.close()
    assert wait_for(client, name, "incomplete").usage.output_tokens == 60


def test_a_client_that_leaves_frees_its_answer_b064(http: httpx.Client, server: ServerProcess):
    body = {"model": MODEL, "input": "Tell a long story.", "max_output_tokens": 4000, "ignore_eos": True}
    with http.stream("POST", "/v1/responses", json={**body, "stream": True}) as response:
        next(response.iter_lines())
    wait_until_idle(server)
    check_alive(http)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "input"),
        ({"input": []}, "input"),
        ({"input": "a", "stream": True, "temperature": -1}, "temperature"),
        ({"input": "a", "max_output_tokens": 0}, "max_output_tokens"),
        ({"input": "a", "tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"input": "a", "tool_choice": "required"}, "tool_choice"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
         "input[0].content[0].type"),
        ({"input": "a", "text": {"format": {"type": "json_schema", "name": "n", "schema": {"not": {}}}}},
         "text.format.schema"),
        ({"input": "a", "previous_response_id": "resp_none"}, "previous_response_id"),
        ({"input": "word " * 20000}, "input"),
    ],
)  # fmt: skip
def test_a_wrong_request_is_refused_by_name_b007_b032(http: httpx.Client, fields: dict, param: str):
    error = check_error(http.post("/v1/responses", json={"model": MODEL, **fields}), 400)
    assert error["param"].startswith(param), error
    check_alive(http)


def test_pages_and_ids_are_checked(http: httpx.Client):
    name = post(http, input="Hi.", max_output_tokens=2)["id"]
    for query, param in (("limit=0", "limit"), ("limit=101", "limit"), ("order=up", "order"), ("after=x", "after")):
        check_error(http.get(f"/v1/responses/{name}/input_items?{query}"), 400, param=param)
    check_error(http.get("/v1/responses/resp_%22x"), 404)
    check_error(http.post(f"/v1/responses/{name}/cancel"), 400, "background")
    assert http.put(f"/v1/responses/{name}").status_code == 405


TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}<|im_end|>\n"
    "{% endfor %}<|im_start|>assistant\n<think>\n"
)


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai.OpenAI]:
    folder = tmp_path_factory.mktemp("thinker")
    (folder / "template.jinja").write_text(TEMPLATE)
    with (
        ServerProcess(["--chat-template", str(folder / "template.jinja")], folder / "server.log") as process,
        openai.OpenAI(base_url=process.url + "/v1", api_key="none", max_retries=0) as made,
    ):
        yield made


def test_thinking_is_an_item_of_its_own(thinker: openai.OpenAI):
    fields = {
        "model": MODEL, "input": "What is 2 + 2?", "temperature": 0, "max_output_tokens": 60,
        "extra_body": {"thinking_budget": 10},
    }  # fmt: skip
    text = {"format": {"type": "json_schema", "name": "sum", "schema": SUM}}
    response = thinker.responses.create(**fields, text=text)
    thinking, message = response.output
    assert thinking.type == "reasoning" and thinking.content[0].type == "reasoning_text"
    jsonschema.validate(json.loads(message.content[0].text), SUM)
    assert 0 < response.usage.output_tokens_details.reasoning_tokens <= 16
    events = list(thinker.responses.create(**fields, text=text, stream=True))
    pieces = [event.delta for event in events if event.type == "response.reasoning_text.delta"]
    assert "".join(pieces) == thinking.content[0].text
    again = thinker.responses.create(model=MODEL, input="Sure?", previous_response_id=response.id, max_output_tokens=4)
    assert again.usage.input_tokens > response.usage.input_tokens


def test_the_key_is_asked_for(start_server: Callable[..., ServerProcess]):
    server = start_server("--api-key", "secret")
    with httpx.Client(base_url=server.url) as http:
        check_error(http.post("/v1/responses", json={"input": "a"}), 401)
        check_error(http.get("/v1/responses/resp_1"), 401)
