"""Ollama's routes: chats and prompts, streamed as lines of JSON or whole."""

import json

import httpx
import pytest
from wire_checks import chat, user

OPTIONS = {"temperature": 0, "num_predict": 12}
ASK = user("What is the capital of France? Answer in one sentence.")
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "the weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def lines_of(response: httpx.Response) -> list[dict]:
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/x-ndjson"
    assert response.text.endswith("\n")
    return [json.loads(line) for line in response.text.splitlines()]


def check_end(last: dict, completion_tokens: int) -> None:
    assert last["done"] is True and last["done_reason"] in ("stop", "length")
    assert last["eval_count"] == completion_tokens and last["prompt_eval_count"] > 0
    times = [last[name] for name in ("prompt_eval_duration", "eval_duration")]
    assert all(time >= 0 for time in times) and last["total_duration"] >= sum(times)


def test_a_chat_streams_lines_that_join_to_the_whole_answer(http):
    expected = chat(http, ASK, max_tokens=12)
    lines = lines_of(http.post("/api/chat", json={"model": "default", "messages": ASK, "options": OPTIONS}))
    text = "".join(line["message"]["content"] for line in lines)
    assert text == expected["choices"][0]["message"]["content"]
    assert all(line["message"]["role"] == "assistant" for line in lines)
    assert [line["done"] for line in lines] == [False] * (len(lines) - 1) + [True]
    tokens = expected["usage"]["completion_tokens"]
    check_end(lines[-1], tokens)
    body = {"model": "default:latest", "messages": ASK, "options": OPTIONS, "stream": False}
    whole = http.post("/api/chat", json=body).json()
    assert whole["message"]["content"] == text and whole["created_at"].endswith("Z")
    check_end(whole, tokens)


def test_a_prompt_becomes_a_chat_unless_it_is_raw(http):
    body = {"model": "default", "prompt": ASK[0]["content"], "options": OPTIONS}
    lines = lines_of(http.post("/api/generate", json=body))
    text = "".join(line["response"] for line in lines)
    assert text == chat(http, ASK, max_tokens=12)["choices"][0]["message"]["content"]
    raw = http.post("/api/generate", json={**body, "prompt": "The capital of France is", "raw": True, "stream": False})
    assert raw.json()["response"].startswith(" Paris")
    system = {**body, "system": "You answer in Latin.", "stream": False}
    both = [{"role": "system", "content": "You answer in Latin."}, *ASK]
    answer = chat(http, both, max_tokens=12)["choices"][0]["message"]["content"]
    assert http.post("/api/generate", json=system).json()["response"] == answer


def test_options_and_formats_hold(http):
    body = {"model": "default", "messages": ASK, "stream": False}
    stopped = http.post("/api/chat", json={**body, "options": {"temperature": 0, "stop": ["capital"]}}).json()
    assert "capital" not in stopped["message"]["content"] and stopped["done_reason"] == "stop"
    seeded = {"temperature": 1.5, "seed": 7, "num_predict": 16, "top_k": 40, "repeat_penalty": 1.1, "num_ctx": 2048}
    first, second = (http.post("/api/chat", json={**body, "options": seeded}).json() for _ in range(2))
    assert first["message"]["content"] == second["message"]["content"]
    schema = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"]}
    shaped = http.post("/api/chat", json={**body, "options": {"temperature": 0}, "format": schema}).json()
    assert json.loads(shaped["message"]["content"])["city"] in ("Paris", "Rome")
    free = http.post("/api/chat", json={**body, "options": {"num_predict": 200}, "format": "json"}).json()
    if free["done_reason"] == "stop":
        assert isinstance(json.loads(free["message"]["content"]), dict)


def test_a_conversation_with_calls_and_results_is_taken(http):
    messages = [
        *user("Weather in Oslo?"),
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": "get_weather", "arguments": {"city": "Oslo"}}}],
        },
        {"role": "tool", "tool_name": "get_weather", "content": "rain"},
    ]
    body = {"model": "default", "messages": messages, "tools": [WEATHER], "stream": False, "options": OPTIONS}
    answer = http.post("/api/chat", json=body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["eval_count"] > 0


def test_models_are_listed_and_shown(http):
    (listed,) = http.get("/api/tags").json()["models"]
    assert listed["name"] == http.get("/v1/models").json()["data"][0]["id"]
    shown = http.post("/api/show", json={"model": listed["name"] + ":latest"}).json()
    assert "completion" in shown["capabilities"] and "im_start" in shown["template"]
    assert shown["model_info"]["general.architecture"] == "llama"
    assert shown["model_info"]["llama.context_length"] == 8192
    assert http.get("/api/version").json()["version"]
    assert http.post("/api/show", json={"model": "nothing"}).status_code == 404
    nothing = {"role": "assistant", "content": ""}
    for path, empty in [("/api/generate", {"response": ""}), ("/api/chat", {"message": nothing})]:
        loaded = http.post(path, json={"model": "default"}).json()
        assert loaded["done"] is True and loaded["done_reason"] == "load" and loaded["created_at"]
        assert empty.items() <= loaded.items()


@pytest.mark.parametrize(
    ("path", "body", "mentions"),
    [
        ("/api/chat", {"messages": [{"content": "a"}]}, "messages[0].role"),
        ("/api/chat", {"messages": 3}, "messages"),
        ("/api/chat", {"messages": [*ASK, 3]}, "messages[1]"),
        ("/api/chat", {"messages": [{"role": "user", "content": "a", "images": ["x"]}]}, "images"),
        ("/api/chat", {"messages": ASK, "options": {"temperature": "hot"}}, "options.temperature"),
        ("/api/chat", {"messages": ASK, "options": {"num_predict": -3}}, "options.num_predict"),
        ("/api/chat", {"messages": ASK, "format": "xml"}, "format"),
        ("/api/chat", {"messages": ASK, "think": 3}, "think"),
        ("/api/chat", {"messages": ASK, "model": "gpt-4"}, "gpt-4"),
        ("/api/generate", {"prompt": "a", "suffix": "b"}, "suffix"),
        ("/api/generate", {"prompt": ["a"]}, "prompt"),
        ("/api/show", {"model": 3}, "model"),
    ],
)
def test_errors_have_ollamas_shape_and_name_the_field(http, path, body, mentions):
    response = http.post(path, json=body)
    assert response.status_code in (400, 404), response.text
    assert set(response.json()) == {"error"} and mentions in response.json()["error"]
