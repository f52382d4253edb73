"""A tool as text for a model: the compact typed form, or everything.

Pure functions of a tool. Names, types, enums, defaults and limits are written so that a caller can
use them as they are. The typed form condenses descriptions; the full form has every word, and raw
JSON unchanged.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from portico.catalog.schema_outline import build_outline, get_input_outline
from portico.catalog.tool import Tool, sanitize_text
from portico.json_text import json_codec
from portico.rendering.examples import make_example, make_examples
from portico.rendering.one_line_tool import render_addresses
from portico.rendering.prose import (
    collapse_whitespace,
    extract_first_sentence,
    normalize_prose,
    quote_if_needed,
)

_CACHE_SIZE = 2_000
"""Cached typed forms: condensing takes most of a millisecond, and tools are looked at repeatedly.
"""
_NEWLINE = "\n"
_INDENTED = "\n  "
_MIN_NOTED_TOKENS = 60
"""Omitted tokens above which the full form is pointed to."""


def render_schema(tool: Tool, duplicates: Sequence[str] = ()) -> str:
    """Render the compact typed form: purpose, and every parameter with what a caller needs."""
    if duplicates:
        return f"{_render_typed_form(tool)}\nalso: {render_addresses(duplicates)}"
    return _render_typed_form(tool)


@lru_cache(maxsize=_CACHE_SIZE)
def _render_typed_form(tool: Tool) -> str:
    # Imported here, because first responses are brief and these patterns take milliseconds to
    # compile.
    from portico.rendering.condensed_text import condense_description
    from portico.rendering.prose import parse_docstring
    from portico.rendering.typed_form import TypedFormWriter, render_returns

    tree = get_input_outline(tool)
    names = {param.name for param in tree.parameters}
    docstring = parse_docstring(sanitize_text(tool.description), names)
    typed = TypedFormWriter(tree, docstring.notes)
    lines = typed.render_lines()
    condensed = condense_description(docstring.description, names)
    text = (
        condensed.text
        or extract_first_sentence(docstring.description)
        or extract_first_sentence(tool.title)
    )
    hints = ", ".join(_list_hints(tool.annotations))
    head = (
        collapse_whitespace(sanitize_text(tool.address))
        + ("" if lines else "()")
        + (f" [{hints}]" if hints else "")
    )
    if text:
        head = f"{head} — {text}"
    if condensed.omitted_tokens + typed.omitted_tokens > _MIN_NOTED_TOKENS:
        head = f"{head} (shortened: see detail=full)"
    output = tool.definition.get("outputSchema")
    if isinstance(output, dict) and (returns := render_returns(build_outline(output))):
        lines.append(f"returns: {returns}")
    return "\n".join((head, *lines))


def to_full_data(tool: Tool, *, details: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return everything known of a tool; `definition` is what its server listed, complete."""
    return {
        **(details or {}),
        "tool": tool.address,
        "server": tool.server,
        "upstream_name": tool.upstream_name,
        "hash": tool.hash,
        "tags": list(tool.tags),
        "warnings": list(tool.warnings),
        "example": make_example(tool),
        "examples": make_examples(tool),
        "resource": to_resource_uri(tool),
        "definition": copy.deepcopy(dict(tool.definition)),
    }


def render_full_text(tool: Tool, *, details: Mapping[str, Any] | None = None) -> str:
    """Render the typed form, full description, examples, details, and the rest of the definition.

    Each key is one line of JSON. `details`, which change with every call, precede what only the
    server can change.
    """
    head = render_schema(tool)
    description = normalize_prose(tool.description)
    # Indented, so that no line of it looks like one of the gateway's.
    lines: list[str] = []
    if collapse_whitespace(description) not in head:
        lines.append(f"description: {description.replace(_NEWLINE, _INDENTED)}")
    for example in make_examples(tool):
        arguments = json_codec.dumps(example["arguments"]).decode()
        lines.append(f"example: {arguments} — {example['description']}")
    lines.append(f"resource: {to_resource_uri(tool)}")
    raw = {
        key: value for key, value in tool.definition.items() if key not in ("name", "description")
    }
    all_details = {**(details or {}), "warnings": list(tool.warnings)}
    for key, value in all_details.items():
        if value and key not in raw:
            lines += _render_detail(quote_if_needed(key), value)
    lines += (
        f"{quote_if_needed(key)}: {json_codec.dumps(value).decode()}" for key, value in raw.items()
    )
    return "\n".join((head, *lines))


def to_resource_uri(tool: Tool) -> str:
    return f"portico://tool/{quote(tool.address, safe='')}"


def _render_detail(name: str, value: Any) -> Iterator[str]:
    """Yield a detail: text as it is, several texts a line each, anything else as JSON."""
    if isinstance(value, str):
        yield f"{name}: {collapse_whitespace(sanitize_text(value))}"
    elif isinstance(value, Mapping) and all(isinstance(text, str) for text in value.values()):
        for key, text in value.items():
            yield f"{name} {key}: {collapse_whitespace(sanitize_text(text))}"
    else:
        yield f"{name}: {json_codec.dumps(value).decode()}"


def _list_hints(annotations: Mapping[str, Any]) -> Iterator[str]:
    """Yield the side effects that a server declares for a tool."""
    if annotations.get("readOnlyHint") is True:
        yield "read-only"
        return
    if annotations.get("destructiveHint") is True:
        yield "destructive"
    if annotations.get("idempotentHint") is True:
        yield "idempotent"
