#!/usr/bin/env python3
"""Writes the H200 tables of README.md from bench/results/h200.json and, of SGLang beside Hayate in one run,
h200-sglang.json.

    readme_table.py [--check]     --check: exit 1 if the README is not what the file gives"""

import argparse
import json
import os
import sys

from collect import runs
from peer_sglang import compare

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BEGIN, END = "<!-- h200-table: tools/gpu/readme_table.py -->", "<!-- /h200-table -->"

# SGLang 0.5.17 on a card of this kind, measured on another day with the same shapes and lengths: of what no run
# has measured beside Hayate.
SGLANG = {
    ("decode", 1, 1024): "5.87 (server 5.1)",
    ("decode", 64, 1024): "8.9–9.2 (server 8.24)",
    ("decode", 256, 1024): "19.6–19.9",
    ("decode", 1, 8192): "6.1",
    ("decode", 32, 8192): "14.7–15.0",
    ("decode", 64, 8192): "server 23.1",
    ("prefill", 1024): "24.0",
    ("prefill", 8192): "206.5",
    ("offline", "bf16"): "11,188 (1,000 requests)",
}
NAMES = {
    "qwen3-8b": "Qwen3-8B bf16",
    "llama-3.1-8b": "Llama-3.1-8B fp8",
    "qwen3-32b": "Qwen3-32B bf16",
    "llama-3.3-70b": "Llama-3.3-70B fp8",
}


def rows(report):
    for step in report.get("step", []):
        if "prefill" in step:
            what, key = f"prefill step, {step['prefill']:,} tokens, ms", ("prefill", step["prefill"])
        else:
            what = f"decode step, batch {step['batch']}, context {step['context']:,}, ms"
            key = ("decode", step["batch"], step["context"])
        peer = SGLANG.get(key, "") if step["model"] == "qwen3-8b" else ""
        yield f"{NAMES[step['model']]}: {what}", f"{step['step_ms']:.2f}", peer
    for line in report.get("online", []):
        name = NAMES[line["model"]]
        if line["what"] == "start":
            yield f"{name}: process start to first token, s", f"{line['first_token_s']:.1f}", ""
        elif line["what"] == "unloaded":
            ttft = line["result"]["median_ttft_ms"]
            yield f"{name}: TTFT over HTTP, 1,024 tokens, no load, ms", f"{ttft:.1f}", ""
        elif line["what"] == "arrivals":
            load = f"{line['clients']} answers while prompts of {line['prompt_len']:,} arrive"
            times = f"{line['result']['p99_itl_ms']:.1f} / {line['steps']['decode_ms'].get('p50', 0):.1f}"
            yield f"{name}: {load}, time between tokens, p99 / step without prompts, ms", times, ""
        else:
            result = line["result"]
            load = f"{line['clients']} clients, 1,024 in / {line['output_len']} out"
            yield f"{name}: {load}, output tokens/s", f"{result['output_throughput']:,.0f}", ""
            itl = f"{result['p99_itl_ms']:.1f} / {result['max_itl_ms']:.1f}"
            yield f"{name}: {load}, time between tokens, p99 / max, ms", itl, ""
    for line in report.get("offline", []):
        kv = line.get("kv_cache_dtype", "bf16")
        what = f"{line['num_prompts']:,} requests of {line['input_len']:,} in / {line['output_len']:,} out, {kv} cache"
        yield f"Llama-3.1-8B fp8: {what}, output tokens/s", f"{line['output_tokens_per_s']:,.0f}", SGLANG.get(("offline", kv), "")


def table(report):
    lines = ["| | Hayate | SGLang 0.5.17, another day |", "| --- | ---: | ---: |"]
    lines += [f"| {what} | {ours} | {peer} |" for what, ours, peer in rows(report)]
    said = []
    for run in runs(report):
        card = run["hardware"][0].split(", ")
        said.append(f"{card[0]}, driver {card[1]}, {run['date']}: {', '.join(run['parts'])} of `{run['command']}`")
    lines += ["", "; ".join(said) + "; `bench/results/h200.json` holds every figure."]
    return "\n".join(lines)


def table_beside(report):
    """Both servers in one run."""
    lines = ["| in one run | Hayate | SGLang 0.5.17 | times better |", "| --- | ---: | ---: | ---: |"]
    for model, what, ours, theirs, ratio in compare(report["peer_sglang"]):
        lines.append(f"| {NAMES[model]}: {what} | {ours} | {theirs} | {ratio:.2f} |")
    card = report["hardware"][0].split(", ")
    lines += ["", f"{card[0]}, driver {card[1]}, {report['date']}: `{report['command']}`; `bench/results/h200-sglang.json`."]
    return "\n".join(lines)


def results(name):
    path = os.path.join(ROOT, "bench/results", name)
    if not os.path.exists(path):
        return None
    with open(path) as file:
        return json.load(file)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    tables = [table(results("h200.json"))]
    if beside := results("h200-sglang.json"):
        tables.append(table_beside(beside))
    path = os.path.join(ROOT, "README.md")
    with open(path) as file:
        readme = file.read()
    before, rest = readme.split(BEGIN)
    after = rest.split(END)[1]
    made = "".join([before, BEGIN, "\n", "\n\n".join(tables), "\n", END, after])
    if args.check:
        sys.exit(0 if made == readme else "README.md: the H200 tables are not those of bench/results; run tools/gpu/readme_table.py")
    with open(path, "w") as file:
        file.write(made)


if __name__ == "__main__":
    main()
