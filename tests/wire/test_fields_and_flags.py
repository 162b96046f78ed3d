"""Fields of docs/api.md that no other test sends, and the flags of `hayate serve` that change answers."""

import asyncio
import contextlib
import json
import re
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import jsonschema
import pytest
from patience import patient
from server_process import BINARY, ServerProcess
from wire_checks import GREEDY, PROBE, chat, check_error, complete, complete_text, generate, repeated, user

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
Start = Callable[..., ServerProcess]


def client_of(server: ServerProcess) -> httpx.Client:
    return httpx.Client(base_url=server.url, timeout=patient(120))


def test_the_last_message_is_gone_on_with(http: httpx.Client) -> None:
    begun = [*user("What is the capital of France?"), {"role": "assistant", "content": "The capital of"}]
    text = chat(http, begun, max_tokens=8, continue_final_message=True)["choices"][0]["message"]["content"]
    assert text.startswith(" France"), text


@pytest.mark.parametrize(
    "fields",
    [
        {"safety_identifier": "u", "prompt_cache_key": "k", "user": "me", "store": True, "service_tier": "auto"},
        {"metadata": {"a": "b"}, "stream_options": None, "logit_bias": None, "stop": None},
    ],
)
def test_accepted_fields_change_no_answer(http: httpx.Client, fields: dict) -> None:
    plain = chat(http, user("Count to five."), max_tokens=8)["choices"]
    assert chat(http, user("Count to five."), max_tokens=8, **fields)["choices"] == plain


def test_accepted_fields_of_generate_change_no_answer(http: httpx.Client) -> None:
    plain = generate(http, "One two", sampling_params={"max_new_tokens": 6})
    more = {"log_metrics": False, "no_logs": True, "return_prompt_token_ids": True}
    assert generate(http, "One two", sampling_params={"max_new_tokens": 6}, **more)["text"] == plain["text"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("input_embeds", [[0.0]]),
        ("return_hidden_states", True),
        ("return_routed_experts", True),
        ("return_entropy", True),
        ("return_sampling_mask", True),
        ("return_bytes", True),
        ("background", True),
        ("lora_path", "a"),
        ("custom_logit_processor", "x"),
        ("image_data", "a.png"),
        ("video_data", "a.mp4"),
        ("audio_data", "a.wav"),
    ],
)
def test_what_generate_does_not_have_is_refused_by_name(http: httpx.Client, field: str, value: object) -> None:
    check_error(http.post("/generate", json={"text": "a", field: value}), 400, field)


@pytest.mark.parametrize(
    ("path", "field", "value"),
    [
        (COMPLETIONS, "suffix", "b"),
        (CHAT, "audio", {"voice": "x"}),
        (CHAT, "functions", [{"name": "f"}]),
        (CHAT, "function_call", "auto"),
    ],
)
def test_what_openais_routes_do_not_have_is_refused_by_name(
    http: httpx.Client, path: str, field: str, value: object
) -> None:
    body = {**GREEDY, "messages": user("a"), "prompt": "a", "max_tokens": 1, field: value}
    check_error(http.post(path, json=body), 400, field, param=field)


@pytest.mark.parametrize("kept", [{"min_p": 1.0}, {"top_k": 1}, {"top_p": 0.0}])
def test_a_cut_to_the_best_token_is_greedy(http: httpx.Client, kept: dict) -> None:
    greedy = complete_text(http, prompt="The sun is", max_tokens=8)
    for seed in range(3):
        sampled = complete_text(http, prompt="The sun is", max_tokens=8, temperature=1.5, seed=seed, **kept)
        assert sampled == greedy


def test_a_high_min_p_keeps_unlikely_tokens_out(http: httpx.Client) -> None:
    def least_likely(**fields: object) -> float:
        answer = complete(http, prompt="Once upon a time", max_tokens=24, temperature=2.0, logprobs=1, seed=3, **fields)
        scores = answer["choices"][0]["logprobs"]
        best = [max(alternatives.values()) for alternatives in scores["top_logprobs"]]
        return min(own - top for own, top in zip(scores["token_logprobs"], best, strict=True))

    # p ≥ min_p × best after the temperature: (p/best)^(1/2) ≥ 0.5 of the raw distribution.
    assert least_likely(min_p=0.5) >= 2 * -0.694
    assert least_likely() < 2 * -0.694


