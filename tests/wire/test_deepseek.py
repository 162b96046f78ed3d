"""What chats with DeepSeek V4 and V4.1 have that other families' have not."""

import httpx
import pytest
from golden_server import client_of, complete, serve, tokens
from patience import patient

CASES = ["deepseek_v4/ratio_32", "deepseek_v41/tiny"]
DSPARK = ["--speculative-algorithm", "DSPARK", "--speculative-adaptive", "off"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.replace("/", "_"))
def test_chat_uses_the_vendors_encoding(case, tmp_path):
    messages = [{"role": "system", "content": "be"}, {"role": "user", "content": "hi"}]
    body = {"model": "default", "messages": messages, "max_tokens": 4, "temperature": 0.0}
    with serve(case, tmp_path) as process:
        url = process.url + "/v1/chat/completions"
        answer = httpx.post(url, json=body, timeout=patient(60))
        assert answer.status_code == 200, answer.text
        chat = {**body, "chat_template_kwargs": {"thinking": False}}
        without = httpx.post(url, json=chat, timeout=patient(60))
    # The text about effort is the prompt of thinking alone.
    assert without.json()["usage"]["prompt_tokens"] + 50 < answer.json()["usage"]["prompt_tokens"], without.text


@pytest.mark.parametrize("drafts", [[], DSPARK], ids=["plain", "dspark"])
def test_windows_that_are_replayed_exactly_change_no_answer(drafts, tmp_path):
    case, replay = "deepseek_drafts/v41_dspark", ["--swa-bounded-replay", "exact"]
    with (
        serve(case, tmp_path / "replaying", *replay, *drafts) as replaying,
        serve(case, tmp_path / "plain", "--disable-radix-cache") as plain,
        client_of(replaying) as one,
        client_of(plain) as other,
    ):
        base = tokens(3, 300)
        cached = 0
        for length in (40, 120, 290, 300, 200):
            for tail in range(2):
                prompt = base[:length] + tokens(length + tail, 5)
                answers = [complete(client, prompt, max_tokens=30, logprobs=1) for client in (one, other)]
                assert answers[0].choices[0].text == answers[1].choices[0].text
                assert answers[0].choices[0].logprobs == answers[1].choices[0].logprobs
                cached += answers[0].usage.prompt_tokens_details.cached_tokens
        assert cached > 500
