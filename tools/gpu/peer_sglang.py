#!/usr/bin/env python3
"""Serves the same shapes with dummy weights by Hayate and by an installed SGLang, one after the other on one
GPU, and loads both with the same client, `hayate bench serve`, over SGLang's own /generate.

    peer_sglang.py HAYATE [--json FILE] [--logs DIR] [--models qwen3-8b,llama-3.1-8b] [--order hayate,sglang]
        [--loads unloaded,clients,decode] [--sglang "python3 -m sglang.launch_server"] [--hayate-flags FLAGS]
        [--sglang-flags FLAGS]

Both servers have their defaults (but ours a context of 8,192 tokens, for which no model here is too short), the
same folder of configuration and made-up tokenizer, and prompts of the same random ids, other ones for each load. `--order hayate,sglang,hayate` measures ours on both sides of
SGLang. Each figure is a line of JSON in FILE as soon as it is there; a table of medians and ratios comes last.
Standard library alone."""

import argparse
import dataclasses
import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

from serve_and_load import finished, first_token_s, free_port, start_load, with_tokenizer

# SGLang takes about 35 s for its imports and 15 s for its graphs, more on a fresh machine.
START_DEADLINE_S = 200
SERVERS = ("hayate", "sglang")
MODEL_FLAGS = {"qwen3-8b": [], "llama-3.1-8b": ["--quantization", "fp8"]}


@dataclasses.dataclass(frozen=True)
class Load:
    """Of `hayate bench serve`."""

    clients: int
    requests: int
    prompt: int
    answer: int
    warmup: int
    seed: int


LOADS = {
    "unloaded": Load(clients=1, requests=20, prompt=1024, answer=32, warmup=3, seed=11),
    "clients": Load(clients=64, requests=320, prompt=1024, answer=256, warmup=16, seed=12),
    # All requests at once, and answers long enough that for a while all of them are under way.
    "decode": Load(clients=64, requests=64, prompt=1024, answer=256, warmup=0, seed=13),
    "offline": Load(clients=256, requests=256, prompt=1000, answer=1000, warmup=0, seed=14),
}
# Figures of a load's result by its name: what it is, how to write it, and whether more is better.
FIGURES = {
    "start": [("process start to first token, s", "first_token_s", "{:.1f}", False)],
    "unloaded": [
        ("TTFT, no load, ms", "median_ttft_ms", "{:.1f}", False),
        ("time between tokens, no load, ms", "median_itl_ms", "{:.2f}", False),
    ],
    "clients": [
        ("output tokens/s", "output_throughput", "{:,.0f}", True),
        ("TTFT, median, ms", "median_ttft_ms", "{:,.0f}", False),
        ("time between tokens, p99, ms", "p99_itl_ms", "{:.1f}", False),
        ("time between tokens, max, ms", "max_itl_ms", "{:,.1f}", False),
    ],
    "decode": [("time of a step that decodes all, ms", "steady_step_ms", "{:.2f}", False)],
    "offline": [
        ("output tokens/s", "output_throughput", "{:,.0f}", True),
        ("time of a step that decodes all, ms", "steady_step_ms", "{:.2f}", False),
    ],
}
PER_REQUEST = ("input_lens", "output_lens", "ttfts", "e2els", "itls", "errors")
OF_THIS_RUN = ("base_url", "model_id", "tokenizer_id")


class LoadFailed(Exception):
    """Says which server did not do what."""


def add_peer_files(folder):
    """What transformers wants of a model's folder beside config.json and tokenizer.json."""
    with open(os.path.join(folder, "config.json")) as file:
        config = json.load(file)
    end_ids = config["eos_token_id"]
    end = f"\N{LATIN CAPITAL LETTER G WITH DOT ABOVE}w{end_ids[0] if isinstance(end_ids, list) else end_ids}"
    generation = {"do_sample": False, "bos_token_id": config["bos_token_id"], "eos_token_id": end_ids}
    tokenizer = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": config["max_position_embeddings"],
        "eos_token": end,
        "pad_token": end,
        "clean_up_tokenization_spaces": False,
        "chat_template": "{% for m in messages %}{{ m['content'] }} {% endfor %}",
    }
    for name, content in (("generation_config.json", generation), ("tokenizer_config.json", tokenizer)):
        with open(os.path.join(folder, name), "w") as file:
            json.dump(content, file)
    return config["vocab_size"]


