"""How a tool is shown to a model: one line, the compact typed form, or everything.

Pure functions of a tool. Names, types, enums, defaults and limits are written so that a caller can
use them as they stand. The typed form says in few words what each thing is for; the full form has
every word, and raw JSON stays raw.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from portico.catalog.schema_outline import build_outline, get_input_outline, summarize_parameters
from portico.catalog.tool import Tool
from portico.catalog.visible_text import sanitize_text
from portico.json_text import json_codec
from portico.rendering.examples import make_example, make_examples
from portico.rendering.prose import (
    collapse_whitespace,
    extract_first_sentence,
    normalize_prose,
    quote_if_needed,
)
from portico.rendering.token_count import count_tokens

_MAX_PARAMS_TOKENS = 22
_MAX_REQUIRED_TOKENS = 60
"""Required names may use this much, where types and optional names stop at `_PARAMS_TOKENS`."""
_SCALARS = ("integer", "number", "boolean")
"""Of an option, a type like these tells less than the name of one more."""
_MAX_DUPLICATES = 5
"""Tools of other servers that do the same are named, but do not fill the page that they were taken
from."""
_CACHE_SIZE = 2_000
"""Typed forms that are kept: who looks at a tool looks again, and to find the words that can go
takes most of a ms."""
_NEWLINE = "\n"
_INDENTED = "\n  "
_MIN_NOTED_TOKENS = 60
"""So many tokens left out are worth saying that the full form has them."""


def render_brief(tool: Tool, duplicates: Sequence[str] = ()) -> str:
    """One line: address, parameters, first sentence, and tools of other servers that do the same."""
    line = f"{collapse_whitespace(sanitize_text(tool.address))}({render_signature(tool)})"
    sentence = extract_first_sentence(tool.description) or extract_first_sentence(tool.title)
    if sentence:
        line = f"{line} — {sentence}"
    else:
        line = line
    if duplicates:
        return f"{line} (also: {render_addresses(duplicates)})"
    return line


def render_addresses(names: Sequence[str], limit: int = _MAX_DUPLICATES) -> str:
    """Tools by address, as many as a line can bear."""
    if len(names) > limit:
        rest = [f"…+{len(names) - limit}"]
    else:
        rest = []
    return ", ".join([*(collapse_whitespace(sanitize_text(name)) for name in names[:limit]), *rest])


def render_schema(tool: Tool, duplicates: Sequence[str] = ()) -> str:
    """The compact typed form: what the tool does, and every parameter with all a caller needs to
    know of it."""
    if duplicates:
        return f"{_render_typed_form(tool)}\nalso: {render_addresses(duplicates)}"
    return _render_typed_form(tool)


@lru_cache(maxsize=_CACHE_SIZE)
def _render_typed_form(tool: Tool) -> str:
    # Imported here, because a gateway's first answers are brief and these patterns take
    # milliseconds to compile.
    from portico.rendering.condensed_text import condense_description
    from portico.rendering.docstring import parse_docstring
    from portico.rendering.typed_form import TypedFormWriter, render_returns

    tree = get_input_outline(tool)
    names = {param.name for param in tree.parameters}
    written = parse_docstring(sanitize_text(tool.description), names)
    typed = TypedFormWriter(tree, written.notes)
    lines = typed.render_lines()
    about = condense_description(written.description, names)
    text = (
        about.text
        or extract_first_sentence(written.description)
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
    if about.omitted_tokens + typed.omitted_tokens > _MIN_NOTED_TOKENS:
        head = f"{head} (shortened: see detail=full)"
    output = tool.definition.get("outputSchema")
    if isinstance(output, dict) and (given := render_returns(build_outline(output))):
        lines.append(f"returns: {given}")
    return "\n".join((head, *lines))


def to_full_data(tool: Tool, *, details: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Everything that is known of a tool; `definition` is what its server listed, every key of it."""
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
    """The typed form, the whole description, examples, what else is known, then every other key of
    the raw definition.

    Each key is one line of JSON. What every call changes (`extra`) stands before what only the
    server can change.
    """
    head = render_schema(tool)
    words = normalize_prose(tool.description)
    # Indented, so that no line of it can be taken for one of ours.
    if collapse_whitespace(words) in head:
        lines = []
    else:
        lines = [f"description: {words.replace(_NEWLINE, _INDENTED)}"]
    lines += (
        f"example: {json_codec.dumps(arguments).decode()}" for arguments in make_examples(tool)
    )
    lines.append(f"resource: {to_resource_uri(tool)}")
    raw = {
        key: value for key, value in tool.definition.items() if key not in ("name", "description")
    }
    known = {**(details or {}), "warnings": list(tool.warnings)}
    for key, value in known.items():
        if value and key not in raw:
            lines += _render_detail(quote_if_needed(key), value)
    lines += (
        f"{quote_if_needed(key)}: {json_codec.dumps(value).decode()}" for key, value in raw.items()
    )
    return "\n".join((head, *lines))


