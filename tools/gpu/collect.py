#!/usr/bin/env python3
"""Joins what the parts of tools/gpu/check left into one file for bench/results.

    collect.py FOLDER OUT COMMAND           what FOLDER has
    collect.py --into FILE RUN              a run of other parts, as this wrote it, into a file of bench/results:
                                            its parts take the place of FILE's, which names its runs from then on"""

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


PARTS = ["step", "online", "offline", "tp2", "peer_sglang"]
WHOLE_PARTS = ["serve", "ops", "peer_ops", "all_reduce", "peer_all_reduce"]


def runs(report):
    """Which parts were measured when: a file of one run says it of all."""
    parts = [part for part in PARTS + WHOLE_PARTS if report.get(part)]
    return report.get("runs") or [{key: report[key] for key in ["date", "command", "hardware"]} | {"parts": parts}]


def join(into, report):
    """`into` with the parts of `report`."""
    taken = {part for run in runs(report) for part in run["parts"]}
    kept = [run | {"parts": [part for part in run["parts"] if part not in taken]} for run in runs(into)]
    joined = into | {part: report[part] for part in PARTS + WHOLE_PARTS if part in taken}
    joined |= {key: report[key] for key in ["hardware", "cpus", "date", "command", "note"]}
    return joined | {"runs": [run for run in kept if run["parts"]] + runs(report)}


def write(report, out):
    with open(out, "w") as file:
        json.dump(report, file, indent=1)
        file.write("\n")


def main():
    if sys.argv[1] == "--into":
        into, run = sys.argv[2:]
        with open(into) as old, open(run) as new:
            write(join(json.load(old), json.load(new)), into)
        return
    folder, out, command = sys.argv[1:]
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    report = {
        "hardware": subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip().splitlines(),
        "cpus": os.cpu_count(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": command,
        "note": "dummy weights, random token ids, greedy; clocks not locked",
    }
    for part in PARTS:
        report[part] = lines(os.path.join(folder, f"{part}.jsonl"))
    for part in WHOLE_PARTS:
        path = os.path.join(folder, f"{part}.json")
        if os.path.exists(path):
            with open(path) as file:
                report[part] = json.load(file)
    write(report, out)


if __name__ == "__main__":
    main()
