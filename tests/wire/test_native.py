"""SGLang's /generate, tokenizer routes, and the routes of operators."""

import itertools
import threading
import time

import httpx
import pytest
from patience import patient
from wire_checks import (
    PROBE,
    check_alive,
    check_error,
    complete_text,
    generate,
    metric,
    parse_sse,
    tokenize,
    user,
    wait_until_idle,
)

PROMPT = "The capital of France is"
UNICODE = [
    "🦙𝒜\u200d👩‍🚀",
    "a\x00b",
    "one\r\ntwo",
    "".join(map(chr, range(0x80, 0x100))),
    " ",
    "<|im_end|>x",
    "日本語" * 50,
]


def test_generate_answers_one_prompt(http):
    answer = generate(http, PROMPT, sampling_params={"max_new_tokens": 4})
    assert answer["text"] == complete_text(http, prompt=PROMPT, max_tokens=4)
    assert len(answer["output_ids"]) == 4
    meta = answer["meta_info"]
    assert meta["finish_reason"] == {"type": "length", "length": 4}
    assert (meta["prompt_tokens"], meta["completion_tokens"]) == (len(tokenize(http, PROMPT)), 4)
    again = http.post(
        "/generate",
        json={"input_ids": tokenize(http, PROMPT), "sampling_params": {"temperature": 0, "max_new_tokens": 4}},
    ).json()
    assert again["output_ids"] == answer["output_ids"]


def test_generate_makes_128_tokens_unless_told(http):
    answer = generate(http, "Once upon a time", sampling_params={"ignore_eos": True})
    assert answer["meta_info"]["completion_tokens"] == 128


def test_generate_answers_a_batch_in_order(http):
    prompts = [PROMPT, "One two three", "def f(x):"]
    alone = [generate(http, prompt, sampling_params={"max_new_tokens": 6})["text"] for prompt in prompts]
    batch = generate(http, prompts, sampling_params={"max_new_tokens": 6}, rid="batch")
    assert [answer["text"] for answer in batch] == alone
    assert [answer["meta_info"]["id"] for answer in batch] == ["batch_0", "batch_1", "batch_2"]
    named = generate(http, prompts, sampling_params={"max_new_tokens": 1}, rid=["a", "b", "c"])
    assert [answer["meta_info"]["id"] for answer in named] == ["a", "b", "c"]
    assert isinstance(generate(http, [PROMPT], sampling_params={"max_new_tokens": 1}), list)


def test_generate_takes_sampling_params_for_each_prompt(http):
    own = [{"temperature": 0, "max_new_tokens": 2}, {"temperature": 0, "max_new_tokens": 9, "stop": "e"}]
    body = {"text": [PROMPT, PROMPT], "sampling_params": own}
    answers = http.post("/generate", json=body).json()
    alone = [generate(http, PROMPT, sampling_params=params) for params in own]
    assert [answer["text"] for answer in answers] == [answer["text"] for answer in alone]
    assert [answer["meta_info"]["completion_tokens"] for answer in answers] == [
        answer["meta_info"]["completion_tokens"] for answer in alone
    ]
    check_error(http.post("/generate", json={**body, "sampling_params": own[:1]}), 400, "1 objects for 2 prompts")


def test_generate_streams_text_that_grows(http):
    body = {"text": PROMPT, "sampling_params": {"temperature": 0, "max_new_tokens": 12}, "stream": True}
    events = parse_sse(http.post("/generate", json=body).text)
    whole = generate(http, PROMPT, sampling_params={"max_new_tokens": 12})
    for earlier, later in itertools.pairwise(events):
        assert later["text"].startswith(earlier["text"])
        assert earlier["meta_info"]["finish_reason"] is None
    assert events[-1]["text"] == whole["text"] and events[-1]["output_ids"] == whole["output_ids"]
    assert events[-1]["meta_info"]["finish_reason"] == whole["meta_info"]["finish_reason"]


