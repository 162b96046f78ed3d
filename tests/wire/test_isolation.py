"""Many clients at once: each gets exactly what it would get alone."""

import asyncio
import random
import string

import httpx
from patience import patient
from wire_checks import GREEDY, check_alive, complete_text, joined_stream, parse_sse, repeated, wait_until_idle

NAMES = ["river", "stone", "cloud", "garden", "window", "market", "bridge", "forest"]


def prompts(count: int) -> list[dict]:
    """Greedy requests of mixed lengths, some with a beginning in common."""
    rng = random.Random(7)
    made = []
    for i in range(count):
        words = " ".join(rng.choices(NAMES, k=rng.choice((2, 12, 60))))
        shared = "In the old town there was a tale that everybody knew. " * 4 if i % 2 else ""
        made.append({"prompt": f"{shared}{i}. The {words} was", "max_tokens": rng.randint(6, 16)})
    return made


async def post_all(url: str, bodies: list[dict], path: str = "/v1/completions") -> list[httpx.Response]:
    limits = httpx.Limits(max_connections=len(bodies))
    async with httpx.AsyncClient(base_url=url, timeout=patient(120), limits=limits) as client:
        return await asyncio.gather(*(client.post(path, json=body) for body in bodies))


def streamed_text(response: httpx.Response) -> str:
    return joined_stream(parse_sse(response.text))[0]["text"]


def test_32_parallel_streams_equal_their_solo_runs(http, server):
    asked = prompts(32)
    alone = [complete_text(http, **body) for body in asked]
    http.post("/flush_cache")
    streams = asyncio.run(post_all(server.url, [{**GREEDY, **body, "stream": True} for body in asked]))
    assert [streamed_text(response) for response in streams] == alone
    wait_until_idle(server)


def test_b016_greedy_and_sampled_requests_share_a_batch(http, server):
    asked = prompts(8)
    alone = [complete_text(http, **body) for body in asked]
    mixed = [
        {**GREEDY, **body, **({"temperature": 1.0, "top_k": 5, "seed": i} if i % 2 else {})}
        for i, body in enumerate(asked)
    ]
    answers = [response.json()["choices"][0]["text"] for response in asyncio.run(post_all(server.url, mixed))]
    assert answers[::2] == alone[::2]
    seeded = [complete_text(http, **body) for body in mixed[1::2]]
    assert answers[1::2] == seeded
    check_alive(http)


def test_b022_a_neighbour_of_bad_token_ids_is_unharmed(http, server):
    asked = {**GREEDY, **prompts(1)[0]}
    alone = complete_text(http, **asked)
    bad = [{"prompt": "x", "logit_bias": {"49157": -100}}, {"prompt": "x", "stop_token_ids": [49157]}] * 4
    answers = asyncio.run(post_all(server.url, [asked, *bad, asked]))
    assert [answer.status_code for answer in answers] == [200, *[400] * 8, 200]
    assert {answers[i].json()["choices"][0]["text"] for i in (0, -1)} == {alone}


def test_b071_no_answer_holds_words_of_another_request(http, server):
    rng = random.Random(3)
    codes = ["".join(rng.choices(string.ascii_lowercase, k=6)) for _ in range(98)]
    system = {"role": "system", "content": "Repeat the code. " * 8}
    odd: list[tuple[dict, list[dict]]] = []

    def body(code: str, i: int) -> dict:
        fields = {**GREEDY, "max_tokens": 12, "n": 1 + i % 2}
        if i % 3 == 0:
            return {**fields, "messages": [system, {"role": "user", "content": f"Repeat the code {code} three times"}]}
        return {**fields, "prompt": repeated(f"code {code}")}

    async def ask(client: httpx.AsyncClient, code: str, i: int) -> None:
        path = "/v1/completions" if i % 3 else "/v1/chat/completions"
        if i % 7 == 6:
            try:
                await client.post(path, json=body(code, i), timeout=rng.uniform(0.005, 0.1))
            except httpx.TimeoutException:
                return
            return
        response = await client.post(path, json=body(code, i))
        assert response.status_code == 200, response.text
        answer = response.json()
        texts = [choice["text"] if i % 3 else choice["message"]["content"] for choice in answer["choices"]]
        assert len(texts) == 1 + i % 2
        for text in texts:
            assert not [other for other in codes if other != code and other in text]
            if i % 3 and not text.startswith(f"code {code}"):
                odd.append((body(code, i), answer["choices"]))

    async def ask_all() -> None:
        limits = httpx.Limits(max_connections=64)
        gate = asyncio.Semaphore(64)
        async with httpx.AsyncClient(base_url=server.url, timeout=patient(120), limits=limits) as client:

            async def gated(code: str, i: int) -> None:
                async with gate:
                    await ask(client, code, i)

            await asyncio.gather(*(gated(code, i) for i, code in enumerate(codes)))

    asyncio.run(ask_all())
    # The model does not repeat every code. What it says instead, it says alone as well.
    assert len(odd) < len(codes) / 4
    for asked, choices in odd:
        assert http.post("/v1/completions", json=asked).json()["choices"] == choices
    wait_until_idle(server)
