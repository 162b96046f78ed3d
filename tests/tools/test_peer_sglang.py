"""What tools/gpu/peer_sglang.py makes of the loads of two servers."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "tools" / "gpu"))
import peer_sglang


def line(server, what, **result):
    return {"server": server, "model": "qwen3-8b", "what": what, "result": result}


def test_a_steady_step_is_between_the_last_first_token_and_the_first_end() -> None:
    # The first answer's early tokens wait for the second's prompt, its last is alone.
    result = {"ttfts": [1.0, 3.0], "e2els": [5.0, 4.5], "itls": [[2.0, 0.5, 0.5, 0.5, 0.5], [0.75, 0.75]]}
    assert peer_sglang.steady_step_ms(result) == pytest.approx(500.0)


def test_answers_that_never_run_together_have_no_steady_step() -> None:
    assert peer_sglang.steady_step_ms({"ttfts": [1.0, 5.0], "e2els": [2.0, 6.0], "itls": [[0.5], [0.5]]}) is None


def test_more_tokens_and_less_time_are_better() -> None:
    lines = [
        line("hayate", "start", first_token_s=2.0),
        line("sglang", "start", first_token_s=60.0),
        line("hayate", "clients", output_throughput=5000.0),
        line("sglang", "clients", output_throughput=4000.0),
        line("hayate", "clients", output_throughput=7000.0),
    ]
    assert list(peer_sglang.compare(lines)) == [
        ("qwen3-8b", "process start to first token, s", "2.0", "60.0", 30.0),
        ("qwen3-8b", "output tokens/s", "6,000", "4,000", 1.5),
    ]


def test_what_only_one_server_has_is_left_out() -> None:
    lines = [line("hayate", "decode", steady_step_ms=7.0), line("sglang", "decode", steady_step_ms=None)]
    assert list(peer_sglang.compare(lines)) == []


def test_a_server_or_load_that_does_not_exist_is_refused() -> None:
    with pytest.raises(SystemExit):
        peer_sglang.parse(["hayate", "--order", "hayate,other"])
    with pytest.raises(SystemExit):
        peer_sglang.parse(["hayate", "--loads", "clients,"])
