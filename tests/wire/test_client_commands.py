"""The commands of the binary around a server: hayate chat and hayate bench, with a server and without."""

import json
import signal
import subprocess
import time

import pytest
from patience import patient
from server_process import BINARY, default_model, free_port


def run(*arguments, stdin: str = "", timeout: float = 120.0) -> subprocess.CompletedProcess:
    command = [str(BINARY), *map(str, arguments)]
    return subprocess.run(command, check=False, input=stdin, capture_output=True, text=True, timeout=timeout)


def bench(url: str, *flags) -> dict:
    done = run("bench", "serve", "--base-url", url, "--json", *flags)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


SMALL_LOAD = ["--num-prompts", 12, "--random-input-len", 20, "--random-output-len", 8, "--max-concurrency", 4]


def test_bench_serve_gets_answers_of_exact_length(server):
    result = bench(server.url, *SMALL_LOAD)
    assert result["completed"] == 12
    assert result["total_input_tokens"] == 12 * 20
    assert result["total_output_tokens"] == 12 * 8
    assert result["num_wrong_length"] == 0
    assert 0 < result["median_ttft_ms"] <= result["p99_ttft_ms"] <= result["max_e2el_ms"]
    assert 1 < result["concurrency"] <= 4


@pytest.mark.parametrize("backend", ["openai-chat", "sglang"])
def test_bench_serve_speaks_the_other_dialects(server, backend):
    result = bench(server.url + "/v1", "--backend", backend, *SMALL_LOAD)
    assert result["completed"] == 12
    assert result["total_output_tokens"] == 12 * 8


def test_bench_serve_measures_prefix_reuse(server):
    flags = ["--dataset-name", "shared-prefix", "--shared-prefix-len", 256, "--num-prefix-groups", 2, "--seed", 7]
    result = bench(server.url, *SMALL_LOAD, *flags)
    assert result["total_input_tokens"] == 12 * 276
    assert result["total_cached_tokens"] >= 6 * 256


def test_bench_serve_takes_a_start_line_of_sglangs_bench_serving(server, tmp_path):
    path = tmp_path / "results.jsonl"
    flags = ["--backend", "sglang", "--host", "127.0.0.1", "--port", server.port, "--dataset-name"]
    flags += ["generated-shared-prefix", "--gsp-num-groups", 3, "--gsp-prompts-per-group", 4]
    flags += ["--gsp-system-prompt-len", 128, "--gsp-question-len", 16, "--gsp-output-len", 8]
    flags += ["--request-rate", "inf", "--max-concurrency", 2, "--seed", 3, "--disable-tqdm", "--flush-cache"]
    flags += ["--served-model-name", "default", "--tokenizer", "any", "--warmup-requests", 1]
    flags += ["--output-file", path, "--output-details"]
    done = run("bench", "serve", *flags)
    assert done.returncode == 0, done.stderr
    result = json.loads(path.read_text())
    assert result["completed"] == 12
    assert result["total_input_tokens"] == 12 * (128 + 16)
    assert result["total_output_tokens"] == 12 * 8


def test_bench_serve_appends_lines_to_its_file(server, tmp_path):
    path = tmp_path / "results.jsonl"
    for rate in ("inf", "40"):
        bench(server.url, *SMALL_LOAD, "--request-rate", rate, "--output-file", path, "--output-details")
    closed, opened = map(json.loads, path.read_text().splitlines())
    assert closed["request_rate"] == "inf" and opened["request_rate"] == 40
    assert [len(gaps) for gaps in closed["itls"]] and len(closed["ttfts"]) == 12
    assert closed["errors"] == [""] * 12


def test_bench_serve_counts_what_the_server_refuses(server):
    extra = ["--extra-request-body", '{"top_p": 7}', "--warmup-requests", 0]
    done = run("bench", "serve", "--base-url", server.url, *SMALL_LOAD, *extra)
    assert done.returncode == 1
    assert "0 of 12" in done.stdout and "12 x HTTP 400" in done.stdout and "top_p" in done.stdout