def test_repetition_penalty_counts_what_was_generated(http: httpx.Client) -> None:
    line = "a red house"
    plain = complete_text(http, prompt=repeated(line), max_tokens=24)
    varied = complete_text(http, prompt=repeated(line), max_tokens=24, repetition_penalty=2.0)
    assert plain.count(line) >= 3
    # The prompt itself is no reason for a penalty: the first line still comes.
    assert varied.startswith(line)
    assert varied.count(line) == 1


def test_control_tokens_show_when_asked_for(http: httpx.Client) -> None:
    (mark,) = http.post("/tokenize", json={"prompt": "<|im_end|>", "add_special_tokens": False}).json()["tokens"]
    fields = {**PROBE, "max_tokens": 3, "ignore_eos": True, "logit_bias": {str(mark): 100}}
    assert complete_text(http, **fields) == ""
    assert complete_text(http, **fields, skip_special_tokens=False) == "<|im_end|>" * 3


def test_any_object_satisfies_the_schema_of_anything(http: httpx.Client) -> None:
    sampling = {"json_schema": "$$ANY$$", "max_new_tokens": 120}
    answer = generate(http, "A JSON object with a name and an age:", sampling_params=sampling)
    if answer["meta_info"]["finish_reason"]["type"] == "stop":
        assert isinstance(json.loads(answer["text"]), dict)
    assert answer["text"].lstrip().startswith("{")


@pytest.mark.parametrize(
    "keywords",
    [
        {"dependentRequired": {"a": ["b"]}},
        {"dependentSchemas": {"a": {"required": ["b"]}}},
        {"dependencies": {"a": ["b"]}},
        {"if": {"required": ["a"]}, "then": {"required": ["b"]}},
        {"properties": {"a": {"type": "array", "items": [{"type": "null"}], "additionalItems": False}}},
        {"properties": {"a": {"type": "array", "contains": {"type": "null"}}}},
        {"properties": {"a": {"type": "number", "multipleOf": 0.1}}},
        {"properties": {"a": {"type": "string", "format": "date", "maxLength": 5}}},
        {"properties": {"a": {"allOf": [{"type": "null"}, {"type": "string"}]}}},
        {"properties": {"a": {"oneOf": [{"type": "integer"}, {"minimum": 3}]}}},
    ],
)
def test_keywords_that_cannot_be_enforced_are_refused(http: httpx.Client, keywords: dict) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, **keywords}
    form = {"type": "json_schema", "json_schema": {"name": "f", "schema": schema}}
    body = {**GREEDY, "messages": user("a"), "response_format": form, "max_tokens": 8}
    check_error(http.post(CHAT, json=body), 400)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"], "unevaluatedProperties": False},
        {"type": "array", "prefixItems": [{"const": 1}, {"const": 2}], "unevaluatedItems": False, "minItems": 2},
    ],
)
def test_unevaluated_parts_are_enforced(http: httpx.Client, schema: dict) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "f", "schema": schema}}
    choice = chat(http, user("Go on"), response_format=form, max_tokens=60)["choices"][0]
    assert choice["finish_reason"] == "stop"
    jsonschema.validate(json.loads(choice["message"]["content"]), schema)


def test_anthropics_hints_are_taken_without_effect(http: httpx.Client) -> None:
    plain = {"model": "default", "max_tokens": 8, "temperature": 0, "messages": user("Count to five.")}
    hinted = {
        **plain,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "redacted_thinking", "data": "AAAA"},
                    {"type": "thinking", "thinking": "hm", "signature": ""},
                    {"type": "text", "text": "Hello"},
                ],
            },
            {"role": "user", "content": "Count to five."},
        ],
        "inference_geo": "eu",
        "metadata": {"user_id": "u"},
        "service_tier": "auto",
    }
    answer = http.post("/v1/messages", json=hinted, headers={"anthropic-beta": "x-2025-01-01"})
    assert answer.status_code == 200, answer.text
    assert answer.json()["content"][0]["type"] == "text"
    for field, value in (("container", "c"), ("mcp_servers", [{"url": "x"}]), ("context_management", {"edits": []})):
        refused = http.post("/v1/messages", json={**plain, field: value})
        assert refused.status_code == 400
        assert field in refused.json()["error"]["message"]


