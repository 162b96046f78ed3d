#!/usr/bin/env python3
"""Tiny checkpoints of every family, and their drafters, through the real server on the GPU, beside the CPU.

    serve_families.py HAYATE [--margin 0.01] [--json FILE] [CASE…]

Both compute in the exact mode. Greedy answers on the GPU must be the CPU's wherever the CPU sees its two best
tokens `margin` apart; again from the cache, beside neighbours and as a stream they must be the same text, and
JSON must follow its schema. After an update of its weights the GPU's server must answer as one that began with
them, and after another with the old ones as before. Servers with drafters must give the answers of the GPU's server
without, and so must two ranks: tensor parallel, with rows that travel to experts, and with DP attention and experts
that move or a drafter on each, on one GPU where there is one.
Standard library alone; run from the repository's root."""

import argparse
import concurrent.futures
import json
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

GOLDEN = Path("tests/golden").resolve()
sys.path.insert(0, str(GOLDEN))
from byte_tokenizer import write_tokenizer

DRAFTS = "deepseek_drafts/"
MTP = ["--speculative-algorithm", "NEXTN", "--speculative-num-steps", "4"]
DSPARK = ["--speculative-algorithm", "DSPARK"]
EAGLE3 = ["--speculative-algorithm", "EAGLE3", "--speculative-num-steps", "3", "--speculative-draft-model-path"]
STANDALONE = ["--speculative-algorithm", "STANDALONE", "--speculative-num-steps", "3", "--speculative-draft-model-path"]
NGRAM = ["--speculative-algorithm", "NGRAM", "--speculative-num-steps", "6"]
# Checkpoint, and the flags of a server that drafts.
CASES = {
    "qwen3_moe": ("qwen_moe/qwen3_moe", NGRAM),
    "qwen2_moe": ("qwen_moe/qwen2_moe", None),
    "gpt_oss": ("gpt_oss/gpt_oss", NGRAM),
    "v3": ("deepseek_v3/deepseek_v3", None),
    "v32": ("deepseek_v32/deepseek_v32", None),
    "v4": ("deepseek_v4/ratio_32", NGRAM),
    "v41": ("deepseek_v41/tiny", NGRAM),
    "v3_mtp": (DRAFTS + "v3_mtp", MTP),
    "v4_mtp": (DRAFTS + "v4_mtp", MTP),
    "v4_dspark": (DRAFTS + "v4_dspark", DSPARK),
    "v4_pro_dspark": (DRAFTS + "v4_pro_dspark", DSPARK),
    "v41_dspark": (DRAFTS + "v41_dspark", DSPARK),
    "llama_eagle3": ("eagle3/llama/target", [*EAGLE3, str(GOLDEN / "eagle3/llama/head")]),
    "llama_draft_model": ("dense/llama", [*STANDALONE, str(GOLDEN / "dense/llama")]),
}
# Layouts of two ranks, for mixtures of every way to attend.
TP2 = ["--tp-size", "2"]
DEP2 = [*TP2, "--dp-size", "2", "--enable-dp-attention"]
EPLB = ["--enable-eplb", "--eplb-rebalance-num-iterations", "20"]
RANKS = {"tp2": TP2, "ep2": [*TP2, "--ep-size", "2"], "dep2": [*DEP2, *EPLB]}
RANKED = ("qwen3_moe", "gpt_oss", "v3", "v4", "v41")
# With a drafter on both of DEP2.
DRAFTING = ("v3_mtp", "v4_dspark")
# Five experts divide over two ranks with a copy of one.
COPIES = {"gpt_oss": ["--ep-num-redundant-experts", "1"]}
SCHEMA = {
    "type": "object",
    "properties": {"name": {"enum": ["alpha", "beta"]}, "count": {"enum": [1, 20, 300]}},
    "required": ["name", "count"],
    "additionalProperties": False,
}
SMALL = ["--max-total-tokens", "1024", "--chunked-prefill-size", "48", "--max-running-requests", "8", "--precision", "exact"]
CPU = ["--device", "cpu", "--kv-cache-dtype", "f32", "--threads", "1"]
GPU = ["--device", "cuda", "--mem-fraction-static", "0.02"]


