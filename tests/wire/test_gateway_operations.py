"""The gateway's life: discovery, reload, a successor on the same socket, TLS, two models."""

import asyncio
import contextlib
import http.server
import json
import os
import signal
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from gateway_process import ANSWER, GatewayProcess, Reply, ScriptedWorker, event, gateway_before
from patience import patient
from server_process import free_port

CHAT = "/v1/chat/completions"
BODY = {"model": "M", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "gateway.log"


@contextlib.contextmanager
def running(process: GatewayProcess, *workers: ScriptedWorker) -> Iterator[GatewayProcess]:
    try:
        process.wait_until("/health")
        yield process
    except BaseException:
        process.process.kill()
        process.process.wait()
        raise
    finally:
        for worker in workers:
            worker.close()
    process.stop()


def test_a_start_line_of_sglang_router_works_as_it_is(log: Path, tmp_path: Path) -> None:
    metrics_port = free_port()
    line = f"""
        --policy cache_aware --cache-threshold 0.5 --balance-abs-threshold 32 --balance-rel-threshold 1.0001
        --eviction-interval-secs 60 --max-tree-size 67108864 --max-payload-size 536870912 --max-idle-secs 3600
        --assignment-mode random --bucket-adjust-interval-secs 5 --dp-aware --enable-igw
        --worker-startup-timeout-secs 600 --worker-startup-check-interval 10 --log-dir {tmp_path} --log-level info
        --prometheus-host 127.0.0.1 --prometheus-port {metrics_port} --prometheus-duration-buckets 0.1 1 10
        --request-id-headers x-request-id x-trace-id --request-timeout-secs 600 --shutdown-grace-period-secs 5
        --cors-allowed-origins http://localhost:3000 --max-concurrent-requests 256 --queue-size 100
        --queue-timeout-secs 60 --rate-limit-tokens-per-second 1000
        --retry-max-retries 5 --retry-initial-backoff-ms 50 --retry-max-backoff-ms 30000
        --retry-backoff-multiplier 1.5 --retry-jitter-factor 0.2
        --cb-failure-threshold 10 --cb-success-threshold 3 --cb-timeout-duration-secs 60 --cb-window-duration-secs 120
        --health-failure-threshold 3 --health-success-threshold 2 --health-check-timeout-secs 5
        --health-check-interval-secs 60 --health-check-endpoint /health
        --backend sglang --model-path m --tokenizer-path m --chat-template t
    """.split()
    with gateway_before([ScriptedWorker()], log, *line) as gateway:
        answer = httpx.post(gateway.url + CHAT, json=BODY)
        assert answer.status_code == 200
        assert httpx.get(f"http://127.0.0.1:{metrics_port}/metrics").status_code == 200
        for flag in ("--eviction-interval-secs", "--enable-igw", "--tokenizer-path", "--worker-startup-timeout-secs"):
            assert f"without effect: {flag}: " in gateway.log_text()


def test_models_choose_their_pools(log: Path) -> None:
    small, large = ScriptedWorker(model="small"), ScriptedWorker(model="large")
    with gateway_before([small, large], log) as gateway:
        for model, worker in (("small", small), ("large", large)):
            for _ in range(3):
                assert httpx.post(gateway.url + CHAT, json={**BODY, "model": model}).status_code == 200
            assert {json.loads(request.body)["model"] for request in worker.requests} == {model}
        missing = httpx.post(gateway.url + CHAT, json={**BODY, "model": "none"})
        assert missing.status_code == 404
        assert all(name in missing.json()["error"]["message"] for name in ("small", "large"))
        assert {m["id"] for m in httpx.get(gateway.url + "/v1/models").json()["data"]} == {"small", "large"}


def test_a_worker_file_is_followed(log: Path, tmp_path: Path) -> None:
    first, second = ScriptedWorker(), ScriptedWorker()
    path = tmp_path / "workers.txt"
    path.write_text(first.url + "\n")
    with running(GatewayProcess([], log, "--worker-file", str(path)), first, second) as gateway:
        gateway.wait_for_workers(1)
        path.write_text(json.dumps({"workers": [{"url": first.url}, {"url": second.url}]}))
        gateway.wait_for_workers(2)
        path.write_text("{broken")
        time.sleep(1.5)
        gateway.wait_for_workers(2)
        path.write_text(second.url + "\n")
        gateway.wait_for_workers(1)
        assert httpx.get(gateway.url + "/list_workers").json()["urls"] == [second.url]


def test_a_dns_name_gives_workers(log: Path) -> None:
    worker = ScriptedWorker()
    with running(GatewayProcess([], log, "--worker-dns", f"localhost:{worker.port}"), worker) as gateway:
        gateway.wait_for_workers(1)
        assert httpx.post(gateway.url + CHAT, json=BODY).json() == ANSWER


class ApiServer:
    """Lists and watches pods as a Kubernetes API server does; the test feeds the watch."""

    def __init__(self) -> None:
        self.pods: dict[str, dict] = {}
        self.version = 1
        self.events: list[tuple[int, bytes]] = []
        self.changed = threading.Condition()
        self.lists = 0
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if "watch=1" in self.path:
                    return outer.watch(self)
                outer.lists += 1
                body = json.dumps(
                    {"metadata": {"resourceVersion": str(outer.version)}, "items": list(outer.pods.values())}
                ).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
                return None

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def watch(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        """What happened after the version that the client has seen, and what goes on happening."""
        handler.send_response(200)
        handler.end_headers()
        seen = int(handler.path.rsplit("resourceVersion=", 1)[1])
        sent = 0
        with contextlib.suppress(OSError):
            while True:
                with self.changed:
                    self.changed.wait_for(lambda start=sent: len(self.events) > start, timeout=patient(30))
                    fresh = self.events[sent:]
                    sent = len(self.events)
                for version, line in fresh:
                    if version <= seen:
                        continue
                    handler.wfile.write(line + b"\n")
                    handler.wfile.flush()
                    if b'"ERROR"' in line:
                        return

    def set_pod(self, name: str, port_ip: str, ready: bool = True, kind: str = "MODIFIED") -> None:
        self.version += 1
        pod = {
            "metadata": {"uid": name, "name": name, "resourceVersion": str(self.version)},
            "status": {"podIP": port_ip, "conditions": [{"type": "Ready", "status": str(ready)}]},
        }
        self.pods[name] = pod
        if kind == "DELETED":
            del self.pods[name]
        self.emit({"type": kind, "object": pod})

    def emit(self, change: dict) -> None:
        with self.changed:
            self.events.append((self.version, json.dumps(change).encode()))
            self.changed.notify_all()


def test_kubernetes_pods_come_and_go(log: Path) -> None:
    # Pods share a port and differ by address: loopback has many.
    api = ApiServer()
    worker = ScriptedWorker()
    api.set_pod("a", "127.0.0.1")
    flags = ["--service-discovery", "--selector", "app=hayate", "--service-discovery-port", str(worker.port)]
    with running(GatewayProcess([], log, *flags, "--kube-api-server", api.url), worker) as gateway:
        gateway.wait_for_workers(1)
        assert httpx.post(gateway.url + CHAT, json=BODY).json() == ANSWER
        api.set_pod("b", "127.0.0.2", ready=False)
        api.set_pod("a", "127.0.0.1", ready=False)
        deadline = time.monotonic() + patient(10)
        while httpx.get(gateway.url + "/workers").json()["total"] > 0:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        api.set_pod("a", "127.0.0.1")
        gateway.wait_for_workers(1)
        lists = api.lists
        api.version += 1
        api.emit({"type": "ERROR", "object": {"code": 410}})
        deadline = time.monotonic() + patient(10)
        while api.lists == lists:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        api.set_pod("a", "127.0.0.1", kind="DELETED")
        gateway.wait_until("/readiness", 503)


def test_sighup_reads_keys_and_workers_again(log: Path, tmp_path: Path) -> None:
    first, second = ScriptedWorker(), ScriptedWorker()
    keys, config = tmp_path / "keys.json", tmp_path / "gateway.toml"
    keys.write_text(json.dumps({"keys": [{"key": "old"}]}))
    config.write_text(f'worker-urls = ["{first.url}"]\n')
    flags = ["--config", str(config), "--api-key-file", str(keys)]
    with running(GatewayProcess([], log, *flags), first, second) as gateway:

        def post(key: str) -> int:
            return httpx.post(gateway.url + CHAT, json=BODY, headers={"Authorization": f"Bearer {key}"}).status_code

        gateway.wait_for_workers(1)
        assert (post("old"), post("new")) == (200, 401)
        keys.write_text(json.dumps({"keys": [{"key": "new"}]}))
        config.write_text(f'worker-urls = ["{first.url}", "{second.url}"]\n')
        gateway.process.send_signal(signal.SIGHUP)
        gateway.wait_for_workers(2)
        assert (post("old"), post("new")) == (401, 200)
        keys.write_text("broken")
        gateway.process.send_signal(signal.SIGHUP)
        time.sleep(0.7)
        assert post("new") == 200


def test_a_successor_takes_over_without_losing_a_request(log: Path) -> None:
    async def slow(reply: Reply) -> None:
        if b'"stream"' not in reply.request.body:
            return await reply.send(200, ANSWER)
        await reply.begin_events()
        for i in range(30):
            await reply.chunk(event(f"{i} "))
            await asyncio.sleep(0.1)
        await reply.chunk(b"data: [DONE]\n\n")
        return await reply.end()

    worker = ScriptedWorker(slow)
    process = GatewayProcess([worker.url], log)
    process.wait_until("/readiness")
    stop, failures, texts, done = threading.Event(), [], [], []

    def traffic() -> None:
        while not stop.is_set():
            try:
                if httpx.post(process.url + CHAT, json=BODY, timeout=patient(10)).status_code != 200:
                    failures.append("status")
            except httpx.TransportError as error:
                failures.append(repr(error))
            done.append(1)

    streaming = threading.Thread(
        target=lambda: texts.append(httpx.post(process.url + CHAT, json={**BODY, "stream": True}, timeout=patient(30)).text)
    )
    sender = threading.Thread(target=traffic)
    streaming.start()
    sender.start()
    time.sleep(0.5)
    process.process.send_signal(signal.SIGUSR2)
    assert process.process.wait(patient(30)) == 0, process.log_text()
    streaming.join(patient(30))
    time.sleep(0.3)
    stop.set()
    sender.join(patient(30))
    assert failures == []
    assert len(done) > 20
    assert "[DONE]" in texts[0]
    successor = int(process.log_text().split("SIGUSR2: process ")[1].split()[0])
    assert httpx.post(process.url + CHAT, json=BODY).json() == ANSWER
    os.kill(successor, signal.SIGTERM)
    deadline = time.monotonic() + patient(15)
    while time.monotonic() < deadline:
        try:
            httpx.get(process.url + "/health", timeout=1)
        except httpx.TransportError:
            break
        time.sleep(0.05)
    worker.close()


def make_certificate(folder: Path) -> tuple[Path, Path]:
    cert, key = folder / "tls.crt", folder / "tls.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=gateway"]
        + ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)],
        check=True,
        capture_output=True,
    )
    return cert, key


def test_tls_on_both_sides(log: Path, tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path)
    worker = ScriptedWorker()
    tls = ["--tls-cert-path", str(cert), "--tls-key-path", str(key)]
    context = ssl.create_default_context(cafile=str(cert))
    inner = GatewayProcess([worker.url], log, *tls)
    outer = GatewayProcess([f"https://127.0.0.1:{inner.port}"], tmp_path / "outer.log", "--ca-cert-path", str(cert))
    try:
        outer.wait_until("/health")
        outer.wait_for_workers(1)
        with httpx.Client(verify=context) as client:
            assert client.post(f"https://127.0.0.1:{inner.port}{CHAT}", json=BODY).json() == ANSWER
        for _ in range(5):
            assert httpx.post(outer.url + CHAT, json=BODY).json() == ANSWER
        assert "[DONE]" in httpx.post(outer.url + CHAT, json={**BODY, "stream": True}).text
        big = {**BODY, "messages": [{"role": "user", "content": "x" * 3_000_000}]}
        assert httpx.post(outer.url + CHAT, json=big, timeout=patient(30)).json() == ANSWER
        outer.stop()
        inner.stop()
    finally:
        for process in (outer, inner):
            process.process.kill()
        worker.close()