def test_generate_names_what_stopped_it(http):
    prompt = "alpha beta gamma\n" * 6
    by_text = generate(http, prompt, sampling_params={"max_new_tokens": 9, "stop": "gamma"})
    assert by_text["text"] == "alpha beta "
    assert by_text["meta_info"]["finish_reason"] == {"type": "stop", "matched": "gamma"}
    (token,) = tokenize(http, " beta")
    by_token = generate(http, prompt, sampling_params={"max_new_tokens": 9, "stop_token_ids": [token]})
    assert by_token["text"] == "alpha"
    assert by_token["meta_info"]["finish_reason"] == {"type": "stop", "matched": token}


def test_generate_gives_logprob_tuples(http):
    ids = tokenize(http, PROMPT)
    answer = generate(
        http,
        PROMPT,
        sampling_params={"max_new_tokens": 3},
        return_logprob=True,
        logprob_start_len=0,
        top_logprobs_num=2,
        return_text_in_logprobs=True,
    )
    meta = answer["meta_info"]
    assert [entry[1] for entry in meta["input_token_logprobs"]] == ids
    assert meta["input_token_logprobs"][0][0] is None
    assert all(entry[0] < 0 for entry in meta["input_token_logprobs"][1:])
    assert [entry[1] for entry in meta["output_token_logprobs"]] == answer["output_ids"]
    assert "".join(entry[2] for entry in meta["output_token_logprobs"]) == answer["text"]
    assert meta["input_top_logprobs"][0] is None
    for top, entry in zip(meta["output_top_logprobs"], meta["output_token_logprobs"], strict=True):
        assert len(top) == 2 and top[0][:2] == entry[:2]
    tail = generate(http, PROMPT, sampling_params={"max_new_tokens": 1}, return_logprob=True, logprob_start_len=3)
    assert [entry[:2] for entry in tail["meta_info"]["input_token_logprobs"]] == [
        entry[:2] for entry in meta["input_token_logprobs"][3:]
    ]
    past = generate(http, PROMPT, sampling_params={"max_new_tokens": 1}, return_logprob=True, logprob_start_len=10_000)
    assert past["meta_info"]["input_token_logprobs"] == []


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "text"),
        ({"text": "a", "input_ids": [1]}, "text"),
        ({"text": ""}, "text"),
        ({"text": []}, "text"),
        ({"input_ids": []}, "input_ids"),
        ({"input_ids": [[]]}, "input_ids"),
        ({"input_ids": [49152]}, "input_ids"),
        ({"text": "a", "sampling_params": {"top_p": 9}}, "sampling_params.top_p"),
        ({"text": "a", "sampling_params": {"stop_token_ids": [-1]}}, "sampling_params.stop_token_ids"),
        ({"text": "a", "sampling_params": 3}, "sampling_params"),
        ({"text": ["a", "b"], "rid": ["x", "y", "z"]}, "rid"),
        ({"text": ["a", "b"], "rid": ["x", "x"]}, "rid"),
        ({"text": "a", "rid": ""}, "rid"),
        ({"text": "a", "sampling_params": {"regex": "a("}}, "sampling_params.regex"),
    ],
)
def test_generate_names_the_field_at_fault(http, fields, param):
    check_error(http.post("/generate", json=fields), 400, param=param)


def test_abort_ends_the_request_of_exactly_that_name(http, server):
    answers = {}

    def ask(rid):
        answers[rid] = generate(http, "Once", rid=rid, sampling_params={"max_new_tokens": 200, "ignore_eos": True})

    threads = [threading.Thread(target=ask, args=(rid,)) for rid in ("req-1", "req-10")]
    for thread in threads:
        thread.start()
    while metric(server, "num_running_reqs") < 2:
        time.sleep(0.01)
    check_error(http.post("/generate", json={"text": "x", "rid": "req-1"}), 400, "req-1", param="rid")
    assert http.post("/abort_request", json={"rid": "req-1"}).status_code == 200
    threads[0].join(patient(10))
    assert answers["req-1"]["meta_info"]["finish_reason"]["type"] == "abort"
    assert "req-10" not in answers
    threads[1].join(patient(60))
    assert answers["req-10"]["meta_info"]["finish_reason"] == {"type": "length", "length": 200}
    assert http.post("/abort_request", json={"rid": "never-seen"}).status_code == 200
    check_error(http.post("/abort_request", json={}), 400, param="rid")


