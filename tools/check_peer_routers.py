#!/usr/bin/env python3
"""Puts `hayate serve` workers behind the real sglang-router and smg from PyPI and checks what a worker
must satisfy: registered, routed to by cache_aware, streamed through, health-checked, drained, removed.

    python3 -m venv V && V/bin/pip install sglang-router==0.3.2
    python3 -m venv W && W/bin/pip install smg==1.13.0
    HAYATE_BINARY=build/hayate HAYATE_MODEL=model.gguf PYTHON tools/check_peer_routers.py V W

Two environments, since both packages bring a program named smg. PYTHON is that of tools/test_venv.sh.
Exit 1 with the first thing that is wrong.
"""

import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Semaphore

import httpx

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "wire"))
from server_process import ServerProcess, free_port

BODY = {"messages": [{"role": "user", "content": "Say one word."}], "max_tokens": 8, "temperature": 0}


def require(good: bool, what: str) -> None:
    if not good:
        sys.exit(f"check_peer_routers: {what}")


def wait_for(what: str, check, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if check():
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    sys.exit(f"check_peer_routers: {what} did not happen in {seconds} s")


def check_draining(name: str, url: str, body: dict, worker: ServerProcess) -> None:
    """SIGTERM: what it streams comes to its end, and nothing new is lost."""

    def stream(prompt: str) -> str:
        request = {**body, "messages": [{"role": "user", "content": prompt}], "max_tokens": 400, "stream": True}
        request["ignore_eos"] = True
        text = ""
        with httpx.stream("POST", url + "/v1/chat/completions", json=request, timeout=120) as answer:
            for piece in answer.iter_text():
                if not text:
                    begun.release()
                text += piece
        return text

    begun = Semaphore(0)
    with ThreadPoolExecutor(6) as pool:
        streams = [pool.submit(stream, f"{number} {'is a number. ' * 40}") for number in range(6)]
        for _ in streams:
            require(begun.acquire(timeout=60), f"{name}: a stream did not begin")
        require(worker.sum_of("sglang:num_running_reqs") > 0, f"{name}: the third worker has no stream")
        worker.process.send_signal(signal.SIGTERM)
        for done in streams:
            text = done.result()
            require("data: [DONE]" in text, f"{name}: draining cut a stream: {text[-300:]!r}")
    require(worker.process.wait(60) == 0, f"{name}: the drained worker did not exit well")
    wait_for(
        f"{name} leaving a drained worker out",
        lambda: all(
            httpx.post(url + "/v1/chat/completions", json=body, timeout=60).status_code == 200 for _ in range(6)
        ),
    )


def check_router(venv: Path, name: str, workers: list[ServerProcess], folder: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [str(venv / "bin" / name), "launch", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--worker-urls", *(worker.url for worker in workers), "--policy", "cache_aware"]
    command += ["--prometheus-port", str(free_port()), "--health-check-interval-secs", "1"]
    with (folder / f"{name}.log").open("wb") as log:
        router = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        wait_for(f"{name} ready", lambda: httpx.get(url + "/readiness").status_code == 200)
        wait_for(f"{name} registering", lambda: len(httpx.get(url + "/workers").json()["workers"]) == len(workers))
        model = workers[0].model
        body = {**BODY, "model": model}
        wait_for(
            f"{name} answering",
            lambda: httpx.post(url + "/v1/chat/completions", json=body, timeout=60).status_code == 200,
        )
        direct = httpx.post(workers[0].url + "/v1/chat/completions", json=body, timeout=60).json()
        routed = httpx.post(url + "/v1/chat/completions", json=body, timeout=60).json()
        require(
            routed["choices"][0]["message"]["content"] == direct["choices"][0]["message"]["content"],
            f"{name}: another answer",
        )
        with httpx.stream("POST", url + "/v1/chat/completions", json={**body, "stream": True}, timeout=60) as stream:
            text = "".join(stream.iter_text())
        require("data: [DONE]" in text, f"{name}: the stream has no end")
        native = httpx.post(
            url + "/generate",
            json={"model": model, "text": "The sky is", "sampling_params": {"max_new_tokens": 4}},
            timeout=60,
        )
        require(
            native.status_code == 200 and native.json()["text"] != "", f"{name}: /generate gave {native.status_code}"
        )
        shared = "word " * 300
        before = [worker.metrics_requests() for worker in workers]
        for i in range(6):
            done = httpx.post(
                url + "/v1/chat/completions",
                json={**body, "messages": [{"role": "user", "content": shared + str(i)}]},
                timeout=60,
            )
            require(done.status_code == 200, f"{name}: {done.status_code}")
        after = [worker.metrics_requests() for worker in workers]
        require(
            max(now - then for now, then in zip(after, before, strict=True)) >= 5,
            f"{name}: a shared prefix was spread: {before} {after}",
        )
        check_draining(name, url, body, workers[2])
        # A dead worker is noticed by its health, whatever the router answers until then.
        workers[1].kill()
        wait_for(
            f"{name} leaving a dead worker out",
            lambda: all(
                httpx.post(url + "/v1/chat/completions", json=body, timeout=60).status_code == 200 for _ in range(4)
            ),
        )
        listed = httpx.get(url + "/workers").json()["workers"]
        dead = next(entry["id"] for entry in listed if entry["url"] == workers[1].url)
        require(httpx.delete(f"{url}/workers/{dead}").status_code in {200, 202}, f"{name}: a worker cannot be removed")
        wait_for(f"{name} removing", lambda: len(httpx.get(url + "/workers").json()["workers"]) == 2)
    finally:
        router.terminate()
        try:
            router.wait(20)
        except subprocess.TimeoutExpired:
            router.kill()
    print(f"check_peer_routers: {name} is content")


class Worker(ServerProcess):
    model = ""

    def sum_of(self, metric: str) -> float:
        return sum(value for name, value in self.metrics().items() if name.startswith(metric))

    def metrics_requests(self) -> float:
        return self.sum_of("sglang:num_requests_total")


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        for name, venv in zip(("sglang-router", "smg"), sys.argv[1:], strict=True):
            workers = []
            for index in range(3):
                worker = Worker(["--enable-metrics"], Path(folder) / f"{name}-{index}.log")
                worker.wait_until_ready()
                worker.model = httpx.get(worker.url + "/v1/models").json()["data"][0]["id"]
                workers.append(worker)
            try:
                check_router(Path(venv), name, workers, Path(folder))
            finally:
                for worker in workers:
                    if worker.process.poll() is None:
                        worker.kill()


if __name__ == "__main__":
    main()
