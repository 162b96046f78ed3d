#!/usr/bin/env python3
"""What structured output costs and brings, with `hayate serve` on the default model or another.

  constrained  decode speed under a JSON schema against free text, without drafts, in turns
  forced       the same schema with and without drafts of the text that it forces; answers must be equal
               (the two tell tokens a second, and the server's CPU time a token, which other work on the machine
               changes little)
  neighbours   the longest gaps between two tokens of a plain stream, alone, beside short requests, beside as many
               that want new schemas compiled, and beside chats of 100,000 tokens; and those between two steps
               of the engine, by its own clock: what the prompts of the others cost in a step is no delay by the
               front end, so steps with a prompt and the gaps around them are left out there

  masks        with --grammar-bench: what one mask over 128K tokens takes along random answers, with the cache that
               an engine has, and what compiling takes (src/grammar/matcher_bench.cc); no server

Writes one JSON object.

    tools/bench_structured.py --binary build/hayate --model model.gguf --output result.json
                              [--grammar-bench build/src/grammar_bench]
"""

import argparse
import http.client
import itertools
import json
import multiprocessing
import os
import statistics
import subprocess
import time
import urllib.error
import urllib.request

from measured_server import MeasuredServer, add_arguments, report

PROMPT = "Customers as a JSON array of objects that follow this schema: {}\n"
SHORT = {
    "type": "array",
    "minItems": 50,
    "items": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "city": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name", "city", "age"],
    },
}
LONG_NAMES = [
    "customer_identification_number",
    "preferred_delivery_address_line",
    "last_successful_login_timestamp",
    "marketing_communication_consent_given",
    "outstanding_invoice_amount_in_cents",
]
LONG = {
    "type": "array",
    "minItems": 50,
    "items": {
        "type": "object",
        "properties": {name: {"type": "integer", "minimum": 0, "maximum": 9999} for name in LONG_NAMES},
        "required": LONG_NAMES,
    },
}


DISTURBERS = 4


class Server(MeasuredServer):
    def generate(self, tokens: int, schema: dict | None, count: int = 1) -> tuple[float, list]:
        """Seconds and the answers' ids of `count` equal requests at once."""
        sampling = {"temperature": 0, "ignore_eos": True, "max_new_tokens": tokens}
        if schema is not None:
            sampling["json_schema"] = json.dumps(schema)
        begin = time.perf_counter()
        prompt = PROMPT.format(json.dumps((schema or SHORT)["items"]))
        answers = self.post("/generate", {"text": [prompt] * count, "sampling_params": sampling})
        return time.perf_counter() - begin, [answer["output_ids"] for answer in answers]

    def cpu_seconds(self) -> float:
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def speed(self, tokens: int, schema: dict | None, count: int = 1) -> tuple[float, float, list]:
        """Tokens a second and CPU milliseconds a token, both behind the first one; and the answers."""
        cpu = [self.cpu_seconds()]
        first, _ = self.generate(1, schema, count)
        cpu.append(self.cpu_seconds())
        whole, answers = self.generate(tokens, schema, count)
        cpu.append(self.cpu_seconds())
        generated = count * (tokens - 1)
        return generated / (whole - first), 1e3 * (cpu[2] - 2 * cpu[1] + cpu[0]) / generated, answers


def compare(names: tuple[str, str], pairs: list[tuple[tuple, tuple]]) -> dict:
    """Medians of paired runs; a ratio above 1: the second is better."""
    result = {}
    for i, name in enumerate(names):
        result[f"{name}_tokens_per_s"] = statistics.median(pair[i][0] for pair in pairs)
        result[f"{name}_cpu_ms_per_token"] = statistics.median(pair[i][1] for pair in pairs)
    result["speed_ratio"] = statistics.median(second[0] / first[0] for first, second in pairs)
    result["cpu_ratio"] = statistics.median(first[1] / second[1] for first, second in pairs)
    return result


def constrained(plain: Server, options: argparse.Namespace) -> dict:
    result = {}
    for count in (1, 8):
        pairs = [
            (plain.speed(options.tokens, None, count), plain.speed(options.tokens, SHORT, count))
            for _ in range(options.rounds)
        ]
        result[f"{count} at once"] = compare(("free", "schema"), pairs)
    return result


def forced(plain: Server, drafting: Server, options: argparse.Namespace) -> dict:
    result = {}
    for name, schema in (("short names", SHORT), ("long names", LONG)):
        for count in (1, 8):
            pairs = []
            for _ in range(options.rounds):
                single = plain.speed(options.tokens, schema, count)
                drafted = drafting.speed(options.tokens, schema, count)
                assert single[2] == drafted[2]
                pairs.append((single, drafted))
            result[f"{name}, {count} at once"] = compare(("plain", "forced"), pairs)
    return result


