"""Tiny mixtures of experts and latent-attention models behind the server: answers, prefixes, neighbours."""

import concurrent.futures
import random
import shutil
import sys

import httpx
import openai
import pytest
from server_process import ROOT, ServerProcess

GOLDEN = ROOT / "tests" / "golden"
sys.path.insert(0, str(GOLDEN))
from byte_tokenizer import write_tokenizer

MODELS = [
    "qwen_moe/qwen3_moe",
    "qwen_moe/qwen2_moe",
    "gpt_oss/gpt_oss",
    "deepseek_v3/deepseek_v3",
    "deepseek_v32/deepseek_v32",
]
ANSWER = {"max_tokens": 12, "temperature": 0.0, "extra_body": {"ignore_eos": True}}


@pytest.fixture(scope="module", params=MODELS, ids=lambda name: name.split("/")[1])
def served(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint")
    for file in ("config.json", "model.safetensors"):
        shutil.copy(GOLDEN / request.param / file, folder)
    write_tokenizer(folder)
    # A small pool and small chunks: prefixes are evicted, prompts are cut in odd places.
    flags = ["--model-path", str(folder), "--enable-cache-report", "--threads", "2"]
    process = ServerProcess(
        [*flags, "--max-total-tokens", "1024", "--chunked-prefill-size", "48"], folder / "server.log"
    )
    try:
        process.wait_until_ready()
        yield process
    except BaseException:
        process.kill()
        raise
    process.stop()


@pytest.fixture
def model(served):
    with openai.OpenAI(base_url=served.url + "/v1", api_key="none", max_retries=0, timeout=120.0) as made:
        yield made


def complete(model: openai.OpenAI, prompt: list[int], **fields):
    return model.completions.create(model="default", prompt=prompt, **{**ANSWER, **fields})


def tokens(seed: int, count: int) -> list[int]:
    return random.Random(seed).choices(range(8, 256), k=count)


def test_a_cached_prefix_changes_no_token(served, model):
    prompt = tokens(1, 200)
    httpx.post(served.url + "/flush_cache").raise_for_status()
    first = complete(model, prompt, logprobs=3)
    again = complete(model, prompt, logprobs=3)
    assert first.usage.prompt_tokens_details.cached_tokens == 0
    assert again.usage.prompt_tokens_details.cached_tokens >= 160
    assert again.choices[0].text == first.choices[0].text
    assert again.choices[0].logprobs == first.choices[0].logprobs


def test_streams_and_whole_answers_agree(model):
    prompt = tokens(3, 70)
    whole = complete(model, prompt).choices[0].text
    chunks = complete(model, prompt, stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == whole


def test_neighbours_under_memory_pressure_change_no_token(served, model):
    prompts = [tokens(10 + i, 20 + 37 * i) for i in range(6)]
    alone = [complete(model, prompt).choices[0].text for prompt in prompts]
    httpx.post(served.url + "/flush_cache").raise_for_status()
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        together = list(pool.map(lambda prompt: complete(model, prompt).choices[0].text, prompts * 2))
    assert together == alone * 2


def test_a_chat_is_answered(model):
    answer = model.chat.completions.create(
        model="default", messages=[{"role": "user", "content": "Hello"}], max_tokens=4, temperature=0.0
    )
    assert answer.usage.completion_tokens >= 1
