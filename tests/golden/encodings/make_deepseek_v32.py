#!/usr/bin/env python3
"""Makes deepseek_v32.jsonl from the vendor's own renderer, of which sglang ships a copy.

Needs `pip download --no-deps sglang==0.5.9`; the tests that read the result need none of it.

    python3 make_deepseek_v32.py sglang-0.5.9-py3-none-any.whl

Each line is a random conversation: the variables of a chat template (tool-call arguments as objects)
and the prompt. Tools and the answer's schema belong to the first system message, as servers of this
model put them.
"""

import importlib.util
import json
import random
import sys
import tempfile
import zipfile
from pathlib import Path

from conversation_parts import ARGUMENTS, SCHEMA, TEXTS, TOOLS

CASES = 80
MODULE = "sglang/srt/entrypoints/openai/encoding_dsv32.py"


def turn(r: random.Random, number: int) -> list[dict]:
    """A question, any number of rounds of calls with their results, and mostly an answer."""
    messages = [{"role": "user", "content": r.choice(TEXTS)}]
    for round_number in range(r.choice([0, 0, 1, 2])):
        calls = [
            {
                "id": f"c{number}_{round_number}_{i}",
                "type": "function",
                "function": {"name": r.choice(TOOLS)["name"], "arguments": r.choice(ARGUMENTS)},
            }
            for i in range(r.randint(1, 3))
        ]
        messages.append({"role": "assistant", "content": r.choice(TEXTS), "tool_calls": calls})
        if r.random() < 0.6:
            messages[-1]["reasoning_content"] = r.choice(["r1", "why\nso"])
        messages += [{"role": "tool", "tool_call_id": call["id"], "content": "result " + call["id"]} for call in calls]
    if r.random() < 0.8:
        messages.append(
            {"role": "assistant", "content": r.choice(TEXTS), "reasoning_content": r.choice(["r2", "because"])}
        )
    return messages


def variables(r: random.Random) -> dict:
    messages = [{"role": "system", "content": r.choice(TEXTS)}] if r.random() < 0.5 else []
    turns = r.randint(1, 4)
    for number in range(turns):
        messages += turn(r, number)
    if messages[-1]["role"] == "assistant" and r.random() < 0.7:
        messages.append({"role": "user", "content": r.choice(TEXTS)})
    case = {"messages": messages}
    if r.random() < 0.5:
        case["tools"] = [{"type": "function", "function": tool} for tool in TOOLS[: r.randint(1, 2)]]
    kwargs = {}
    if r.random() < 0.7:
        kwargs["thinking"] = r.random() < 0.7
    if r.random() < 0.2:
        kwargs["response_schema"] = SCHEMA
    return {**case, "kwargs": kwargs}


def render(encoding, case: dict) -> str:
    messages = json.loads(json.dumps(case["messages"]))
    for message in messages:
        for call in message.get("tool_calls", []):
            call["function"]["arguments"] = json.dumps(call["function"]["arguments"], ensure_ascii=False)
    kwargs = case["kwargs"]
    if "tools" in case or "response_schema" in kwargs:
        if messages[0]["role"] != "system":
            messages.insert(0, {"role": "system", "content": ""})
        messages[0]["tools"] = case.get("tools")
        messages[0]["response_format"] = kwargs.get("response_schema")
    return encoding.encode_messages(messages, "thinking" if kwargs.get("thinking") else "chat")


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(sys.argv[1]) as wheel:
            path = wheel.extract(MODULE, folder)
        spec = importlib.util.spec_from_file_location("encoding_dsv32", path)
        encoding = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(encoding)
    r = random.Random(32)
    lines = []
    while len(lines) < CASES:
        case = variables(r)
        lines.append(json.dumps({**case, "prompt": render(encoding, case)}, ensure_ascii=False))
    text = "\n".join(lines) + "\n"
    (Path(__file__).resolve().parent / "deepseek_v32.jsonl").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
