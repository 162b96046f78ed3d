"""Embeddings: final hidden states, pooled and normalised."""

import base64
import math
import struct

import openai
import pytest
from wire_checks import check_error, tokenize, wait_until_idle

TEXT = "Bread is baked from flour and water."


def embed(http, **fields) -> list[list[float]]:
    response = http.post("/v1/embeddings", json={"model": "default", **fields})
    assert response.status_code == 200, response.text
    return [entry["embedding"] for entry in response.json()["data"]]


def dot(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_embeddings_have_unit_length_whatever_their_batch(http, server, pooling):
    other = "The stock market fell sharply on Tuesday. " * 30
    alone = embed(http, input=TEXT, pooling=pooling)[0]
    assert len(alone) == 576 and dot(alone, alone) == pytest.approx(1.0, abs=1e-5)
    first, second = embed(http, input=[TEXT, other], pooling=pooling)
    assert first == pytest.approx(alone, abs=1e-6)
    assert dot(first, second) < 0.999
    # Served from the prefix cache or not, cut in chunks or not.
    again = embed(http, input=[other, TEXT], pooling=pooling)
    assert again[0] == pytest.approx(second, abs=1e-6) and again[1] == pytest.approx(alone, abs=1e-6)
    by_ids = embed(http, input=tokenize(http, TEXT), pooling=pooling)[0]
    assert by_ids == pytest.approx(alone, abs=1e-6)
    wait_until_idle(server)


def test_a_mean_is_the_mean_of_its_positions(http):
    """Of causal states: the mean over three tokens is that of the last states of its three prefixes."""
    ids = tokenize(http, TEXT)[:3]
    lasts = [embed(http, input=ids[: count + 1])[0] for count in range(3)]
    mean = embed(http, input=ids, pooling="mean")[0]
    # Unit vectors lose their lengths: the mean lies in their span, so it is no farther from it than rounding.
    basis: list[list[float]] = []
    for vector in lasts:
        for known in basis:
            share = dot(vector, known)
            vector = [x - share * y for x, y in zip(vector, known, strict=True)]
        length = math.sqrt(dot(vector, vector))
        basis.append([x / length for x in vector])
    inside = sum(dot(mean, known) ** 2 for known in basis)
    assert inside == pytest.approx(1.0, abs=1e-4)
    assert embed(http, input=ids[:1], pooling="mean")[0] == pytest.approx(lasts[0], abs=1e-6)


def test_shorter_and_encoded_vectors_are_the_same_numbers(http, client):
    whole = embed(http, input=TEXT)[0]
    short = embed(http, input=TEXT, dimensions=64)[0]
    length = math.sqrt(dot(whole[:64], whole[:64]))
    assert short == pytest.approx([x / length for x in whole[:64]], abs=1e-5)
    encoded = embed(http, input=TEXT, encoding_format="base64")[0]
    assert list(struct.unpack("<576f", base64.b64decode(encoded))) == pytest.approx(whole, abs=1e-6)
    made = client.embeddings.create(model="default", input=[TEXT, "a"])  # asks for base64 by itself
    assert made.data[0].embedding == pytest.approx(whole, abs=1e-6)
    assert made.usage.prompt_tokens == made.usage.total_tokens == len(tokenize(http, TEXT)) + 1


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "input"),
        ({"input": []}, "input"),
        ({"input": 3}, "input"),
        ({"input": ["a", 3]}, "input[1]"),
        ({"input": [[49152]]}, "input[0]"),
        ({"input": "a", "dimensions": 577}, "dimensions"),
        ({"input": "a", "dimensions": 0}, "dimensions"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
        ({"input": "a", "pooling": "max"}, "pooling"),
    ],
)
def test_embeddings_name_the_field_at_fault(http, fields, param):
    check_error(http.post("/v1/embeddings", json=fields), 400, param=param)


def test_a_text_beyond_the_context_is_refused(client):
    with pytest.raises(openai.BadRequestError) as caught:
        client.embeddings.create(model="default", input="word " * 9000)
    assert caught.value.code == "context_length_exceeded"
