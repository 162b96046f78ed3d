"""Speculative decoding changes how fast an answer comes, and nothing of the answer."""

import concurrent.futures
import random

import httpx
import pytest
from patience import patient
from server_process import ServerProcess
from wire_checks import generate, repeated

RECORDS = "".join(
    f'{{"id": {i}, "name": "user{i}", "email": "user{i}@example.com", "active": true}}\n' for i in range(8)
)
CODE = "def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n    return a - b\n\n\ndef mul(a, b):\n"
PROSE = "The old lighthouse keeper looked out over the sea and thought about"
SCHEMA = '{"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}, "required": ["name", "age"]}'


@pytest.fixture(scope="module")
def drafting(tmp_path_factory: pytest.TempPathFactory):
    """The default model with drafts from the request's own text, and little memory."""
    flags = ["--speculative-algorithm", "NGRAM", "--enable-metrics", "--max-total-tokens", "6144"]
    log = tmp_path_factory.mktemp("drafting") / "server.log"
    with ServerProcess(flags, log) as process, httpx.Client(base_url=process.url, timeout=patient(240)) as made:
        yield made


def mixed_requests() -> list[dict]:
    """Requests with every kind of sampler over texts that repeat and texts that do not."""
    rng = random.Random(1)
    texts = [RECORDS, CODE, PROSE, repeated("alpha beta gamma delta"), RECORDS + PROSE]
    samplers = [
        {},
        {"temperature": 0.8, "top_p": 0.9, "sampling_seed": 11},
        {"temperature": 1.0, "min_p": 0.05, "top_k": 40, "sampling_seed": 12},
        {"frequency_penalty": 0.7, "presence_penalty": 0.2},
        {"temperature": 0.6, "repetition_penalty": 1.1, "sampling_seed": 13},
        {"stop": ["user9", "gamma\n"], "min_new_tokens": 5},
        {"logit_bias": {"28": -5}},
        {"json_schema": SCHEMA},
        {"ignore_eos": True},
    ]
    requests = []
    for sampler in samplers:
        for text in texts:
            request = {"text": text, "sampling_params": {"max_new_tokens": rng.randint(24, 72), **sampler}}
            if rng.random() < 0.3:
                request |= {"return_logprob": True, "top_logprobs_num": 3}
            requests.append(request)
    rng.shuffle(requests)
    return requests


def answer(http: httpx.Client, request: dict) -> dict:
    given = generate(http, **{key: dict(value) if isinstance(value, dict) else value for key, value in request.items()})
    meta = given["meta_info"]
    kept = ("finish_reason", "prompt_tokens", "completion_tokens", "output_token_logprobs", "output_top_logprobs")
    return {"text": given["text"], "ids": given["output_ids"], **{key: meta.get(key) for key in kept}}


def test_every_answer_is_the_plain_one_under_a_mixed_load(http, drafting):
    requests = mixed_requests()
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        drafted = list(pool.map(lambda request: answer(drafting, request), requests))
        plain = list(pool.map(lambda request: answer(http, request), requests))
    for request, got, expected in zip(requests, drafted, plain, strict=True):
        assert got == expected, request


def test_repeated_text_is_drafted_and_counted(start_server):
    """With a fixed number of drafts, so that what is drafted does not depend on how busy the machine is."""
    server = start_server(
        "--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", "8", "--speculative-adaptive", "off",
        "--enable-metrics",
    )  # fmt: skip
    with httpx.Client(base_url=server.url, timeout=patient(120)) as client:
        given = generate(client, RECORDS, sampling_params={"max_new_tokens": 96, "ignore_eos": True})
        metrics = client.get("/metrics").text
    meta = given["meta_info"]
    assert meta["completion_tokens"] == 96
    # The first token comes without drafts; every step brings one token more than drafts stood.
    assert 0 < meta["spec_verify_ct"] <= 95 - meta["spec_accept_token_num"]
    assert meta["spec_accept_length"] == pytest.approx(1 + meta["spec_accept_token_num"] / meta["spec_verify_ct"])
    assert meta["spec_accept_length"] > 3.0
    for name in (
        "sglang:spec_verify_calls_total",
        "sglang:spec_accept_length",
        "sglang:spec_num_draft_tokens",
        "hayate:spec_accepted_per_verify_bucket",
    ):
        assert name in metrics


def test_stop_strings_end_answers_also_inside_a_draft(http, start_server):
    server = start_server(
        "--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", "8", "--speculative-adaptive", "off"
    )  # fmt: skip
    sampling = {"max_new_tokens": 96, "ignore_eos": True}
    whole = generate(http, RECORDS, sampling_params=sampling)["text"]
    accepted = 0
    with httpx.Client(base_url=server.url, timeout=patient(120)) as client:
        for at in range(0, 90, 9):
            stop = whole[at : at + 8]
            request = {"text": RECORDS, "sampling_params": {**sampling, "stop": stop}, "return_logprob": True}
            got = answer(client, request)
            assert got == answer(http, request)
            assert got["text"] == whole[: whole.index(stop)]
            accepted += generate(client, **request)["meta_info"]["spec_accept_token_num"]
    assert accepted > 30


def test_a_fixed_number_of_drafts_takes_no_measure_of_steps(start_server):
    server = start_server("--speculative-algorithm", "NGRAM", "--speculative-adaptive=off")
    assert "drafts a row, whatever they cost" in server.log_text()
    assert "ms of a step" not in server.log_text()


def test_a_declared_acceptance_length_is_kept(start_server):
    server = start_server(
        "--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", "5", "--speculative-forced-acceptance", "3.5"
    )  # fmt: skip
    with httpx.Client(base_url=server.url, timeout=patient(120)) as client:
        given = generate(client, PROSE, sampling_params={"max_new_tokens": 141, "ignore_eos": True})
    assert given["meta_info"]["completion_tokens"] == 141
    assert given["meta_info"]["spec_accept_length"] == pytest.approx(3.5, abs=0.15)


@pytest.mark.parametrize(
    ("flags", "mentions"),
    [
        (["--speculative-algorithm", "MAGIC"], "MAGIC"),
        (["--speculative-num-draft-tokens", "4"], "--speculative-algorithm"),
        (["--speculative-algorithm", "STANDALONE"], "--speculative-draft-model-path"),
        (["--speculative-algorithm", "NGRAM", "--speculative-draft-model-path", "x"], "--speculative-draft-model-path"),
        (
            ["--speculative-algorithm", "NGRAM", "--speculative-num-steps", "3", "--speculative-num-draft-tokens", "9"],
            "9",
        ),
        (["--speculative-algorithm", "NGRAM", "--speculative-forced-acceptance", "99"], "99"),
        (["--speculative-adaptive", "off"], "--speculative-algorithm"),
        (["--speculative-algorithm", "NGRAM", "--speculative-adaptive", "sometimes"], "sometimes"),
        (["--speculative-algorithm", "EAGLE3"], "--speculative-draft-model-path"),
        (["--speculative-algorithm", "NGRAM", "--speculative-eagle-topk", "4"], "--speculative-eagle-topk 4"),
    ],
)
def test_flags_that_do_not_fit_are_named(flags, mentions, tmp_path):
    process = ServerProcess(flags, tmp_path / "server.log")
    assert process.process.wait(patient(30)) != 0
    assert mentions in process.log_text()
