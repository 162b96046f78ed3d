"""The OpenAPI document that the server serves of itself, and schemathesis over it."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from patience import patient
from server_process import ServerProcess
from wire_checks import wait_until_idle

# Routes that change how the server runs, or answer for as long as they like.
OPERATOR_ROUTES = "abort_request|flush_cache|pause_|continue_|update_|profile|session|release_|resume_|internal_state"


@pytest.fixture(scope="module")
def small_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Answers are short whatever a request asks for."""
    log = tmp_path_factory.mktemp("openapi") / "server.log"
    with ServerProcess(["--enable-metrics", "--context-length", "64"], log) as process:
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


@pytest.mark.parametrize("surface", ["completions", "responses", "messages", "tokenize", "models"])
def test_no_request_of_the_schema_breaks_the_server(small_server: ServerProcess, surface: str, tmp_path: Path):
    (tmp_path / "schemathesis.toml").write_text("")
    command = [
        Path(sys.executable).with_name("schemathesis"), "--config-file", tmp_path / "schemathesis.toml",
        "run", small_server.url + "/openapi.json",
        "--include-path-regex", surface, "--exclude-path-regex", OPERATOR_ROUTES,
        "--checks", "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
        "--phases", "examples,coverage,fuzzing", "--max-examples", "20",
        "--generation-deterministic", "--no-color", "--request-timeout", "30",
    ]  # fmt: skip
    ran = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=patient(240))
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]
    wait_until_idle(small_server, timeout_s=60)
    with httpx.Client(base_url=small_server.url, timeout=patient(60)) as http:
        assert http.get("/health_generate").status_code == 200
