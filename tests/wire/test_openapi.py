"""The OpenAPI document that the server serves of itself, and schemathesis over it."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from patience import patient
from server_process import ServerProcess
from wire_checks import wait_until_idle

# Every path belongs to one of these, or to the operators'.
SURFACES = [
    "completions", "responses", "messages", "tokenize", "models", "^/generate", "embeddings|score|rerank",
    "parse_function_call|separate_reasoning", "^/api/", "load|info|health|metrics|openapi|cache_events",
]  # fmt: skip
# These change how the server runs.
OPERATOR_ROUTES = (
    "abort_request|flush_cache|_generation$|update_weight|profile|session|internal_state|"
    "weights_by_name|trace|expert_distribution"
)
# Routes whose requests have no body.
NO_BODY = {
    "/flush_cache", "/continue_generation", "/stop_profile", "/v1/responses/{id}/cancel",
    "/start_expert_distribution_record", "/stop_expert_distribution_record", "/dump_expert_distribution_record",
}  # fmt: skip


@pytest.fixture(scope="module")
def small_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Answers are short whatever a request asks for."""
    log = tmp_path_factory.mktemp("openapi") / "server.log"
    with ServerProcess(["--enable-metrics", "--enable-cache-events", "--context-length", "64"], log) as process:
        yield process


def test_every_listed_route_takes_its_methods_alone(http: httpx.Client):
    document = http.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    assert {"/v1/chat/completions", "/v1/responses/{id}", "/v1/messages", "/generate"} <= set(document["paths"])
    for path, operations in document["paths"].items():
        response = http.request("PATCH", path.replace("{id}", "none").replace("{path}", "none"))
        assert response.status_code == 405, path
        assert {name.lower() for name in response.headers["allow"].split(", ")} == set(operations), path
    assert http.get("/no/such/route").status_code == 404


def test_every_operation_is_described(http: httpx.Client):
    document = http.get("/openapi.json").json()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert operation.get("summary"), f"{method} {path}"
            ok = operation["responses"]["200"]
            if method in ("post", "put") and path not in NO_BODY:
                assert operation["requestBody"]["content"]["application/json"]["schema"]["$ref"], path
            assert ok["description"]


def run_schemathesis(server: ServerProcess, folder: Path, *paths: str | Path) -> None:
    (folder / "schemathesis.toml").write_text("")
    command = [
        Path(sys.executable).with_name("schemathesis"), "--config-file", folder / "schemathesis.toml",
        "run", server.url + "/openapi.json", *paths,
        "--checks", "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
        "--phases", "examples,coverage,fuzzing", "--max-examples", "20",
        "--generation-deterministic", "--no-color", "--request-timeout", "30",
    ]  # fmt: skip
    ran = subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True, timeout=patient(240))
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]


def check_serves(server: ServerProcess) -> None:
    wait_until_idle(server, timeout_s=60)
    with httpx.Client(base_url=server.url, timeout=patient(60)) as http:
        assert http.get("/health_generate").status_code == 200


def test_every_path_is_one_that_is_tried(http: httpx.Client):
    for path in http.get("/openapi.json").json()["paths"]:
        assert re.search("|".join([*SURFACES, OPERATOR_ROUTES]), path), path


@pytest.mark.parametrize("surface", SURFACES)
def test_no_request_of_the_schema_breaks_the_server(small_server: ServerProcess, surface: str, tmp_path: Path):
    run_schemathesis(
        small_server, tmp_path, "--include-path-regex", surface, "--exclude-path-regex", OPERATOR_ROUTES
    )
    check_serves(small_server)


def test_no_request_of_an_operator_breaks_the_server(tmp_path: Path):
    # Profiles are written where a request says, within its folder.
    flags = ["--enable-metrics", "--context-length", "64"]
    with ServerProcess(flags, tmp_path / "server.log", tmp_path) as server:
        run_schemathesis(server, tmp_path, "--include-path-regex", OPERATOR_ROUTES)
        with httpx.Client(base_url=server.url, timeout=patient(60)) as http:
            assert http.post("/continue_generation").status_code == 200
        check_serves(server)
