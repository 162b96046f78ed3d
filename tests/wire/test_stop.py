"""Stop strings and stop tokens, and text that ends inside a character."""

import pytest
from wire_checks import check_alive, check_error, check_same_in_stream, complete, complete_text, repeated, tokenize

COMPLETIONS = "/v1/completions"
WORDS = "alpha beta gamma delta"


def stopped(http, stop, **fields) -> dict:
    body = {"model": "default", "temperature": 0, "prompt": repeated(WORDS), "max_tokens": 20, "stop": stop, **fields}
    return check_same_in_stream(http, COMPLETIONS, body)


@pytest.mark.parametrize(
    ("stop", "text", "matched"),
    [
        (["ta gam"], "alpha be", "ta gam"),
        (["delta", "a g"], "alpha bet", "a g"),
        ("alpha", "", "alpha"),
        (["gamma delta\nalpha", "\n"], WORDS, "\n"),
        (["delta\nalp"], "alpha beta gamma ", "delta\nalp"),
        (["mma", "gamma"], "alpha beta ", "gamma"),
    ],
)
def test_b008_the_first_stop_string_in_the_text_ends_it(http, stop, text, matched):
    choice = stopped(http, stop)["choices"][0]
    assert (choice["text"], choice["finish_reason"], choice["matched_stop"]) == (text, "stop", matched)


def test_a_stop_string_may_be_kept(http):
    for field in ("no_stop_trim", "include_stop_str_in_output"):
        assert stopped(http, ["ta gam"], **{field: True})["choices"][0]["text"] == "alpha beta gam"


def test_a_tail_that_only_looked_like_a_stop_string_is_delivered(http):
    whole = stopped(http, ["delta\nalpha beta gamma deltoid"], max_tokens=7)["choices"][0]
    assert whole["finish_reason"] == "length"
    assert whole["text"] == complete_text(http, prompt=repeated(WORDS), max_tokens=7)


def test_min_tokens_holds_stop_strings_back_too(http):
    choice = stopped(http, ["alpha"], min_tokens=4)
    assert choice["choices"][0]["text"].startswith(WORDS + "\n")
    assert choice["usage"]["completion_tokens"] > 4


def test_a_stop_token_of_the_request_ends_the_answer(http):
    (token,) = tokenize(http, " gamma")
    choice = stopped(http, None, stop_token_ids=[token])["choices"][0]
    assert (choice["text"], choice["finish_reason"], choice["matched_stop"]) == ("alpha beta", "stop", token)
    ignored = stopped(http, None, stop_token_ids=[token], ignore_eos=True)["choices"][0]
    assert ignored["finish_reason"] == "length"


def test_b010_an_empty_stop_string_stops_nothing(http):
    plain = complete_text(http, prompt="Say hello", max_tokens=8)
    assert plain
    for stop in ("", [""], [], None):
        assert complete_text(http, prompt="Say hello", max_tokens=8, stop=stop) == plain


def test_too_many_or_too_long_stop_strings_are_refused(http):
    for stop in ([f"s{i}" for i in range(257)], ["x" * 70_000]):
        check_error(http.post(COMPLETIONS, json={"prompt": "hi", "stop": stop}), 400, param="stop")


def test_b011_logprobs_stay_in_step_with_a_stopped_text(http):
    whole = stopped(http, ["gam"], logprobs=2)
    entry = whole["choices"][0]["logprobs"]
    assert whole["choices"][0]["text"] == "alpha beta "
    assert "".join(entry["tokens"]).startswith("alpha beta ")
    assert len(entry["tokens"]) <= whole["usage"]["completion_tokens"]
    assert all(offset <= len("alpha beta ") for offset in entry["text_offset"])


@pytest.mark.parametrize("line", ["🦙漢字é🫠", "🦙é 漢", "👩‍🚀 naïve 𝒜"])
def test_b001_characters_of_several_tokens_arrive_whole(http, line):
    body = {"model": "default", "temperature": 0, "prompt": repeated(line), "max_tokens": 60, "stop": "\n"}
    whole = check_same_in_stream(http, COMPLETIONS, body)["choices"][0]
    assert whole["text"] == line and whole["finish_reason"] == "stop"


def test_b002_an_answer_may_end_inside_a_character(http):
    line = "🦙🦙🦙🦙"
    length = complete(http, prompt=repeated(line), max_tokens=60, stop="\n")["usage"]["completion_tokens"] - 1
    assert length > 8
    for limit in range(1, 8):
        body = {"model": "default", "temperature": 0, "prompt": repeated(line), "max_tokens": limit, "stop": "\n"}
        whole = check_same_in_stream(http, COMPLETIONS, body)
        text = whole["choices"][0]["text"]
        assert whole["usage"]["completion_tokens"] == limit
        assert whole["choices"][0]["finish_reason"] == "length"
        assert line.startswith(text.removesuffix("\ufffd"))
    check_alive(http)


def test_b002_random_pieces_of_characters_are_valid_utf8(http):
    pieces = {str(token): 100 for token in tokenize(http, "🦙𝒜漢é🫠")}
    for seed in range(5):
        body = {"model": "default", "prompt": "x", "max_tokens": 12, "logit_bias": pieces, "temperature": 1.5}
        whole = check_same_in_stream(http, COMPLETIONS, {**body, "seed": seed})
        assert whole["usage"]["completion_tokens"] == 12
    check_alive(http)


@pytest.mark.parametrize(
    ("pattern", "text", "matched"),
    [
        (r"b\w+a", "alpha ", r"b\w+a"),
        (["zz", r"\sg"], "alpha beta", r"\sg"),
        (r"(?<=alpha )beta", "alpha ", r"(?<=alpha )beta"),
        ("nothing", WORDS, "\n"),
    ],
)
def test_an_expression_ends_the_answer(http, pattern, text, matched):
    choice = stopped(http, "\n", stop_regex=pattern)["choices"][0]
    assert (choice["text"], choice["finish_reason"], choice["matched_stop"]) == (text, "stop", matched)


def test_an_expression_may_be_kept_and_must_be_right(http):
    assert stopped(http, "\n", stop_regex=r"b\w+a", no_stop_trim=True)["choices"][0]["text"] == "alpha beta"
    for pattern in ("a(b", ["a"] * 9, "x" * 5000, [7]):
        body = {"prompt": "x", "max_tokens": 1, "stop_regex": pattern}
        check_error(http.post(COMPLETIONS, json=body), 400, param="stop_regex")
