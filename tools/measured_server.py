"""A `hayate serve` whose speed is measured, and the file that its figures go to."""

import argparse
import datetime
import json
import os
import platform
import socket
import subprocess
import time
import urllib.request


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--binary", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--tokens", type=int, default=200, help="of an answer")
    parser.add_argument("--output", help="a JSON file")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class MeasuredServer:
    """Ready, and without a prefix cache: the same request costs the same each time."""

    def __init__(self, options: argparse.Namespace, flags: list[str]):
        self.port = free_port()
        command = [options.binary, "serve", "--port", str(self.port), "--model-path", options.model]
        command += ["--disable-radix-cache", *flags]
        if options.threads:
            command += ["--threads", str(options.threads)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(600):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=2).read()
                return
            except OSError:
                assert self.process.poll() is None, f"the server exited: {command}"
                time.sleep(0.1)
        raise SystemExit("the server does not answer")

    def post(self, path: str, body: dict) -> dict | list:
        post = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(post, timeout=600) as response:
            return json.load(response)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


def report(options: argparse.Namespace, figures: dict) -> None:
    """Prints the figures behind the machine and the model, and writes them where asked."""
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        cpu = next((line.split(":")[1].strip() for line in info if line.startswith("model name")), platform.machine())
    result = {
        "date": datetime.date.today().isoformat(),
        "cpu": cpu,
        "cores": os.cpu_count(),
        "threads": options.threads or os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "model": os.path.basename(options.model),
        "tokens": options.tokens,
        "rounds": options.rounds,
        **figures,
    }
    text = json.dumps(result, indent=1)
    if options.output:
        with open(options.output, "w", encoding="utf-8") as out:
            out.write(text + "\n")
    print(text)
