"""Scores, rankings and the parsing of answers after the fact."""

import json
import math

import pytest
from patience import patient
from wire_checks import check_error, generate, tokenize

QUERY = "The capital of France is"


def logprobs_at_end(http, text: str, ids: list[int]) -> list[float]:
    answer = generate(http, text, sampling_params={"max_new_tokens": 1}, return_logprob=True, token_ids_logprob=ids)
    return [entry[0] for entry in answer["meta_info"]["output_token_ids_logprobs"][0]]


def test_tokens_asked_for_by_id_are_scored_at_every_position(http):
    ids = [tokenize(http, word)[0] for word in (" Paris", " London")]
    answer = generate(
        http,
        QUERY,
        sampling_params={"max_new_tokens": 3},
        return_logprob=True,
        logprob_start_len=0,
        top_logprobs_num=20,
        token_ids_logprob=ids,
        return_text_in_logprobs=True,
    )
    meta = answer["meta_info"]
    output = meta["output_token_ids_logprobs"]
    assert [[entry[1] for entry in position] for position in output] == [ids] * 3
    assert [entry[2] for entry in output[0]] == [" Paris", " London"]
    best = {entry[1]: entry[0] for entry in meta["output_top_logprobs"][0]}
    assert output[0][0][0] == pytest.approx(best[ids[0]], abs=1e-5)
    assert output[0][0][0] > output[0][1][0]
    prompt = meta["input_token_ids_logprobs"]
    assert prompt[0] is None and len(prompt) == len(tokenize(http, QUERY))
    assert all(len(position) == 2 for position in prompt[1:])
    too_many = {"text": QUERY, "return_logprob": True, "token_ids_logprob": [1] * 65}
    check_error(http.post("/generate", json=too_many), 400, "64", param="token_ids_logprob")


def test_scores_are_probabilities_of_the_labels(http):
    ids = [tokenize(http, word)[0] for word in (" Paris", " London", " the")]
    items = [" is", " was"]
    body = {"query": "The capital of France", "items": items, "label_token_ids": ids}
    answer = http.post("/v1/score", json=body).json()
    assert answer["object"] == "scoring" and answer["usage"]["prompt_tokens"] > 0
    for item, scores in zip(items, answer["scores"], strict=True):
        expected = logprobs_at_end(http, body["query"] + item, ids)
        assert scores == pytest.approx([math.exp(x) for x in expected], rel=1e-4)
    soft = http.post("/v1/score", json={**body, "apply_softmax": True}).json()["scores"]
    for plain, normal in zip(answer["scores"], soft, strict=True):
        assert sum(normal) == pytest.approx(1.0)
        assert normal[0] / normal[1] == pytest.approx(plain[0] / plain[1], rel=1e-4)
    first = http.post("/v1/score", json={**body, "query": " is", "items": "The capital of France", "item_first": True})
    assert first.json()["scores"][0] == pytest.approx(answer["scores"][0], rel=1e-4)
    query_ids = tokenize(http, "The capital of France")
    by_ids = {**body, "query": query_ids, "items": [tokenize(http, item) for item in items]}
    assert http.post("/v1/score", json=by_ids).json()["scores"][0] == pytest.approx(answer["scores"][0], rel=1e-4)


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"label_token_ids": []}, "label_token_ids"),
        ({"label_token_ids": [49152]}, "label_token_ids"),
        ({"label_token_ids": [1] * 65}, "label_token_ids"),
        ({"items": []}, "items"),
        ({"items": [1, 2]}, "items"),
        ({"query": [1], "items": ["a"]}, "items[0]"),
        ({"query": 3}, "query"),
        ({"apply_softmax": "yes"}, "apply_softmax"),
    ],
)
def test_score_names_the_field_at_fault(http, change, param):
    body = {"query": QUERY, "items": ["a"], "label_token_ids": [1], **change}
    check_error(http.post("/v1/score", json=body), 400, param=param)


def test_documents_are_ranked_by_the_models_yes(http):
    documents = ["Paris is the capital of France.", "Bananas are yellow.", "Rome is in Italy."]
    body = {"query": "What is the capital of France?", "documents": documents}
    ranking = http.post("/v1/rerank", json=body).json()
    assert sorted(entry["index"] for entry in ranking) == [0, 1, 2]
    scores = [entry["score"] for entry in ranking]
    assert scores == sorted(scores, reverse=True) and all(0 <= score <= 1 for score in scores)
    assert all(entry["document"] == documents[entry["index"]] for entry in ranking)
    best = http.post("/v1/rerank", json={**body, "top_n": 1, "return_documents": False}).json()
    assert best == [{"score": scores[0], "index": ranking[0]["index"]}]
    for change, param in (({"documents": []}, "documents"), ({"query": None}, "query"), ({"top_n": 0}, "top_n")):
        check_error(http.post("/v1/rerank", json={**body, **change}), 400, param=param)


def test_calls_are_parsed_out_of_a_text(http):
    tools = [
        {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
        for name in ("add", "get_weather")
    ]
    text = 'Let me see.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
    body = {"text": text, "tools": tools, "tool_call_parser": "qwen25"}
    parsed = http.post("/parse_function_call", json=body).json()
    assert parsed["normal_text"].strip() == "Let me see."
    (call,) = parsed["calls"]
    assert (call["tool_index"], call["name"]) == (1, "get_weather")
    assert json.loads(call["parameters"]) == {"city": "Oslo"}
    plain = http.post("/parse_function_call", json={**body, "text": "no calls <tool_call>"}).json()
    assert plain == {"normal_text": "no calls <tool_call>", "calls": []}
    check_error(
        http.post("/parse_function_call", json={**body, "tool_call_parser": "x"}), 400, param="tool_call_parser"
    )
    check_error(http.post("/parse_function_call", json={**body, "text": None}), 400, param="text")


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/separate_reasoning", {"text": "<think>" * 200_000, "reasoning_parser": "deepseek-r1"}),
        ("/separate_reasoning", {"text": "<|start|><|message|>" * 70_000, "reasoning_parser": "gpt-oss"}),
        ("/parse_function_call", {"text": "<tool_call>" * 130_000, "tool_call_parser": "hermes"}),
        ("/parse_function_call", {"text": "<tool_call>" + '{"a":' * 300_000, "tool_call_parser": "hermes"}),
        ("/parse_function_call", {"text": "[f(a=" + "[" * 1_400_000, "tool_call_parser": "pythonic"}),
    ],
)
def test_megabytes_of_markers_take_no_longer_than_other_text(http, path, fields):
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    response = http.post(path, json={"tools": tools, **fields}, timeout=patient(6))
    assert response.status_code == 200, response.text[:300]


def test_thinking_is_separated_out_of_a_text(http):
    body = {"text": "let me think</think>42", "reasoning_parser": "deepseek-r1"}
    assert http.post("/separate_reasoning", json=body).json() == {"reasoning_text": "let me think", "text": "42"}
    outside = {"text": "<think>hm</think>42", "reasoning_parser": "qwen3"}
    assert http.post("/separate_reasoning", json=outside).json() == {"reasoning_text": "hm", "text": "42"}
    check_error(
        http.post("/separate_reasoning", json={"text": "a", "reasoning_parser": "x"}), 400, param="reasoning_parser"
    )