def test_settings_of_a_response_come_back_or_are_refused(http: httpx.Client) -> None:
    body = {"model": "default", "input": "Say yes.", "max_output_tokens": 8, "temperature": 0}
    taken = {
        "max_tool_calls": 3,
        "prompt_cache_key": "k",
        "prompt_cache_retention": "24h",
        "safety_identifier": "s",
        "text": {"format": {"type": "text"}, "verbosity": "low"},
        "reasoning": {"effort": "minimal", "summary": "auto"},
        "truncation": "disabled",
        "metadata": {"a": "b"},
        "user": "me",
        "service_tier": "auto",
    }
    answer = http.post("/v1/responses", json={**body, **taken})
    assert answer.status_code == 200, answer.text
    assert answer.json()["metadata"] == {"a": "b"}
    for field, value in (
        ("truncation", "auto"),
        ("conversation", "conv_1"),
        ("prompt", {"id": "p"}),
        ("context_management", [{"type": "compaction"}]),
    ):
        refused = http.post("/v1/responses", json={**body, field: value})
        check_error(refused, 400, field)


def test_long_prompts_lose_their_end_only_when_told_to(start_server: Start) -> None:
    long = {**GREEDY, "prompt": "word " * 400, "max_tokens": 20, "ignore_eos": True}
    with client_of(start_server("--context-length", "128")) as http:
        check_error(http.post(COMPLETIONS, json=long), 400, "128")
    with client_of(start_server("--context-length", "128", "--allow-auto-truncate")) as http:
        answer = complete(http, **long)
        assert answer["usage"] == {**answer["usage"], "prompt_tokens": 108, "completion_tokens": 20}
        wanting = complete(http, **{**long, "max_tokens": 1000})
        assert wanting["usage"]["prompt_tokens"] == 64  # half of the context is kept for the answer at most
        assert complete_text(http, **PROBE).startswith(" Paris")


def test_prompts_and_answers_are_bounded_by_flags(start_server: Start) -> None:
    with client_of(start_server("--max-prompt-tokens", "32", "--max-output-tokens", "4")) as http:
        check_error(http.post(COMPLETIONS, json={**GREEDY, "prompt": "word " * 40}), 400, "32", param="prompt")
        bounded = complete(http, prompt="One two three", max_tokens=50, ignore_eos=True)
        assert bounded["usage"]["completion_tokens"] == 4
        assert bounded["choices"][0]["finish_reason"] == "length"


def test_the_defaults_of_sampling_are_the_checkpoints_or_openais(start_server: Start) -> None:
    with client_of(start_server("--sampling-defaults", "openai")) as http:
        texts = {
            http.post(COMPLETIONS, json={"model": "default", "prompt": "The", "max_tokens": 8, "seed": seed}).json()[
                "choices"
            ][0]["text"]
            for seed in range(4)
        }
        assert len(texts) > 1  # temperature 1


def test_variables_of_the_template_may_be_the_operators(start_server: Start, tmp_path: Path) -> None:
    template = tmp_path / "template.jinja"
    template.write_text("{{ greeting }} {{ messages[0].content }} {{ mark|default('none') }}")
    flags = ["--chat-template", str(template), "--default-chat-template-kwargs", '{"greeting":"Hello","mark":"op"}']
    with client_of(start_server(*flags)) as http:
        chatted = http.post(CHAT, json={**GREEDY, "messages": user("you"), "max_tokens": 1})
        assert chatted.status_code == 200
        expected = len(http.post("/tokenize", json={"prompt": "Hello you op"}).json()["tokens"])
        assert chatted.json()["usage"]["prompt_tokens"] == expected
        own = http.post(
            CHAT,
            json={
                **GREEDY,
                "messages": user("you"),
                "max_tokens": 1,
                "chat_template_kwargs": {"mark": "a much longer mark of the request's own"},
            },
        )
        assert own.json()["usage"]["prompt_tokens"] > expected


