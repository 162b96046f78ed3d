#!/usr/bin/env python3
"""Makes the golden prompts of this folder from DeepSeek's own renderer.

Needs `pip install deepseek-recipe==0.2.0`; the tests that read the result need none of it.

    python3 make_golden.py

deepseek_v4.jsonl and deepseek_v41.jsonl hold one random conversation a line: the variables of a
chat template (messages and tools as in a request, tool-call arguments as objects) and the prompt.
"""

import json
import random
from pathlib import Path

import deepseek_recipe as recipe
from conversation_parts import ARGUMENTS, SCHEMA, TEXTS, TOOLS

CASES = 80


def assistant_turn(r: random.Random, turn: int) -> list[dict]:
    """A message of the assistant and the results of its calls, in any order."""
    message = {"role": "assistant", "content": r.choice(TEXTS)}
    if r.random() < 0.6:
        message["reasoning_content"] = r.choice(["r1", "why\nso", ""])
    if r.random() < 0.5:
        return [message]
    message["tool_calls"] = [
        {
            "id": f"c{turn}_{i}",
            "type": "function",
            "function": {"name": r.choice(TOOLS)["name"], "arguments": r.choice(ARGUMENTS)},
        }
        for i in range(r.randint(1, 3))
    ]
    ids = [call["id"] for call in message["tool_calls"]]
    r.shuffle(ids)
    return [message, *({"role": "tool", "tool_call_id": id, "content": "result " + id} for id in ids)]


def conversation(r: random.Random) -> list[dict]:
    messages = [{"role": "system", "content": r.choice(TEXTS)}] if r.random() < 0.5 else []
    expects_user = True
    for turn in range(r.randint(1, 7)):
        kind = r.random()
        if expects_user or kind < 0.4:
            messages.append({"role": "user", "content": r.choice(TEXTS)})
            expects_user = False
        elif kind < 0.8:
            messages += assistant_turn(r, turn)
            expects_user = messages[-1]["role"] == "assistant"
        elif kind < 0.9:
            messages.append({"role": "latest_reminder", "content": r.choice(["note", "n2"])})
        else:
            messages.append({"role": "system", "content": "mid"})
            expects_user = True
    if r.random() < 0.15 and messages[-1]["role"] == "user":
        messages.append({"role": "assistant", "content": r.choice(["The", ""]), "prefix": True})
        if r.random() < 0.5:
            messages[-1]["reasoning_content"] = "thinking"
    return messages


def variables(r: random.Random) -> dict:
    case = {"messages": conversation(r)}
    if r.random() < 0.4:
        case["tools"] = [{"type": "function", "function": tool} for tool in TOOLS[: r.randint(1, 2)]]
    kwargs = {}
    if r.random() < 0.4:
        kwargs["thinking"] = r.random() < 0.5
    if r.random() < 0.4:
        kwargs["reasoning_effort"] = r.choice(["low", "high", "xhigh", "max"])
    if r.random() < 0.1:
        kwargs["response_schema"] = SCHEMA
    if "tools" in case and r.random() < 0.2:
        kwargs["tool_choice"] = r.choice(["none", "required"])
    return {**case, "kwargs": kwargs}


def to_recipe(message: dict):
    content = message["content"]
    match message["role"]:
        case "system":
            return recipe.SystemMessage(content)
        case "user":
            return recipe.UserMessage(content)
        case "tool":
            return recipe.ToolMessage(content, message["tool_call_id"])
        case "latest_reminder":
            return recipe.LatestReminderMessage(content)
    calls = [
        recipe.ToolCall(
            call["id"],
            call["function"]["name"],
            json.dumps(call["function"]["arguments"], ensure_ascii=False),
        )
        for call in message.get("tool_calls", [])
    ]
    return recipe.AssistantMessage(
        content, message.get("reasoning_content"), calls or None, message.get("prefix", False)
    )


def render(encoding, case: dict) -> str:
    kwargs = case["kwargs"]
    tools = [tool["function"] for tool in case.get("tools", [])]
    return encoding.render_conversation(
        recipe.Conversation(
            [to_recipe(message) for message in case["messages"]],
            thinking_mode=kwargs.get("thinking", True),
            tools=[
                recipe.ToolDefinition(tool["name"], tool["description"], tool["parameters"]) for tool in tools
            ]
            or None,
            reasoning_effort=kwargs.get("reasoning_effort"),
            tool_choice=kwargs.get("tool_choice", "auto"),
            response_schema=kwargs.get("response_schema"),
        )
    ).prompt


def main() -> None:
    encodings = {
        "deepseek_v4": recipe.DeepseekV4Encoding(),
        "deepseek_v41": recipe.DeepseekV41Encoding(),
    }
    for name, encoding in encodings.items():
        lines = []
        for seed in range(CASES):
            case = variables(random.Random(seed))
            lines.append(json.dumps({**case, "prompt": render(encoding, case)}, ensure_ascii=False))
        path = Path(__file__).resolve().parent / f"{name}.jsonl"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"{path.name}: {CASES} prompts")


if __name__ == "__main__":
    main()
