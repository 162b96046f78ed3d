"""Log-probabilities of answers and prompts."""

import math

import pytest
from wire_checks import (
    chat,
    check_error,
    check_same_in_stream,
    complete,
    joined_stream,
    repeated,
    stream_events,
    tokenize,
    user,
)

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"
HELLO = user("Hello")


def content_of(answer: dict) -> list[dict]:
    return answer["choices"][0]["logprobs"]["content"]


@pytest.mark.parametrize("top", [None, 0, 1, 5, 20])
@pytest.mark.parametrize("top_p", [1, 0.5])
def test_b025_every_allowed_number_of_alternatives_is_given(http, top, top_p):
    answer = chat(http, HELLO, logprobs=True, top_logprobs=top, max_tokens=3, top_p=top_p)
    assert len(content_of(answer)) == 3
    for entry in content_of(answer):
        values = [other["logprob"] for other in entry["top_logprobs"]]
        assert len(values) == (top or 0)
        assert values == sorted(values, reverse=True)
        if top:
            assert entry["top_logprobs"][0]["token"] == entry["token"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": -1}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": True}, "top_logprobs"),
        ({"logprobs": False, "top_logprobs": 2}, "top_logprobs"),
        ({"top_logprobs": 2}, "top_logprobs"),
    ],
)
def test_b025_senseless_numbers_of_alternatives_are_refused(http, fields, param):
    check_error(http.post(CHAT, json={"messages": HELLO, **fields}), 400, param=param)


def test_without_logprobs_there_are_none(http):
    assert chat(http, HELLO, max_tokens=2)["choices"][0]["logprobs"] is None
    assert complete(http, prompt="Hello", max_tokens=2)["choices"][0]["logprobs"] is None


def test_logprobs_are_of_the_raw_distribution(http):
    body = {"logprobs": True, "top_logprobs": 20, "max_tokens": 4, "seed": 1}
    raw = content_of(chat(http, HELLO, **body))
    assert sum(math.exp(other["logprob"]) for other in raw[0]["top_logprobs"]) <= 1.0 + 1e-5
    hot = content_of(chat(http, HELLO, **body, temperature=1.0, top_k=3, frequency_penalty=1.0))
    assert hot[0]["top_logprobs"] == raw[0]["top_logprobs"]


def test_b026_streamed_logprobs_are_those_of_the_whole_answer(http):
    body = {"model": "default", "messages": HELLO, "temperature": 0, "logprobs": True, "top_logprobs": 4}
    body["max_tokens"] = 24
    whole = check_same_in_stream(http, CHAT, body)
    streamed = joined_stream(stream_events(http, CHAT, body))[0]
    entries = [entry for part in streamed["logprobs"] for entry in part["content"]]
    assert entries == content_of(whole)
    assert len(entries) == whole["usage"]["completion_tokens"]


def test_streamed_completion_logprobs_are_those_of_the_whole_answer(http):
    for echo in (False, True):
        body = {"model": "default", "prompt": "Paris is in", "temperature": 0, "logprobs": 3, "max_tokens": 8}
        body["echo"] = echo
        whole = check_same_in_stream(http, COMPLETIONS, body)["choices"][0]["logprobs"]
        parts = joined_stream(stream_events(http, COMPLETIONS, body))[0]["logprobs"]
        for key in whole:
            assert [item for part in parts for item in part[key]] == whole[key]


def test_b028_a_prompt_is_scored_the_same_however_it_is_asked(http):
    text = "Paris is in France"
    body = {"echo": True, "logprobs": 2, "max_tokens": 1}
    first = complete(http, prompt=text, **body)
    logprobs = first["choices"][0]["logprobs"]
    assert len(logprobs["tokens"]) == first["usage"]["prompt_tokens"] + 1
    assert logprobs["token_logprobs"][0] is None and logprobs["top_logprobs"][0] is None
    assert all(math.isfinite(score) for score in logprobs["token_logprobs"][1:])
    assert "".join(logprobs["tokens"]) == first["choices"][0]["text"]
    starts = [len("".join(logprobs["tokens"][:i])) for i in range(len(logprobs["tokens"]))]
    assert logprobs["text_offset"] == starts
    ids = tokenize(http, text)
    for other in ({"prompt": text, "temperature": 1, "top_k": 1}, {"prompt": ids}, {"prompt": text, "cache_salt": "a"}):
        again = complete(http, **body, **other)["choices"][0]
        assert again["logprobs"] == logprobs and again["text"] == first["choices"][0]["text"]
    # Greedy scores of the answer are those of the same text as a prompt.
    longer = complete(http, prompt=first["choices"][0]["text"], **{**body, "max_tokens": 0})["choices"][0]["logprobs"]
    for mine, theirs in zip(longer["token_logprobs"][1:], logprobs["token_logprobs"][1:], strict=True):
        assert abs(mine - theirs) < 1e-3


