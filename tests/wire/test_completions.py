"""Text completions: prompts of every kind, batches, echo, seeds, n."""

import httpx
import pytest
from patience import patient
from wire_checks import (
    PROBE,
    check_alive,
    check_error,
    check_same_in_stream,
    complete,
    complete_text,
    joined_stream,
    repeated,
    stream_events,
    tokenize,
    user,
)

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"


def test_a_completion_continues_its_prompt(client):
    answer = client.completions.create(model="default", prompt="The capital of France is", temperature=0, max_tokens=4)
    assert answer.choices[0].text.startswith(" Paris")
    assert answer.object == "text_completion" and answer.id.startswith("cmpl-")
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 4


def test_the_default_limit_is_sixteen_tokens(client):
    answer = client.completions.create(model="default", prompt="Once upon a time", temperature=0)
    assert answer.usage.completion_tokens == 16


def test_token_ids_are_prompts_too(http):
    ids = tokenize(http, PROBE["prompt"])
    assert complete(http, **PROBE)["usage"]["prompt_tokens"] == len(ids)
    assert complete_text(http, **{**PROBE, "prompt": ids}) == complete_text(http, **PROBE)
    both = complete(http, **{**PROBE, "prompt": [ids, tokenize(http, "One two three four")]})
    assert [choice["index"] for choice in both["choices"]] == [0, 1]
    assert both["choices"][0]["text"] == complete_text(http, **PROBE)


def test_a_batch_answers_each_prompt_as_if_alone(http):
    prompts = ["The capital of France is", repeated("alpha beta gamma"), "def add(a, b):"]
    body = {"model": "default", "prompt": prompts, "temperature": 0, "max_tokens": 12}
    batch = check_same_in_stream(http, COMPLETIONS, body)
    alone = [complete(http, prompt=prompt, max_tokens=12) for prompt in prompts]
    assert [choice["text"] for choice in batch["choices"]] == [one["choices"][0]["text"] for one in alone]
    for count in ("prompt_tokens", "completion_tokens"):
        assert batch["usage"][count] == sum(one["usage"][count] for one in alone)


def test_echo_puts_the_prompt_first(http):
    prompts = ["  Leading blanks,\nlines and <|im_end|> stay", "漢字 🦙"]
    plain = complete(http, prompt=prompts, max_tokens=3)["choices"]
    body = {"model": "default", "prompt": prompts, "temperature": 0, "max_tokens": 3, "echo": True}
    echoed = check_same_in_stream(http, COMPLETIONS, body)["choices"]
    assert [choice["text"] for choice in echoed] == [
        p + choice["text"] for p, choice in zip(prompts, plain, strict=True)
    ]


@pytest.mark.parametrize("prompt", ["The sky is blue", ["The sky is blue", "Grass is green, mostly"]])
def test_b014_a_prompt_is_scored_without_new_tokens(http, prompt):
    body = {"model": "default", "prompt": prompt, "max_tokens": 0, "echo": True, "logprobs": 1}
    whole = check_same_in_stream(http, COMPLETIONS, body)
    prompts = [prompt] if isinstance(prompt, str) else prompt
    assert whole["usage"]["completion_tokens"] == 0
    for text, choice in zip(prompts, whole["choices"], strict=True):
        assert choice["text"] == text and choice["finish_reason"] == "length"
        scores = choice["logprobs"]["token_logprobs"]
        assert len(scores) == len(tokenize(http, text))
        assert scores[0] is None and all(score < 0 for score in scores[1:])
    check_alive(http)


