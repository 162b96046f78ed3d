"""Chat completions through the official client."""

import openai
import pytest
from wire_checks import check_alive, check_error, check_same_in_stream, stream_events, user

CHAT = "/v1/chat/completions"
CAPITAL = user("Name the capital city of France.")


def test_a_chat_answer_has_all_its_parts(client):
    answer = client.chat.completions.create(model="default", messages=CAPITAL, temperature=0, max_tokens=24)
    assert "Paris" in answer.choices[0].message.content
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason in ("stop", "length")
    assert answer.object == "chat.completion" and answer.id.startswith("chatcmpl-")
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.model == client.models.list().data[0].id


def test_a_chat_stream_says_the_same_as_the_whole_answer(http):
    body = {"model": "default", "messages": CAPITAL, "temperature": 0, "max_tokens": 24}
    assert "Paris" in check_same_in_stream(http, CHAT, body)["choices"][0]["message"]["content"]


def test_the_conversation_so_far_is_understood(client):
    messages = [
        {"role": "user", "content": "The secret word is banana."},
        {"role": "assistant", "content": "I will remember that the secret word is banana."},
        {"role": "user", "content": "Tell me the secret word."},
    ]
    answer = client.chat.completions.create(model="default", messages=messages, temperature=0, max_tokens=16)
    assert "banana" in answer.choices[0].message.content


def test_max_completion_tokens_wins_over_max_tokens(client):
    answer = client.chat.completions.create(
        model="default", messages=CAPITAL, temperature=0, max_tokens=9, max_completion_tokens=3
    )
    assert answer.usage.completion_tokens == 3
    assert answer.choices[0].finish_reason == "length"


def test_a_stop_token_of_the_model_ends_the_answer(client, http):
    answer = client.chat.completions.create(model="default", messages=CAPITAL, temperature=0)
    assert answer.choices[0].finish_reason == "stop"
    assert "<|im_end|>" not in answer.choices[0].message.content
    # The stop token is counted, and may be kept in the text.
    kept = http.post(
        CHAT,
        json={
            "messages": CAPITAL,
            "temperature": 0,
            "skip_special_tokens": False,
            "no_stop_trim": True,
        },
    ).json()
    assert kept["choices"][0]["message"]["content"] == answer.choices[0].message.content + "<|im_end|>"
    assert kept["usage"]["completion_tokens"] == answer.usage.completion_tokens


def test_ignore_eos_and_min_tokens_go_past_the_stop_token(client):
    short = client.chat.completions.create(model="default", messages=CAPITAL, temperature=0)
    limit = short.usage.completion_tokens + 20
    ignored = client.chat.completions.create(
        model="default", messages=CAPITAL, temperature=0, max_tokens=limit, extra_body={"ignore_eos": True}
    )
    assert ignored.usage.completion_tokens == limit
    assert ignored.choices[0].finish_reason == "length"
    postponed = client.chat.completions.create(
        model="default",
        messages=CAPITAL,
        temperature=0,
        max_tokens=limit,
        extra_body={"min_tokens": short.usage.completion_tokens + 5},
    )
    assert postponed.usage.completion_tokens >= short.usage.completion_tokens + 5


def test_b004_every_event_carries_a_finish_reason_that_is_null_until_the_end(http):
    events = stream_events(http, CHAT, {"messages": user("hi"), "max_tokens": 5, "temperature": 0})
    reasons = [choice["finish_reason"] for event in events for choice in event["choices"]]
    assert reasons[-1] in ("stop", "length")
    assert reasons[:-1] == [None] * (len(reasons) - 1)


def test_b005_usage_is_streamed_when_asked_for_and_only_then(http):
    body = {"messages": user("hi"), "max_tokens": 4, "temperature": 0}
    whole = http.post(CHAT, json=body).json()["usage"]
    asked = stream_events(http, CHAT, {**body, "stream_options": {"include_usage": True}})
    assert asked[-1]["choices"] == [] and asked[-1]["usage"]["completion_tokens"] == 4
    assert asked[-1]["usage"]["total_tokens"] == whole["total_tokens"] == whole["prompt_tokens"] + 4
    assert all(event["usage"] is None for event in asked[:-1])
    for options in ({}, {"include_usage": False}, None):
        events = stream_events(http, CHAT, {**body, "stream_options": options})
        assert all(event.get("usage") is None for event in events)
    refused = http.post(CHAT, json={**body, "stream": False, "stream_options": {"include_usage": True}})
    check_error(refused, 400, param="stream_options")


def test_continuous_usage_stats_count_in_every_event(http):
    body = {"messages": user("hi"), "max_tokens": 4, "temperature": 0}
    events = stream_events(http, CHAT, {**body, "stream_options": {"continuous_usage_stats": True}})
    counts = [event["usage"]["completion_tokens"] for event in events[1:]]
    assert counts == sorted(counts) and counts[-1] == 4


@pytest.mark.parametrize("path", ["/v1/completions", CHAT])
def test_b007_a_bad_value_is_refused_before_the_stream_begins(http, path):
    body = {"messages": user("hi"), "prompt": "hi", "stream": True, "n": 0}
    check_error(http.post(path, json=body), 400, "n", param="n")


def test_b038_a_model_that_is_not_served_is_404(client, http):
    with pytest.raises(openai.NotFoundError) as refusal:
        client.chat.completions.create(model="no-such-model", messages=CAPITAL)
    assert refusal.value.code == "model_not_found" and refusal.value.param == "model"
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="no-such-model", prompt="hi")
    served = http.get("/v1/models").json()["data"][0]["id"]
    for model in ({}, {"model": ""}, {"model": "default"}, {"model": served}):
        answer = http.post(CHAT, json={**model, "messages": CAPITAL, "max_tokens": 1})
        assert answer.json()["model"] == served
    assert client.models.retrieve(served).id == served
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("no-such-model")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -1),
        ("temperature", "hot"),
        ("top_p", 1.5),
        ("top_k", -2),
        ("min_p", 2),
        ("frequency_penalty", 3),
        ("presence_penalty", -2.5),
        ("repetition_penalty", 0),
        ("n", 129),
        ("seed", "x"),
        ("stream", "yes"),
        ("max_tokens", 1.5),
        ("stop", [1]),
        ("logprobs", 3),
        ("response_format", {"type": "yaml"}),
        ("messages", "hi"),
        ("tool_choice", "sometimes"),
        ("model", 7),
    ],
)
def test_an_invalid_value_names_its_field(http, field, value):
    body = {"messages": user("hi"), "max_tokens": 1, field: value}
    check_error(http.post(CHAT, json=body), 400, field, param=field)


def test_unknown_fields_do_not_matter(http):
    body = {"messages": CAPITAL, "temperature": 0, "max_tokens": 8}
    plain = http.post(CHAT, json=body).json()["choices"]
    extra = {"frobnicate": {"a": [1, 2]}, "user": "me", "metadata": {"k": "v"}, "store": False, "service_tier": "auto"}
    assert http.post(CHAT, json={**body, **extra}).json()["choices"] == plain


def test_b076_fields_of_other_servers_insides_are_ignored(http):
    body = {"messages": user("Tell me a story. " * 60), "temperature": 0, "max_tokens": 8}
    plain = http.post(CHAT, json=body).json()["choices"]
    inner = {
        "bootstrap_host": "2.2.2.2",
        "bootstrap_room": 1,
        "rid": "x",
        "data_parallel_rank": 99,
        "lora_path": "/etc",
        "session_params": {},
    }
    assert http.post(CHAT, json={**body, **inner}).json()["choices"] == plain
    check_alive(http)
