"""What chats with DeepSeek V4 and V4.1 have that other families' have not."""

import httpx
import pytest
from golden_server import serve

CASES = ["deepseek_v4/ratio_32", "deepseek_v41/tiny"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.replace("/", "_"))
def test_chat_uses_the_vendors_encoding(case, tmp_path):
    messages = [{"role": "system", "content": "be"}, {"role": "user", "content": "hi"}]
    body = {"model": "default", "messages": messages, "max_tokens": 4, "temperature": 0.0}
    with serve(case, tmp_path) as process:
        url = process.url + "/v1/chat/completions"
        answer = httpx.post(url, json=body, timeout=60.0)
        assert answer.status_code == 200, answer.text
        chat = {**body, "chat_template_kwargs": {"thinking": False}}
        without = httpx.post(url, json=chat, timeout=60.0)
    # The text about effort is the prompt of thinking alone.
    assert without.json()["usage"]["prompt_tokens"] + 50 < answer.json()["usage"]["prompt_tokens"], without.text