def test_without_a_grammar_backend_what_needs_one_is_refused(start_server: Start) -> None:
    with client_of(start_server("--grammar-backend", "none")) as http:
        check_error(http.post(COMPLETIONS, json={**PROBE, "regex": "[a-z]+"}), 400, "grammar")
        form = {"type": "json_object"}
        check_error(http.post(CHAT, json={**GREEDY, "messages": user("a"), "response_format": form}), 400, "grammar")
        assert complete_text(http, **PROBE).startswith(" Paris")


def test_a_grammar_that_compiles_too_long_is_refused_until_it_is_ready(start_server: Start) -> None:
    def body_of(attempt: int) -> dict:
        names = [f"property_{attempt}_{i}" for i in range(60)]
        schema = {"type": "object", "properties": {name: {"type": "integer"} for name in names}, "required": names[:1]}
        form = {"type": "json_schema", "json_schema": {"name": "f", "schema": schema}}
        return {**GREEDY, "messages": user("Numbers."), "max_tokens": 4, "response_format": form}

    with client_of(start_server("--grammar-compile-timeout", "0.001")) as http:
        # On a busy machine one may be ready before anybody looks at the clock.
        for body in map(body_of, range(20)):
            refused = http.post(CHAT, json=body)
            if refused.status_code != 200:
                break
        check_error(refused, 400, "takes longer than 0.001 s to compile")
        deadline = time.monotonic() + patient(30)
        while http.post(CHAT, json=body).status_code != 200:
            assert time.monotonic() < deadline, "the grammar is never ready"
            time.sleep(0.05)


def make_certificate(folder: Path) -> tuple[Path, Path]:
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=server"]
        + ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)],
        check=True,
        capture_output=True,
    )
    return cert, key


def test_https_is_served_and_a_new_certificate_is_followed(tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path)
    server = ServerProcess(["--ssl-certfile", str(cert), "--ssl-keyfile", str(key)], tmp_path / "server.log")
    url = f"https://127.0.0.1:{server.port}"
    deadline = time.monotonic() + patient(60)

    def wait_for(check: Callable[[], bool]) -> None:
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, httpx.TransportError):
                if check():
                    return
            time.sleep(0.05)
        raise AssertionError(server.log_tail())

    def presented() -> str:
        return ssl.get_server_certificate(("127.0.0.1", server.port)).strip()

    try:
        wait_for(lambda: presented() == cert.read_text().strip())
        old = httpx.Client(base_url=url, verify=ssl.create_default_context(cafile=str(cert)), timeout=patient(60))
        wait_for(lambda: old.get("/health").status_code == 200)
        assert complete_text(old, **PROBE).startswith(" Paris")
        assert "[DONE]" in old.post(COMPLETIONS, json={**PROBE, "stream": True}).text
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://127.0.0.1:{server.port}/health", timeout=patient(5))
        (tmp_path / "new").mkdir()
        new_cert, new_key = make_certificate(tmp_path / "new")
        new_key.replace(key)
        new_cert.replace(cert)
        wait_for(lambda: presented() == cert.read_text().strip())
        # What is connected stays so.
        assert complete_text(old, **PROBE).startswith(" Paris")
        with httpx.Client(base_url=url, verify=ssl.create_default_context(cafile=str(cert)), timeout=patient(60)) as new:
            assert new.get("/health").status_code == 200
        old.close()
        server.stop()
    finally:
        server.kill()


def test_connections_beyond_the_bound_are_refused_at_once(start_server: Start) -> None:
    server = start_server("--max-connections", "4")
    held = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(4)]
    for one in held:  # each is served, so that all are counted
        one.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
        assert b" 200 " in one.recv(4096)
    with socket.create_connection(("127.0.0.1", server.port)) as late:
        late.settimeout(10)
        assert b" 503 " in late.recv(4096)
    for one in held:
        one.close()