def test_b013_token_limits_at_the_edge(http):
    for path, source in ((COMPLETIONS, {"prompt": "Once upon a time"}), (CHAT, {"messages": user("Hi")})):
        for stream in (False, True):
            body = {**source, "temperature": 0, "stream": stream}
            one = http.post(path, json={**body, "max_tokens": 1, "stream_options": None})
            assert one.status_code == 200
            check_error(http.post(path, json={**body, "max_tokens": -1}), 400, param="max_tokens")
    check_error(http.post(CHAT, json={"messages": user("Hi"), "max_tokens": 0}), 400, param="max_tokens")
    nothing = complete(http, prompt="Once upon a time", max_tokens=0)
    assert nothing["usage"]["completion_tokens"] == 0 and nothing["choices"][0]["text"] == ""
    assert complete(http, prompt="Once upon a time", max_tokens=1)["usage"]["completion_tokens"] == 1
    assert complete(http, prompt="Once upon a time", max_tokens=None)["usage"]["completion_tokens"] == 16


def test_b017_a_seed_repeats_an_answer_and_none_varies_it(http):
    body = {"prompt": "Once upon", "temperature": 1.2, "max_tokens": 12}
    fixed = {complete_text(http, **body, seed=42) for _ in range(4)}
    assert len(fixed) == 1
    assert complete_text(http, **body, seed=43) not in fixed
    assert len({complete_text(http, **body) for _ in range(8)}) >= 4
    assert complete_text(http, **body, seed=-1) == complete_text(http, **body, seed=-1)
    check_error(http.post(COMPLETIONS, json={**body, "seed": 2**63}), 400, param="seed")


def test_b017_unseeded_answers_differ_after_a_restart(start_server, http):
    groups = []
    for _ in range(2):
        fresh = start_server()
        with httpx.Client(base_url=fresh.url, timeout=patient(60)) as other:
            groups.append([complete_text(other, prompt="Once upon", temperature=1.2, max_tokens=8) for _ in range(4)])
        fresh.stop()
    assert groups[0] != groups[1]


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_b019_n_choices_have_each_their_index_and_text(http, path):
    body = {"prompt": "Once upon", "messages": user("Tell me a story"), "n": 4, "temperature": 1.0, "seed": 5}
    body["max_tokens"] = 16
    first = http.post(path, json=body).json()
    assert [choice["index"] for choice in first["choices"]] == [0, 1, 2, 3]
    single = http.post(path, json={**body, "n": 1}).json()
    assert first["usage"]["prompt_tokens"] == single["usage"]["prompt_tokens"]
    assert first["choices"][0] == single["choices"][0]
    assert first["usage"]["completion_tokens"] <= 64
    texts = [str(choice.get("message", choice.get("text"))) for choice in first["choices"]]
    assert len(set(texts)) >= 2
    for _ in range(2):
        assert http.post(path, json=body).json()["choices"] == first["choices"]
    streamed = joined_stream(stream_events(http, path, body))
    assert sorted(streamed) == [0, 1, 2, 3]
    for choice in first["choices"]:
        text = choice["message"]["content"] if path == CHAT else choice["text"]
        assert streamed[choice["index"]]["text"] == text


