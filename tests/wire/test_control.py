"""Operators' routes, keys, limits, logs: what stands around the answers."""

import contextlib
import json
import os
import signal
import subprocess
import threading
import time

import httpx
import openai
import pytest
from patience import patient
from server_process import BINARY
from wire_checks import (
    PROBE,
    check_alive,
    check_error,
    complete_text,
    generate,
    metric,
    parse_sse,
    user,
    wait_until_idle,
)

LONG = {"text": "Once upon a time", "sampling_params": {"temperature": 0, "max_new_tokens": 120, "ignore_eos": True}}


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def json_lines(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def wait_for(condition, timeout_s: float = 10.0):
    deadline = time.monotonic() + patient(timeout_s)
    while not (value := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return value


@pytest.mark.parametrize("mode", ["retract", "in_place"])
def test_a_pause_holds_running_and_new_requests_and_changes_no_answer(http, server, mode):
    expected = generate(http, **LONG)["output_ids"]
    answers = []
    with http.stream("POST", "/generate", json={**LONG, "stream": True}) as response:
        lines = response.iter_lines()
        next(lines)
        assert http.post("/pause_generation", json={"mode": mode}).json()["status"] == "ok"
        paused_at = metric(server, "generation_tokens_total")
        late = threading.Thread(target=lambda: answers.append(httpx.post(server.url + "/generate", json=LONG).json()))
        late.start()
        wait_for(lambda: metric(server, "num_paused_reqs") == 2)
        assert metric(server, "generation_tokens_total") == paused_at
        assert (http.post("/flush_cache").status_code == 200) == (mode == "retract")
        assert http.get("/v1/loads").json()["loads"][0]["queues"]["paused"] == 2
        assert http.post("/continue_generation").json()["status"] == "ok"
        events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    late.join()
    assert events[-1]["output_ids"] == expected
    assert answers[0]["output_ids"] == expected
    wait_until_idle(server)


def test_a_pause_may_end_what_runs(http, server):
    with http.stream("POST", "/generate", json={**LONG, "stream": True}) as response:
        lines = response.iter_lines()
        next(lines)
        assert http.post("/pause_generation").status_code == 200
        rest = [line for line in lines if line.startswith("data: {")]
    assert json.loads(rest[-1][6:])["meta_info"]["finish_reason"]["type"] == "abort"
    assert http.post("/continue_generation").status_code == 200
    check_error(http.post("/pause_generation", json={"mode": "later"}), 400, "retract", param="mode")
    check_alive(http)
    wait_until_idle(server)


def test_a_paused_server_stops_when_told(start_server):
    server = start_server()
    with httpx.Client(base_url=server.url, timeout=patient(60)) as http:
        assert http.post("/pause_generation", json={"mode": "in_place"}).status_code == 200
        answers = []
        thread = threading.Thread(
            target=lambda: answers.append(httpx.post(server.url + "/v1/completions", json=PROBE, timeout=patient(60)))
        )
        thread.start()
        wait_for(lambda: http.get("/get_load").json()[0]["num_waiting_reqs"] == 1)
        server.stop()
        thread.join()
    assert answers[0].json()["choices"][0]["text"].startswith(" Paris")


def test_aborting_takes_an_exact_name(http, server):
    ends = {}

    def run(rid: str) -> None:
        answer = httpx.post(server.url + "/generate", json={**LONG, "rid": rid}, timeout=patient(60)).json()
        ends[rid] = answer["meta_info"]["finish_reason"]["type"]

    threads = [threading.Thread(target=run, args=(rid,)) for rid in ("job", "job-2")]
    for thread in threads:
        thread.start()
    wait_for(lambda: metric(server, "num_running_reqs") == 2)
    assert http.post("/abort_request", json={"rid": "job"}).status_code == 200
    for thread in threads:
        thread.join()
    assert ends == {"job": "abort", "job-2": "length"}


def test_sessions_go_on_from_any_turn(http):
    session = http.post("/open_session", json={"capacity_of_str_len": 4096}).json()
    assert isinstance(session, str)
    check_error(http.post("/open_session", json={"session_id": session}), 400, "open already")

    def turn(ids: list[int], **params) -> dict:
        body = {
            "input_ids": ids,
            "session_params": {"id": session, **params},
            "sampling_params": {"temperature": 0, "max_new_tokens": 6, "ignore_eos": True},
        }
        response = http.post("/generate", json=body)
        assert response.status_code == 200, response.text
        return response.json()

    def alone(ids: list[int]) -> list[int]:
        sampling = {"temperature": 0, "max_new_tokens": 6, "ignore_eos": True}
        return http.post("/generate", json={"input_ids": ids, "sampling_params": sampling}).json()["output_ids"]

    one, two = [504, 3575, 282, 4649, 314], [30, 198, 788]
    first = turn(one)
    assert first["output_ids"] == alone(one)
    name = first["meta_info"]["id"]
    second = turn(two, rid=name)
    assert second["output_ids"] == alone(one + first["output_ids"] + two)
    assert second["meta_info"]["prompt_tokens"] == len(one) + 6 + len(two)
    branch = turn(two, rid=name, drop_previous_output=True)
    assert branch["output_ids"] == alone(one + two)
    assert turn(two, rid=name, offset=3)["output_ids"] == alone(one[:3] + two)
    turn(two, rid=name, replace=True)
    gone = {"input_ids": two, "session_params": {"id": session, "rid": second["meta_info"]["id"]}}
    check_error(http.post("/generate", json=gone), 400, "no turn", param="session_params.rid")
    several = {"input_ids": [one, two], "session_params": {"id": session}}
    check_error(http.post("/generate", json=several), 400, param="session_params")
    assert http.post("/close_session", json={"session_id": session}).status_code == 200
    check_error(http.post("/close_session", json={"session_id": session}), 404, "session")
    check_error(http.post("/generate", json=gone), 400, param="session_params.id")


def test_loads_have_the_shape_that_routers_read(http):
    loads = http.get("/v1/loads?include=core,disagg,queues,memory").json()
    assert loads["dp_rank_count"] == 1
    (load,) = loads["loads"]
    for field in (
        "dp_rank",
        "num_running_reqs",
        "num_waiting_reqs",
        "num_used_tokens",
        "max_total_num_tokens",
        "token_usage",
        "gen_throughput",
        "cache_hit_rate",
        "utilization",
        "max_running_requests",
    ):
        assert isinstance(load[field], int | float), field
    assert loads["aggregate"]["total_running_reqs"] == load["num_running_reqs"]
    assert "memory" not in http.get("/v1/loads?include=core").json()["loads"][0]
    assert http.get("/get_loads").status_code == 200
    check_error(http.get("/v1/loads?include=cores"), 400, "cores", param="include")
    (old,) = http.get("/get_load").json()
    assert set(old) == {"dp_rank", "num_reqs", "num_waiting_reqs", "num_tokens"}


def test_some_options_change_while_the_server_runs(http):
    def change(**args) -> httpx.Response:
        return http.post("/set_internal_state", json={"server_args": args})

    assert change(max_queued_requests=3).json()["server_args"]["max_queued_requests"] == 3
    check_error(http.post("/v1/completions", json={**PROBE, "n": 4}), 400, "at most 3", param="n")
    assert change(max_queued_requests=1024, log_level="info").json()["updated"] is True
    check_error(change(max_queued_requests=1025), 400, param="server_args.max_queued_requests")
    check_error(change(tp_size=2), 400, "tp_size", "max_queued_requests")
    check_error(change(log_level="loud"), 400, "loud")
    check_error(http.post("/set_internal_state", json={}), 400, param="server_args")


def test_weights_are_read_by_name(http):
    name = "blk.0.attn_norm.weight"
    values = http.request("GET", "/get_weights_by_name", json={"name": name, "truncate_size": 5}).json()
    assert len(values) == 5 and all(isinstance(value, float) for value in values)
    rows = http.post("/get_weights_by_name", json={"name": "token_embd.weight", "truncate_size": 2}).json()
    assert [len(row) for row in rows] == [576, 576]
    check_error(http.post("/get_weights_by_name", json={"name": "nothing"}), 404, "nothing", param="name")
    everything = {"name": "token_embd.weight", "truncate_size": 40000}
    check_error(http.post("/get_weights_by_name", json=everything), 400, param="truncate_size")


def test_a_trace_shows_engine_and_device(http, server, tmp_path):
    complete_text(http, **PROBE)
    events = http.get("/trace?steps=5").json()["traceEvents"]
    names = {event["name"] for event in events}
    assert {"plan", "wait", "commit", "forward", "requests", "pages"} <= names
    forwards = [event for event in events if event["name"] == "forward"]
    assert 1 <= len(forwards) <= 5
    ends = [event["ts"] + event["dur"] for event in forwards]
    assert all(begin["ts"] >= end for end, begin in zip(ends, forwards[1:], strict=False))
    check_error(http.get("/trace?steps=none"), 400, param="steps")

    assert http.post("/start_profile", json={"output_dir": str(tmp_path), "num_steps": 3}).status_code == 200
    check_error(http.post("/start_profile"), 400, "under way")
    complete_text(http, **PROBE)
    assert str(tmp_path) in http.post("/stop_profile").json()["message"]
    (path,) = tmp_path.iterdir()
    profiled = json.loads(path.read_text())["traceEvents"]
    assert len([event for event in profiled if event["name"] == "forward"]) == 3
    check_error(http.post("/stop_profile"), 400, "no profile")
    check_error(http.post("/start_profile", json={"output_dir": "/no/such/folder"}), 400, param="output_dir")

    out = tmp_path / "trace.json"
    subprocess.run([BINARY, "trace", server.url, "--steps", "4", "--last", "-o", out], check=True, timeout=patient(30))
    assert len([e for e in json.loads(out.read_text())["traceEvents"] if e["name"] == "forward"]) == 4
    assert "hayate:step_gap_seconds_count" in {key.split("{")[0] for key in server.metrics()}


def test_keys_open_what_they_should(start_server):
    server = start_server("--api-key", "one", "--api-key", "two", "--admin-api-key", "root")
    with httpx.Client(base_url=server.url, timeout=patient(60)) as http:
        assert http.get("/health").status_code == 200
        check_error(http.post("/v1/completions", json=PROBE), 401, "missing")
        check_error(http.post("/v1/completions", json=PROBE, headers=bearer("three")), 401, "wrong")
        for headers in (bearer("one"), bearer("two"), bearer("root"), {"x-api-key": "one"}):
            assert http.post("/v1/completions", json=PROBE, headers=headers).status_code == 200
        for path in ("/pause_generation", "/continue_generation", "/flush_cache", "/start_profile", "/stop_profile"):
            check_error(http.post(path), 401)
            check_error(http.post(path, headers=bearer("one")), 403, "operator")
            assert http.post(path, headers=bearer("root")).status_code == 200
        everything = {"abort_all": True}
        check_error(http.post("/abort_request", json=everything, headers=bearer("one")), 403)
        assert http.post("/abort_request", json=everything, headers=bearer("root")).status_code == 200
        assert http.post("/abort_request", json={"rid": "x"}, headers=bearer("one")).status_code == 200
    with openai.OpenAI(base_url=server.url + "/v1", api_key="two", max_retries=0) as client:
        assert client.models.list().data
    stranger = openai.OpenAI(base_url=server.url + "/v1", api_key="bad", max_retries=0)
    with stranger, pytest.raises(openai.AuthenticationError):
        stranger.models.list()


def test_the_key_file_is_read_again_on_sighup(start_server, tmp_path):
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [{"id": "a", "key": "k1"}]}))
    server = start_server("--api-key-file", str(keys))
    with httpx.Client(base_url=server.url, timeout=patient(60)) as http:

        def status(key: str) -> int:
            return http.get("/v1/models", headers=bearer(key)).status_code

        assert (status("k1"), status("k2")) == (200, 401)
        keys.write_text(json.dumps({"keys": [{"id": "b", "key": "k2"}]}))
        os.kill(server.process.pid, signal.SIGHUP)
        wait_for(lambda: status("k2") == 200)
        assert status("k1") == 401
        keys.write_text("{")
        os.kill(server.process.pid, signal.SIGHUP)
        wait_for(lambda: "the old ones stay" in server.log_text())
        assert status("k2") == 200


