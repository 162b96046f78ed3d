#!/usr/bin/env python3
"""Makes harmony.jsonl, the golden prompts of GPT-OSS, from OpenAI's own encoder.

Needs `pip install openai-harmony==0.0.8`, which downloads its vocabulary or finds it in the folder
$TIKTOKEN_ENCODINGS_BASE; the tests that read the result need neither.

    python3 make_harmony.py

Each line is a random conversation: the variables of a chat template (tool-call arguments as JSON
text, which the encoder writes as it is) and the prompt. The first message may instruct; a turn's
reasoning goes to the channel of analysis, a text before calls to that of commentary. The date is
that of the template tests.
"""

import json
import random
from pathlib import Path

from conversation_parts import ARGUMENTS, TEXTS, TOOLS
from openai_harmony import (
    Author,
    Conversation,
    DeveloperContent,
    HarmonyEncodingName,
    Message,
    ReasoningEffort,
    Role,
    SystemContent,
    ToolDescription,
    load_harmony_encoding,
)

CASES = 80
DATE = "2023-11-14"
SCALARS = ["string", "number", "integer", "boolean"]


def schema(r: random.Random, depth: int) -> dict:
    """A parameter of any kind that the encoder knows."""
    kind = r.choice([*SCALARS, "string", "array", "object", "several", "one of", "any", "enumeration"])
    if depth == 0 and kind in ("array", "object", "one of"):
        kind = "string"
    match kind:
        case "array":
            made = {"type": "array", "items": schema(r, depth - 1)} if r.random() < 0.8 else {"type": "array"}
        case "object":
            names = "pq"[: r.randint(0, 2)]
            made = {"type": "object", "properties": {name: schema(r, depth - 1) for name in names}}
            made |= r.choice([{}, {"required": ["p"]}])
        case "several":
            made = {"type": r.choice([["string", "null"], ["integer", "string"]])}
        case "one of":
            made = {"oneOf": [schema(r, depth - 1) for _ in range(r.randint(1, 3))]}
        case "any":
            made = {}
        case "enumeration":
            made = {"type": "string", "enum": r.choice([["a", "b"], ["x"]])}
        case _:
            made = {"type": kind}
    extras = {
        "description": (0.4, ["What it is", "two\nlines", "é"]),
        "default": (0.3, ["a", 1, 2.5, None, True, [1, "x"], {"k": 1}]),
        "nullable": (0.15, [True]),
        "title": (0.1, ["A title"]),
        "examples": (0.1, [["one", "two"]]),
    }
    return made | {name: r.choice(values) for name, (share, values) in extras.items() if r.random() < share}


def tools(r: random.Random) -> list[dict]:
    random_tool = {
        "name": "anything",
        "description": r.choice(["", "One line", "Two\nlines"]),
        "parameters": {
            "type": "object",
            "properties": {name: schema(r, 2) for name in "abc"[: r.randint(1, 3)]},
            "required": ["a"],
        },
    }
    chosen = r.choice([TOOLS, [random_tool], [TOOLS[0], random_tool], [{"name": "now", "description": "The time"}]])
    return [{"type": "function", "function": tool} for tool in chosen]


def turn(r: random.Random, number: int) -> list[dict]:
    messages = [{"role": "user", "content": r.choice(TEXTS)}]
    for round_number in range(r.choice([0, 0, 1, 2])):
        message = {"role": "assistant", "content": r.choice(["", "", "I look.", "ünï 🙂"])}
        if r.random() < 0.6:
            message["reasoning_content"] = r.choice(["r1", "why\nso"])
        arguments = [json.dumps(r.choice(ARGUMENTS), ensure_ascii=False) for _ in range(r.randint(1, 2))]
        message["tool_calls"] = [
            {
                "id": f"c{number}_{round_number}_{i}",
                "type": "function",
                "function": {"name": TOOLS[0]["name"], "arguments": text},
            }
            for i, text in enumerate(arguments)
        ]
        messages.append(message)
        messages += [
            {"role": "tool", "tool_call_id": call["id"], "name": TOOLS[0]["name"], "content": '{"t": "é"}'}
            for call in message["tool_calls"]
        ]
    if r.random() < 0.8:
        messages.append({"role": "assistant", "content": r.choice(TEXTS)})
        if r.random() < 0.5:
            messages[-1]["reasoning_content"] = r.choice(["r2", "because"])
    return messages


def variables(r: random.Random) -> dict:
    role = r.choice(["system", "developer", None])
    messages = [{"role": role, "content": r.choice(["Be brief.", "a\n\nb", "é"])}] if role else []
    for number in range(r.randint(1, 4)):
        messages += turn(r, number)
    if messages[-1]["role"] == "assistant":
        messages.append({"role": "user", "content": r.choice(TEXTS)})
    case = {"messages": messages}
    if r.random() < 0.6:
        case["tools"] = tools(r)
    kwargs = {"reasoning_effort": r.choice(["low", "medium", "high"])} if r.random() < 0.6 else {}
    return {**case, "kwargs": kwargs}


def assistant(message: dict) -> list[Message]:
    def said(text: str, channel: str) -> Message:
        return Message.from_role_and_content(Role.ASSISTANT, text).with_channel(channel)

    made = [said(message["reasoning_content"], "analysis")] if message.get("reasoning_content") else []
    calls = message.get("tool_calls", [])
    if not calls:
        return [*made, said(message["content"], "final")]
    if message["content"]:
        made.append(said(message["content"], "commentary"))
    for call in calls:
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        to_tool = said(arguments, "commentary").with_recipient(f"functions.{name}")
        made.append(to_tool.with_content_type("<|constrain|>json"))
    return made


def conversation(case: dict) -> Conversation:
    system = SystemContent.new().with_conversation_start_date(DATE)
    effort = case["kwargs"].get("reasoning_effort", "medium")
    system = system.with_reasoning_effort(ReasoningEffort[effort.upper()])
    made = [Message.from_role_and_content(Role.SYSTEM, system)]
    messages, developer = case["messages"], DeveloperContent.new()
    instructed = messages[0]["role"] in ("system", "developer")
    if instructed:
        developer = developer.with_instructions(messages[0]["content"])
    if "tools" in case:
        functions = [tool["function"] for tool in case["tools"]]
        developer = developer.with_function_tools(
            [ToolDescription.new(tool["name"], tool["description"], tool.get("parameters")) for tool in functions]
        )
    if instructed or "tools" in case:
        made.append(Message.from_role_and_content(Role.DEVELOPER, developer))
    for message in messages[instructed:]:
        match message["role"]:
            case "user":
                made.append(Message.from_role_and_content(Role.USER, message["content"]))
            case "assistant":
                made += assistant(message)
            case "tool":
                author = Author.new(Role.TOOL, f"functions.{message['name']}")
                result = Message.from_author_and_content(author, message["content"])
                made.append(result.with_channel("commentary").with_recipient("assistant"))
    return Conversation.from_messages(made)


def main() -> None:
    encoding = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
    lines = []
    for seed in range(CASES):
        case = variables(random.Random(seed))
        ids = encoding.render_conversation_for_completion(conversation(case), Role.ASSISTANT)
        lines.append(json.dumps({**case, "prompt": encoding.decode_utf8(ids)}, ensure_ascii=False))
    text = "\n".join(lines) + "\n"
    (Path(__file__).resolve().parent / "harmony.jsonl").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
