"""Tiny DeepSeek V4 and V4.1 checkpoints behind the server: prompts, streams, prefixes, samples, logprobs."""

import concurrent.futures
import random

import httpx
import openai
import pytest
from server_process import ROOT, ServerProcess

GOLDEN = ROOT / "tests" / "golden"
MODELS = {"v4": GOLDEN / "deepseek_v4" / "ratio_32", "v41": GOLDEN / "deepseek_v41" / "tiny"}
ANSWER = {"max_tokens": 24, "temperature": 0.0, "extra_body": {"ignore_eos": True}}


@pytest.fixture(scope="module", params=MODELS, ids=MODELS)
def deepseek(request, tmp_path_factory):
    log = tmp_path_factory.mktemp(request.param) / "server.log"
    flags = ["--model-path", str(MODELS[request.param]), "--enable-metrics", "--enable-cache-report"]
    # A small pool and small chunks: prefixes are evicted, prompts are cut in odd places.
    process = ServerProcess([*flags, "--max-total-tokens", "1024", "--chunked-prefill-size", "48"], log)
    try:
        process.wait_until_ready()
        yield process
    except BaseException:
        process.kill()
        raise
    process.stop()


@pytest.fixture
def model(deepseek):
    with openai.OpenAI(base_url=deepseek.url + "/v1", api_key="none", max_retries=0, timeout=120.0) as made:
        yield made


def complete(model: openai.OpenAI, prompt: list[int], **fields):
    return model.completions.create(model="default", prompt=prompt, **{**ANSWER, **fields})


def tokens(seed: int, count: int) -> list[int]:
    return random.Random(seed).choices(range(8, 256), k=count)


def test_a_cached_prefix_changes_no_token(deepseek, model):
    prompt = tokens(1, 200)
    httpx.post(deepseek.url + "/flush_cache").raise_for_status()
    first = complete(model, prompt, logprobs=3)
    again = complete(model, prompt, logprobs=3)
    assert first.usage.prompt_tokens_details.cached_tokens == 0
    assert again.usage.prompt_tokens_details.cached_tokens >= 160
    assert again.choices[0].text == first.choices[0].text
    assert again.choices[0].logprobs == first.choices[0].logprobs
    # A longer conversation goes on from the answer of the first.
    longer = complete(model, [*prompt, *tokens(2, 9)])
    httpx.post(deepseek.url + "/flush_cache").raise_for_status()
    assert complete(model, [*prompt, *tokens(2, 9)]).choices[0].text == longer.choices[0].text


def test_streams_and_whole_answers_agree(model):
    prompt = tokens(3, 70)
    whole = complete(model, prompt).choices[0].text
    chunks = complete(model, prompt, stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == whole


def test_neighbours_under_memory_pressure_change_no_token(deepseek, model):
    prompts = [tokens(10 + i, 20 + 37 * i) for i in range(8)]
    alone = [complete(model, prompt).choices[0].text for prompt in prompts]
    httpx.post(deepseek.url + "/flush_cache").raise_for_status()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda prompt: complete(model, prompt).choices[0].text, prompts * 3))
    assert together == alone * 3


def test_samples_of_one_prompt_are_reproducible(model):
    fields = {"n": 3, "temperature": 1.0, "seed": 7}
    first = [choice.text for choice in complete(model, tokens(4, 50), **fields).choices]
    assert len(set(first)) == 3
    assert [choice.text for choice in complete(model, tokens(4, 50), **fields).choices] == first


def test_chat_uses_the_vendors_encoding(deepseek):
    messages = [{"role": "system", "content": "be"}, {"role": "user", "content": "hi"}]
    body = {"model": "default", "messages": messages, "max_tokens": 4, "temperature": 0.0}
    answer = httpx.post(deepseek.url + "/v1/chat/completions", json=body, timeout=60.0)
    assert answer.status_code == 200, answer.text
    chat = {**body, "chat_template_kwargs": {"thinking": False}}
    without = httpx.post(deepseek.url + "/v1/chat/completions", json=chat, timeout=60.0)
    # The text about effort is the prompt of thinking alone.
    assert (
        without.json()["usage"]["prompt_tokens"] + 50 < answer.json()["usage"]["prompt_tokens"]
    ), without.text
