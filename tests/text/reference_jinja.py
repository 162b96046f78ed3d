"""Templates rendered by Python's jinja2 with the settings that chat templates are written for."""

import json
from datetime import UTC, datetime
from typing import Any, ClassVar

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox

# What a wrong template makes Python raise.
FAILURES = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    SyntaxError,
    TypeError,
    ValueError,
)
NOW = 1_700_000_000  # Tuesday, 14 November 2023


class TemplateRaised(jinja2.TemplateError):
    """The template called raise_exception."""


class GenerationTag(jinja2.ext.Extension):
    """{% generation %}: marks the assistant's text; its body is rendered as it is."""

    tags: ClassVar = {"generation"}

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        call = self.call_method("render_body")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def render_body(self, caller: Any) -> str:
        return caller()


def tojson(value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message: str) -> None:
    raise TemplateRaised(message)


def strftime_now(pattern: str) -> str:
    return datetime.fromtimestamp(NOW, UTC).strftime(pattern)


def environment() -> jinja2.sandbox.ImmutableSandboxedEnvironment:
    made = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, jinja2.ext.loopcontrols]
    )
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = strftime_now
    return made


ENVIRONMENT = environment()


def render(source: str, context: dict[str, Any]) -> dict[str, str]:
    """{"output": text}, or {"error": message} and for raise_exception also "raised"."""
    try:
        return {"output": ENVIRONMENT.from_string(source).render(context)}
    except TemplateRaised as error:
        return {"error": str(error), "raised": str(error)}
    except FAILURES as error:
        return {"error": f"{type(error).__name__}: {error}"}
