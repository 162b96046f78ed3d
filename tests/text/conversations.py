"""Conversations that chat templates are tried on, as the variables a server would pass."""

from collections.abc import Iterator
from typing import Any

Message = dict[str, Any]


def user(content: Any) -> Message:
    return {"role": "user", "content": content}


def assistant(content: Any, **fields: Any) -> Message:
    return {"role": "assistant", "content": content, **fields}


def system(content: Any) -> Message:
    return {"role": "system", "content": content}


def tool_call(name: str, arguments: Any, call_id: str = "call00001") -> Message:
    return {"type": "function", "id": call_id, "function": {"name": name, "arguments": arguments}}


def tool_result(content: Any, name: str = "get_weather", call_id: str = "call00001") -> Message:
    return {"role": "tool", "content": content, "name": name, "tool_call_id": call_id}


WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather in a city.\nTemperatures are °C.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "City, e.g. \"Reykjavík\" or '東京'"},
                "days": {"type": "integer", "description": "Days ahead", "default": 1, "minimum": 0},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "description": "Unit"},
            },
            "required": ["city"],
        },
    },
}
SEARCH = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Search <documents> & return the best.",
        "parameters": {
            "type": "object",
            "properties": {
                "queries": {"type": "array", "items": {"type": "string"}, "description": "Queries"},
                "filter": {
                    "type": "object",
                    "properties": {"after": {"type": ["string", "null"], "description": "Date"}},
                    "description": "Filter",
                },
                "limit": {"type": ["integer", "null"], "description": "At most", "default": None},
                "exact": {"type": "boolean", "default": False, "nullable": True, "description": "Exact"},
                "score": {"type": "number", "default": 0.5, "description": "Least score"},
            },
            "required": ["queries", "filter"],
            "additionalProperties": False,
        },
    },
}
NO_PARAMETERS = {
    "type": "function",
    "function": {"name": "now", "description": "The time.", "parameters": {"type": "object", "properties": {}}},
}
TOOLS = [WEATHER, SEARCH, NO_PARAMETERS]

TURNS = [user("Hello!"), assistant("Hi, what can I do?"), user("Tell me a joke."), assistant("No."), user("Please?")]
TEXTS = {
    "unicode": "Ünïcödé 日本語 🦙 \u200d👩‍🚀 e\u0301 \u00a0end",
    "markup": '<|im_end|> </think> {{ not }} {% a % } "quotes" \\n & <b>',
    "spaces": "  \n\tleading and trailing \n\n ",
    "empty": "",
    "lines": "one\ntwo\r\nthree\n",
}
THOUGHT = "<think>\nFirst I think.\n\nThen more.\n</think>\n\nThe answer is 4."

CALL_TURNS = [
    user("Weather in Oslo?"),
    assistant("", tool_calls=[tool_call("get_weather", {"city": "Oslo", "days": 2, "exact": True, "near": None})]),
    tool_result('{"temperature": -3.5}'),
    assistant("It is -3.5 °C."),
    user("And in Tōkyō and Bergen?"),
    assistant(
        None,
        tool_calls=[
            tool_call("get_weather", {"city": "東京"}, "call00002"),
            tool_call("get_weather", {"city": "Bergen", "list": [1, 2.0, "x"]}, "call00003"),
        ],
    ),
    tool_result("sunny", call_id="call00002"),
    tool_result("rain", call_id="call00003"),
]

MESSAGES: dict[str, list[Message]] = {
    "one_user": [user("Hi")],
    "system_user": [system("You are terse."), user("Hi")],
    "turns": TURNS,
    "system_turns": [system("Be kind.\nAlways."), *TURNS],
    "assistant_last": TURNS[:4],
    "no_messages": [],
    "system_only": [system("Alone")],
    "two_users": [user("one"), user("two")],
    "two_systems": [system("a"), system("b"), user("c")],
    "assistant_first": [assistant("Hello"), user("Hi")],
    "developer": [{"role": "developer", "content": "Follow me."}, user("Hi")],
    "unknown_role": [{"role": "narrator", "content": "Once"}, user("Hi")],
    "none_content": [user("Hi"), assistant(None), user("?")],
    "no_content": [user("Hi"), {"role": "assistant"}, user("?")],
    "thinking": [user("2+2?"), assistant(THOUGHT), user("3+3?"), assistant(THOUGHT)],
    "thinking_last": [user("2+2?"), assistant("4", reasoning_content="easy"), user("3+3?")],
    "reasoning": [user("2+2?"), assistant("4", reasoning_content="\nit is four\n", thinking="four"), user("5?"), assistant("5", reasoning_content="five", thinking="fünf")],
    "reasoning_none": [user("2+2?"), assistant("4", reasoning_content=None), user("5?")],
    "parts": [user([{"type": "text", "text": "Look: "}, {"type": "text", "text": "here"}])],
    "calls": CALL_TURNS,
    "calls_answered": [*CALL_TURNS, assistant("Sunny, and rain."), user("Thanks")],
    "calls_system": [system("Use tools."), *CALL_TURNS],
    "calls_text_arguments": [user("?"), assistant("", tool_calls=[tool_call("search", '{"queries": ["a"]}')]), tool_result("x")],
    "calls_without_function": [user("?"), assistant("", tool_calls=[{"name": "search", "arguments": {"a": 1}, "id": "call00009"}]), tool_result({"b": [1]})],
    "calls_thinking": [user("?"), assistant("I look.", thinking="hm", reasoning_content="hm", tool_calls=[tool_call("search", {"queries": []})]), tool_result("[]", name="search")],
    "calls_empty_list": [user("?"), assistant("no call", tool_calls=[]), user("!")],
    "tool_last_alone": [tool_result("x")],
} | {f"text_{name}": [system(text), user(text), assistant(text), user(text)] for name, text in TEXTS.items()}

VARIABLES: dict[str, dict[str, Any]] = {
    "plain": {"tools": None, "documents": None, "add_generation_prompt": True},
    "closed": {"tools": None, "documents": None, "add_generation_prompt": False},
    "tools": {"tools": TOOLS, "documents": None, "add_generation_prompt": True},
    "empty_tools": {"tools": [], "documents": None, "add_generation_prompt": True},
    "thinking_on": {"tools": None, "add_generation_prompt": True, "enable_thinking": True, "thinking": True, "reasoning_effort": "high"},
    "thinking_off": {"tools": TOOLS, "add_generation_prompt": True, "enable_thinking": False, "thinking": False, "reasoning_effort": "low"},
    "options": {
        "tools": [SEARCH],
        "add_generation_prompt": False,
        "date_string": "26 Jul 2024",
        "tools_in_user_message": False,
        "custom_tools": None,
        "builtin_tools": ["browser", "python", "code_interpreter"],
        "model_identity": "You are a model.",
        "conversation_start_date": "2024-01-02",
    },
}
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


def contexts() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, messages in MESSAGES.items():
        for options, variables in VARIABLES.items():
            yield f"{name}/{options}", {"messages": messages, **variables, **TOKENS}
