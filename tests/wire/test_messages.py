"""What may stand in a conversation, and templates of every temper."""

import httpx
import pytest
from patience import patient
from server_process import ServerProcess
from wire_checks import chat, check_alive, check_error, user

CHAT = "/v1/chat/completions"
PARTS = [{"type": "text", "text": "You are "}, {"type": "text", "text": "helpful."}]
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":2,"b":3}'}}

# Renders calls and tool results, refuses a system turn after the first, and has a loop without end.
TEMPLATE = """
{%- for message in messages %}
{%- if message.role == 'system' and not loop.first %}{{ raise_exception('System turns come first.') }}{% endif %}
{%- if message.content == 'spin' %}{% for i in range(100000000) %}{% for j in range(100000000) %}{% endfor %}{% endfor %}
{%- endif %}
{%- if message.content == 'odd' %}{{ message | nofilter }}{% endif %}
{{- '[' + message.role + '] ' + message.content }}
{%- for call in message.tool_calls or [] %}{{ ' call ' + call.function.name }}{% endfor %}
{{- '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '[assistant]' }}{% endif %}
"""


def test_b034_text_parts_are_the_same_as_one_text(http):
    for place in range(3):
        roles = ("system", "user", "assistant")
        plain = [{"role": role, "content": "You are helpful."} for role in roles] + user("Well?")
        parts = [{**message} for message in plain]
        parts[place]["content"] = PARTS
        expected = chat(http, plain, max_tokens=6)
        got = chat(http, parts, max_tokens=6)
        assert got["usage"]["prompt_tokens"] == expected["usage"]["prompt_tokens"]
        assert got["choices"] == expected["choices"]


@pytest.mark.parametrize(
    "content",
    [
        [],
        [{"type": "text"}],
        [{"type": "zzz", "text": "a"}],
        [{"type": "image_url", "image_url": {"url": "http://x"}}],
        [{"text": "a"}],
        [3],
        7,
        {"type": "text", "text": "a"},
    ],
)
def test_b034_broken_parts_are_refused(http, content):
    refused = http.post(CHAT, json={"messages": [{"role": "user", "content": content}]})
    error = check_error(refused, 400, "messages[0].content")
    assert error["param"].startswith("messages[0].content")


@pytest.mark.parametrize(
    "messages", [[], None, "missing", {}, [7], [{"content": "x"}], [{"role": "user"}], [{"role": 1, "content": "x"}]]
)
def test_b032_broken_conversations_are_refused(http, messages):
    body = {"messages": messages, "max_tokens": 1} if messages != "missing" else {"max_tokens": 1}
    error = check_error(http.post(CHAT, json=body), 400, "messages")
    assert error["param"].startswith("messages")


def test_b032_an_empty_text_is_a_message(http):
    assert chat(http, user(""), max_tokens=1)["usage"]["completion_tokens"] == 1
    check_alive(http)


@pytest.fixture(scope="module")
def own_template(tmp_path_factory):
    folder = tmp_path_factory.mktemp("template")
    path = folder / "template.jinja"
    path.write_text(TEMPLATE, encoding="utf-8")
    with (
        ServerProcess(["--chat-template", str(path)], folder / "server.log") as server,
        httpx.Client(base_url=server.url, timeout=patient(60)) as made,
    ):
        yield made


def rendered(http, messages) -> str:
    ids = http.post("/tokenize", json={"messages": messages}).json()["tokens"]
    return http.post("/detokenize", json={"tokens": ids, "skip_special_tokens": False}).json()["text"]


def test_b035_a_turn_of_calls_without_a_text_keeps_its_place(own_template):
    counts = set()
    for content in ({"content": None}, {}, {"content": ""}):
        messages = [
            *user("2+3?"),
            {"role": "assistant", **content, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": "5"},
        ]
        text = rendered(own_template, messages)
        assert text == "[user] 2+3?\n[assistant]  call add\n[tool] 5\n[assistant]"
        counts.add(chat(own_template, messages, max_tokens=1)["usage"]["prompt_tokens"])
    assert len(counts) == 1


def test_b082_the_template_alone_writes_special_tokens(http):
    ids = http.post("/tokenize", json={"messages": user("hi")}).json()["tokens"]
    text = http.post("/detokenize", json={"tokens": ids, "skip_special_tokens": False}).json()["text"]
    assert text.startswith("<|im_start|>system\n") and text.count("<|im_start|>") == 3
    again = http.post("/tokenize", json={"prompt": text, "add_special_tokens": False}).json()["tokens"]
    assert again == ids


def test_b083_what_the_template_raises_is_the_clients_answer(own_template):
    messages = [*user("a"), {"role": "system", "content": "late"}]
    check_error(own_template.post(CHAT, json={"messages": messages}), 400, "System turns come first.")
    check_alive(own_template)


def test_b083_a_template_without_end_is_stopped(own_template):
    check_error(own_template.post(CHAT, json={"messages": user("spin")}), 400)
    check_alive(own_template)


def test_b083_an_unknown_filter_is_told_and_completions_go_on(own_template):
    refused = own_template.post(CHAT, json={"messages": user("odd")})
    check_error(refused, 400, "nofilter")
    check_alive(own_template)


@pytest.mark.parametrize("template", ["{% for %}", "{% include 'x' %}"])
def test_b083_a_broken_template_stops_the_start(tmp_path, template):
    path = tmp_path / "broken.jinja"
    path.write_text(template, encoding="utf-8")
    server = ServerProcess(["--chat-template", str(path)], tmp_path / "server.log")
    try:
        assert server.process.wait(patient(30)) != 0
    finally:
        server.kill()
    assert "broken.jinja" in server.log_text() or "template" in server.log_text()
