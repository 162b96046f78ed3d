"""Real `hayate serve` replicas behind the gateway: the openai client, streams, cancels, and kill -9.

HAYATE_GATEWAY_SOAK_S sets how long the killing goes on (default 20 s), HAYATE_GATEWAY_REPLICAS how many
replicas there are (default 2), HAYATE_GATEWAY_PAUSE_S how long a client waits between requests on average
(default 0), for long runs beside other work.
"""

import os
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import openai
import pytest
from gateway_process import GatewayProcess
from patience import patient
from server_process import ServerProcess

SOAK_S = float(os.environ.get("HAYATE_GATEWAY_SOAK_S", "20"))
PAUSE_S = float(os.environ.get("HAYATE_GATEWAY_PAUSE_S", "0"))
REPLICAS = int(os.environ.get("HAYATE_GATEWAY_REPLICAS", "2"))
FLAGS = ["--max-running-requests", "8", "--enable-metrics"]


class Fleet:
    """Replicas that can be killed and started again on their own ports, and the gateway."""

    def __init__(self, count: int, folder: Path):
        self.folder = folder
        self.workers = [ServerProcess(FLAGS, folder / f"worker-{i}.log") for i in range(count)]
        for worker in self.workers:
            worker.wait_until_ready()
        # On a busy machine an answer takes as long as a replica lives here: it may be broken many times.
        flags = ["--retry-max-retries", "10"]
        self.gateway = GatewayProcess([w.url for w in self.workers], folder / "gateway.log", *flags)
        self.gateway.wait_for_workers(count)

    def restart(self, index: int) -> None:
        old = self.workers[index]
        new = ServerProcess([*FLAGS, "--port", str(old.port)], self.folder / f"worker-{index}.log")
        new.port, new.url = old.port, old.url
        new.wait_until_ready()
        self.workers[index] = new

    def close(self) -> None:
        self.gateway.stop()
        for worker in self.workers:
            worker.kill()


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(REPLICAS, tmp_path)
    try:
        yield made
    finally:
        made.close()


def requests_of(worker: ServerProcess) -> float:
    return sum(value for name, value in worker.metrics().items() if name.startswith("sglang:num_requests_total"))


def test_answers_are_those_of_a_replica_and_streams_and_cancels_work(fleet: Fleet) -> None:
    through = openai.OpenAI(base_url=fleet.gateway.url + "/v1", api_key="none", max_retries=0, timeout=patient(60))
    direct = openai.OpenAI(base_url=fleet.workers[0].url + "/v1", api_key="none", max_retries=0, timeout=patient(60))
    model = through.models.list().data[0].id
    assert model == direct.models.list().data[0].id
    request = {
        "model": model,
        "messages": [{"role": "user", "content": "Count to five."}],
        "max_tokens": 16,
        "temperature": 0,
    }
    expected = direct.chat.completions.create(**request).choices[0].message.content
    assert through.chat.completions.create(**request).choices[0].message.content == expected
    streamed = "".join(
        c.choices[0].delta.content or "" for c in through.chat.completions.create(**request, stream=True) if c.choices
    )
    assert streamed == expected
    stream = through.chat.completions.create(**{**request, "max_tokens": 2000}, stream=True)
    next(iter(stream))
    stream.close()
    deadline = time.monotonic() + patient(5)
    while any(v > 0 for w in fleet.workers for n, v in w.metrics().items() if n.startswith("sglang:num_running_reqs")):
        assert time.monotonic() < deadline, "the cancelled stream still runs"
        time.sleep(0.05)
    assert httpx.post(fleet.gateway.url + "/v1/chat/completions", json={**request, "model": "none"}).status_code == 404


def test_killed_replicas_cost_no_plain_request_and_every_broken_stream_says_so(fleet: Fleet) -> None:
    stop = threading.Event()
    lock = threading.Lock()
    plain, whole, broken, wrong = 0, 0, 0, []
    model = httpx.get(fleet.gateway.url + "/v1/models").json()["data"][0]["id"]

    def send(seed: int) -> None:
        nonlocal plain, whole, broken
        rng = random.Random(seed)
        client = openai.OpenAI(base_url=fleet.gateway.url + "/v1", api_key="none", max_retries=0, timeout=patient(60))
        while not stop.is_set():
            request = {
                "model": model,
                "messages": [{"role": "user", "content": f"Tell me of {rng.random()}"}],
                "max_tokens": 24,
            }
            stream = rng.random() < 0.5
            try:
                if stream:
                    finished = False
                    for chunk in client.chat.completions.create(**request, stream=True):
                        finished = finished or (bool(chunk.choices) and chunk.choices[0].finish_reason is not None)
                    with lock:
                        whole += finished
                        if not finished:
                            wrong.append("a stream ended without finish_reason and without an error")
                else:
                    client.chat.completions.create(**request)
                    with lock:
                        plain += 1
            except openai.APIError as error:
                with lock:
                    if stream and "worker" in str(error):
                        broken += 1
                    else:
                        wrong.append(repr(error))
            stop.wait(rng.uniform(0, 2 * PAUSE_S))

    senders = [threading.Thread(target=send, args=(seed,)) for seed in range(4)]
    for sender in senders:
        sender.start()
    rng = random.Random(0)
    end = time.monotonic() + SOAK_S
    kills = 0
    while time.monotonic() < end:
        time.sleep(rng.uniform(1.0, 3.0))
        victim = rng.randrange(REPLICAS)
        fleet.workers[victim].kill()
        kills += 1
        fleet.restart(victim)
        fleet.gateway.wait_for_workers(REPLICAS, 60)
    stop.set()
    for sender in senders:
        sender.join(patient(90))
        assert not sender.is_alive(), "a request hangs"
    print(f"{kills} kills: {plain} plain, {whole} whole streams, {broken} broken streams")
    assert wrong == []
    assert plain > 0
    # Whoever came back takes load again.
    before = [requests_of(worker) for worker in fleet.workers]

    def ask(number: int) -> int:
        body = {"model": model, "messages": [{"role": "user", "content": f"{number} sheep"}], "max_tokens": 4}
        return httpx.post(fleet.gateway.url + "/v1/chat/completions", json=body, timeout=patient(60)).status_code

    with ThreadPoolExecutor(4 * REPLICAS) as pool:
        assert set(pool.map(ask, range(16 * REPLICAS))) == {200}
    after = [requests_of(worker) for worker in fleet.workers]
    assert all(now > then for now, then in zip(after, before, strict=True)), (before, after)
