"""Text that a grammar forces comes several tokens a step; the answer is the one that single steps give."""

import concurrent.futures
import json

import httpx
import jsonschema
import pytest
from patience import patient
from server_process import ServerProcess
from wire_checks import generate

NAMES = ["customer_identification_number", "preferred_delivery_address", "marketing_consent_given"]
SCHEMA = {
    "type": "object",
    "properties": {
        NAMES[0]: {"type": "integer", "minimum": 0, "maximum": 9999},
        NAMES[1]: {"enum": ["at the front door of the house", "at the back door of the house"]},
        NAMES[2]: {"type": "boolean"},
    },
    "required": NAMES,
}
TAG = {
    "type": "structural_tag",
    "format": {
        "type": "sequence",
        "elements": [
            {"type": "const_string", "value": "The answer follows, as was agreed upon: "},
            {"type": "json_schema", "json_schema": SCHEMA},
        ],
    },
}
# A choice that shares its beginning with the other, a repetition, and a long forced end.
REGEX = r"(alpha beta gamma|alpha beta delta)( and then once more){2,3}, which is all there is to say\."


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory):
    log = tmp_path_factory.mktemp("plain") / "server.log"
    with (
        ServerProcess(["--speculative-algorithm", "NONE"], log) as process,
        httpx.Client(base_url=process.url, timeout=patient(240)) as made,
    ):
        yield made


def requests() -> list[dict]:
    grammars = [{"json_schema": json.dumps(SCHEMA)}, {"regex": REGEX}, {"structural_tag": json.dumps(TAG)}]
    samplers = [
        {},
        {"temperature": 1.0, "sampling_seed": 3},
        {"temperature": 1.2, "top_p": 0.9, "sampling_seed": 4},
        {"frequency_penalty": 0.5, "min_new_tokens": 4},
        {"stop": ["identification", "once more,"]},
        {"max_new_tokens": 9},
    ]
    made = []
    for i, grammar in enumerate(grammars * len(samplers)):
        sampling = {"temperature": 0, "max_new_tokens": 90, **samplers[i // len(grammars)], **grammar}
        logprobs = {"return_logprob": True, "top_logprobs_num": 4} if i % 2 else {}
        made.append({"text": "Here it is: ", "sampling_params": sampling, **logprobs})
    return made


def answer(http: httpx.Client, request: dict) -> dict:
    given = generate(http, **request)
    meta = given["meta_info"]
    kept = ("finish_reason", "completion_tokens", "output_token_logprobs", "output_top_logprobs")
    return {"text": given["text"], "ids": given["output_ids"], **{key: meta.get(key) for key in kept}}


def test_every_answer_is_the_one_of_single_steps(http: httpx.Client, plain: httpx.Client):
    made = requests()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        forced = list(pool.map(lambda request: answer(http, request), made))
        expected = list(pool.map(lambda request: answer(plain, request), made))
    for request, got, wanted in zip(made, forced, expected, strict=True):
        assert got == wanted, request


def test_forced_text_takes_fewer_steps_than_tokens(http: httpx.Client):
    sampling = {"temperature": 0, "max_new_tokens": 120, "json_schema": json.dumps(SCHEMA)}
    given = generate(http, f"An object with the keys {', '.join(NAMES)}: ", sampling_params=sampling)
    jsonschema.validate(json.loads(given["text"]), SCHEMA)
    assert given["meta_info"]["spec_accept_token_num"] >= 10


def test_a_stream_joins_to_the_same_text_for_every_choice(http: httpx.Client, plain: httpx.Client):
    body = {
        "prompt": "Here it is: ",
        "n": 3,
        "seed": 5,
        "temperature": 1.0,
        "max_tokens": 90,
        "response_format": {"type": "json_schema", "json_schema": {"name": "f", "schema": SCHEMA}},
    }
    whole = plain.post("/v1/completions", json=body).json()["choices"]
    texts = {choice["index"]: "" for choice in whole}
    with http.stream("POST", "/v1/completions", json={**body, "stream": True}) as response:
        for line in response.iter_lines():
            if line.startswith("data: {"):
                for choice in json.loads(line[6:])["choices"]:
                    texts[choice["index"]] += choice["text"]
    assert texts == {choice["index"]: choice["text"] for choice in whole}


def test_text_without_a_grammar_is_not_drafted(http: httpx.Client):
    given = generate(http, "a b a b a b a b", sampling_params={"max_new_tokens": 24, "ignore_eos": True})
    assert "spec_verify_ct" not in given["meta_info"]
