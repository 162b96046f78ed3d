#!/usr/bin/env python3
"""Joins what the parts of tools/gpu/check left into one file for bench/results.

    collect.py FOLDER OUT COMMAND"""

import datetime
import json
import os
import subprocess
import sys


def lines(path):
    if not os.path.exists(path):
        return []
    with open(path) as file:
        return [json.loads(line) for line in file if line.startswith("{")]


def main():
    folder, out, command = sys.argv[1:]
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    report = {
        "hardware": subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip().splitlines(),
        "cpus": os.cpu_count(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": command,
        "note": "dummy weights, random token ids, greedy; clocks not locked",
    }
    for part in ["step", "online", "offline", "tp2", "peer_sglang"]:
        report[part] = lines(os.path.join(folder, f"{part}.jsonl"))
    for part in ["serve", "ops", "peer_ops", "all_reduce", "peer_all_reduce"]:
        path = os.path.join(folder, f"{part}.json")
        if os.path.exists(path):
            with open(path) as file:
                report[part] = json.load(file)
    with open(out, "w") as file:
        json.dump(report, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