def to_resource_uri(tool: Tool) -> str:
    """Where a client reads the same as a resource."""
    return f"portico://tool/{quote(tool.address, safe='')}"


def _render_detail(name: str, value: Any) -> Iterator[str]:
    """Something that is known: text as it is, several texts a line each, anything else as JSON."""
    if isinstance(value, str):
        yield f"{name}: {collapse_whitespace(sanitize_text(value))}"
    elif (
        isinstance(value, Mapping)
        and value
        and all(isinstance(text, str) for text in value.values())
    ):
        yield from (
            f"{name} {key}: {collapse_whitespace(sanitize_text(text))}"
            for key, text in value.items()
        )
    else:
        yield f"{name}: {json_codec.dumps(value).decode()}"


def render_signature(tool: Tool) -> str:
    """A tool's parameters in one short line: required names always, types and options as far as
    they fit."""
    entries = list(summarize_parameters(tool.definition.get("inputSchema")))
    required = [(quote_if_needed(name), kind) for name, needed, kind in entries if needed]
    costs = [count_tokens(f" {name}") + 1 for name, _ in required]
    spare = _MAX_PARAMS_TOKENS - sum(costs)
    used = 0
    parts = list[str]()
    for (name, kind), cost in zip(required, costs, strict=True):
        if used + cost > _MAX_REQUIRED_TOKENS:
            parts.append(f"…+{len(required) - len(parts)} required")
            break
        used += cost
        kind_cost = _count_kind_tokens(kind)
        if kind_cost and kind_cost <= spare:
            name = f"{name}: {kind}"
            spare = spare - kind_cost
            used = used + kind_cost
        parts.append(name)
    optional = entries[len(required) :]
    for done, (raw_name, _, kind) in enumerate(optional):
        name = f"{quote_if_needed(raw_name)}?"
        used += count_tokens(f" {name}") + 1
        if used > _MAX_PARAMS_TOKENS:
            parts.append(f"…+{len(optional) - done}")
            break
        if kind in _SCALARS:
            kind_cost = 0
        else:
            kind_cost = _count_kind_tokens(kind)
        if kind_cost and used + kind_cost <= _MAX_PARAMS_TOKENS:
            name = f"{name}: {kind}"
            used = used + kind_cost
        parts.append(name)
    return ", ".join(parts)


def _count_kind_tokens(kind: str) -> int:
    if kind in ("string", "any"):
        return 0
    return count_tokens(f": {kind}")


def _list_hints(annotations: Mapping[str, Any]) -> Iterator[str]:
    """What a tool does to the world, where its server says so; what it says beside that is in the
    full form."""
    if annotations.get("readOnlyHint") is True:
        yield "read-only"
        return
    if annotations.get("destructiveHint") is True:
        yield "destructive"
    if annotations.get("idempotentHint") is True:
        yield "idempotent"
