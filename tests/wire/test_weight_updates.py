"""/update_weights_from_disk: another checkpoint of the same model, between two steps."""

import concurrent.futures
import json
import shutil
import struct
import threading
import time
from pathlib import Path

import httpx
import pytest
from golden_server import GOLDEN, serve, tokens
from patience import patient
from wire_checks import check_error

PROMPT = tokens(1, 80)
BODY = {"model": "default", "prompt": PROMPT, "max_tokens": 24, "temperature": 0, "ignore_eos": True}


def tensor_file(folder: Path) -> Path:
    (path,) = [file for file in folder.glob("*.safetensors") if file.name != "expected.safetensors"]
    return path


def changed_copy(folder: Path, where: Path) -> Path:
    """The same model with the rows of its embedding in another order."""
    shutil.copytree(folder, where)
    path = tensor_file(where)
    raw = bytearray(path.read_bytes())
    (length,) = struct.unpack_from("<Q", raw)
    entry = json.loads(raw[8 : 8 + length])["model.embed_tokens.weight"]
    begin, end = (8 + length + offset for offset in entry["data_offsets"])
    middle = begin + (end - begin) // entry["shape"][0] * (entry["shape"][0] // 2)
    raw[begin:end] = raw[middle:end] + raw[begin:middle]
    path.write_bytes(raw)
    return where


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    folder = tmp_path_factory.mktemp("weights")
    with serve("dense/llama", folder, "--weight-version", "first") as server:
        old = folder / "checkpoint"
        yield server, old, changed_copy(old, folder / "changed")


@pytest.fixture
def http(checkpoints):
    with httpx.Client(base_url=checkpoints[0].url, timeout=patient(60)) as made:
        yield made
        update(made, checkpoints[1], weight_version="first")


def update(http: httpx.Client, path: Path, **fields) -> httpx.Response:
    return http.post("/update_weights_from_disk", json={"model_path": str(path), **fields})


def text(http: httpx.Client, **fields) -> str:
    response = http.post("/v1/completions", json={**BODY, **fields})
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]["text"]


def test_answers_are_those_of_the_new_weights_and_nothing_is_left_of_the_old(checkpoints, http, tmp_path):
    _, old, new = checkpoints
    before = text(http)
    response = update(http, new, weight_version="second")
    assert response.status_code == 200 and response.json()["success"] is True
    after = text(http)
    assert after != before
    info = http.get("/model_info").json()
    assert info["weight_version"] == "second" and info["model_path"] == str(new)
    answer = http.post("/generate", json={"input_ids": PROMPT, "sampling_params": {"max_new_tokens": 1}}).json()
    assert answer["meta_info"]["weight_version"] == "second"
    assert answer["meta_info"]["cached_tokens"] > 0, "of the new weights' own"
    with serve(str(new), tmp_path) as fresh, httpx.Client(base_url=fresh.url, timeout=patient(60)) as other:
        assert text(other) == after
    first_row = http.post("/get_weights_by_name", json={"name": "model.embed_tokens.weight", "truncate_size": 1})
    assert update(http, old).status_code == 200
    again = http.post("/get_weights_by_name", json={"name": "model.embed_tokens.weight", "truncate_size": 1})
    assert first_row.json() != again.json()
    assert text(http) == before


def test_what_runs_finishes_with_the_old_weights_and_what_comes_waits(checkpoints, http):
    new = checkpoints[2]
    long = {"prompt": PROMPT, "max_tokens": 400}
    before = text(http, **long)
    begun = threading.Event()
    streamed = []

    def stream() -> None:
        body = {**BODY, **long, "stream": True}
        with httpx.stream("POST", http.base_url.join("/v1/completions"), json=body, timeout=patient(60)) as response:
            for line in response.iter_lines():
                if line.startswith("data: {"):
                    streamed.append(json.loads(line[6:])["choices"][0]["text"])
                    begun.set()

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        running = pool.submit(stream)
        assert begun.wait(patient(30))
        updating = pool.submit(update, http, new)
        later = [pool.submit(text, http, **long) for _ in range(2)]
        assert updating.result().status_code == 200
        running.result()
        assert "".join(streamed) == before
        answers = {answer.result() for answer in later}
    assert text(http, **long) in answers
    assert answers <= {before, text(http, **long)}


def test_running_requests_may_be_ended(checkpoints, http):
    new = checkpoints[2]
    body = {**BODY, "max_tokens": 490, "n": 16, "temperature": 1, "stream": True}
    with httpx.stream("POST", http.base_url.join("/v1/completions"), json=body, timeout=patient(60)) as response:
        lines = response.iter_lines()
        next(lines)
        assert update(http, new, abort_all_requests=True).status_code == 200
        rest = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    assert rest[-1]["choices"][0]["finish_reason"] == "abort"


def test_a_checkpoint_that_does_not_fit_leaves_the_old_weights(checkpoints, http, tmp_path):
    _, old, new = checkpoints
    before = text(http)
    check_error(update(http, tmp_path / "nothing"), 404, "nothing")
    check_error(update(http, GOLDEN / "dense" / "llama_head_dim_24"), 400)
    check_error(update(http, GOLDEN / "dense" / "qwen3"), 400, param="model_path")
    cut = tmp_path / "cut"
    shutil.copytree(new, cut)
    whole = tensor_file(cut).read_bytes()
    tensor_file(cut).write_bytes(whole[: len(whole) // 2])
    response = update(http, cut)
    assert response.status_code >= 400 and "safetensors" in response.text
    assert text(http) == before
    assert http.get("/model_info").json()["model_path"] == str(old)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "model_path"),
        ({"model_path": 5}, "model_path"),
        ({"model_path": "/x", "load_format": "pickle"}, "load_format"),
        ({"model_path": "/x", "flush_cache": "no"}, "flush_cache"),
    ],
)
def test_the_field_at_fault_is_named(http, fields, param):
    check_error(http.post("/update_weights_from_disk", json=fields), 400, param=param)


def test_a_paused_server_changes_its_weights_at_once(checkpoints, http):
    before = text(http)
    assert http.post("/pause_generation", json={"mode": "retract"}).status_code == 200
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(text, http)
        deadline = time.monotonic() + patient(30)
        while http.get("/get_load").json()[0]["num_waiting_reqs"] == 0:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert update(http, checkpoints[2]).status_code == 200
        assert not waiting.done(), "a pause ends when it is told to"
        assert http.post("/continue_generation").status_code == 200
        answer = waiting.result()
    assert answer != before and answer == text(http)


def test_the_version_can_be_named_alone(http):
    response = http.post("/update_weight_version", json={"new_version": "third", "abort_all_requests": False})
    assert response.status_code == 200
    assert http.get("/model_info").json()["weight_version"] == "third"
    check_error(http.post("/update_weight_version", json={}), 400, param="new_version")


def test_updates_are_the_operators(tmp_path):
    with serve("dense/llama", tmp_path, "--api-key", "client", "--admin-api-key", "admin") as server:
        body = {"model_path": str(tmp_path / "checkpoint")}
        url = server.url + "/update_weights_from_disk"
        client = httpx.post(url, json=body, headers={"Authorization": "Bearer client"})
        assert client.status_code in (401, 403)
        admin = httpx.post(url, json=body, headers={"Authorization": "Bearer admin"})
        assert admin.status_code == 200, admin.text
