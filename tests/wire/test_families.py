"""Tiny checkpoints of every family behind the server: answers, prefixes, streams, neighbours."""

import concurrent.futures

import httpx
import pytest
from golden_server import client_of, complete, serve, tokens

CASES = [
    "qwen_moe/qwen3_moe",
    "qwen_moe/qwen2_moe",
    "gpt_oss/gpt_oss",
    "deepseek_v3/deepseek_v3",
    "deepseek_v32/deepseek_v32",
    "deepseek_v4/ratio_32",
    "deepseek_v41/tiny",
]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.replace("/", "_"))
def served(request, tmp_path_factory):
    with serve(request.param, tmp_path_factory.mktemp("served"), "--threads", "2") as process:
        yield process


@pytest.fixture
def model(served):
    with client_of(served) as client:
        yield client


def flush(served) -> None:
    httpx.post(served.url + "/flush_cache").raise_for_status()


def test_a_cached_prefix_changes_no_token(served, model):
    prompt = tokens(1, 200)
    flush(served)
    first = complete(model, prompt, logprobs=3)
    again = complete(model, prompt, logprobs=3)
    assert first.usage.prompt_tokens_details.cached_tokens == 0
    assert again.usage.prompt_tokens_details.cached_tokens >= 160
    assert again.choices[0].text == first.choices[0].text
    assert again.choices[0].logprobs == first.choices[0].logprobs
    # A longer conversation goes on from the answer of the first.
    longer = complete(model, [*prompt, *tokens(2, 9)])
    flush(served)
    assert complete(model, [*prompt, *tokens(2, 9)]).choices[0].text == longer.choices[0].text


def test_streams_and_whole_answers_agree(model):
    prompt = tokens(3, 70)
    whole = complete(model, prompt).choices[0].text
    chunks = complete(model, prompt, stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == whole


def test_neighbours_under_memory_pressure_change_no_token(served, model):
    prompts = [tokens(10 + i, 20 + 37 * i) for i in range(8)]
    alone = [complete(model, prompt).choices[0].text for prompt in prompts]
    flush(served)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda prompt: complete(model, prompt).choices[0].text, prompts * 2))
    assert together == alone * 2


def test_samples_of_one_prompt_are_reproducible(model):
    fields = {"n": 3, "temperature": 1.0, "seed": 7}
    first = [choice.text for choice in complete(model, tokens(4, 50), **fields).choices]
    assert len(set(first)) == 3
    assert [choice.text for choice in complete(model, tokens(4, 50), **fields).choices] == first


def test_a_chat_is_answered(model):
    answer = model.chat.completions.create(
        model="default", messages=[{"role": "user", "content": "Hello"}], max_tokens=4, temperature=0.0
    )
    assert answer.usage.completion_tokens >= 1
