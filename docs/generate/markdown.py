"""The few forms of Markdown that the pages share."""

import json
from collections.abc import Iterable, Sequence
from typing import Any


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; nothing where it would have no row."""
    lines = [f"| {' | '.join(map(_cell, row))} |" for row in rows]
    return (
        "\n".join([f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}", *lines]) if lines else ""
    )


def code(text: str) -> str:
    """A name as code."""
    return f"`{text}`" if text else ""


def block(language: str, text: str) -> str:
    """A fenced block, with a fence that is longer than any in it."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def values(found: Iterable[Any]) -> str:
    """Choices, as they are written."""
    return ", ".join(code(written(one)) for one in found)


def written(value: Any) -> str:
    """A value as JSON; texts bare."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def joined(parts: Iterable[str]) -> str:
    """Paragraphs, those that are empty left out."""
    return "\n\n".join(part for part in parts if part)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
