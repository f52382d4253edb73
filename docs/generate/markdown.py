"""Markdown elements that the pages share."""

import json
from collections.abc import Iterable, Sequence
from typing import Any


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Render a table; empty if it has no rows."""
    lines = [f"| {' | '.join(map(_cell, row))} |" for row in rows]
    if not lines:
        return ""
    return "\n".join([f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}", *lines])


def code(text: str) -> str:
    """Render a name as code."""
    return f"`{text}`" if text else ""


def block(language: str, text: str) -> str:
    """Render a fenced block, with a fence that is longer than any in it."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def values(found: Iterable[Any]) -> str:
    """Render choices as code, separated by commas."""
    return ", ".join(code(render_value(value)) for value in found)


def render_value(value: Any) -> str:
    """Render a value as JSON, a string without quotes."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def join_paragraphs(parts: Iterable[str]) -> str:
    """Join paragraphs, leaving out empty ones."""
    return "\n\n".join(part for part in parts if part)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