def test_b020_the_best_answers_of_each_prompt_are_shown(http):
    prompts = ["example A", "example B"]
    for fields in ({"best_of": 1, "n": 2}, {"best_of": 4, "stream": True}, {"best_of": 0}):
        refused = http.post(COMPLETIONS, json={"prompt": prompts, "max_tokens": 8, **fields})
        check_error(refused, 400, param="best_of")
    fields = {"prompt": prompts, "max_tokens": 8, "temperature": 1, "seed": 1, "logprobs": 0}
    every = complete(http, **fields, n=4)
    best = complete(http, **fields, n=2, best_of=4)
    assert [choice["index"] for choice in best["choices"]] == [0, 1, 2, 3]
    assert best["usage"] == every["usage"]
    for first in (0, 4):
        ranked = sorted(every["choices"][first : first + 4], key=lambda c: -sum(c["logprobs"]["token_logprobs"]))
        shown = best["choices"][first // 2 : first // 2 + 2]
        assert [choice["text"] for choice in shown] == [choice["text"] for choice in ranked[:2]]
    hidden = complete(http, **{**fields, "logprobs": None}, n=2, best_of=4, echo=True)["choices"]
    for choice, same, prompt in zip(hidden, best["choices"], ["example A"] * 2 + ["example B"] * 2, strict=True):
        assert choice["text"] == prompt + same["text"] and choice["logprobs"] is None


@pytest.mark.parametrize("prompt", ["", [""], [], [[]], None, "missing", [1, "x"], ["x", 1], 7, {"a": 1}, [-1], [1.5]])
def test_b032_a_prompt_without_a_token_is_refused(http, prompt):
    body = {"prompt": prompt, "max_tokens": 1}
    if prompt == "missing":
        del body["prompt"]
    error = check_error(http.post(COMPLETIONS, json=body), 400, "prompt")
    assert error["param"].startswith("prompt")
    check_alive(http)


def test_more_choices_than_may_ever_wait_are_refused_for_good(http):
    refused = http.post(COMPLETIONS, json={"prompt": ["a"] * 100, "n": 100, "max_tokens": 1})
    check_error(refused, 400, param="n")


@pytest.mark.parametrize(
    ("field", "value"), [("suffix", "end"), ("logprobs", 21), ("logprobs", True), ("echo", 1), ("max_tokens", "all")]
)
def test_an_invalid_value_names_its_field(http, field, value):
    check_error(http.post(COMPLETIONS, json={"prompt": "hi", field: value}), 400, param=field)


def test_b016_edges_of_top_p_and_top_k_are_greedy_too(http):
    plain = complete_text(http, prompt="Once upon a time", max_tokens=12)
    for fields in ({"top_p": 0}, {"top_k": -1}, {"top_k": 0}, {"top_k": 49152 + 1_000_000}, {"top_p": 0, "top_k": 1}):
        assert complete_text(http, prompt="Once upon a time", max_tokens=12, **fields) == plain
    # With temperature, a share of nothing and the one best token are greedy as well.
    for fields in ({"top_p": 0}, {"top_k": 1}, {"min_p": 1}):
        assert complete_text(http, prompt="Once upon a time", max_tokens=12, temperature=1, **fields) == plain
    check_alive(http)


def test_b022_token_ids_beyond_the_vocabulary_are_refused(http):
    last = 49151
    body = {"messages": user("hi"), "max_tokens": 2}
    for bad in (last + 1, -1, 2**40, 2**63):
        error = check_error(http.post(CHAT, json={**body, "logit_bias": {str(bad): -100}}), 400, str(bad), str(last))
        assert error["param"] == "logit_bias"
        refused = http.post(CHAT, json={**body, "stop_token_ids": [bad], "min_tokens": 1})
        check_error(refused, 400, param="stop_token_ids")
        check_error(http.post(COMPLETIONS, json={"prompt": [bad]}), 400, param="prompt")
    check_alive(http)


def test_b023_a_bias_bans_and_forces_a_token(http):
    prompt = "The capital of France is"
    first = complete(http, prompt=prompt, max_tokens=1)["choices"][0]["text"]
    (token,) = tokenize(http, first)
    banned = complete_text(http, prompt=prompt, max_tokens=64, logit_bias={str(token): -100})
    assert first not in banned
    forced = complete_text(http, prompt=prompt, max_tokens=8, temperature=1, logit_bias={str(token): 100})
    assert forced == first * 8
    for bias in ({"AI": 1}, {"1": 1e9}, {"1": "x"}, {"1": None}, {"": 1}, {"1.5": 1}, [1]):
        refused = http.post(COMPLETIONS, json={"prompt": prompt, "max_tokens": 1, "logit_bias": bias})
        check_error(refused, 400, param="logit_bias")


def test_penalties_change_a_repetitive_answer(http):
    prompt = repeated("no no no no")
    plain = complete_text(http, prompt=prompt, max_tokens=24)
    for penalty in ({"frequency_penalty": 2}, {"repetition_penalty": 2}):
        assert complete_text(http, prompt=prompt, max_tokens=24, **penalty) != plain
