"""Drafts change no answer: tiny checkpoints with their draft blocks or heads, and drafts from the text,
against the same servers without. All drafts that there are get verified, whatever they cost."""

import concurrent.futures

import pytest
from golden_server import GOLDEN, client_of, complete, serve, tokens

# As SGLang's documentation writes it.
EAGLE3 = [
    "--speculative-algorithm", "EAGLE3", "--speculative-num-steps", "3", "--speculative-eagle-topk", "1",
    "--speculative-num-draft-tokens", "4", "--speculative-draft-model-path",
]  # fmt: skip
MTP = ["--speculative-algorithm", "NEXTN", "--speculative-num-steps", "4"]
DSPARK = ["--speculative-algorithm", "DSPARK"]
STANDALONE = [
    "--speculative-algorithm", "STANDALONE", "--speculative-num-steps", "3", "--speculative-draft-model-path",
]  # fmt: skip
NGRAM = ["--speculative-algorithm", "NGRAM", "--speculative-num-steps", "6"]
CASES = {
    "v3_mtp": ("deepseek_drafts/v3_mtp", MTP),
    "v4_mtp": ("deepseek_drafts/v4_mtp", MTP),
    "v4_dspark": ("deepseek_drafts/v4_dspark", DSPARK),
    "v4_pro_dspark": ("deepseek_drafts/v4_pro_dspark", DSPARK),
    "v41_dspark": ("deepseek_drafts/v41_dspark", DSPARK),
    "llama_eagle3": ("eagle3/llama/target", [*EAGLE3, str(GOLDEN / "eagle3/llama/head")]),
    "qwen3_eagle3": ("eagle3/qwen3/target", [*EAGLE3, str(GOLDEN / "eagle3/qwen3/head")]),
    "llama_standalone": ("dense/llama", [*STANDALONE, str(GOLDEN / "dense/llama")]),
    "v4_ngram": ("deepseek_v4/ratio_32", NGRAM),
    "v41_ngram": ("deepseek_v41/tiny", NGRAM),
}


@pytest.fixture(scope="module", params=CASES)
def pair(request, tmp_path_factory):
    """Clients of a server that drafts and of one that does not."""
    case, flags = CASES[request.param]
    folders = [tmp_path_factory.mktemp(name) for name in ("drafting", "plain")]
    with (
        serve(case, folders[0], *flags, "--speculative-adaptive", "off") as drafting,
        serve(case, folders[1]) as plain,
        client_of(drafting) as one,
        client_of(plain) as other,
    ):
        yield one, other


def text(client, prompt: list[int], **fields) -> str:
    return complete(client, prompt, **fields).choices[0].text


def repetitive(seed: int, count: int) -> list[int]:
    return (tokens(seed, 12) * (count // 12 + 1))[:count]


@pytest.mark.parametrize("count", [1, 32, 100, 300])
def test_greedy_answers_are_the_plain_ones(pair, count):
    drafting, plain = pair
    for prompt in (tokens(count, count), repetitive(count, count)):
        assert text(drafting, prompt, max_tokens=80) == text(plain, prompt, max_tokens=80)
        # Again, from the cache that the first answer left.
        assert text(drafting, prompt, max_tokens=80) == text(plain, prompt, max_tokens=80)


def test_drafts_that_often_stand_and_often_do_not(pair):
    """Random weights agree on nothing; here answers are of few tokens, which repeat."""
    drafting, plain = pair
    for choices in (1, 2, 4):
        bias = {str(100 + token): 60 for token in range(choices)}
        for seed in range(2):
            answers = [
                complete(client, tokens(seed, 45), max_tokens=150, logit_bias=bias, logprobs=1).choices[0]
                for client in (drafting, plain)
            ]
            assert answers[0].text == answers[1].text
            assert answers[0].logprobs == answers[1].logprobs


def test_a_conversation_goes_on_from_pages_that_held_refused_drafts(pair):
    drafting, plain = pair
    prompt = tokens(5, 90)
    for turn in range(4):
        answers = [complete(client, prompt, max_tokens=37 + turn, logprobs=2) for client in (drafting, plain)]
        assert answers[0].choices[0].text == answers[1].choices[0].text
        assert answers[0].choices[0].logprobs == answers[1].choices[0].logprobs
        prompt = [*prompt, *tokens(50 + turn, 40)]


def test_samples_with_a_seed_are_the_plain_ones(pair):
    fields = {"temperature": 0.9, "top_p": 0.95, "seed": 11, "n": 3, "max_tokens": 40}
    one, other = (complete(client, tokens(6, 70), **fields).choices for client in pair)
    assert [choice.text for choice in one] == [choice.text for choice in other]


def test_neighbours_under_memory_pressure_change_no_token(pair):
    drafting, plain = pair
    prompts = [tokens(10 + i, 20 + 37 * i) for i in range(7)]
    expected = [text(plain, prompt) for prompt in prompts]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda prompt: text(drafting, prompt), prompts * 2))
    assert together == expected * 2
