"""Structured output: whatever the model would rather say, the answer satisfies its grammar."""

import json
import re
from concurrent.futures import ThreadPoolExecutor

import httpx
import jsonschema
import openai
import pytest
from patience import PATIENCE, patient
from random_schemas import random_schema
from wire_checks import GREEDY, chat, complete_text, generate, tokenize, user

PROSE = user("Answer in prose, no JSON. Tell me a story.")
PERSON = {
    "type": "object",
    "properties": {"a": {"type": "string", "maxLength": 12}, "b": {"type": "integer"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}


def response_format(schema: dict) -> dict:
    return {"type": "json_schema", "json_schema": {"name": "f", "strict": True, "schema": schema}}


def forced(text: str) -> dict:
    return {"temperature": 0, "response_format": response_format({"enum": [text]})}


def refusal(http: httpx.Client, **fields) -> dict:
    response = http.post("/v1/chat/completions", json={**GREEDY, "messages": PROSE, **fields})
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["message"] and error["param"]
    return error


def stream(http: httpx.Client, **fields) -> tuple[str, str]:
    """Joined content and the finish reason."""
    body = {**GREEDY, "messages": PROSE, "stream": True, **fields}
    text, finish = "", None
    with http.stream("POST", "/v1/chat/completions", json=body) as response:
        assert response.status_code == 200
        for line in response.iter_lines():
            if not line.startswith("data: {"):
                continue
            (choice,) = json.loads(line[6:])["choices"]
            text += choice["delta"].get("content") or ""
            finish = choice["finish_reason"] or finish
    return text, finish


@pytest.mark.parametrize("text", ["plain", "🦙漢字é🫠", 'quotes " and \\ too', "alpha beta gamma delta"])
def test_an_enum_of_one_forces_the_answer(http: httpx.Client, text: str):
    answer = chat(http, PROSE, **forced(text))
    choice = answer["choices"][0]
    assert json.loads(choice["message"]["content"]) == text
    assert choice["finish_reason"] == "stop"
    assert stream(http, **forced(text)) == (choice["message"]["content"], "stop")


def test_stop_strings_cut_a_forced_answer_b008(http: httpx.Client):
    for stop, expected in [(["ta gam"], '"alpha be'), (["delta", "a g"], '"alpha bet'), ("alpha", '"')]:
        fields = {**forced("alpha beta gamma delta"), "stop": stop}
        choice = chat(http, PROSE, **fields)["choices"][0]
        assert choice["message"]["content"] == expected
        assert choice["finish_reason"] == "stop"
        assert stream(http, **fields) == (expected, "stop")


def test_every_length_limit_cuts_a_forced_answer_cleanly_b002(http: httpx.Client):
    full = chat(http, PROSE, **forced("🦙🦙🦙🦙"))
    length = full["usage"]["completion_tokens"]
    for limit in range(1, length):
        answer = chat(http, PROSE, **forced("🦙🦙🦙🦙"), max_tokens=limit)
        assert answer["usage"]["completion_tokens"] == limit
        assert answer["choices"][0]["finish_reason"] == "length"
        answer["choices"][0]["message"]["content"].encode()
    whole = chat(http, PROSE, **forced("🦙🦙🦙🦙"), max_tokens=length)
    assert whole["choices"][0]["finish_reason"] == "stop"


def test_logprobs_bytes_of_a_forced_answer_join_to_it_b029(http: httpx.Client):
    choice = chat(http, PROSE, **forced("🦙é 漢"), logprobs=True, top_logprobs=5)["choices"][0]
    entries = choice["logprobs"]["content"]
    joined = b"".join(bytes(entry["bytes"]) for entry in entries)
    assert joined.decode() == choice["message"]["content"]
    assert all(len(entry["top_logprobs"]) == 5 for entry in entries)


def test_a_schema_binds_whatever_the_prompt_says_b058(http: httpx.Client):
    for seed in range(12):
        fields = {"temperature": 1.5, "seed": seed, "max_tokens": 80, "response_format": response_format(PERSON)}
        if seed % 2:
            text, finish = stream(http, **fields)
        else:
            choice = chat(http, PROSE, **fields)["choices"][0]
            text, finish = choice["message"]["content"], choice["finish_reason"]
        if finish == "stop":
            jsonschema.validate(json.loads(text), PERSON)
        else:
            assert finish == "length"


def test_json_object_ends_with_its_brace_and_wastes_no_white_space_b061(http: httpx.Client):
    for seed in range(8):
        choice = chat(
            http,
            user("Say hello."),
            temperature=1.2,
            seed=seed,
            max_tokens=300,
            response_format={"type": "json_object"},
        )["choices"][0]
        text = choice["message"]["content"]
        outside = re.sub(r'"(\\.|[^"\\])*"?', '""', text)
        assert not re.search(r"\s{17}", outside), text
        if choice["finish_reason"] == "stop":
            assert isinstance(json.loads(text), dict)
            assert text.endswith("}")


def test_regex_and_ebnf_bind_completions_and_generate(http: httpx.Client):
    date = r"\d{4}-\d{2}-\d{2}"
    assert re.fullmatch(date, complete_text(http, prompt="Today is ", regex=date, max_tokens=40))
    answer = generate(http, "Today is ", sampling_params={"regex": date, "max_new_tokens": 40})
    assert re.fullmatch(date, answer["text"])
    assert answer["meta_info"]["finish_reason"]["type"] == "stop"
    ebnf = 'root ::= "yes" | "no"'
    assert generate(http, "Is it? ", sampling_params={"ebnf": ebnf})["text"] in ("yes", "no")
    schema = json.dumps({"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2})
    value = json.loads(generate(http, "Two: ", sampling_params={"json_schema": schema})["text"])
    assert len(value) == 2


def test_structural_tags_constrain_what_follows_their_trigger(http: httpx.Client):
    tag = {
        "type": "structural_tag",
        "format": {
            "type": "sequence",
            "elements": [
                {"type": "const_string", "value": "call: "},
                {
                    "type": "tag",
                    "begin": "<f>",
                    "content": {"type": "json_schema", "json_schema": PERSON},
                    "end": "</f>",
                },
            ],
        },
    }
    text = chat(http, PROSE, response_format=tag, max_tokens=200)["choices"][0]["message"]["content"]
    inner = re.fullmatch(r"call: <f>(.*)</f>", text, re.DOTALL)
    assert inner, text
    jsonschema.validate(json.loads(inner[1]), PERSON)


def test_n_choices_each_satisfy_the_schema(http: httpx.Client):
    answer = chat(http, PROSE, n=4, temperature=1.3, seed=5, max_tokens=80, response_format=response_format(PERSON))
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    for choice in answer["choices"]:
        if choice["finish_reason"] == "stop":
            jsonschema.validate(json.loads(choice["message"]["content"]), PERSON)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "strng"},
        {"properties": []},
        {"$ref": "#/$defs/Missing"},
        {"$ref": "https://example.test/s.json"},
        {"$ref": "#"},
        {"type": "array", "minItems": 5, "maxItems": 3},
        {"type": "integer", "exclusiveMinimum": 5, "exclusiveMaximum": 6},
        {"type": "string", "pattern": "^[a-z]+$", "maxLength": 3},
        {"type": "string", "pattern": "(?<=x)y"},
        {"type": "array", "uniqueItems": True},
        {"not": {"type": "null"}},
    ],
)
def test_schemas_that_cannot_be_enforced_are_refused_b052_b055_b056_b059(http: httpx.Client, schema: dict):
    error = refusal(http, response_format=response_format(schema), stream=True)
    assert error["param"] == "response_format.json_schema.schema"


def test_broken_grammars_are_refused_b059(http: httpx.Client):
    assert refusal(http, regex="[")["param"] == "regex"
    for ebnf in ["rout::=", "root ::= undefined_rule", 'root ::= root "a"']:
        assert refusal(http, ebnf=ebnf)["param"] == "ebnf"
    assert "regex" in refusal(http, regex="a", ebnf='root ::= "a"')["message"]
    assert refusal(http, response_format={"type": "yaml"})["param"] == "response_format"
    assert refusal(http, response_format={"type": "json_schema"})["param"] == "response_format"
    assert refusal(http, response_format=response_format(5))


def test_large_limits_compile_quickly_b053(http: httpx.Client):
    schema = {"type": "object", "properties": {"t": {"type": "string", "maxLength": 5000}}, "required": ["t"]}
    answer = chat(http, PROSE, response_format=response_format(schema), max_tokens=20, timeout=patient(5))
    assert answer["choices"][0]["message"]["content"].startswith("{")


def test_deep_schemas_are_refused_and_the_server_lives_b064(http: httpx.Client):
    deep: dict = {}
    for _ in range(300):
        deep = {"type": "array", "items": deep}
    refusal(http, response_format=response_format(deep))
    assert http.get("/health").status_code == 200


def test_the_official_client_parses_structured_output(client: openai.OpenAI):
    answer = client.chat.completions.create(
        model="default", messages=PROSE, temperature=0, max_tokens=120, response_format=response_format(PERSON)
    )
    jsonschema.validate(json.loads(answer.choices[0].message.content), PERSON)


def test_every_random_schema_has_an_answer_and_each_satisfies_its_schema(http: httpx.Client):
    """Answers that wander (a number that never ends) are asked for again, with a push towards an end."""
    closers = ["!", "@", ".", '"', ",", "}", "]"]
    push = {str(tokenize(http, closer)[0]): 12 for closer in closers}
    unfinished = list(range(int(100 / PATIENCE)))  # a sanitizer slows each of them down

    def finishes(seed: int, attempt: int) -> bool:
        schema = random_schema(seed)
        sampling = {
            "json_schema": json.dumps(schema),
            "temperature": 1.1 if attempt % 2 == 0 else 10.0,
            "sampling_seed": 1000 * attempt + seed,
            "max_new_tokens": 256,
            "logit_bias": push if attempt > 0 else {},
        }
        answer = generate(http, "An example: ", sampling_params=sampling)
        if answer["meta_info"]["finish_reason"]["type"] != "stop":
            return False
        checker = jsonschema.FormatChecker(["email", "ipv4", "uuid"])
        jsonschema.Draft202012Validator(schema, format_checker=checker).validate(json.loads(answer["text"]))
        return True

    with ThreadPoolExecutor(8) as pool:
        for attempt in range(12):
            ended = pool.map(lambda seed, attempt=attempt: finishes(seed, attempt), unfinished)
            unfinished = [seed for seed, done in zip(unfinished, list(ended), strict=True) if not done]
    assert not unfinished