def test_abort_reaches_one_prompt_of_a_batch_and_then_all(http, server):
    answers = []
    sampling = {"max_new_tokens": 2000, "ignore_eos": True}
    thread = threading.Thread(
        target=lambda: answers.extend(generate(http, ["Once", "Twice"], rid=["one", "two"], sampling_params=sampling))
    )
    thread.start()
    while metric(server, "num_running_reqs") < 2:
        time.sleep(0.01)
    http.post("/abort_request", json={"rid": "two"})
    while metric(server, "num_running_reqs") > 1:
        time.sleep(0.01)
    http.post("/abort_request", json={"abort_all": True})
    thread.join(patient(10))
    assert [answer["meta_info"]["finish_reason"]["type"] for answer in answers] == ["abort", "abort"]
    wait_until_idle(server)


@pytest.mark.parametrize("text", UNICODE)
def test_b079_detokenize_undoes_tokenize(http, text):
    made = http.post("/tokenize", json={"prompt": text}).json()
    assert made["count"] == len(made["tokens"]) and made["max_model_len"] == 8192
    back = http.post("/v1/detokenize", json={"tokens": made["tokens"], "skip_special_tokens": False}).json()
    assert back["text"] == text


def test_tokenize_takes_lists_and_conversations(http):
    listed = http.post("/v1/tokenize", json={"prompt": UNICODE}).json()
    assert listed["count"] == [len(ids) for ids in listed["tokens"]]
    back = http.post("/detokenize", json={"tokens": listed["tokens"], "skip_special_tokens": False}).json()
    assert back["text"] == UNICODE
    talk = http.post("/tokenize", json={"messages": user("hi")}).json()
    answer = http.post("/v1/chat/completions", json={"messages": user("hi"), "max_tokens": 1}).json()
    assert talk["count"] == answer["usage"]["prompt_tokens"]
    shown = http.post("/detokenize", json={"tokens": talk["tokens"], "skip_special_tokens": False}).json()["text"]
    assert shown.endswith("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")
    assert http.post("/tokenize", json={"prompt": ""}).json()["tokens"] == []


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": user("hi")}, "prompt"),
        ("/tokenize", {"prompt": 3}, "prompt"),
        ("/tokenize", {"messages": []}, "messages"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": [49152]}, "tokens"),
        ("/detokenize", {"tokens": [[1], 2]}, "tokens"),
        ("/detokenize", {"tokens": "hi"}, "tokens"),
    ],
)
def test_tokenizer_routes_name_the_field_at_fault(http, path, body, param):
    check_error(http.post(path, json=body), 400, param=param)


def test_a_long_text_in_the_tokenizer_stalls_nobody(http, server):
    """A stream keeps its pace while megabytes are tokenised for somebody else."""
    text = {"prompt": "lorem ipsum dolor " * 500_000}
    thread = threading.Thread(target=lambda: httpx.post(server.url + "/tokenize", json=text, timeout=patient(60)))
    thread.start()
    slowest = 0.0
    while thread.is_alive():
        started = time.monotonic()
        assert http.get("/health").status_code == 200
        slowest = max(slowest, time.monotonic() - started)
        time.sleep(0.005)
    assert slowest < patient(0.3)


def test_facts_of_model_and_server(http):
    model = http.get("/get_model_info").json()
    assert model["is_generation"] is True and model["vocab_size"] == 49152
    assert http.get("/model_info").json() == model
    info = http.get("/get_server_info").json()
    assert info["context_length"] == model["max_model_len"] == 8192
    assert info["internal_states"][0]["num_running_reqs"] == 0
    assert http.get("/server_info").json()["version"] == info["version"]
    listed = http.get("/v1/models").json()
    assert listed["object"] == "list" and listed["data"][0]["max_model_len"] == 8192


