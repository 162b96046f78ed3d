"""The web console in a real Chromium, headless: Debian's, driven by Playwright."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from patience import patient
from playwright.sync_api import Browser, Page, Route, expect, sync_playwright
from server_process import ServerProcess

CHROMIUM = shutil.which("chromium")
CHAT = "**/v1/chat/completions"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert CHROMIUM is not None, "no chromium: run tools/setup.sh test"
    with sync_playwright() as playwright:
        # Tests may run as root in a container, where Chromium's own sandbox cannot.
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture
def page(browser: Browser, server: ServerProcess) -> Iterator[Page]:
    """The console, watched: no script error, no blocked load, nothing asked of any other host."""
    with watched(browser, server.url) as made:
        yield made


class watched:
    def __init__(self, browser: Browser, url: str, **options: object):
        self.url = url
        self.context = browser.new_context(**options)
        self.context.set_default_timeout(30_000)
        self.page = self.context.new_page()
        self.faults: list[str] = []
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("console", lambda message: self.faults.append(message.text) if "Policy" in message.text else None)
        self.page.on("request", lambda request: self.note(request.url))

    def note(self, url: str) -> None:
        if not url.startswith((self.url, "data:")):
            self.faults.append(f"asked elsewhere: {url}")

    def __enter__(self) -> Page:
        self.page.goto(self.url + "/")
        return self.page

    def __exit__(self, *failed: object) -> None:
        self.context.close()
        if failed[0] is None:
            assert self.faults == []


def events(*chunks: dict) -> str:
    return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"


def delta(finish: str | None = None, **fields: object) -> dict:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def answer_with(page: Page, *bodies: str) -> list[dict]:
    """Answers chat requests with these streams in turn; the list grows by what was asked."""
    asked: list[dict] = []

    def answer(route: Route) -> None:
        asked.append(route.request.post_data_json)
        route.fulfill(content_type="text/event-stream", body=bodies[len(asked) - 1])

    page.route(CHAT, answer)
    return asked


def say(page: Page, text: str) -> None:
    page.get_by_label("Message").fill(text)
    page.keyboard.press("Enter")


def test_an_answer_of_the_model_streams_in(page: Page, server: ServerProcess) -> None:
    expect(page.locator("#state")).to_have_text("ready")
    expect(page.get_by_label("Message")).to_be_focused()
    page.get_by_text("Settings").click()
    page.get_by_label("Temperature").fill("0")
    page.get_by_label("Most tokens of an answer").fill("12")
    say(page, "Name a colour.")
    body = {"messages": [{"role": "user", "content": "Name a colour."}], "max_tokens": 12, "temperature": 0}
    direct = httpx.post(server.url + "/v1/chat/completions", json=body, timeout=patient(60)).json()
    expected = direct["choices"][0]["message"]["content"]
    answer = page.locator(".turn.assistant")
    expect(answer.locator(".text").first).to_have_text(expected)
    expect(answer.locator(".meta")).to_contain_text(f"{direct['usage']['prompt_tokens']} prompt tokens, 12 tokens")
    assert page.locator("#model").text_content() == direct["model"]
    # The next turn carries the conversation.
    with page.expect_request(CHAT) as sent:
        say(page, "And another.")
    roles = [message["role"] for message in sent.value.post_data_json["messages"]]
    assert roles == ["user", "assistant", "user"]
    page.get_by_role("button", name="New chat").click()
    expect(page.locator(".turn")).to_have_count(0)


def test_escape_stops_an_answer_and_the_server_hears_of_it(page: Page, server: ServerProcess) -> None:
    page.get_by_text("Settings").click()
    page.get_by_label("Most tokens of an answer").fill("2000")
    say(page, "Write a very long story.")
    expect(page.locator(".turn.assistant .text").first).not_to_be_empty()
    page.keyboard.press("Escape")
    expect(page.locator(".turn.assistant")).to_contain_text("stopped")
    expect(page.get_by_role("button", name="Send", exact=True)).to_be_visible()
    page.wait_for_function(
        """async () => {
          const text = await (await fetch("metrics")).text();
          return /^sglang:num_running_reqs\\S* 0$/m.test(text);
        }"""
    )


def test_thinking_and_tool_calls_are_shown_and_results_go_back(page: Page) -> None:
    first = events(
        delta(role="assistant", reasoning_content="Which "),
        delta(reasoning_content="city?"),
        delta(tool_calls=[{"index": 0, "id": "c1", "function": {"name": "weather", "arguments": ""}}]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": '{"city": '}}]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": '"Kyoto"}'}}]),
        delta(finish="tool_calls"),
    )
    second = events(delta(content="It is\n```text\nsunny\n```\nthere <b>now</b>."), delta(finish="stop"))
    asked = answer_with(page, first, second)
    page.get_by_text("Settings").click()
    tools = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
    page.get_by_label("Tools").fill(json.dumps(tools))
    say(page, "How is the weather in Kyoto?")
    turn = page.locator(".turn.assistant").first
    expect(turn.locator(".thinking div")).to_have_text("Which city?")
    expect(turn.locator(".thinking div")).to_be_hidden()  # folded once the call has begun
    turn.get_by_text("Thinking").click()
    expect(turn.locator(".thinking div")).to_be_visible()
    expect(turn.locator(".tool strong")).to_have_text("weather")
    expect(turn.locator(".tool pre")).to_have_text('{"city": "Kyoto"}')
    page.get_by_label("Result of weather").fill("21 degrees")
    page.get_by_role("button", name="Send results").click()
    reply = page.locator(".turn.assistant").nth(1)
    expect(reply.locator("pre")).to_have_text("sunny\n")
    expect(reply).to_contain_text("<b>now</b>")  # text, not markup
    assert asked[0]["tools"] == tools
    call, result = asked[1]["messages"][-2:]
    assert call["tool_calls"][0]["function"] == {"name": "weather", "arguments": '{"city": "Kyoto"}'}
    assert result == {"role": "tool", "tool_call_id": "c1", "content": "21 degrees"}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (events(delta(content="half"), {"error": {"message": "the worker failed"}}), "the worker failed"),
        ("data: " + json.dumps(delta(content="half")) + "\n\n", "ended before the answer did"),
    ],
)
def test_a_broken_stream_says_so_and_keeps_what_came(page: Page, body: str, message: str) -> None:
    answer_with(page, body)
    say(page, "hi")
    expect(page.get_by_role("alert")).to_contain_text(message)
    expect(page.locator(".turn.assistant .text").first).to_have_text("half")


def test_a_refused_request_shows_the_servers_words(page: Page) -> None:
    page.get_by_text("Settings").click()
    page.get_by_label("Temperature").fill("-3")
    say(page, "hi")
    expect(page.get_by_role("alert")).to_contain_text("temperature")
    page.get_by_label("Tools").fill("{")
    say(page, "hi")
    expect(page.get_by_role("alert").last).to_contain_text("no JSON")


def test_the_live_page_shows_what_the_server_does(page: Page, server: ServerProcess) -> None:
    page.get_by_role("tab", name="Chat").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Live")).to_be_focused()
    expect(page.get_by_role("tabpanel", name="Live")).to_be_visible()
    expect(page.get_by_role("tabpanel", name="Chat")).to_be_hidden()
    charts = page.locator("figure")
    expect(charts).to_have_count(8)
    expect(charts.filter(has_text="Running requests").locator("output")).to_have_text("0")
    body = {"prompt": "Once upon a time", "max_tokens": 64, "ignore_eos": True}
    generated = charts.filter(has_text="Generated tokens").locator("output")
    for _ in range(20):
        httpx.post(server.url + "/v1/completions", json=body, timeout=patient(60)).raise_for_status()
        if generated.text_content() not in {"–", "0.0/s"}:
            break
    expect(generated).not_to_have_text("0.0/s")
    expect(charts.filter(has_text="Step time").locator("output")).to_contain_text("ms")
    assert charts.first.locator("path").last.get_attribute("d").startswith("M")
    expect(page.locator("#counters tr").last.locator("td")).not_to_have_text("–")
    page.reload()  # the address keeps the page
    expect(page.get_by_role("tabpanel", name="Live")).to_be_visible()


def test_the_live_page_says_when_metrics_are_off(browser: Browser, start_server: Callable[..., ServerProcess]) -> None:
    server = start_server()
    with watched(browser, server.url) as page:
        page.get_by_role("tab", name="Live").click()
        expect(page.locator("#live-note")).to_contain_text("--enable-metrics")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_follows_the_systems_colours_until_told_otherwise(
    browser: Browser, server: ServerProcess, scheme: str
) -> None:
    def is_dark(page: Page) -> bool:
        return page.evaluate("""() => {
          const [r, g, b] = getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number);
          return r + g + b < 380;
        }""")

    with watched(browser, server.url, color_scheme=scheme) as page:
        assert is_dark(page) == (scheme == "dark")
        page.get_by_role("button", name="Light or dark").click()
        assert is_dark(page) == (scheme == "light")
        page.reload()
        assert is_dark(page) == (scheme == "light")


def test_everything_is_reached_by_the_keyboard_and_has_a_name(page: Page) -> None:
    page.get_by_text("Settings").click()
    page.evaluate("() => document.activeElement.blur()")
    reached = set()
    for _ in range(30):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("() => document.activeElement.id || document.activeElement.tagName"))
    wanted = {"tab-chat", "theme", "log", "prompt", "send", "reset", "SUMMARY", "system", "temperature"}
    assert wanted <= reached
    nameless = page.evaluate("""() => [...document.querySelectorAll("button, input, select, textarea")]
      .filter((e) => !e.labels?.length && !e.textContent.trim() && !e.getAttribute("aria-label")).map((e) => e.id)""")
    assert nameless == []


def test_a_key_is_asked_for_and_kept_in_the_tab(browser: Browser, start_server: Callable[..., ServerProcess]) -> None:
    server = start_server("--api-key", "secret")
    with watched(browser, server.url) as page:
        for key in ("wrong", "secret"):
            page.get_by_label("API key").fill(key)
            page.keyboard.press("Enter")
        expect(page.locator("#model")).not_to_be_empty()
        page.reload()
        expect(page.locator("#model")).not_to_be_empty()
        expect(page.get_by_role("dialog")).to_be_hidden()


def test_the_pages_policy_lets_nothing_else_in(server: ServerProcess) -> None:
    page = httpx.get(server.url + "/")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    again = httpx.get(server.url + "/", headers={"If-None-Match": page.headers["etag"]})
    assert again.status_code == 304
    assert httpx.get(server.url + "/console/../etc/passwd").status_code == 404
    assert not list(Path(__file__).parent.parent.parent.joinpath("web").glob("**/*.min.js"))
