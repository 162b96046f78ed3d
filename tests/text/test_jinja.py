"""Templates rendered to the byte as Python's jinja2 renders them."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import conversations
import jinja_cases
import jinja_fuzz_cases
from reference_jinja import NOW, render

HERE = Path(__file__).resolve().parent
BUILD = Path(os.environ.get("HAYATE_BINARY", HERE.parent.parent / "build" / "hayate")).parent
BINARY = BUILD / "tests" / "render_lines"
TEMPLATES = sorted((HERE / "templates").glob("*.jinja"))
# More templates to try, say a folder of those that models are published with.
EXTRA = os.environ.get("HAYATE_TEMPLATES")
EXTRA_TEMPLATES = sorted(Path(EXTRA).glob("*.jinja")) if EXTRA else []

Case = tuple[str, str, dict[str, Any]]  # name, template, context


def ours(cases: Iterable[Case]) -> list[dict[str, str]]:
    lines = [json.dumps({"template": source, "context": context, "now": NOW}) for _, source, context in cases]
    result = subprocess.run([BINARY], input="\n".join(lines) + "\n", capture_output=True, text=True, check=True)
    return [json.loads(line) for line in result.stdout.split("\n")[:-1]]


def agrees(mine: dict[str, str], theirs: dict[str, str]) -> bool:
    """The same text; or both an error, and its own words when the template raised it."""
    if "output" in theirs or "output" in mine:
        return mine.get("output") == theirs.get("output")
    return mine["error"] == theirs["raised"] if "raised" in theirs else mine["error"].startswith("template line ")


def compare(cases: list[Case]) -> int:
    """Fails unless every case agrees; returns how many were rendered without an error."""
    results = ours(cases)
    expected = [render(source, context) for _, source, context in cases]
    assert len(results) == len(cases)
    wrong = [i for i in range(len(cases)) if not agrees(results[i], expected[i])]
    report = "".join(
        f"\n{cases[i][0]}: {cases[i][1][-300:]!r}\n  ours   {results[i]}\n  jinja2 {expected[i]}" for i in wrong[:5]
    )
    assert not wrong, f"{len(wrong)} of {len(cases)} differ:{report}"
    return sum("output" in result for result in expected)


@pytest.mark.parametrize("path", TEMPLATES + EXTRA_TEMPLATES, ids=lambda path: path.stem)
def test_chat_templates_render_conversations_as_jinja2_does(path: Path) -> None:
    source = path.read_text()
    rendered = compare([(name, source, context) for name, context in conversations.contexts()])
    assert rendered > 20  # most templates refuse some conversations, none all


@pytest.mark.parametrize("group", jinja_cases.GROUPS)
def test_constructs_behave_as_in_jinja2(group: str) -> None:
    cases = [(source, source, jinja_cases.CONTEXT) for source in jinja_cases.GROUPS[group]]
    compare(cases)


@pytest.mark.parametrize("seed", range(4))
def test_random_expressions_have_the_same_value(seed: int) -> None:
    cases = [(source, source, jinja_fuzz_cases.CONTEXT) for source in jinja_fuzz_cases.sources(seed, 1500)]
    rendered = compare(cases)
    assert rendered > 1000


@pytest.mark.parametrize("seed", range(3))
def test_random_templates_have_the_same_output(seed: int) -> None:
    cases = [(source, source, jinja_fuzz_cases.CONTEXT) for source in jinja_fuzz_cases.templates(seed, 800)]
    rendered = compare(cases)
    assert rendered > 300
