"""Ranks of one server: tiny mixtures with rows that travel to their experts, against one rank; experts that
are recorded, placed by a record and moved while requests run; a rank that fails."""

import concurrent.futures

import httpx
import openai
import pytest
from golden_server import client_of, complete, serve, tokens
from server_process import STOP_TIMEOUT_S

EXACT = ["--precision", "exact", "--kv-cache-dtype", "f32"]
DEP2 = ["--tp-size", "2", "--dp-size", "2", "--enable-dp-attention"]
DEP4 = ["--tp-size", "4", "--dp-size", "4", "--enable-dp-attention"]
EPLB = ["--enable-eplb", "--eplb-rebalance-num-iterations", "5"]
CASES = {
    "qwen3_ep2": ("qwen_moe/qwen3_moe", ["--tp-size", "2", "--ep-size", "2"]),
    "qwen3_dep4_eplb": ("qwen_moe/qwen3_moe", [*DEP4, *EPLB, "--ep-num-redundant-experts", "4"]),
    "v3_mtp_dep2": ("deepseek_drafts/v3_mtp", [*DEP2, "--speculative-algorithm", "NEXTN"]),
    "v4_dspark_dep2_eplb": ("deepseek_drafts/v4_dspark", [*DEP2, *EPLB, "--speculative-algorithm", "DSPARK"]),
    "v41_dep2_ngram": ("deepseek_v41/tiny", [*DEP2, "--speculative-algorithm", "NGRAM"]),
}


@pytest.mark.parametrize("name", CASES)
def test_answers_are_those_of_one_rank(name, tmp_path):
    case, flags = CASES[name]
    prompts = [tokens(20 + i, 9 + 31 * i) for i in range(7)]
    (tmp_path / "one").mkdir()
    (tmp_path / "many").mkdir()
    with (
        serve(case, tmp_path / "one", *EXACT, "--threads", "1") as alone,
        serve(case, tmp_path / "many", *EXACT, *flags) as many,
        client_of(alone) as one,
        client_of(many) as other,
    ):
        expected = [complete(one, prompt).choices[0].text for prompt in prompts]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            together = list(pool.map(lambda prompt: complete(other, prompt).choices[0].text, prompts * 2))
        assert together == expected * 2
        if "--enable-eplb" in flags:
            assert "copies of experts move" in many.log_text()


def test_a_record_of_the_experts_places_those_of_the_next_server(tmp_path):
    case = "qwen_moe/qwen3_moe"
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
    prompts = [tokens(40 + i, 60) for i in range(4)]
    with serve(case, tmp_path / "first", *EXACT, *DEP2) as server, client_of(server) as client:
        control = httpx.Client(base_url=server.url)
        refused = control.post("/dump_expert_distribution_record")
        assert refused.status_code == 400
        assert "start_expert_distribution_record" in refused.text
        assert control.post("/stop_expert_distribution_record").status_code == 400
        complete(client, tokens(39, 50))  # before the record
        assert control.post("/start_expert_distribution_record").status_code == 200
        expected = [complete(client, prompt).choices[0].text for prompt in prompts]
        assert control.post("/stop_expert_distribution_record").status_code == 200
        complete(client, tokens(38, 50))  # and after it
        record = control.get("/dump_expert_distribution_record")
        assert record.headers["content-type"].startswith("application/json")
        # Three experts of every sparse layer for each token; the last layer computes those with logits.
        layers = [sum(layer) for layer in record.json()["logical_count"] if sum(layer) > 0]
        assert max(layers) == layers[0] == 3 * sum(len(prompt) + 23 for prompt in prompts)
    counts = tmp_path / "counts.json"
    counts.write_bytes(record.content)
    placed = ["--init-expert-location", str(counts), "--ep-num-redundant-experts", "2"]
    with serve(case, tmp_path / "second", *EXACT, *DEP2, *placed) as server, client_of(server) as client:
        assert [complete(client, prompt).choices[0].text for prompt in prompts] == expected


def test_a_dense_model_counts_no_experts(tmp_path):
    with serve("dense/llama", tmp_path) as server:
        refused = httpx.post(server.url + "/start_expert_distribution_record")
        assert refused.status_code == 400
        assert "no experts are counted" in refused.text


@pytest.mark.parametrize("flags", [["--tp-size", "2"], DEP4], ids=["tp2", "dep4"])
def test_a_rank_that_fails_ends_requests_and_the_server_with_an_error(flags, tmp_path):
    # Without drafts no steps are measured at the start.
    drill = ["--fail-rank-at-step", "40", "--speculative-algorithm", "NONE"]
    with (
        pytest.raises(AssertionError, match="exit status 1"),
        serve("qwen_moe/qwen3_moe", tmp_path, *flags, *drill) as server,
        client_of(server) as client,
    ):
        first = complete(client, tokens(1, 10), max_tokens=5)
        assert first.usage.completion_tokens == 5
        with pytest.raises(openai.InternalServerError) as failure:
            complete(client, tokens(2, 10), max_tokens=200)
        assert failure.value.status_code == 503
        assert "a rank failed during the step" in failure.value.message
        assert server.process.wait(STOP_TIMEOUT_S) == 1
        assert "the device has failed" in server.log_text()