def test_health_routes(http):
    assert http.get("/health").status_code == 200
    assert http.get("/health_generate").status_code == 200


def test_flush_empties_the_cache_when_idle_and_refuses_when_busy(http, server):
    complete_text(http, **{**PROBE, "prompt": "A long shared beginning. " * 20})
    wait_until_idle(server)
    assert metric(server, "kv_evictable_tokens") > 0
    assert http.post("/flush_cache").status_code == 200
    assert metric(server, "kv_evictable_tokens") == 0
    busy = {"prompt": "a", "max_tokens": 2000, "ignore_eos": True, "stream": True}
    with http.stream("POST", "/v1/completions", json=busy) as response:
        lines = response.iter_lines()  # kept: a dropped iterator closes the response
        next(lines)
        check_error(http.get("/flush_cache"), 503, "running")
    wait_until_idle(server)
    assert http.get("/flush_cache").status_code == 200
    check_alive(http)


def test_metrics_have_sglangs_names(server):
    names = {key.split("{")[0] for key in server.metrics()}
    for name in (
        "num_running_reqs",
        "num_queue_reqs",
        "num_used_tokens",
        "token_usage",
        "cache_hit_rate",
        "gen_throughput",
        "max_total_num_tokens",
        "prompt_tokens_total",
        "generation_tokens_total",
        "cached_tokens_total",
        "num_requests_total",
        "num_aborted_requests_total",
        "time_to_first_token_seconds_bucket",
        "inter_token_latency_seconds_bucket",
        "e2e_request_latency_seconds_bucket",
    ):
        assert "sglang:" + name in names


def test_an_answer_that_a_stop_string_ends_counts_as_finished(http, server):
    wait_until_idle(server)
    before = {name: metric(server, name) for name in ("num_requests_total", "num_aborted_requests_total")}
    letters = complete_text(http, prompt="a", max_tokens=64, ignore_eos=True)
    complete_text(http, prompt="a", max_tokens=64, ignore_eos=True, stop=letters[len(letters) // 2])
    wait_until_idle(server)
    assert metric(server, "num_requests_total") == before["num_requests_total"] + 2
    assert metric(server, "num_aborted_requests_total") == before["num_aborted_requests_total"]


def test_cached_tokens_are_reported(http):
    body = {"prompt": "Some words that nobody has used as a beginning. " * 10, "max_tokens": 1}
    first = http.post("/v1/completions", json=body).json()["usage"]
    second = http.post("/v1/completions", json=body).json()["usage"]
    assert first["prompt_tokens_details"]["cached_tokens"] < 32
    assert second["prompt_tokens_details"]["cached_tokens"] >= first["prompt_tokens"] - 64
    salted = http.post("/v1/completions", json={**body, "cache_salt": "mine"}).json()["usage"]
    assert salted["prompt_tokens_details"]["cached_tokens"] == 0


def test_unknown_routes_and_methods(http):
    check_error(http.get("/v1/nothing"), 404, "/v1/nothing")
    wrong = http.get("/v1/chat/completions")
    check_error(wrong, 405, "POST")
    assert wrong.headers["allow"] == "POST"


def test_a_deadline_ends_the_request_with_408(server):
    body = {
        "text": PROMPT,
        "deadline_ms": 50,
        "sampling_params": {"max_new_tokens": 4000, "ignore_eos": True, "temperature": 0},
    }
    answer = httpx.post(server.url + "/generate", json=body, timeout=patient(60))
    assert answer.status_code == 408
    assert answer.json()["error"]["type"] == "timeout_error"
    wait_until_idle(server)
    body["deadline_ms"] = 0
    assert httpx.post(server.url + "/generate", json=body).json()["error"]["param"] == "deadline_ms"