def steady_step_ms(result):
    """Of requests that were sent at once: the median time between tokens from the last first token to the first
    end, when every step decodes all of them and no prompt. None without such a time."""
    begin, end = max(result["ttfts"]), min(result["e2els"])
    gaps = []
    for at, itls in zip(result["ttfts"], result["itls"], strict=True):
        for gap in itls:
            if at >= begin and at + gap <= end:
                gaps.append(gap)
            at += gap
    return statistics.median(gaps) * 1e3 if gaps else None


def run_load(binary, port, load, vocab_size):
    # Among the last ids are bytes of the made-up tokenizer and the ids that end a text.
    flags = ["--backend", "sglang", "--vocab-size", str(vocab_size - 4096), "--seed", str(load.seed), "--output-details"]
    shape = {"requests": load.requests, "clients": load.clients, "prompt": load.prompt, "answer": load.answer}
    result = finished(start_load(binary, port, **shape, warmup=load.warmup, flags=flags))
    if result["completed"] != load.requests or result["num_wrong_length"] != 0:
        errors = sorted({error for error in result["errors"] if error})
        raise LoadFailed(f"{result['completed']} of {load.requests} answered, "
                         f"{result['num_wrong_length']} with an unasked length: {errors[:3]}")
    figures = {name: value for name, value in result.items() if name not in PER_REQUEST + OF_THIS_RUN}
    if load.clients == load.requests:
        figures["steady_step_ms"] = steady_step_ms(result)
    return figures


def version_of(port):
    """As the server says it, or None."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/get_server_info", timeout=10) as reply:
            return json.load(reply).get("version")
    except (OSError, ValueError):
        return None


def stop(server):
    """The server and all that it started: SGLang has a process for its scheduler and one for its detokenizer."""
    patience_s = 10
    for name in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(server.pid, name)
            server.wait(timeout=patience_s)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass
    server.wait()


def peer_environment(binary):
    """Without the libraries that tools/gpu/pack.sh packs for our binary."""
    own = os.path.join(os.path.dirname(binary), "lib")
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(folder for folder in folders if folder not in ("", own))}


def tail(path, count=40):
    with open(path, errors="replace") as file:
        return "".join(f"  {line[:300].rstrip()}\n" for line in file.readlines()[-count:])


class Visit:
    """One server over one model's folder, from its start to its end."""

    def __init__(self, args, server, model, report):
        self.args, self.server, self.model, self.report = args, server, model, report

    def command(self, folder, port):
        start = [self.args.binary, "serve"] if self.server == "hayate" else shlex.split(self.args.sglang)
        flags = self.args.hayate_flags if self.server == "hayate" else self.args.sglang_flags
        flags = shlex.split(flags) + MODEL_FLAGS.get(self.model, [])
        return [*start, "--model-path", folder, "--load-format", "dummy", "--host", "127.0.0.1", "--port", str(port), *flags]

    def run(self, folder, vocab_size):
        port = free_port()
        command = self.command(folder, port)
        log = os.path.join(self.args.logs, f"{self.server}-{self.model}.log")
        started = time.monotonic()
        environment = None if self.server == "hayate" else peer_environment(self.args.binary)
        with open(log, "w") as file:
            server = subprocess.Popen(command, stdout=file, stderr=file, env=environment, start_new_session=True)
        try:
            first_s = first_token_s(port, started, START_DEADLINE_S, server)
            shown = " ".join(os.path.basename(word) if os.path.isabs(word) else word for word in command)
            self.report(self.server, self.model, "start", {"first_token_s": first_s}, command=shown, version=version_of(port))
            for name in self.args.loads:
                figures = run_load(self.args.binary, port, LOADS[name], vocab_size)
                self.report(self.server, self.model, name, figures, load=dataclasses.asdict(LOADS[name]))
        except (LoadFailed, SystemExit) as error:
            print(f"peer_sglang: {self.server}, {self.model}: {error}\n{tail(log)}", file=sys.stderr, flush=True)
            return False
        finally:
            stop(server)
        return True


