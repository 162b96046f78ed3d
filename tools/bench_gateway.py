#!/usr/bin/env python3
"""Measures `hayate gateway` beside sglang-router and smg, all before the same mock worker.

    tools/bench_gateway.py --binary build/hayate --output bench/results/gateway-loopback.json
        [--sglang-router VENV] [--smg VENV]     a venv with that PyPI package

Every figure comes from one run: the direct path, the gateway, the peers, taking turns. CPU is what
the process under test spent by /proc. Machine, date, versions and command lines go into the file.
"""

import argparse
import json
import os
import platform
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_ready(url: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                if answer.status == 200:
                    return
        except OSError:
            pass
        if time.monotonic() > deadline:
            raise SystemExit(f"bench_gateway: {url} is not ready after {seconds} s")
        time.sleep(0.05)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def rss_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


class Bench:
    def __init__(self, options: argparse.Namespace):
        self.options = options
        self.processes: list[subprocess.Popen] = []

    def start(self, command: list[str]) -> subprocess.Popen:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.processes.append(process)
        return process

    def stop_all(self) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGKILL)
            process.wait()

    def worker(self, *flags: str) -> str:
        port = free_port()
        self.start([self.options.binary, "bench", "gateway", "--mock-worker", "--port", str(port), *flags])
        wait_ready(f"http://127.0.0.1:{port}/health")
        return f"http://127.0.0.1:{port}"

    def front(self, name: str, worker: str, policy: str) -> tuple[str, int]:
        """Starts the gateway or a peer; its URL and process id."""
        port = free_port()
        venv = {"sglang-router": self.options.sglang_router, "smg": self.options.smg}.get(name)
        listen = ["--host", "127.0.0.1", "--port", str(port), "--worker-urls", worker, "--policy", policy]
        if name == "hayate":
            command = [self.options.binary, "gateway", *listen]
        else:
            command = [f"{venv}/bin/{name}", "launch", *listen, "--prometheus-port", str(free_port())]
        process = self.start(command)
        wait_ready(f"http://127.0.0.1:{port}/readiness")
        for _ in range(200):
            body = json.dumps({"model": "mock", "messages": [{"role": "user", "content": "x"}]}).encode()
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}/v1/chat/completions", body, {"Content-Type": "application/json"}
            )
            try:
                with urllib.request.urlopen(request, timeout=5):
                    break
            except OSError:
                time.sleep(0.1)
        return f"http://127.0.0.1:{port}", process.pid

    def load(self, url: str, pid: int | None, *flags: str) -> dict:
        command = [
            self.options.binary,
            "bench",
            "gateway",
            "--url",
            url,
            "--duration",
            str(self.options.duration),
            *flags,
        ]
        before = cpu_seconds(pid) if pid else 0.0
        begin = time.monotonic()
        done = subprocess.run(command, stdout=subprocess.PIPE, check=False, text=True)
        wall = time.monotonic() - begin
        result = json.loads(done.stdout) if done.stdout.strip() else {"requests": 0, "failed": 1}
        if pid:
            spent = cpu_seconds(pid) - before
            result["cpu_cores"] = round(spent / wall, 3)
            if result["requests"] and spent > 0:
                # The warm-up is in both, so rates per core are of the whole run.
                share = result["seconds"] / wall
                result["requests_per_cpu_second"] = round(result["requests"] / (spent * share))
                result["events_per_cpu_second"] = round(
                    result["events_per_second"] * result["seconds"] / (spent * share)
                )
            result["rss_mib"] = round(rss_mib(pid), 1)
        return result


def added(case: dict, direct: dict, key: str) -> float:
    return round(case[key] - direct[key], 1)


def run(bench: Bench) -> dict:
    options = bench.options
    worker = bench.worker()
    targets: dict[str, tuple[str, int | None]] = {"direct": (worker, None)}
    peers = [name for name, venv in (("sglang-router", options.sglang_router), ("smg", options.smg)) if venv]
    for name in ["hayate", *peers]:
        targets[name] = bench.front(name, worker, "cache_aware")
    cases = {
        "latency_1_connection": ["--concurrency", "1"],
        "latency_1000_per_second": ["--concurrency", "64", "--rate", "1000"],
        "requests_32_connections": ["--concurrency", "32"],
        "streams_64_of_256_events": ["--mode", "streams", "--concurrency", "64", "--max-tokens", "256"],
        "body_16_mb": ["--concurrency", "1", "--prompt-bytes", str(16_000_000)],
    }
    results: dict[str, dict[str, dict]] = {}
    for case, flags in cases.items():
        results[case] = {}
        for name, (url, pid) in targets.items():
            results[case][name] = bench.load(url, pid, *flags)
            row = results[case][name]
            if name != "direct" and row["requests"]:
                for quantile in ("p50", "p99"):
                    row[f"added_us_{quantile}"] = added(row, results[case]["direct"], f"latency_us_{quantile}")
            print(
                case,
                name,
                {
                    key: row.get(key)
                    for key in (
                        "requests_per_second",
                        "events_per_second",
                        "latency_us_p50",
                        "latency_us_p99",
                        "added_us_p50",
                        "added_us_p99",
                        "cpu_cores",
                        "requests_per_cpu_second",
                        "events_per_cpu_second",
                        "failed",
                        "rss_mib",
                    )
                },
                flush=True,
            )
    if options.memory:
        url, pid = bench.front("hayate", worker, "cache_aware")
        results["memory_1e6_prompts"] = {
            "hayate": bench.load(
                url,
                pid,
                "--concurrency",
                "32",
                "--prompt-bytes",
                "1024",
                "--distinct-prompts",
                "1000000",
                "--duration",
                str(options.memory),
            )
        }
        print("memory", results["memory_1e6_prompts"], flush=True)
    return results


def version(venv: str | None, package: str) -> str | None:
    if not venv:
        return None
    found = subprocess.run(
        [f"{venv}/bin/python", "-m", "pip", "show", package], stdout=subprocess.PIPE, text=True, check=False
    )
    return next((line.split()[1] for line in found.stdout.splitlines() if line.startswith("Version:")), None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="build/hayate")
    parser.add_argument("--sglang-router", metavar="VENV")
    parser.add_argument("--smg", metavar="VENV")
    parser.add_argument("--duration", type=float, default=3.0, help="seconds of each case")
    parser.add_argument("--memory", type=float, default=0.0, help="seconds of the 10^6 prompts; 0: left out")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    bench = Bench(options)
    try:
        results = run(bench)
    finally:
        bench.stop_all()
    model = next(
        (
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
            if line.startswith("model name")
        ),
        "",
    )
    report = {
        "what": "hayate gateway and peers before one mock worker on loopback; load, worker and gateway share the machine",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "hardware": f"{os.cpu_count()} x {model}, Linux {platform.release()}",
        "command": "tools/bench_gateway.py",
        "versions": {
            "sglang-router": version(options.sglang_router, "sglang-router"),
            "smg": version(options.smg, "smg"),
        },
        "results": results,
    }
    if options.output:
        options.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
