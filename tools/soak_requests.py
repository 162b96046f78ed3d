"""What the clients of a soak ask: requests whose answers are determined, sampled ones, and nonsense."""

import random
from dataclasses import dataclass

import stream_load

RECORD = '{{"id": {i}, "name": "user{i}", "email": "user{i}@example.com", "active": true}}\n'
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "tags": {"type": "array"}},
    "required": ["name", "age", "tags"],
}
GRAMMARS = [
    {"response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}},
    {"regex": "(north|south), [0-9]{1,3} km( and [0-9]{1,3} m)?"},
    {"ebnf": 'root ::= item (", " item){0,5}\nitem ::= "red" | "reddish brown" | "blue" [0-9]'},
]

INVALID_BODIES = [
    b"{",
    b"[]",
    b"\xff\xfe\x00",
    b'{"model": "default"}',
    b'{"model": "default", "prompt": "x", "max_tokens": -1}',
    b'{"model": "default", "prompt": "x", "temperature": "hot"}',
    b'{"model": "default", "prompt": "x", "top_p": 7}',
    b'{"model": "default", "prompt": {"a": 1}}',
    b'{"model": "default", "prompt": "x", "n": 1000000}',
    b'{"model": "default", "prompt": "x", "stop": 5}',
]
GARBAGE = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # a TLS hello on a plain port
    b"GET / HTTP/9.9\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nContent-Length: 99999\r\n\r\n{",
    b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\n\r\n",
    b"\r\n" * 50,
]


@dataclass(frozen=True)
class Sizes:
    """How long prompts and answers are. The mix is written for the defaults and scaled to others."""

    prompt_words: int = 600
    answer_tokens: int = 500

    def words(self, count: int) -> int:
        return max(1, count * self.prompt_words // Sizes.prompt_words)

    def tokens(self, count: int) -> int:
        return max(1, count * self.answer_tokens // Sizes.answer_tokens)


def determined(seed: int, sizes: Sizes) -> list[tuple[str, dict]]:
    """Path and body of greedy and seeded requests: short and long prompts, some with a prefix in common,
    some as chats, some over texts that repeat themselves, some of few tokens or several choices, some to a grammar."""
    return [
        *_free(seed, sizes),
        *_repetitive(seed, sizes),
        *_of_few_tokens(seed, sizes),
        *_of_several_choices(seed, sizes),
        *_to_grammars(seed, sizes),
    ]


def _chat(text: str) -> dict:
    return {"messages": [{"role": "user", "content": text}]}


def _free(seed: int, sizes: Sizes) -> list[tuple[str, dict]]:
    rng = random.Random(seed)
    bodies = []
    shared = stream_load.prompt(seed, sizes.words(400))
    for number in range(24):
        words = sizes.words(rng.choice([1, 3, 10, 40, 150, 600]))
        text = stream_load.prompt(seed * 1000 + number, words)
        if number % 4 == 0:
            text = shared + " " + text
        limit = {"max_tokens": sizes.tokens(rng.choice([1, 2, 8, 32, 96])), "temperature": 0, "model": "default"}
        if number % 3 == 0:
            bodies.append(("/v1/chat/completions", {**limit, **_chat(text), "logprobs": number % 2 == 0}))
        else:
            bodies.append(("/v1/completions", {**limit, "prompt": text, "logprobs": [None, 1, 3][number % 3]}))
    return bodies


def _repetitive(seed: int, sizes: Sizes) -> list[tuple[str, dict]]:
    rng = random.Random(seed + 1)
    bodies = []
    for number in range(12):
        begin = rng.randrange(1000)
        records = "".join(RECORD.format(i=i) for i in range(begin, begin + sizes.words(rng.randrange(3, 12))))
        limit = sizes.tokens(rng.choice([16, 64, 150]))
        body = {"model": "default", "prompt": records, "max_tokens": limit, "temperature": 0}
        body |= rng.choice(
            [{}, {}, {"frequency_penalty": 0.6}, {"temperature": 0.7, "seed": number}, {"stop": ['"active"']}]
        )
        bodies.append(("/v1/completions", body))
    return bodies


def _of_few_tokens(seed: int, sizes: Sizes) -> list[tuple[str, dict]]:
    """Answers that repeat themselves whatever the weights are: drafts stand and fall by turns."""
    bodies = []
    for choices in (1, 2, 4):
        bias = {str(100 + token): 60 for token in range(choices)}
        text = stream_load.prompt(seed * 3000 + choices, sizes.words(40))
        limits = {"max_tokens": sizes.tokens(150), "temperature": 0, "logit_bias": bias, "logprobs": 1}
        bodies.append(("/v1/completions", {"model": "default", "prompt": text, **limits}))
    return bodies


def _of_several_choices(seed: int, sizes: Sizes) -> list[tuple[str, dict]]:
    bodies = []
    for number in range(3):
        body = {"model": "default", "max_tokens": sizes.tokens(40), "temperature": 0.8, "seed": number, "n": 2 + number}
        text = stream_load.prompt(seed * 2000 + number, sizes.words(60))
        bodies.append(("/v1/completions", {**body, "prompt": text}))
    return bodies


def _to_grammars(seed: int, sizes: Sizes) -> list[tuple[str, dict]]:
    bodies = []
    for number in range(9):
        text = "A person as JSON. " + stream_load.prompt(seed + number, sizes.words(10))
        body = {"model": "default", **_chat(text), "max_tokens": sizes.tokens(60), **GRAMMARS[number % 3]}
        bodies.append(("/v1/chat/completions", body | {"temperature": number % 2, "seed": number}))
    return bodies


def sampled(rng: random.Random, sizes: Sizes) -> dict:
    return {
        "model": "default",
        "prompt": stream_load.prompt(rng.randrange(1 << 30), sizes.words(rng.choice([2, 30, 300]))),
        "max_tokens": sizes.tokens(rng.randrange(1, 120)),
        "temperature": rng.choice([0.3, 1.0, 1.7]),
        "top_p": rng.choice([0.5, 0.95, 1.0]),
        "top_k": rng.choice([1, 20, 1000]),
        "min_p": rng.choice([0.0, 0.0, 0.05]),
        "repetition_penalty": rng.choice([1.0, 1.0, 1.2]),
        "seed": rng.randrange(1 << 31),
        "n": rng.choice([1, 1, 1, 3]),
        "stop": rng.choice([None, ["river"], [" the", "\n\n"]]),
        **rng.choice([{}, {}, {}, *GRAMMARS]),
    }