def load_text(load):
    if load is None:
        return ""
    who = f"{load['clients']} clients" if load["clients"] < load["requests"] else f"{load['requests']} requests at once"
    return f"{who}, {load['prompt']:,} in / {load['answer']:,} out, " if load["clients"] > 1 else f"{load['prompt']:,} in, "


def compare(lines):
    """Of the lines of both servers: model, what was measured, Hayate's figure, SGLang's, and how many times better
    Hayate's is, for all that both have; of several measurements the median."""
    values = {}
    for line in lines:
        for what, key, form, more in FIGURES[line["what"]]:
            if value := line["result"].get(key):
                name = (line["model"], load_text(line.get("load")) + what)
                values.setdefault((name, form, more), {}).setdefault(line["server"], []).append(value)
    for ((model, what), form, more), of in values.items():
        if all(server in of for server in SERVERS):
            ours, theirs = (statistics.median(of[server]) for server in SERVERS)
            yield model, what, form.format(ours), form.format(theirs), ours / theirs if more else theirs / ours


def parse(argv):
    def some_of(known):
        def split(text):
            names = text.split(",")
            if unknown := [name for name in names if name not in known]:
                raise argparse.ArgumentTypeError(f"'{unknown[0]}' is none of {', '.join(known)}")
            return names

        return split

    parser = argparse.ArgumentParser(prog="peer_sglang.py")
    parser.add_argument("binary", type=os.path.abspath)
    parser.add_argument("--json")
    parser.add_argument("--logs", default=tempfile.gettempdir(), help="folder for the servers' logs")
    parser.add_argument("--models", type=lambda text: text.split(","), default=list(MODEL_FLAGS))
    parser.add_argument("--shapes", default="bench/models", help="folder of the models' folders")
    parser.add_argument("--order", type=some_of(SERVERS), default=list(SERVERS))
    parser.add_argument("--loads", type=some_of(LOADS), default=["unloaded", "clients", "decode"])
    parser.add_argument("--sglang", default=os.environ.get("HAYATE_SGLANG", "python3 -m sglang.launch_server"))
    parser.add_argument("--hayate-flags", default="--context-length 8192")
    parser.add_argument("--sglang-flags", default="")
    return parser.parse_args(argv)


def main():
    args = parse(sys.argv[1:])
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that no server outlives a time limit
    lines = []

    def report(server, model, what, result, **facts):
        line = {"server": server, "model": model, "what": what, **facts, "result": result}
        lines.append(line)
        shown = {key: result.get(key) for _, key, _, _ in FIGURES[what]}
        print(f"{server:<7} {model:<13} {what:<9} {json.dumps(shown)}", flush=True)
        if args.json:
            with open(args.json, "a") as file:
                file.write(json.dumps(line) + "\n")

    complete = True
    with tempfile.TemporaryDirectory() as folder:
        for model in args.models:
            target = with_tokenizer(os.path.join(args.shapes, model), folder)
            vocab_size = add_peer_files(target)
            for server in args.order:
                complete &= Visit(args, server, model, report).run(target, vocab_size)
    print(f"\n{'':<72} {'hayate':>9} {'sglang':>9} {'ratio':>6}")
    for model, what, ours, theirs, ratio in compare(lines):
        print(f"{model + ': ' + what:<72} {ours:>9} {theirs:>9} {ratio:>6.2f}")
    sys.exit(0 if complete else 1)


if __name__ == "__main__":
    main()