def stream_gaps(server: Server, tokens: int) -> list[float]:
    """Milliseconds between the events of a streamed answer, shortest first."""
    body = {
        "text": "Once upon a time",
        "stream": True,
        "sampling_params": {"ignore_eos": True, "max_new_tokens": tokens},
    }
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
    connection.request("POST", "/generate", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    times = []
    while line := response.readline():
        if line.startswith(b"data: {"):
            times.append(time.perf_counter())
    connection.close()
    return sorted((b - a) * 1e3 for a, b in itertools.pairwise(times))


def step_gaps(server: Server, steps: int) -> list[float]:
    """Milliseconds from each of the last steps without a prompt to the next one without."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/trace?steps={steps}", timeout=60) as response:
        events = [event for event in json.load(response)["traceEvents"] if event["ph"] == "X"]
    begins: dict[int, tuple[float, int]] = {}
    for event in events:
        step, prompt = event["args"]["step"], event["args"]["prefill_tokens"]
        begins[step] = (min(event["ts"], begins.get(step, (event["ts"], 0))[0]), prompt)
    pairs = itertools.pairwise(begin for _, begin in sorted(begins.items()))
    return sorted((after - before) / 1e3 for (before, p), (after, q) in pairs if p == q == 0)


def hostile_schema(i: int) -> dict:
    """Another one each time, in every process, so that every one is compiled; each takes seconds."""
    name = f"p{os.getpid()}_{i}"
    words = {"type": "string", "pattern": f"^([A-Z][a-z]{{1,20}} ){{1,{100 + i % 28}}}$"}
    return {"type": "object", "properties": {name: words}, "required": [name]}


def disturb(port: int, kind: str, first: int, stop, count) -> None:
    """A client, behind the server and the stream: on another machine it would not take this one's processors."""
    os.nice(19)
    chat = "word " * 100_000
    for i in itertools.count(first, DISTURBERS):
        body = {"messages": [{"role": "user", "content": chat if kind == "chats" else "x"}], "max_tokens": 1}
        if kind == "schemas":
            form = {"type": "json_schema", "json_schema": {"name": "f", "schema": hostile_schema(i)}}
            body["response_format"] = form
        post = urllib.request.Request(
            f"http://127.0.0.1:{port}/v1/chat/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        try:
            urllib.request.urlopen(post, timeout=600).read()
        except urllib.error.HTTPError as error:
            error.read()  # longer than the model's context: refused
        except OSError:
            return  # the server is gone
        with count.get_lock():
            count.value += 1
        if kind != "schemas":
            time.sleep(0.02)
        if stop.is_set():
            return


def summary(gaps: list[float]) -> dict:
    return {"p50_ms": gaps[len(gaps) // 2], "p99_ms": gaps[len(gaps) * 99 // 100], "max_ms": gaps[-1]}


def beside(server: Server, kind: str, tokens: int) -> tuple[list[float], list[float], int]:
    """Gaps of a stream and of the engine's steps while others ask, and how often they were answered."""
    stop, count = multiprocessing.Event(), multiprocessing.Value("i", 0)
    clients = []
    if kind != "alone":
        clients = [
            multiprocessing.Process(target=disturb, args=(server.port, kind, i, stop, count), daemon=True)
            for i in range(DISTURBERS)
        ]
    for client in clients:
        client.start()
    gaps = stream_gaps(server, tokens)
    stop.set()
    steps = step_gaps(server, tokens)
    answered = count.value
    for client in clients:
        client.join()
    return gaps, steps, answered


def neighbours(server: Server, options: argparse.Namespace) -> dict:
    """Medians over rounds in which the kinds take turns: other work on the machine meets all alike."""
    kinds = ("alone", "short requests", "schemas", "chats")
    rounds = [{kind: beside(server, kind, options.stream_tokens) for kind in kinds} for _ in range(options.rounds)]
    result = {}
    for kind in kinds:
        shown = {"answered": sum(one[kind][2] for one in rounds)}
        for index, what in enumerate(("stream", "steps")):
            # Beside short requests every step may have a prompt.
            summaries = [summary(one[kind][index]) for one in rounds if one[kind][index]]
            if summaries:
                shown[what] = {name: round(statistics.median(s[name] for s in summaries), 2) for name in summaries[0]}
        result[kind if kind == "alone" else f"beside {kind}"] = shown
    return result


def masks(options: argparse.Namespace) -> dict:
    """Microseconds of a mask, milliseconds of compiling; this thread's own time."""
    command = [options.grammar_bench, "--benchmark_format=json"]
    ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    result: dict[str, dict] = {"us": {}, "compile_ms": {}}
    for entry in json.loads(ran.stdout)["benchmarks"]:
        name = entry["name"].split("/")[1]
        if "p50_us" in entry:
            result["us"][name] = {key: round(entry[f"{key}_us"], 1) for key in ("p50", "p99", "max")}
        else:
            result["compile_ms"][name] = round(entry["cpu_time"], 1)
    return result


def with_servers(options: argparse.Namespace, parts: list[str]) -> dict:
    plain = Server(options, ["--speculative-algorithm", "NONE"])
    drafting = Server(options, ["--speculative-algorithm", "GRAMMAR"])
    measured = {}
    try:
        if "constrained" in parts:
            measured["constrained"] = constrained(plain, options)
        if "forced" in parts:
            measured["forced"] = forced(plain, drafting, options)
        if "neighbours" in parts:
            measured["neighbours"] = neighbours(drafting, options)
    finally:
        plain.stop()
        drafting.stop()
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--stream-tokens", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--parts", default="constrained,forced,neighbours,masks")
    parser.add_argument("--grammar-bench", help="the program of the masks; without it they are left out")
    options = parser.parse_args()

    parts = options.parts.split(",")
    measured = {}
    if options.grammar_bench and "masks" in parts:
        measured["masks"] = masks(options)
    if parts != ["masks"]:
        measured |= with_servers(options, parts)
    report(options, measured)


if __name__ == "__main__":
    main()
