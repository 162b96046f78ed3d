"""The gateway's own routes in all their forms, the routes that pass, and policies and classes on the wire."""

import asyncio
import collections
import json
import re
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from gateway_process import ANSWER, Reply, ScriptedWorker, gateway_before
from patience import patient
from server_process import BINARY

CHAT = "/v1/chat/completions"


def chat(prompt: str = "hi", **fields: object) -> dict:
    return {"model": "M", "messages": [{"role": "user", "content": prompt}], **fields}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "gateway.log"


def test_workers_come_and_go_by_both_forms_of_the_routes(log: Path) -> None:
    first, second, third = ScriptedWorker(), ScriptedWorker(), ScriptedWorker()
    with gateway_before([first], log) as gateway, httpx.Client(base_url=gateway.url) as client:
        assert client.post("/add_worker", params={"url": second.url}).status_code == 202
        made = client.post("/workers", json={"url": third.url + "/", "model_id": "M"})
        assert made.status_code == 202
        assert made.headers["location"] == f"/workers/{made.json()['worker_id']}"
        gateway.wait_for_workers(3)
        assert client.get("/list_workers").json() == {"urls": [first.url, second.url, third.url]}
        one = client.get(made.headers["location"]).json()
        assert (one["url"], one["is_healthy"], one["model_id"]) == (third.url, True, "M")
        assert client.get("/workers").json()["stats"]["regular_count"] == 3
        loads = client.get("/get_loads").json()["workers"]
        assert [entry["worker"] for entry in loads] == [first.url, second.url, third.url]
        assert all(entry["load"] == 0 for entry in loads)
        assert client.post("/remove_worker", params={"url": second.url}).status_code == 202
        assert client.post(f"/workers/{made.json()['worker_id']}/drain").status_code == 202
        gateway.wait_for_workers(1)
        assert client.get("/list_workers").json() == {"urls": [first.url]}
        # Again is as once.
        assert client.post("/workers", json={"url": first.url}).json()["worker_id"] == "1"
        assert client.get("/list_workers").json() == {"urls": [first.url]}
        # What is wrong is said.
        assert client.post("/add_worker").status_code == 400
        assert client.post("/add_worker", params={"url": "ftp://a"}).status_code == 400
        assert client.post("/workers", content=b"{").status_code == 400
        assert client.get("/add_worker").status_code == 405
        assert client.put("/workers").status_code == 405
        for gone in (
            client.get("/workers/99"),
            client.delete("/workers/x"),
            client.post("/remove_worker?url=http://z:1"),
        ):
            assert gone.status_code == 404
            assert gone.json()["error"]["code"] == "WORKER_NOT_FOUND"
    second.close()
    third.close()


def test_probes_answer_by_every_name(log: Path) -> None:
    with gateway_before([ScriptedWorker()], log) as gateway:
        for path in ("/health", "/healthz", "/livez", "/liveness", "/readiness", "/readyz", "/ready", "/ping"):
            assert httpx.get(gateway.url + path).status_code == 200, path
        assert "hayate_gateway_" in httpx.get(gateway.url + "/metrics").text
        assert httpx.get(gateway.url + "/v1/models/M").json()["id"] == "M"
        assert httpx.get(gateway.url + "/v1/models/none").status_code == 404


def test_every_other_route_reaches_a_worker_as_it_came(log: Path) -> None:
    async def echo(reply: Reply) -> None:
        request = reply.request
        await reply.send(
            418, {"method": request.method, "target": request.target, "body": request.body.decode("latin-1")}, "x-w: 1"
        )

    routes = [
        ("POST", "/v1/completions", {"model": "M", "prompt": "a"}),
        ("POST", "/generate", {"text": "a"}),
        ("PUT", "/generate", {"text": "a"}),
        ("POST", "/v1/responses", {"model": "M", "input": "a"}),
        ("DELETE", "/v1/responses/resp_1", None),
        ("POST", "/v1/responses/resp_1/cancel", {}),
        ("POST", "/v1/messages", {"model": "M", "messages": []}),
        ("POST", "/v1/messages/count_tokens", {"model": "M", "messages": []}),
        ("POST", "/v1/embeddings", {"model": "M", "input": "a"}),
        ("POST", "/v1/score", {"model": "M", "query": "a", "items": ["b"]}),
        ("POST", "/v1/rerank?top=1&x=%2F", {"model": "M", "query": "a", "documents": ["b"]}),
        ("POST", "/tokenize", {"prompt": "a"}),
        ("POST", "/detokenize", {"tokens": [1]}),
        ("POST", "/parse_function_call", {"text": "a"}),
        ("POST", "/separate_reasoning", {"text": "a"}),
        ("POST", "/api/chat", {"model": "M", "messages": []}),
        ("POST", "/api/generate", {"model": "M", "prompt": "a"}),
        ("POST", "/api/show", {"model": "M"}),
        ("POST", "/open_session", {"capacity_of_str_len": 8}),
        ("POST", "/close_session", {"session_id": "s"}),
        ("POST", "/update_weights_from_disk", {"model_path": "x"}),
        ("POST", "/something/of/later?q=1", {"a": [1, 2]}),
    ]
    worker = ScriptedWorker(echo)
    with gateway_before([worker], log) as gateway, httpx.Client(base_url=gateway.url, timeout=patient(20)) as client:
        for method, target, body in routes:
            content = b"" if body is None else json.dumps(body).encode()
            answer = client.request(method, target, content=content)
            assert answer.status_code == 418, (target, answer.text)
            assert answer.headers["x-w"] == "1"
            assert answer.json() == {"method": method, "target": target, "body": content.decode()}
        # The worker answers other GETs itself: with 404.
        assert client.get("/unknown").json()["error"]["message"] == "no such route"
        assert len(worker.requests) == len(routes)


