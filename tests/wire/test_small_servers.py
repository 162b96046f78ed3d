"""Servers with little room: short contexts, small pools, short queues, small prefill chunks."""

import asyncio
import random
import time

import httpx
import pytest
from patience import patient
from server_process import ServerProcess
from test_isolation import post_all
from wire_checks import (
    GREEDY,
    PROBE,
    check_alive,
    check_error,
    complete,
    complete_text,
    metric,
    prompt_of_tokens,
    stream_events,
    user,
    wait_until_idle,
)

COMPLETIONS = "/v1/completions"
CHUNK = 64
LENGTHS = (1, 63, 64, 65, 128, 129, 200)
CONTEXT = 256  # of the narrow server


class SmallServer:
    """A server with flags of its own and a client for it."""

    def __init__(self, flags: list[str], folder):
        self.process = ServerProcess(["--enable-metrics", *flags], folder / "server.log")
        self.process.wait_until_ready()
        self.http = httpx.Client(base_url=self.process.url, timeout=patient(120))
        self.url = self.process.url
        self.metrics = self.process.metrics

    def stop(self) -> None:
        self.http.close()
        self.process.stop()


@pytest.fixture(scope="module", params=["16", "1"], ids=["page16", "page1"])
def chunked(request, tmp_path_factory):
    flags = ["--chunked-prefill-size", str(CHUNK), "--context-length", "512", "--max-total-tokens", "2048"]
    server = SmallServer([*flags, "--page-size", request.param], tmp_path_factory.mktemp("chunked"))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def narrow(tmp_path_factory):
    flags = ["--context-length", str(CONTEXT), "--max-running-requests", "4", "--max-queued-requests", "4"]
    server = SmallServer(flags, tmp_path_factory.mktemp("narrow"))
    yield server
    server.stop()


@pytest.mark.parametrize("chunked", ["16"], indirect=True, ids=["page16"])
def test_b077_prompts_around_the_chunk_size_read_the_same(http, chunked):
    bodies = [{"prompt": prompt_of_tokens(http, length, length), "max_tokens": 6} for length in LENGTHS]
    whole = [complete_text(http, **body) for body in bodies]
    assert [complete_text(chunked.http, **body) for body in bodies] == whole
    chunked.http.post("/flush_cache")
    decodes = [{**GREEDY, "prompt": f"{i} is", "max_tokens": 20, "ignore_eos": True} for i in range(4)]
    together = asyncio.run(post_all(chunked.url, [*decodes, *({**GREEDY, **body} for body in bodies)]))
    assert [answer.json()["choices"][0]["text"] for answer in together[4:]] == whole
    assert all(answer.json()["usage"]["completion_tokens"] == 20 for answer in together[:4])


@pytest.mark.parametrize("chunked", ["16"], indirect=True, ids=["page16"])
def test_b031_prompt_scores_do_not_depend_on_the_chunk_size(http, chunked):
    scoring = {**GREEDY, "echo": True, "logprobs": 1, "max_tokens": 1}
    bodies = [{**scoring, "prompt": prompt_of_tokens(http, length, 900 + length)} for length in LENGTHS[1:]]
    decodes = [{**GREEDY, "prompt": f"{i} is", "max_tokens": 20, "ignore_eos": True} for i in range(4)]
    busy = asyncio.run(post_all(chunked.url, [*decodes, *bodies]))[4:]
    for body, answer in zip(bodies, busy, strict=True):
        expected = complete(http, **body)["choices"][0]["logprobs"]
        got = answer.json()["choices"][0]["logprobs"]
        assert len(got["token_logprobs"]) == len(body["prompt"]) + 1
        assert got["tokens"] == expected["tokens"]
        for mine, theirs in zip(got["token_logprobs"][1:], expected["token_logprobs"][1:], strict=True):
            assert abs(mine - theirs) < 1e-3
    check_alive(chunked.http)


def test_b073_an_aborted_prefill_leaves_nothing_wrong_behind(http, chunked):
    rng = random.Random(5)
    for round_number in range(2):
        prompt = prompt_of_tokens(http, 400, 100 + round_number)
        body = {**GREEDY, "prompt": prompt, "max_tokens": 4}
        variant = {**body, "prompt": [*prompt[:200], *prompt_of_tokens(http, 50, 7)]}
        with pytest.raises(httpx.TimeoutException):
            httpx.post(chunked.url + COMPLETIONS, json={**body, "max_tokens": 100}, timeout=rng.uniform(0.02, 0.1))
        after = asyncio.run(post_all(chunked.url, [body, body, variant]))
        texts = [answer.json()["choices"][0]["text"] for answer in after]
        wait_until_idle(chunked)
        assert chunked.http.post("/flush_cache").status_code == 200
        assert texts == [complete_text(chunked.http, **each) for each in (body, body, variant)]
    wait_until_idle(chunked)


def random_request(rng: random.Random) -> tuple[dict, float]:
    """A request of mixed traffic and how long its client waits."""
    body = {"prompt": f"{rng.randint(0, 20)} birds " * rng.choice((1, 5, 30)), "max_tokens": rng.randint(0, 12)}
    body["temperature"] = rng.choice((0, 1))
    if rng.random() < 0.2:
        body["n"] = 2
    if rng.random() < 0.2:
        body["stop"] = ["s", "\n"]
    if rng.random() < 0.1:
        body["top_p"] = 7
    body["stream"] = rng.random() < 0.5
    return body, rng.uniform(0.005, 0.2) if rng.random() < 0.2 else 120.0