class Server:
    def __init__(self, binary, checkpoint, flags, log):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        command = [binary, "serve", "--port", str(self.port), "--model-path", str(checkpoint), *SMALL, *flags]
        with open(log, "w") as file:
            self.process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5).read()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{' '.join(command)}: {Path(log).read_text()[-800:]}") from None
                time.sleep(0.02)

    def post(self, path, body):
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        return urllib.request.urlopen(request, timeout=120)

    def answer(self, prompt, count=48, **sampling):
        """Ids, and per token the two best log-probabilities."""
        body = {
            "input_ids": prompt,
            "sampling_params": {"temperature": 0, "max_new_tokens": count, "ignore_eos": True, **sampling},
            "return_logprob": True,
            "top_logprobs_num": 2,
        }
        meta = json.load(self.post("/generate", body))["meta_info"]
        ids = [entry[1] for entry in meta["output_token_logprobs"]]
        return ids, [row[0][0] - row[1][0] for row in meta["output_top_logprobs"]], meta

    def complete(self, prompt, **fields):
        body = {"model": "default", "prompt": prompt, "max_tokens": 32, "temperature": 0, "ignore_eos": True, **fields}
        return self.post("/v1/completions", body)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)


def layouts_of(name):
    """Of two ranks: their names and flags."""
    gpus = subprocess.run(["nvidia-smi", "-L"], capture_output=True, check=True).stdout.splitlines()
    gpu_flags = ["--gpu-id-step", "1" if len(gpus) > 1 else "0"]
    if name in DRAFTING:
        return {"dep2": [*DEP2, *CASES[name][1], "--speculative-adaptive", "off", *gpu_flags]}
    if name not in RANKED:
        return {}
    copies = {layout: COPIES.get(name, []) if layout != "tp2" else [] for layout in RANKS}
    return {layout: [*flags, *copies[layout], *gpu_flags] for layout, flags in RANKS.items()}


def tokens(seed, count):
    return random.Random(seed).choices(range(8, 256), k=count)


def prompts():
    repeated = (tokens(7, 12) * 9)[:100]
    return [tokens(1, 1), tokens(2, 32), tokens(3, 100), tokens(4, 300), repeated]


def difference(got, ids, gaps, margin):
    """Where two answers part although the second saw its two best `margin` apart; what follows is another text."""
    for i, (mine, theirs) in enumerate(zip(got, ids, strict=True)):
        if mine != theirs:
            return f"token {i} is {mine}, not {theirs}, {gaps[i]:.4f} ahead" if gaps[i] >= margin else None
    return None


def mixed_copy(checkpoint, where):
    """The same model, the values of every bfloat16 tensor in another order."""
    shutil.copytree(checkpoint, where)
    path = where / "model.safetensors"
    raw = bytearray(path.read_bytes())
    (length,) = struct.unpack_from("<Q", raw)
    for entry in json.loads(raw[8 : 8 + length]).values():
        if entry.get("dtype") == "BF16":
            begin, end = (8 + length + offset for offset in entry["data_offsets"])
            middle = begin + (end - begin) // 4 * 2
            raw[begin:end] = raw[middle:end] + raw[begin:middle]
    path.write_bytes(raw)
    return where


def check_new_weights(server, fresh, old, new, problems):
    """`fresh` began with the weights of `new`, `server` with those of `old`. Gives the new answers with their gaps."""
    before = [server.answer(prompt)[0] for prompt in prompts()]
    answers = [fresh.answer(prompt)[:2] for prompt in prompts()]
    wanted = [ids for ids, _ in answers]
    if wanted == before:
        problems.append("other weights give the same answers")
    for path, expected in [(new, wanted), (old, before), (new, wanted)]:
        server.post("/update_weights_from_disk", {"model_path": str(path)}).read()
        if [server.answer(prompt)[0] for prompt in prompts()] != expected:
            problems.append(f"after an update to {path.name} the answers are others than its own")
    other = GOLDEN / "dense" / "llama_head_dim_24"
    try:
        server.post("/update_weights_from_disk", {"model_path": str(other)}).read()
        problems.append("weights of another model were taken")
    except urllib.error.HTTPError as error:
        if error.code != 400 or [server.answer(prompt)[0] for prompt in prompts()] != wanted:
            problems.append(f"a refused update (status {error.code}) left other weights")
    return answers


def check_requests(server, problems):
    prompt = tokens(5, 70)
    whole = json.load(server.complete(prompt))["choices"][0]["text"]
    streamed = ""
    for line in server.complete(prompt, stream=True):
        if line.startswith(b"data: {"):
            streamed += "".join(choice["text"] for choice in json.loads(line[6:])["choices"])
    if streamed != whole:
        problems.append("a stream differs from the whole answer")
    many = [tokens(10 + i, 20 + 30 * i) for i in range(8)]
    alone = [json.load(server.complete(prompt))["choices"][0]["text"] for prompt in many]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda prompt: json.load(server.complete(prompt))["choices"][0]["text"], many))
    differing = sum(a != b for a, b in zip(alone, together, strict=True))
    if differing:
        problems.append(f"{differing} of 8 answers depend on their neighbours")
    for temperature in (0, 1):
        body = {
            "input_ids": prompt,
            "sampling_params": {"temperature": temperature, "max_new_tokens": 250, "json_schema": json.dumps(SCHEMA)},
        }
        text = json.load(server.post("/generate", body))["text"]
        try:
            value = json.loads(text)
            valid = value["name"] in ("alpha", "beta") and value["count"] in (1, 20, 300) and len(value) == 2
        except (ValueError, KeyError, TypeError):
            valid = False
        if not valid:
            problems.append(f"not of the schema: {text!r}")