@pytest.fixture(scope="module")
def named_parsers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    flags = ["--reasoning-parser", "qwen3-thinking", "--tool-call-parser", "hermes"]
    log = tmp_path_factory.mktemp("parsers") / "server.log"
    with ServerProcess(flags, log) as process, client_of(process) as http:
        yield http


def test_a_parser_that_is_named_is_used(named_parsers: httpx.Client) -> None:
    fields = {"max_tokens": 24, "regex": "[a-z ]{4,8}", "thinking_budget": 4}
    message = chat(named_parsers, user("What is 2 + 2?"), **fields)["choices"][0]["message"]
    assert message["reasoning_content"]  # inside from the start, until </think>
    assert re.fullmatch("[a-z ]{4,8}", message["content"])
    custom = chat(
        named_parsers,
        user("What is 2 + 2?"),
        max_tokens=24,
        regex="[a-z ]{4,8}",
        custom_params={"thinking_budget": 4},
    )
    assert custom["choices"][0]["message"] == message


@pytest.mark.parametrize("effort", ["none", "minimal", "low", "medium", "high", "xhigh", "max"])
def test_every_effort_is_taken(named_parsers: httpx.Client, effort: str) -> None:
    answer = chat(named_parsers, user("hi"), max_tokens=4, reasoning_effort=effort)
    assert answer["choices"][0]["finish_reason"] in ("stop", "length")


def test_a_high_priority_overtakes_those_that_wait(start_server: Start) -> None:
    flags = ["--schedule-policy", "priority", "--max-running-requests", "1"]
    with client_of(start_server(*flags)) as http:
        order: list[str] = []

        async def post(name: str, priority: int) -> None:
            body = {**GREEDY, "prompt": name, "max_tokens": 8, "ignore_eos": True, "priority": priority}
            answer = await client.post(COMPLETIONS, json=body)
            assert answer.status_code == 200
            order.append(name)

        async def run() -> None:
            await client.post("/pause_generation", json={"mode": "in_place"})
            asked = [asyncio.ensure_future(post(f"low {i}", 0)) for i in range(3)]
            asked.append(asyncio.ensure_future(post("high", 5)))
            while (await client.get("/get_load")).json()[0]["num_waiting_reqs"] < len(asked):
                await asyncio.sleep(0.02)
            await client.post("/continue_generation", json={})
            await asyncio.gather(*asked)

        client = httpx.AsyncClient(base_url=http.base_url, timeout=patient(120))
        asyncio.run(run())
        assert order[0] == "high"


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--attention-backend", "fa3"], "chooses its kernels"),
        (["--enable-mixed-chunk"], "leave it out"),
        (["--cuda-graph-max-bs-decode", "8"], "--cuda-graph-max-bs"),
        (["--log-requests"], "--access-log"),
        (["--max-runing-requests", "8"], "--max-running-requests"),
    ],
)
def test_flags_that_there_are_not_name_what_to_use(flags: list[str], says: str) -> None:
    done = subprocess.run([str(BINARY), "serve", *flags], capture_output=True, text=True, check=False, timeout=patient(60))
    assert done.returncode != 0
    assert says in done.stderr + done.stdout, done.stderr
    assert flags[0].lstrip("-") in done.stderr + done.stdout


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--default-chat-template-kwargs", "[1]"], "default-chat-template-kwargs"),
        (["--default-chat-template-kwargs", "{"], "default-chat-template-kwargs"),
        (["--reasoning-parser", "none-such"], "reasoning-parser"),
        (["--tool-call-parser", "none-such"], "tool-call-parser"),
        (["--sampling-defaults", "mine"], "sampling-defaults"),
        (["--chat-template", "/none"], "chat-template"),
        (["--ssl-certfile", "/none"], "ssl-certfile"),
        (["--api-key-file", "/none"], "api-key-file"),
        (["--max-payload-size", "-1"], "max-payload-size"),
        (["--stream-interval", "0"], "stream-interval"),
    ],
)
def test_a_flag_with_a_wrong_value_stops_the_start_and_is_named(flags: list[str], says: str) -> None:
    done = subprocess.run([str(BINARY), "serve", *flags], capture_output=True, text=True, check=False, timeout=patient(60))
    assert done.returncode != 0
    assert says in done.stderr + done.stdout
