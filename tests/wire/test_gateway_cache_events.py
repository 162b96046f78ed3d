"""What `hayate serve` tells of its cache, and the gateway that routes by it."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from gateway_process import GatewayProcess
from patience import patient
from server_process import ServerProcess

FLAGS = ["--enable-metrics", "--enable-cache-events", "--max-total-tokens", "4096"]


def words(seed: int, count: int) -> str:
    return " ".join(f"word{(seed * 7919 + i * i) % 9973}" for i in range(count))


def ask(url: str, prompt: str) -> None:
    body = {"prompt": prompt, "max_tokens": 1, "temperature": 0}
    assert httpx.post(url + "/v1/completions", json=body, timeout=patient(60)).status_code == 200


def read(server: ServerProcess, epoch: str = "0", after: int = 0) -> dict:
    return httpx.get(server.url + f"/v1/cache_events?epoch={epoch}&after={after}", timeout=patient(10)).raise_for_status().json()


def eventually(check: Callable[[], bool], seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + patient(seconds)
    while not check():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(FLAGS, tmp_path / "serve.log") as started:
        yield started


def test_changes_follow_from_a_snapshot_and_say_what_comes_and_goes(server: ServerProcess) -> None:
    begin = read(server)
    assert begin["whole"]
    assert begin["held"] == []
    assert begin["block_bytes"] == 64
    epoch = begin["epoch"]
    prompt = words(1, 200)
    ask(server.url, prompt)
    assert eventually(lambda: read(server, epoch, begin["next"])["held"] != [])
    first = read(server, epoch, begin["next"])
    assert not first["whole"]
    assert first["dropped"] == []
    # Almost all of its blocks: the last page of tokens is not whole.
    assert 12 <= len(first["held"]) <= len(prompt) // 64
    # The same again changes nothing; a longer one adds to it.
    ask(server.url, prompt)
    time.sleep(0.3)
    assert read(server, epoch, first["next"])["held"] == []
    ask(server.url, prompt + " " + words(2, 50))
    assert eventually(lambda: read(server, epoch, first["next"])["held"] != [])
    longer = read(server, epoch, first["next"])
    assert set(longer["held"]).isdisjoint(first["held"])
    # The cache holds 4,096 tokens: others push the first out.
    for seed in range(10, 22):
        ask(server.url, words(seed, 150))
    assert eventually(lambda: set(first["held"]) <= set(read(server, epoch, longer["next"])["dropped"]))
    # Whoever knows nothing, or another process, gets what is left; after a flush that is nothing.
    left = read(server, "1234", 99)
    assert left["whole"]
    assert left["held"]
    assert set(left["held"]).isdisjoint(first["held"])
    assert httpx.post(server.url + "/flush_cache").status_code == 200
    assert eventually(lambda: read(server)["held"] == [])


def test_nonsense_is_refused_and_without_the_flag_nothing_is_told(server: ServerProcess, tmp_path: Path) -> None:
    for query in ("epoch=xyz", "after=-1", "after=", "limit=ten"):
        answer = httpx.get(server.url + "/v1/cache_events?" + query)
        assert answer.status_code == 400, query
        assert answer.json()["error"]["param"] == query.split("=")[0]
    assert read(server)["epoch"] == httpx.get(server.url + "/v1/cache_events?limit=0").json()["epoch"]
    with ServerProcess([], tmp_path / "silent.log") as silent:
        answer = httpx.get(silent.url + "/v1/cache_events")
    assert answer.status_code == 404
    assert "--enable-cache-events" in answer.json()["error"]["message"]


def requests_of(worker: ServerProcess) -> float:
    return sum(value for name, value in worker.metrics().items() if name.startswith("sglang:num_requests_total"))


def test_the_gateway_finds_what_replicas_hold_though_it_never_sent_it(tmp_path: Path) -> None:
    workers = [ServerProcess(FLAGS, tmp_path / f"worker-{i}.log") for i in range(2)]
    for worker in workers:
        worker.wait_until_ready()
    gateway = GatewayProcess([w.url for w in workers], tmp_path / "gateway.log")
    gateway.wait_for_workers(2)
    try:
        ask(gateway.url, "hello")

        def policy_bytes() -> float:
            return gateway.metrics()["hayate_gateway_policy_bytes"]

        for round_ in range(6):
            holder = workers[round_ % 2]
            prompt = words(100 + round_, 150)
            known = policy_bytes()
            ask(holder.url, prompt)
            # Told of within the interval, and kept beside what was known before.
            assert eventually(lambda known=known: policy_bytes() > known)
            time.sleep(0.3)
            before = [requests_of(worker) for worker in workers]
            ask(gateway.url, prompt + " and more")
            after = [requests_of(worker) for worker in workers]
            assert after[round_ % 2] - before[round_ % 2] == 1, round_
        # What they lose is forgotten, but for what was sent a moment ago.
        before = policy_bytes()
        for worker in workers:
            assert httpx.post(worker.url + "/flush_cache").status_code == 200
        assert eventually(lambda: policy_bytes() < before / 2)
    finally:
        gateway.stop()
        for worker in workers:
            worker.stop()