def check_case(binary, name, margin, folder):
    case, drafting_flags = CASES[name]
    checkpoint = folder / name
    shutil.copytree(GOLDEN / case, checkpoint)
    if not (checkpoint / "tokenizer.json").exists():
        write_tokenizer(checkpoint)
    problems, report, servers = [], {}, []

    def start(kind, *flags, path=checkpoint):
        servers.append(Server(binary, path, flags, folder / f"{name}.{kind}.log"))
        return servers[-1]

    try:
        cpu, gpu = start("cpu", *CPU), start("gpu", *GPU)
        answers = []
        for prompt in prompts():
            ids, gaps, _ = cpu.answer(prompt)
            mine, mine_gaps, _ = gpu.answer(prompt)
            answers.append((mine, mine_gaps))
            if text := difference(mine, ids, gaps, margin):
                problems.append(f"prompt of {len(prompt)}: {text}")
            report["equal"] = report.get("equal", 0) + (mine == ids)
            if gpu.answer(prompt)[0] != mine:
                problems.append(f"prompt of {len(prompt)}: another answer from the cache")
        check_requests(gpu, problems)
        mixed = mixed_copy(checkpoint, folder / f"{name}.mixed")
        mixed_answers = check_new_weights(gpu, start("mixed", *GPU, path=mixed), checkpoint, mixed, problems)
        if drafting_flags:
            drafting = start("drafts", *GPU, *drafting_flags, "--speculative-adaptive", "off")
            drafted = accepted = 0
            for prompt, (ids, gaps) in zip(prompts(), answers, strict=True):
                mine, _, meta = drafting.answer(prompt)
                drafted += meta.get("spec_draft_token_num", 0)
                accepted += meta.get("spec_accept_token_num", 0)
                if text := difference(mine, ids, gaps, margin):
                    problems.append(f"drafts change the answer to {len(prompt)}: {text}")
                report["drafted_equal"] = report.get("drafted_equal", 0) + (mine == ids)
            report["drafts"], report["accepted"] = drafted, accepted
            if drafted == 0:
                problems.append("nothing was drafted")
            check_requests(drafting, problems)
        for layout, flags in layouts_of(name).items():
            ranks = start(layout, *GPU, *flags)
            for prompt, (ids, gaps) in zip(prompts(), answers, strict=True):
                mine = ranks.answer(prompt)[0]
                if text := difference(mine, ids, gaps, margin):
                    problems.append(f"{layout} changes the answer to {len(prompt)}: {text}")
                report[f"{layout}_equal"] = report.get(f"{layout}_equal", 0) + (mine == ids)
            check_requests(ranks, problems)
            if layout == "tp2":
                ranks.post("/update_weights_from_disk", {"model_path": str(mixed)}).read()
                for prompt, (ids, gaps) in zip(prompts(), mixed_answers, strict=True):
                    if text := difference(ranks.answer(prompt)[0], ids, gaps, margin):
                        problems.append(f"{layout} with new weights changes the answer to {len(prompt)}: {text}")
    except (RuntimeError, OSError, KeyError, ValueError) as error:
        problems.append(repr(error))
    finally:
        for server in servers:
            if (code := server.stop()) != 0:
                problems.append(f"a server ended with {code} after SIGTERM")
    return {**report, "problems": problems}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--margin", type=float, default=0.01)
    parser.add_argument("--json")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(4) as pool:
        reports = pool.map(lambda name: check_case(args.binary, name, args.margin, Path(folder)), args.cases)
        results = dict(zip(args.cases, reports, strict=True))
    for name, report in results.items():
        counts = {key: value for key, value in report.items() if key != "problems"}
        print(f"{name}: {counts or ''} {'; '.join(report['problems']) or 'good'}")
    if args.json:
        Path(args.json).write_text(json.dumps(results, indent=1) + "\n")
    sys.exit(1 if any(report["problems"] for report in results.values()) else 0)


if __name__ == "__main__":
    main()