def test_b074_every_page_is_accounted_for_after_mixed_traffic(chunked):
    rng = random.Random(11)
    requests = [random_request(rng) for _ in range(60)]

    async def traffic() -> list[int]:
        gate = asyncio.Semaphore(16)
        async with httpx.AsyncClient(base_url=chunked.url) as client:

            async def one(body: dict, patience: float) -> int:
                async with gate:
                    try:
                        return (await client.post(COMPLETIONS, json=body, timeout=patience)).status_code
                    except httpx.TimeoutException:
                        return 0

            return await asyncio.gather(*(one(body, patience) for body, patience in requests))

    statuses = asyncio.run(traffic())
    assert set(statuses) <= {0, 200, 400} and statuses.count(200) > 30
    wait_until_idle(chunked)
    assert chunked.http.post("/flush_cache").status_code == 200
    assert metric(chunked, "kv_evictable_tokens") == 0
    assert metric(chunked, "kv_available_tokens") == metric(chunked, "max_total_num_tokens")
    # A request of the whole context still works.
    full = complete(chunked.http, prompt=prompt_of_tokens(chunked.http, 504), max_tokens=8, ignore_eos=True)
    assert full["usage"]["total_tokens"] == 512


def test_b040_an_answer_is_capped_where_the_context_ends(narrow):
    prompt = prompt_of_tokens(narrow.http, CONTEXT - 12)
    body = {**GREEDY, "prompt": prompt, "max_tokens": 100, "ignore_eos": True}
    whole = complete(narrow.http, **body)
    assert whole["usage"]["total_tokens"] == CONTEXT and whole["choices"][0]["finish_reason"] == "length"
    events = stream_events(narrow.http, COMPLETIONS, {**body, "stream_options": {"include_usage": True}})
    assert events[-1]["usage"]["total_tokens"] == CONTEXT
    assert "".join(event["choices"][0]["text"] for event in events[:-1]) == whole["choices"][0]["text"]
    for limit in (1, 2):
        edge = complete(
            narrow.http, **{**body, "prompt": prompt_of_tokens(narrow.http, CONTEXT - 1), "max_tokens": limit}
        )
        assert edge["usage"]["completion_tokens"] == 1
    for length in (CONTEXT, CONTEXT + 90):
        for stream in (False, True):
            too_long = {**body, "prompt": prompt_of_tokens(narrow.http, length), "stream": stream}
            error = check_error(narrow.http.post(COMPLETIONS, json=too_long), 400, str(length), str(CONTEXT))
            assert error["code"] == "context_length_exceeded"
    scored = complete(narrow.http, prompt=prompt_of_tokens(narrow.http, CONTEXT), max_tokens=0, echo=True, logprobs=1)
    assert len(scored["choices"][0]["logprobs"]["tokens"]) == CONTEXT


def test_b013_limits_are_bounded_by_the_context(narrow):
    prompt = "word " * (CONTEXT - 80)
    for body in ({"messages": user(prompt), "max_tokens": None}, {"prompt": prompt}):
        path = "/v1/chat/completions" if "messages" in body else COMPLETIONS
        body = {**GREEDY, "ignore_eos": True, "max_tokens": 1e9, **body}
        answer = narrow.http.post(path, json=body).json()
        assert answer["usage"]["total_tokens"] == CONTEXT and answer["choices"][0]["finish_reason"] == "length"


def test_b070_a_burst_beyond_the_queue_is_refused_at_once(narrow):
    bodies = [
        {**GREEDY, "prompt": f"{i} is", "max_tokens": 8, "ignore_eos": True, "stream": i % 2 == 0} for i in range(64)
    ]
    for _ in range(2):
        answers = asyncio.run(post_all(narrow.url, bodies))
        served = [answer for answer in answers if answer.status_code == 200]
        refused = [answer for answer in answers if answer.status_code != 200]
        assert len(served) >= 8
        for answer in refused:
            check_error(answer, 429, "try again")
            assert answer.headers["retry-after"]
        wait_until_idle(narrow.process)
    check_alive(narrow.http)


def test_b041_a_pool_smaller_than_the_context_bounds_it(tmp_path):
    server = SmallServer(["--max-total-tokens", "256", "--context-length", "1024"], tmp_path)
    try:
        too_long = {**GREEDY, "prompt": prompt_of_tokens(server.http, 300), "max_tokens": 1}
        check_error(server.http.post(COMPLETIONS, json=too_long), 400, "300", "256")
        long = {**GREEDY, "prompt": prompt_of_tokens(server.http, 220), "max_tokens": 200, "ignore_eos": True}
        answers = asyncio.run(
            post_all(server.url, [long, {**long, "prompt": prompt_of_tokens(server.http, 200, 1)}, PROBE])
        )
        assert answers[0].json()["usage"]["total_tokens"] <= 256
        assert [answer.json()["choices"][0]["finish_reason"] for answer in answers] == ["length"] * 3
        started = time.monotonic()
        check_alive(server.http)
        assert time.monotonic() - started < patient(5)
    finally:
        server.stop()


def test_an_api_key_guards_all_but_health_and_metrics(tmp_path):
    server = SmallServer(["--api-key", "secret"], tmp_path)
    try:
        for path in ("/v1/models", "/get_server_info", "/flush_cache"):
            check_error(server.http.get(path), 401, "API key")
        for key in ("", "Bearer", "Bearer wrong", "Bearer secret2", "secret"):
            refused = server.http.post(COMPLETIONS, json=PROBE, headers={"Authorization": key})
            check_error(refused, 401, "API key")
        for path in ("/health", "/metrics"):
            assert server.http.get(path).status_code == 200
        server.http.headers["Authorization"] = "Bearer secret"
        check_alive(server.http)
    finally:
        server.stop()


def test_metrics_are_off_unless_asked_for(start_server):
    server = start_server()
    check_error(httpx.get(server.url + "/metrics"), 404, "--enable-metrics")
