"""How a server starts and stops."""

import signal
import socket
import threading
import time

import httpx
from patience import patient
from server_process import ServerProcess
from wire_checks import joined_stream, metric, parse_sse

# Time enough for answers of a slow server.
DRAIN = ("--drain-seconds", str(int(patient(30))))


def chat(url: str, **fields) -> dict:
    body = {"model": "default", "messages": [{"role": "user", "content": "Count to fifty."}], **fields}
    return httpx.post(url + "/v1/chat/completions", json=body, timeout=patient(120)).raise_for_status().json()


def test_an_idle_server_exits_zero_on_sigterm(start_server):
    server = start_server()
    started = time.monotonic()
    server.stop()
    assert time.monotonic() - started < patient(5)


def test_sigterm_lets_a_running_request_finish(start_server):
    server = start_server("--enable-metrics", *DRAIN)
    answers = []
    thread = threading.Thread(
        target=lambda: answers.append(chat(server.url, max_tokens=200, temperature=0, ignore_eos=True))
    )
    thread.start()
    wait_until_running(server, 1)
    server.process.send_signal(signal.SIGTERM)
    thread.join(patient(60))
    assert answers and answers[0]["usage"]["completion_tokens"] == 200
    assert server.process.wait(patient(30)) == 0


def wait_until_running(server, count: int) -> None:
    deadline = time.monotonic() + patient(30)
    while metric(server, "num_running_reqs") < count:
        assert time.monotonic() < deadline, "the requests never started to run"
        time.sleep(0.005)


def test_b068_streams_finish_and_new_requests_are_refused_while_draining(start_server):
    server = start_server("--enable-metrics", *DRAIN)
    body = {"prompt": "Once", "max_tokens": 150, "ignore_eos": True, "stream": True}
    streams = []
    threads = [
        threading.Thread(
            target=lambda: streams.append(httpx.post(server.url + "/v1/completions", json=body, timeout=patient(120)).text)
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    wait_until_running(server, 4)
    server.process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + patient(5)
    while httpx.get(server.url + "/health").status_code == 200:
        assert time.monotonic() < deadline, "healthy after SIGTERM"
    for path in ("/v1/completions", "/flush_cache"):
        refused = httpx.post(server.url + path, json={"prompt": "late", "max_tokens": 1})
        assert refused.status_code == 503 and refused.json()["error"]["type"] == "service_unavailable_error"
    for thread in threads:
        thread.join(patient(60))
    for text in streams:
        events = parse_sse(text)
        assert joined_stream(events)[0]["finish_reason"] == "length"
    assert server.process.wait(patient(30)) == 0
    with socket.socket() as probe:
        # As servers do: connections of the past may still be closing.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", server.port))


def test_b068_a_second_signal_ends_the_process_at_once(tmp_path):
    server = ServerProcess(["--enable-metrics"], tmp_path / "server.log")
    server.wait_until_ready()
    body = {"prompt": "Once", "max_tokens": 5000, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", server.url + "/v1/completions", json=body, timeout=patient(60)) as response:
        lines = response.iter_lines()
        next(lines)
        server.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + patient(5)
        while httpx.get(server.url + "/health").status_code == 200:
            assert time.monotonic() < deadline
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(patient(5)) != 0


def test_b068_a_signal_while_loading_ends_the_start(tmp_path):
    server = ServerProcess([], tmp_path / "server.log")
    time.sleep(0.1)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(patient(5)) in (0, -signal.SIGTERM)


def test_a_missing_model_file_is_named_in_the_error(tmp_path):
    missing = str(tmp_path / "nowhere.gguf")
    server = ServerProcess(["--model-path", missing], tmp_path / "server.log")
    assert server.process.wait(patient(30)) != 0
    assert missing in server.log_text()