def test_a_key_has_so_many_requests_under_way(start_server):
    server = start_server("--api-key", "one", "--api-key", "two", "--max-concurrent-per-key", "2")
    body = {**LONG, "stream": True}
    with httpx.Client(base_url=server.url, timeout=patient(60), headers=bearer("one")) as http, contextlib.ExitStack() as held:
        # The iterators are kept: a dropped one closes its response.
        streams = [held.enter_context(http.stream("POST", "/generate", json=body)).iter_lines() for _ in range(2)]
        for lines in streams:
            next(lines)
        refused = http.post("/v1/completions", json=PROBE)
        check_error(refused, 429, "2 requests under way")
        assert int(refused.headers["retry-after"]) >= 1
        assert httpx.post(server.url + "/v1/completions", json=PROBE, headers=bearer("two")).status_code == 200
        held.close()
        wait_for(lambda: http.post("/v1/completions", json=PROBE).status_code == 200)


def test_logs_name_requests_and_traces(start_server, tmp_path):
    access, spans = tmp_path / "access.jsonl", tmp_path / "spans.jsonl"
    server = start_server("--access-log", str(access), "--trace-file", str(spans), "--api-key", "secret-key")
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    with httpx.Client(base_url=server.url, timeout=patient(60), headers=bearer("secret-key")) as http:
        mine = http.post(
            "/v1/completions",
            json={**PROBE, "prompt": "a private prompt"},
            headers={"x-request-id": "mine", "traceparent": f"00-{trace}-{parent}-01"},
        )
        assert mine.headers["x-request-id"] == "mine"
        streamed = http.post("/generate", json={**LONG, "stream": True})
        assert streamed.headers["x-request-id"].startswith("req-")
        assert parse_sse(streamed.text)
        assert httpx.get(server.url + "/v1/models").headers["x-request-id"]
        with http.stream("POST", "/generate", json={**LONG, "stream": True}) as response:
            next(response.iter_lines())
    server.stop()
    text = access.read_text()
    assert "private" not in text and "secret" not in text
    lines = [line for line in json_lines(access) if line["path"] != "/health"]
    assert [(line["status"], line["complete"]) for line in lines] == [
        (200, True),
        (200, True),
        (401, True),
        (200, False),
    ]
    first = lines[0]
    assert (first["request_id"], first["trace_id"], first["key"]) == ("mine", trace, "api-key-0")
    assert (first["prompt_tokens"], first["completion_tokens"]) == (3, 8)
    assert 0 < first["first_token_ms"] <= first["total_ms"]
    assert lines[1]["completion_tokens"] == 120 and lines[1]["bytes_out"] > 1000
    assert "completion_tokens" not in lines[2]
    found = [line["resourceSpans"][0]["scopeSpans"][0]["spans"][0] for line in json_lines(spans)]
    (span,) = [span for span in found if span["traceId"] == trace]
    assert span["parentSpanId"] == parent and span["name"] == "POST /v1/completions"
    assert [event["name"] for event in span["events"]] == ["prompt ready", "first token"]
    assert int(span["startTimeUnixNano"]) < int(span["endTimeUnixNano"])