@pytest.mark.parametrize("path", ["/flush_cache", "/abort_request", "/pause_generation", "/start_profile"])
def test_what_concerns_all_workers_goes_to_all_and_one_answer_lists_theirs(log: Path, path: str) -> None:
    async def answer(reply: Reply) -> None:
        await reply.send(200, b"done")

    async def refuse(reply: Reply) -> None:
        await reply.send(400, b"not now")

    workers = [ScriptedWorker(answer), ScriptedWorker(answer), ScriptedWorker(refuse)]
    with gateway_before(workers, log) as gateway:
        gathered = httpx.post(gateway.url + path, json={"rid": "r"}, timeout=patient(20))
        assert gathered.status_code == 400  # the worst
        parts = {part["url"]: (part["status"], part["body"]) for part in gathered.json()["workers"]}
        assert parts == {
            workers[0].url: (200, "done"),
            workers[1].url: (200, "done"),
            workers[2].url: (400, "not now"),
        }
        assert [json.loads(worker.requests[0].body) for worker in workers] == [{"rid": "r"}] * 3


@pytest.mark.parametrize("policy", ["consistent_hash", "sticky"])
def test_a_key_in_a_header_keeps_its_worker_until_that_is_gone(log: Path, policy: str) -> None:
    workers = [ScriptedWorker() for _ in range(4)]
    flags = ["--policy", policy, "--routing-key-header", "x-user"]
    with gateway_before(workers, log, *flags) as gateway, httpx.Client(timeout=patient(20)) as client:

        def worker_of(key: str, prompt: str) -> int:
            before = [len(worker.requests) for worker in workers]
            answer = client.post(gateway.url + CHAT, json=chat(prompt), headers={"x-user": key})
            assert answer.status_code == 200
            return next(i for i, worker in enumerate(workers) if len(worker.requests) > before[i])

        places = {f"user-{i}": worker_of(f"user-{i}", "first") for i in range(40)}
        assert len(set(places.values())) == 4
        assert all(worker_of(key, f"again {i}") == place for i, (key, place) in enumerate(places.items()))
        lost = places["user-0"]
        workers[lost].kill()
        moved = {key: worker_of(key, "later") for key in places}
        assert all(moved[key] != lost if place == lost else moved[key] == place for key, place in places.items())


def test_a_slow_worker_gets_less_and_pass_through_routes_spread(log: Path) -> None:
    def worker(seconds: float) -> ScriptedWorker:
        async def answer(reply: Reply) -> None:
            await asyncio.sleep(seconds)
            await reply.send(200, ANSWER)

        return ScriptedWorker(answer)

    workers = [worker(0.4), worker(0.02), worker(0.02), worker(0.02)]
    with gateway_before(workers, log) as gateway, httpx.Client(timeout=patient(30)) as client:

        def post(path: str, body: dict) -> int:
            return client.post(gateway.url + path, json=body).status_code

        with ThreadPoolExecutor(16) as pool:
            statuses = list(pool.map(lambda i: post(CHAT, chat(f"{i * 7919} {'x' * 300}")), range(300)))
        assert statuses == [200] * 300
        assert len(workers[0].requests) < 30, [len(w.requests) for w in workers]
        for one in workers:
            one.requests.clear()
        with ThreadPoolExecutor(4) as pool:
            assert set(pool.map(lambda i: post("/tokenize", {"prompt": str(i)}), range(80))) == {200}
        assert all(len(one.requests) >= 8 for one in workers[1:]), [len(w.requests) for w in workers]