def test_bench_offline_counts_tokens_and_writes_a_trace_of_its_steps(tmp_path):
    lines, trace = tmp_path / "results.jsonl", tmp_path / "trace.json"
    flags = ["--model-path", default_model(), "--num-prompts", 5, "--input-len", 40, "--output-len", 6, "--json"]
    done = run("bench", "offline", *flags, "--output-file", lines, "--trace-file", trace, timeout=patient(120))
    assert done.returncode == 0, done.stderr
    result = json.loads(lines.read_text())
    assert result == json.loads(done.stdout)
    assert result["input_tokens"] == 5 * 40 and result["output_tokens"] == 5 * 6
    steps = [event["args"] for event in json.loads(trace.read_text())["traceEvents"] if event["name"] == "forward"]
    # The request that warms up has 40 tokens too.
    assert sum(step["prefill_tokens"] for step in steps) == 6 * 40
    assert max(step["decode_tokens"] for step in steps) == 5


def test_bench_offline_says_which_file_it_cannot_write(tmp_path):
    missing = tmp_path / "nowhere" / "trace.json"
    flags = ["--model-path", default_model(), "--num-prompts", 1, "--input-len", 8, "--output-len", 2]
    done = run("bench", "offline", *flags, "--trace-file", missing, timeout=patient(120))
    assert done.returncode == 1
    assert str(missing) in done.stderr


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--port", "0"], "--port"),
        (["--request-rate", "0"], "--request-rate"),
        (["--random-range-ratio", "1.5"], "--random-range-ratio"),
        (["--backend", "tgi"], "--backend"),
        (["--num-promts", "3"], "did you mean --num-prompts?"),
        (["--trust-remote-code"], "it is SGLang's: Hayate runs no code of a checkpoint"),
        (["--hicache-ratio=2"], "it is SGLang's"),
    ],
)
def test_bench_serve_refuses_senseless_flags(flags, message):
    done = run("bench", "serve", *flags)
    assert done.returncode == 2
    assert message in done.stderr


def test_clients_say_where_no_server_listens():
    url = f"http://127.0.0.1:{free_port()}"
    for command in (["bench", "serve", "--base-url", url], ["chat", "--url", url]):
        done = run(*command)
        assert done.returncode == 1
        assert url.removeprefix("http://") in done.stderr


def test_chat_answers_lines_of_a_pipe_through_a_server(server):
    flags = ["chat", "--url", server.url, "--temperature", 0, "--max-tokens", 12]
    one = run(*flags, stdin="What is the capital of France?\n")
    assert one.returncode == 0, one.stderr
    assert one.stdout.strip()
    # The second question is understood only together with the first; after /clear it is a first one.
    follow_up = "Say that again.\n"
    talk = run(*flags, stdin="What is the capital of France?\n" + follow_up).stdout
    cleared = run(*flags, stdin="What is the capital of France?\n/clear\n" + follow_up).stdout
    fresh = run(*flags, stdin=follow_up).stdout
    assert talk.startswith(one.stdout) and cleared == one.stdout + fresh != talk


def test_chat_answers_alike_with_the_model_in_its_own_process(server):
    sampling = ["--temperature", 0, "--max-tokens", 12]
    question = "Name a colour.\n/exit\nnever asked\n"
    remote = run("chat", "--url", server.url, *sampling, stdin=question)
    local = run("chat", "--model-path", default_model(), *sampling, stdin=question)
    assert local.returncode == 0, local.stderr
    assert local.stdout == remote.stdout != ""


def test_chat_shows_the_servers_refusal(server):
    done = run("chat", "--url", server.url, "--max-tokens", 1, "--model", "no-such-model", stdin="hi\n")
    assert done.returncode == 1
    assert "no-such-model" in done.stderr


@pytest.mark.parametrize("place", ["server", "local"])
def test_an_interrupt_ends_the_answer_and_not_the_chat(server, place):
    where = ["--url", server.url] if place == "server" else ["--model-path", str(default_model())]
    command = [str(BINARY), "chat", *where, "--temperature", "0", "--max-tokens", "1500"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        process.stdin.write("Write a long story about the sea.\n")
        process.stdin.flush()
        assert process.stdout.read(1)  # it has begun
        process.send_signal(signal.SIGINT)
        started = time.monotonic()
        process.stdin.write("/exit\n")
        process.stdin.close()
        assert process.wait(patient(30)) == 0
        assert time.monotonic() - started < patient(10)
