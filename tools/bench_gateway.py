#!/usr/bin/env python3
"""Measures `hayate gateway` beside sglang-router and smg and keeps the table of docs/gateway.md.

    tools/bench_gateway.py --binary build/hayate [--part latency …]
        [--sglang-router VENV] [--smg VENV]     a venv with that PyPI package
    tools/bench_gateway.py --table [--check]    rewrites the table, or says whether it is out of date

A part is one run before one mock worker on loopback in which the direct path, the gateway and the
peers take turns, two seconds each, so that a machine can be kept quiet meanwhile. Its figures replace
those of the same part in bench/results/gateway.json, with date, load and versions.
CPU is what the process under test spent by its CPU clock: all threads, system calls included.

    latency   added time with one connection, and at 1,000 requests a second
    rate      small requests of 32 connections
    streams   64 streams of 256 events
    body      bodies of 16 MB, one after the other
    memory    resident size after a million distinct prompts of 1 KB (two minutes; gateway alone)
    cache     cache_aware on the trace of bench_cache_aware.py
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

import bench_cache_aware

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results" / "gateway.json"
PAGE = ROOT / "docs" / "gateway.md"
BEGIN, END = "<!-- gateway-table: tools/bench_gateway.py -->", "<!-- /gateway-table -->"
BODY_BYTES = 16_000_000
CASES = {
    "latency": {
        "one_connection": ["--concurrency", "1"],
        "thousand_a_second": ["--concurrency", "64", "--rate", "1000"],
    },
    "rate": {"connections_32": ["--concurrency", "32"]},
    "streams": {"streams_64": ["--mode", "streams", "--concurrency", "64", "--max-tokens", "256"]},
    "body": {"bytes_16_mb": ["--concurrency", "1", "--prompt-bytes", str(BODY_BYTES)]},
}
PARTS = [*CASES, "memory", "cache"]


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
    """Of the whole process, by its CPU clock (clock_getcpuclockid(3)): /proc counts in ticks of 10 ms."""
    cpu_clock = 2
    return time.clock_gettime((~pid << 3) | cpu_clock)


def rss_mib(pid: int, field: str = "VmRSS") -> float:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    return 0.0


class Bench:
    def __init__(self, options: argparse.Namespace):
        self.options = options
        self.processes: list[subprocess.Popen] = []
        self.targets: dict[str, tuple[str, int | None]] = {}

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
        command = [self.options.binary, "bench", "gateway", "--url", url, "--warmup", "0", *flags]
        # Connections and caches are warm when the measured run begins; all of its requests count.
        if "--duration" not in flags:
            subprocess.run([*command, "--duration", "0.3"], stdout=subprocess.DEVNULL, check=False)
        before = cpu_seconds(pid) if pid else 0.0
        begin = time.monotonic()
        duration = [] if "--duration" in flags else ["--duration", str(self.options.duration)]
        done = subprocess.run([*command, *duration], stdout=subprocess.PIPE, check=False, text=True)
        wall = time.monotonic() - begin
        result = json.loads(done.stdout) if done.stdout.strip() else {"requests": 0, "failed": 1}
        if pid:
            spent = cpu_seconds(pid) - before
            result["cpu_cores"] = round(spent / wall, 3)
            if result["requests"]:
                result["requests_per_cpu_second"] = round(result["requests"] / spent)
                result["events_per_cpu_second"] = round(result["events_per_second"] * result["seconds"] / spent)
                result["cpu_ms_per_request"] = round(1000 * spent / result["requests"], 3)
            result["rss_mib"] = round(rss_mib(pid), 1)
            result["rss_mib_most"] = round(rss_mib(pid, "VmHWM"), 1)
        return result


def added(case: dict, direct: dict, key: str) -> float:
    return round(case[key] - direct[key], 1)


def run_cases(bench: Bench, cases: dict[str, list[str]]) -> dict:
    options = bench.options
    if not bench.targets:
        worker = bench.worker()
        bench.targets["direct"] = (worker, None)
        peers = [name for name, venv in (("sglang-router", options.sglang_router), ("smg", options.smg)) if venv]
        for name in ["hayate", *peers]:
            bench.targets[name] = bench.front(name, worker, "cache_aware")
    results: dict[str, dict[str, dict]] = {}
    for case, flags in cases.items():
        results[case] = {name: bench.load(url, pid, *flags) for name, (url, pid) in bench.targets.items()}
        direct = results[case]["direct"]
        for name, row in results[case].items():
            if name != "direct" and row["requests"]:
                for quantile in ("p50", "p99"):
                    row[f"added_us_{quantile}"] = added(row, direct, f"latency_us_{quantile}")
            shown = ("requests_per_second", "latency_us_p50", "latency_us_p99", "added_us_p50", "added_us_p99")
            shown += ("requests_per_cpu_second", "events_per_cpu_second", "cpu_ms_per_request", "failed", "rss_mib")
            print(case, name, {key: row.get(key) for key in shown}, flush=True)
    return results


def run_memory(bench: Bench) -> dict:
    url, pid = bench.front("hayate", bench.worker(), "cache_aware")
    before = rss_mib(pid)
    flags = ["--concurrency", "32", "--prompt-bytes", "1024", "--distinct-prompts", "1000000"]
    result = bench.load(url, pid, *flags, "--duration", str(bench.options.memory_seconds))
    result["rss_mib_before"] = round(before, 1)
    print("memory", {key: result[key] for key in ("requests", "failed", "rss_mib_before", "rss_mib", "rss_mib_most")})
    return {"hayate": result}


def run_part(bench: Bench, part: str) -> dict:
    if part == "cache":
        return bench_cache_aware.run_all(bench.options.binary, bench.options.sglang_router, requests=6000, seed=1)
    return run_memory(bench) if part == "memory" else run_cases(bench, CASES[part])


def version(venv: str | None, package: str) -> str | None:
    if not venv:
        return None
    found = subprocess.run(
        [f"{venv}/bin/python", "-m", "pip", "show", package], stdout=subprocess.PIPE, text=True, check=False
    )
    return next((line.split()[1] for line in found.stdout.splitlines() if line.startswith("Version:")), None)


def hardware() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "")
    return f"{os.cpu_count()} x {model}, Linux {platform.release()}"


def measure(options: argparse.Namespace) -> None:
    output = options.output
    report = json.loads(output.read_text(encoding="utf-8")) if output.exists() else {"parts": {}}
    report["what"] = "hayate gateway and peers on loopback; load, mock worker and gateway share the machine"
    bench = Bench(options)
    try:
        measure_parts(bench, report, output)
    finally:
        bench.stop_all()


def measure_parts(bench: Bench, report: dict, output: Path) -> None:
    options = bench.options
    for part in options.part or PARTS:
        load = os.getloadavg()[0]
        results = run_part(bench, part)
        peers = {"sglang-router": options.sglang_router, "smg": options.smg}
        report["parts"][part] = {
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "hardware": hardware(),
            "load_average_before": round(load, 1),
            "command": f"tools/bench_gateway.py --part {part} --sglang-router VENV --smg VENV",
            "versions": {name: version(venv, name) for name, venv in peers.items() if venv},
            "results": results,
        }
        output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def number(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:.1f} million"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}".removesuffix(".0")


def cache_rows(results: dict, routers: list[str]) -> list[str]:
    """Each by its defaults, and where these let the imbalance grow, by the best of its stricter thresholds."""
    balanced = {name: results.get(f"{name}, balanced", results.get(name)) for name in routers}
    lines = []
    for when, runs in (("by default", results), (f"at an imbalance ≤ {bench_cache_aware.MAX_IMBALANCE}", balanced)):
        for what, show in (
            ("hit rate, % of an oracle's", lambda run: number(100 * run["of_oracle"])),
            ("busiest worker over the mean", lambda run: f"{run['imbalance']:.2f}"),
        ):
            cells = [show(runs[name]) if runs.get(name) else "–" for name in routers]
            lines.append(f"| cache_aware {when}: {what} | " + " | ".join(cells) + " |")
    return lines


def table(report: dict) -> str:
    parts = {name: part["results"] for name, part in report["parts"].items()}
    routers = [name for name in ("hayate", "sglang-router", "smg") if name in parts["rate"]["connections_32"]]
    versions = report["parts"]["rate"]["versions"]
    lines = ["| | " + " | ".join(f"{name} {versions.get(name, '')}".strip() for name in routers) + " |"]
    lines.append("| --- |" + " ---: |" * len(routers))

    def row(what: str, case: dict, key: str) -> None:
        cells = [number(case[name][key]) if case.get(name, {}).get(key) is not None else "–" for name in routers]
        lines.append(f"| {what} | " + " | ".join(cells) + " |")

    one, thousand = parts["latency"]["one_connection"], parts["latency"]["thousand_a_second"]
    row("added p50, one connection, µs", one, "added_us_p50")
    row("added p50 at 1,000 requests/s, µs", thousand, "added_us_p50")
    row("added p99 at 1,000 requests/s, µs", thousand, "added_us_p99")
    row("small requests/s, 32 connections", parts["rate"]["connections_32"], "requests_per_second")
    row("small requests for each CPU second", parts["rate"]["connections_32"], "requests_per_cpu_second")
    row("events for each CPU second, 64 streams", parts["streams"]["streams_64"], "events_per_cpu_second")
    row("CPU of a 16 MB body, ms", parts["body"]["bytes_16_mb"], "cpu_ms_per_request")
    if "memory" in parts:
        row("resident MiB after 10⁶ distinct prompts of 1 KB", parts["memory"], "rss_mib")
        row("and at most meanwhile", parts["memory"], "rss_mib_most")
    if "cache" in parts:
        lines += cache_rows(parts["cache"], routers)
    loads = ", ".join(f"{name} {part['load_average_before']}" for name, part in report["parts"].items())
    part = report["parts"]["rate"]
    lines += ["", f"{part['hardware']}, {part['date']}; load average before each part: {loads}. Every figure is in"]
    lines.append("[bench/results/gateway.json](../bench/results/gateway.json), made by `tools/bench_gateway.py`.")
    return "\n".join(lines)


def write_table(check: bool) -> None:
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    made = f"{before}{BEGIN}\n{table(json.loads(RESULTS.read_text(encoding='utf-8')))}\n{END}{rest.split(END)[1]}"
    if not check:
        PAGE.write_text(made, encoding="utf-8")
    elif made != page:
        raise SystemExit("docs/gateway.md: the table is not that of bench/results/gateway.json")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="build/hayate")
    parser.add_argument("--part", action="append", choices=PARTS, help="may be repeated; all without it")
    parser.add_argument("--sglang-router", metavar="VENV")
    parser.add_argument("--smg", metavar="VENV")
    parser.add_argument("--duration", type=float, default=2.0, help="seconds of each case")
    parser.add_argument("--memory-seconds", type=float, default=90.0, help="of the part memory")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--table", action="store_true", help="write the table of docs/gateway.md, measure nothing")
    parser.add_argument("--check", action="store_true", help="with --table: fail if it is out of date")
    options = parser.parse_args()
    if options.table:
        write_table(options.check)
    else:
        measure(options)


if __name__ == "__main__":
    main()
