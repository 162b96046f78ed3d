"""Streams whose events hold several tokens: fewer events, the same answer."""

import httpx
import pytest
from patience import patient
from wire_checks import GREEDY, PROBE, check_error, joined_stream, parse_sse, repeated, stream_events, user

TOKENS = 17
CHAT = {**GREEDY, "messages": user("Write a long story"), "max_tokens": TOKENS, "ignore_eos": True}
SCORES = {"logprobs": True, "top_logprobs": 3}


def entries(event: dict) -> list[dict]:
    return [entry for part in event["choices"] if part["logprobs"] for entry in part["logprobs"]["content"]]


@pytest.mark.parametrize(("interval", "counts"), [(1, [1] * 17), (5, [1, 5, 5, 5, 1]), (16, [1, 16]), (999, [1, 16])])
def test_b026_events_of_several_tokens_hold_each_tokens_own_scores(http, interval: int, counts: list[int]):
    whole = http.post("/v1/chat/completions", json={**CHAT, **SCORES}).json()["choices"][0]
    events = stream_events(http, "/v1/chat/completions", {**CHAT, **SCORES, "stream_interval": interval})
    assert [len(entries(event)) for event in events if entries(event)] == counts
    assert [entry for event in events for entry in entries(event)] == whole["logprobs"]["content"]
    assert joined_stream(events)[0]["text"] == whole["message"]["content"]


def test_each_choice_has_its_own_interval_and_an_exact_end(http):
    body = {**CHAT, "n": 3, "temperature": 0.8, "seed": 11, "stream_options": {"include_usage": True}}
    plain = stream_events(http, "/v1/chat/completions", body)
    coarse = stream_events(http, "/v1/chat/completions", {**body, "stream_interval": 7})
    assert joined_stream(coarse) == joined_stream(plain)
    assert coarse[-1]["usage"] == plain[-1]["usage"]
    assert len(coarse) < len(plain) / 2


@pytest.mark.parametrize("interval", [1, 4, 64])
def test_a_stop_string_ends_the_answer_as_soon_as_without_an_interval(http, interval: int):
    body = {**GREEDY, "prompt": repeated("alpha beta gamma delta"), "max_tokens": 64, "stop": ["gam"]}
    usage = {"stream_options": {"include_usage": True}}
    whole = http.post("/v1/completions", json=body).json()
    events = stream_events(http, "/v1/completions", {**body, **usage, "stream_interval": interval})
    assert joined_stream(events)[0]["text"] == whole["choices"][0]["text"] == "alpha beta "
    assert events[-1]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]


def test_counts_of_an_event_are_those_of_its_last_token(http):
    options = {"stream_options": {"continuous_usage_stats": True}, "stream_interval": 6}
    events = stream_events(http, "/v1/completions", {**PROBE, "max_tokens": 14, "ignore_eos": True, **options})
    counts = [event["usage"]["completion_tokens"] for event in events if event["choices"]]
    assert counts[:3] == [1, 7, 13] and counts[-1] == 14


def test_other_surfaces_have_it_too(http):
    native = {"text": PROBE["prompt"], "sampling_params": {"max_new_tokens": 9, "temperature": 0, "stream_interval": 4}}
    response = http.post("/generate", json={**native, "stream": True})
    events = parse_sse(response.text)
    assert [len(event["output_ids"]) for event in events] == [1, 5, 9]
    assert events[-1]["text"] == http.post("/generate", json=native).json()["text"]

    message = {**GREEDY, "messages": user("Count"), "max_tokens": 9, "stream": True}
    deltas = {}
    for interval in (1, 4):
        text = http.post("/v1/messages", json={**message, "stream_interval": interval}).text
        deltas[interval] = text.count("event: content_block_delta")
    assert deltas[4] == 3 < deltas[1]


@pytest.mark.parametrize("value", [0, -1, 1.5, "2", 1 << 40])
def test_a_senseless_interval_is_refused(http, value):
    check_error(http.post("/v1/completions", json={**PROBE, "stream_interval": value}), 400, param="stream_interval")


def test_the_servers_own_defaults(start_server):
    flags = ("--stream-interval", "4", "--incremental-streaming-output", "--stream-response-default-include-usage")
    server = start_server(*flags)
    with httpx.Client(base_url=server.url, timeout=patient(60)) as http:
        plain = http.post("/v1/completions", json={**PROBE, "max_tokens": 9}).json()
        events = stream_events(http, "/v1/completions", {**PROBE, "max_tokens": 9})
        assert joined_stream(events)[0]["text"] == plain["choices"][0]["text"]
        assert len([event for event in events if event["choices"]]) == 3
        assert events[-1]["usage"] == plain["usage"] and events[-1]["choices"] == []
        fine = {**PROBE, "max_tokens": 9, "stream_interval": 1, "stream_options": {"include_usage": False}}
        events = stream_events(http, "/v1/completions", fine)
        assert len(events) >= 9 and all(event.get("usage") is None for event in events)

        native = {"text": PROBE["prompt"], "sampling_params": {"max_new_tokens": 9, "temperature": 0}}
        native |= {"return_logprob": True}
        whole = http.post("/generate", json=native).json()
        events = parse_sse(http.post("/generate", json={**native, "stream": True}).text)
        assert [len(event["output_ids"]) for event in events] == [1, 4, 4]
        assert "".join(event["text"] for event in events) == whole["text"]
        assert [token for event in events for token in event["output_ids"]] == whole["output_ids"]
        scores = [entry for event in events for entry in event["meta_info"]["output_token_logprobs"]]
        assert scores == whole["meta_info"]["output_token_logprobs"]
        assert events[-1]["meta_info"]["completion_tokens"] == 9