def test_browsers_may_call_from_the_pages_that_are_named(start_server):
    server = start_server("--cors-allow-origin", "https://app.example", "--api-key", "one")
    with httpx.Client(base_url=server.url) as http:
        asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
        preflight = http.options("/v1/chat/completions", headers={"Origin": "https://app.example", **asks})
        assert preflight.status_code == 204
        assert preflight.headers["access-control-allow-origin"] == "https://app.example"
        assert "authorization" in preflight.headers["access-control-allow-headers"]
        refused = http.get("/v1/models", headers={"Origin": "https://app.example"})
        assert refused.status_code == 401 and refused.headers["access-control-allow-origin"] == "https://app.example"
        other = http.options("/v1/chat/completions", headers={"Origin": "https://evil.example", **asks})
        assert other.status_code == 405 and "access-control-allow-origin" not in other.headers
        assert "access-control-allow-origin" not in http.get("/health").headers


def test_bodies_are_bounded_by_a_flag(start_server):
    server = start_server("--max-payload-size", "2000")
    with httpx.Client(base_url=server.url) as http:
        assert http.post("/v1/completions", json=PROBE).status_code == 200
        check_error(http.post("/v1/completions", json={**PROBE, "user": "x" * 3000}), 413)
        chat = {"messages": user("hi"), "max_tokens": 1}
        assert http.post("/v1/chat/completions", json=chat).status_code == 200
