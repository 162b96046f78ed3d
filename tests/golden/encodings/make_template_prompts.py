#!/usr/bin/env python3
"""Makes the golden prompts of the families whose checkpoints ship a template, from those templates.

Needs `pip download --no-deps xinference==4.1.0`, a copy of the published templates, and jinja2; the
tests that read the result need neither, and none of the templates' text is kept.

    python3 make_template_prompts.py xinference-4.1.0-py3-none-any.whl

Each line of <family>.jsonl is a random conversation: the variables of a chat template in the shape
that the family's template takes (tool-call arguments as objects or as text) and the prompt that
Python's jinja2 makes of them with the settings of transformers.
"""

import json
import random
import re
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from conversation_parts import ARGUMENTS, TEXTS, TOOLS

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "text"))
import reference_jinja

CASES = 60
MODELS = "xinference/model/llm/models/"


@dataclass(frozen=True)
class Family:
    file: str  # in the wheel
    tokens: dict[str, str]
    options: dict[str, list]  # variables of the template's own
    objects: bool = True  # a call's arguments, else text
    content_of_calls: str | None = ""  # of a turn of calls alone
    takes_tools: bool = True


DEEPSEEK = {"bos_token": "<｜begin▁of▁sentence｜>", "eos_token": "<｜end▁of▁sentence｜>"}
FAMILIES = {
    "deepseek_v3": Family("deepseek-v3-0324.json", DEEPSEEK, {}, objects=False, takes_tools=False),
    "deepseek_r1": Family(
        "deepseek-r1.json", DEEPSEEK, {}, objects=False, content_of_calls=None, takes_tools=False
    ),
    "deepseek_r1_0528": Family("deepseek-r1-0528.json", DEEPSEEK, {}),
    "deepseek_v31": Family("Deepseek-V3.1.json", DEEPSEEK, {"thinking": [True, False]}),
    "qwen3": Family("qwen3.json", {"eos_token": "<|im_end|>"}, {"enable_thinking": [True, False]}),
}


def turn(r: random.Random, number: int, family: Family) -> list[dict]:
    """A question, any number of rounds of calls with their results, and mostly an answer."""
    messages = [{"role": "user", "content": r.choice(TEXTS)}]
    for round_number in range(r.choice([0, 0, 1, 2])):
        calls = [
            {
                "id": f"call{number}{round_number}{i:03}",
                "type": "function",
                "function": {"name": TOOLS[0]["name"], "arguments": r.choice(ARGUMENTS)},
            }
            for i in range(r.randint(1, 3))
        ]
        alone = r.random() < 0.6
        messages.append(
            {
                "role": "assistant",
                "content": family.content_of_calls if alone else r.choice(TEXTS),
                "tool_calls": calls,
            }
        )
        if alone and r.random() < 0.6:
            messages[-1]["reasoning_content"] = r.choice(["r1", "why\nso"])
        messages += [
            {"role": "tool", "tool_call_id": call["id"], "name": TOOLS[0]["name"], "content": f"result {i}"}
            for i, call in enumerate(calls)
        ]
    if r.random() < 0.8:
        answer = {"role": "assistant", "content": r.choice([*TEXTS, "<think>\nso\n</think>\n\nyes"])}
        if r.random() < 0.5:
            answer["reasoning_content"] = r.choice(["r2", "\nbecause\n"])
        messages.append(answer)
    return messages


def variables(r: random.Random, family: Family) -> dict:
    messages = [{"role": "system", "content": r.choice(TEXTS)}] if r.random() < 0.5 else []
    for number in range(r.randint(1, 4)):
        messages += turn(r, number, family)
    if messages[-1]["role"] == "assistant" and r.random() < 0.7:
        messages.append({"role": "user", "content": r.choice(TEXTS)})
    if not family.objects:
        for call in (call for message in messages for call in message.get("tool_calls", [])):
            call["function"] = {
                **call["function"],
                "arguments": json.dumps(call["function"]["arguments"], ensure_ascii=False),
            }
    case = {"messages": messages}
    if family.takes_tools and r.random() < 0.5:
        case["tools"] = [{"type": "function", "function": tool} for tool in TOOLS[: r.randint(1, 2)]]
    kwargs = {name: r.choice(values) for name, values in family.options.items() if r.random() < 0.7}
    return {**case, "kwargs": kwargs, "generates": r.random() < 0.8}


def render(source: str, family: Family, case: dict) -> str | None:
    """None where the template refuses the conversation."""
    context = {
        "messages": case["messages"],
        "tools": case.get("tools"),
        "documents": None,
        "add_generation_prompt": case["generates"],
        **case["kwargs"],
        **family.tokens,
    }
    return reference_jinja.render(source, context).get("output")


def published(copy: str) -> str:
    """The copies of some templates lost their line breaks; blanks between two tags were indentation."""
    return re.sub(r"(?<=[%}]\}) +(?=\{[{%])", "", copy)


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with zipfile.ZipFile(sys.argv[1]) as wheel:
        for name, family in FAMILIES.items():
            source = published(json.loads(wheel.read(MODELS + family.file))[0]["chat_template"])
            r = random.Random(name)
            lines = []
            while len(lines) < CASES:
                case = variables(r, family)
                prompt = render(source, family, case)
                if prompt is not None:
                    lines.append(json.dumps({**case, "prompt": prompt}, ensure_ascii=False))
            (HERE / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
            print(f"{name}: {CASES} prompts")


if __name__ == "__main__":
    main()