def test_b029_bytes_rebuild_the_text_and_alternatives_are_all_there(http):
    line = "🦙é 漢"
    messages = [*user("Repeat."), {"role": "assistant", "content": repeated(line)}, *user("Repeat.")]
    whole = chat(http, messages, logprobs=True, top_logprobs=5, max_tokens=12, ignore_eos=True)
    entries = content_of(whole)
    rebuilt = b"".join(bytes(entry["bytes"]) for entry in entries).decode("utf-8", errors="replace")
    assert rebuilt.startswith(whole["choices"][0]["message"]["content"].removesuffix("\ufffd"))
    for entry in entries:
        assert len(entry["top_logprobs"]) == 5
        assert len({(other["token"], tuple(other["bytes"])) for other in entry["top_logprobs"]}) == 5


def test_b029_completion_alternatives_that_look_alike_are_all_there(http):
    logprobs = complete(http, prompt=repeated("🦙é 漢"), logprobs=5, max_tokens=8)["choices"][0]["logprobs"]
    assert any("\ufffd" in token for token in logprobs["tokens"])
    assert all(len(top) == 5 for top in logprobs["top_logprobs"])


def test_a_harness_finds_the_likelier_ending(http):
    """As lm-eval asks: context and ending as token ids, echoed and scored without a new token."""
    context = tokenize(http, "The capital of France is")
    scores, greedy = [], []
    for ending in (" Paris", " London", " banana"):
        ids = tokenize(http, ending)
        body = {"prompt": [context + ids], "max_tokens": 0, "echo": True, "logprobs": 1, "seed": 1234}
        (choice,) = complete(http, **body)["choices"]
        tokens, tops = choice["logprobs"]["token_logprobs"], choice["logprobs"]["top_logprobs"]
        assert len(tokens) == len(context) + len(ids)
        scores.append(sum(tokens[len(context) :]))
        greedy.append(
            all(
                score == max(top.values())
                for score, top in zip(tokens[len(context) :], tops[len(context) :], strict=True)
            )
        )
    assert scores == sorted(scores, reverse=True) and greedy == [True, False, False]


@pytest.mark.parametrize("top", [0, 3])
def test_prompt_logprobs_are_those_of_an_echo(http, top):
    text = "Paris is in France"
    echoed = complete(http, prompt=text, echo=True, logprobs=top, max_tokens=0)["choices"][0]["logprobs"]
    (choice,) = complete(http, prompt=text, prompt_logprobs=top, max_tokens=1)["choices"]
    listed = choice["prompt_logprobs"]
    assert choice["logprobs"] is None and listed[0] is None
    for token_id, entry, score, top_scores in zip(
        tokenize(http, text)[1:], listed[1:], echoed["token_logprobs"][1:], echoed["top_logprobs"][1:], strict=True
    ):
        assert entry[str(token_id)]["logprob"] == score
        assert entry[str(token_id)]["rank"] >= 1
        assert {other["decoded_token"]: other["logprob"] for other in entry.values()}.items() >= top_scores.items()
        assert top <= len(entry) <= top + 1
    answer = chat(http, HELLO, prompt_logprobs=top, logprobs=True, max_tokens=2)
    assert len(answer["prompt_logprobs"]) == answer["usage"]["prompt_tokens"]
    assert all(entry["top_logprobs"] == [] for entry in content_of(answer))
    for path, body in ((COMPLETIONS, {"prompt": text}), (CHAT, {"messages": HELLO})):
        check_error(
            http.post(path, json={**body, "prompt_logprobs": top, "stream": True}), 400, param="prompt_logprobs"
        )
