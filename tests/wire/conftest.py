"""Fixtures of the wire tests: real servers with the default model, and clients for them."""

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import openai
import pytest
from patience import patient
from server_process import ServerProcess

# The limit of calls that name none: one object, which every default of httpx is.
_httpx_default = inspect.signature(httpx.get).parameters["timeout"].default
for _part in ("connect", "read", "write", "pool"):
    setattr(_httpx_default, _part, patient(5))


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server with default flags plus metrics and cache reports, shared by the whole session."""
    log_path = tmp_path_factory.mktemp("server") / "server.log"
    with ServerProcess(["--enable-metrics", "--enable-cache-report"], log_path) as process:
        yield process


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[Callable[..., ServerProcess]]:
    """Starts servers with flags of the test's own; whatever still runs must stop cleanly."""
    started: list[ServerProcess] = []

    def start(*flags: str) -> ServerProcess:
        process = ServerProcess(list(flags), tmp_path / f"server-{len(started)}.log")
        started.append(process)
        try:
            process.wait_until_ready()
        except BaseException:
            process.kill()
            started.remove(process)
            raise
        return process

    yield start
    for process in started:
        process.stop()


@pytest.fixture
def client(server: ServerProcess) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=patient(120)) as made:
        yield made


@pytest.fixture
def http(server: ServerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=patient(120)) as made:
        yield made