def test_higher_classes_leave_the_queue_first_and_never_above_their_keys(log: Path, tmp_path: Path) -> None:
    order: list[str] = []
    release = threading.Event()

    async def answer(reply: Reply) -> None:
        order.append(json.loads(reply.request.body)["messages"][0]["content"])
        while not release.is_set():
            await asyncio.sleep(0.01)
        await reply.send(200, ANSWER)

    keys = tmp_path / "keys.json"
    keys.write_text(
        json.dumps(
            {"keys": [{"id": "a", "key": "ka", "priority": "high"}, {"id": "b", "key": "kb", "priority": "low"}]}
        )
    )
    flags = ["--api-key-file", str(keys), "--max-concurrent-requests", "1", "--queue-size", "10"]
    with gateway_before([ScriptedWorker(answer)], log, *flags) as gateway, ThreadPoolExecutor(8) as pool:

        def post(name: str, key: str, asked: str | None) -> int:
            headers = {"Authorization": f"Bearer {key}"} | ({"x-request-priority": asked} if asked else {})
            return httpx.post(gateway.url + CHAT, json=chat(name), headers=headers, timeout=patient(30)).status_code

        results = []
        sent = [
            ("holds the place", "ka", None),
            ("low, asks for high", "kb", "high"),
            ("high, asks for low", "ka", "low"),
            ("high", "ka", None),
            ("high, asks for normal", "ka", "normal"),
        ]
        for count, (name, key, asked) in enumerate(sent):
            results.append(pool.submit(post, name, key, asked))
            deadline = time.monotonic() + patient(10)
            while gateway.metrics()["hayate_gateway_queue_length"] < count or not order:
                assert time.monotonic() < deadline
                time.sleep(0.01)
        release.set()
        assert [result.result() for result in results] == [200] * len(sent)
        assert order[:3] == ["holds the place", "high", "high, asks for normal"]
        assert sorted(order[3:]) == ["high, asks for low", "low, asks for high"]


def test_a_keys_tokens_are_counted_and_its_concurrency_is_bounded(log: Path, tmp_path: Path) -> None:
    async def answer(reply: Reply) -> None:
        await asyncio.sleep(1.0)
        await reply.send(200, ANSWER)

    keys = tmp_path / "keys.json"
    keys.write_text(
        json.dumps(
            {
                "keys": [
                    {"id": "a", "key": "ka", "tokens_per_second": 100},
                    {"id": "b", "key": "kb", "max_concurrent": 2},
                    {"id": "c", "key": "kc"},
                ]
            }
        )
    )
    with gateway_before([ScriptedWorker(answer)], log, "--api-key-file", str(keys)) as gateway:

        def post(key: str, prompt: str = "hi") -> httpx.Response:
            headers = {"Authorization": f"Bearer {key}"}
            return httpx.post(gateway.url + CHAT, json=chat(prompt), headers=headers, timeout=patient(30))

        # About 1000 tokens: into debt once, refused from then on with the time until it is paid.
        assert post("ka", "word " * 800).status_code == 200
        refused = post("ka")
        assert refused.status_code == 429
        assert 2 <= int(refused.headers["retry-after"]) <= 60
        assert refused.json()["error"]["type"] == "rate_limit_error"
        with ThreadPoolExecutor(6) as pool:
            counts = collections.Counter(answer.status_code for answer in pool.map(post, ["kb"] * 6))
            assert counts[200] >= 2
            assert counts[200] + counts[429] == 6
            assert counts[429] >= 1
            assert [answer.status_code for answer in pool.map(post, ["kc"] * 6)] == [200] * 6


def test_help_groups_its_flags_and_names_every_one_once() -> None:
    text = subprocess.run([str(BINARY), "gateway", "--help"], capture_output=True, text=True, check=True).stdout
    for group in ("Listen", "Workers", "TLS", "Discovery", "Policy", "Limits", "Failure", "Operation"):
        assert len(re.findall(rf"^{group}:$", text, re.MULTILINE)) == 1, group
    for flag in (
        "--worker-urls",
        "--policy",
        "--prefill",
        "--decode",
        "--api-key-file",
        "--tls-cert-path",
        "--selector",
    ):
        assert len(re.findall(rf"^ +(?:-\w,)?{flag}(?=[ ,])", text, re.MULTILINE)) == 1, flag
