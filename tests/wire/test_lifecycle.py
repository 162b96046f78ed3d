"""How a server starts and stops."""

import signal
import threading
import time

import httpx
from server_process import ServerProcess


def chat(url: str, **fields) -> dict:
    body = {"model": "default", "messages": [{"role": "user", "content": "Count to fifty."}], **fields}
    return httpx.post(url + "/v1/chat/completions", json=body, timeout=120.0).raise_for_status().json()


def test_an_idle_server_exits_zero_on_sigterm(start_server):
    server = start_server()
    started = time.monotonic()
    server.stop()
    assert time.monotonic() - started < 5.0


def test_sigterm_lets_a_running_request_finish(start_server):
    server = start_server("--enable-metrics")
    answers = []
    thread = threading.Thread(
        target=lambda: answers.append(chat(server.url, max_tokens=200, temperature=0, ignore_eos=True))
    )
    thread.start()
    deadline = time.monotonic() + 30.0
    while running_requests(server) == 0:
        assert time.monotonic() < deadline, "the request never started to run"
        time.sleep(0.005)
    server.process.send_signal(signal.SIGTERM)
    thread.join(60.0)
    assert answers and answers[0]["usage"]["completion_tokens"] == 200
    assert server.process.wait(30.0) == 0


def running_requests(server) -> float:
    return sum(v for k, v in server.metrics().items() if k.startswith("sglang:num_running_reqs"))


def test_a_missing_model_file_is_named_in_the_error(tmp_path):
    missing = str(tmp_path / "nowhere.gguf")
    server = ServerProcess(["--model-path", missing], tmp_path / "server.log")
    assert server.process.wait(30.0) != 0
    assert missing in server.log_text()
