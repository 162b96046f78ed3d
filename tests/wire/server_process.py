"""Starts build/hayate as a child process and stops it the way an operator would."""

import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

import httpx
from patience import PATIENCE, patient

ROOT = Path(__file__).resolve().parent.parent.parent
BINARY = Path(os.environ.get("HAYATE_BINARY", ROOT / "build" / "hayate")).absolute()
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0


def default_model() -> Path:
    """The default model's file, fetched into the cache when it is not there."""
    named = os.environ.get("HAYATE_MODEL")
    if named:
        return Path(named).absolute()
    script = ROOT / "tools" / "fetch_model.sh"
    return Path(subprocess.run([script], check=True, stdout=subprocess.PIPE, text=True).stdout.strip())


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class ServerProcess:
    """One `hayate serve`. Its output goes to `log_path`; a failed start or stop shows the end of it."""

    def __init__(self, flags: list[str], log_path: Path, folder: Path | None = None):
        """`folder`: where it runs; here, without."""
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log_path = log_path
        command = [str(BINARY), "serve", "--host", "127.0.0.1", "--port", str(self.port)]
        if "--model-path" not in flags:
            command += ["--model-path", str(default_model())]
        if PATIENCE != 1 and "--grammar-compile-timeout" not in flags:
            command += ["--grammar-compile-timeout", str(patient(60))]
        with log_path.open("wb") as log:
            self.process = subprocess.Popen([*command, *flags], stdout=log, stderr=subprocess.STDOUT, cwd=folder)

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + patient(START_TIMEOUT_S)
        while True:
            code = self.process.poll()
            assert code is None, f"the server exited with {code} while starting\n{self.log_tail()}"
            try:
                if httpx.get(self.url + "/health", timeout=2.0).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            assert time.monotonic() < deadline, f"not ready after {START_TIMEOUT_S} s\n{self.log_tail()}"
            time.sleep(0.02)

    def __enter__(self) -> Self:
        """Ready."""
        try:
            self.wait_until_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        if failure is None:
            self.stop()
        else:
            self.kill()

    def stop(self) -> None:
        """SIGTERM; the server finishes what runs and exits 0."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(patient(STOP_TIMEOUT_S))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"still running {STOP_TIMEOUT_S} s after SIGTERM\n{self.log_tail()}") from None
        assert code == 0, f"exit status {code}\n{self.log_tail()}"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def log_text(self) -> str:
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def log_tail(self, lines: int = 40) -> str:
        return "\n".join(self.log_text().splitlines()[-lines:])

    def metrics(self) -> dict[str, float]:
        """The samples of /metrics by name with labels, e.g. 'sglang:num_running_reqs{...}'."""
        return parse_metrics(httpx.get(self.url + "/metrics", timeout=patient(10)).raise_for_status().text)

    def rss_bytes(self) -> int:
        for line in Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmRSS in /proc")


def parse_metrics(text: str) -> dict[str, float]:
    samples = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            samples[name] = float(value)
    return samples
