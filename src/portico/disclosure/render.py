"""How a tool is shown to a model: one line, the compact typed form, or everything.

Pure functions of a tool. Names, types, enums, defaults and limits are written so that a caller can use them as they
stand. The typed form says in few words what each thing is for; the full form has every word, and raw JSON stays raw.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from portico.catalog.schema import glance, input_outline, outline
from portico.catalog.tool import Tool
from portico.catalog.visible import shown
from portico.disclosure.example import example, examples
from portico.disclosure.prose import bare, first_sentence, flat, prose
from portico.disclosure.tokens import count
from portico.upstream import jsontext

_PARAMS_TOKENS = 22
_REQUIRED_TOKENS = 60
"""Required names may use this much, where types and optional names stop at `_PARAMS_TOKENS`."""
_SCALARS = ("integer", "number", "boolean")
"""Of an option, a type like these tells less than the name of one more."""
_ALSO = 5
"""Tools of other servers that do the same are named, but do not fill the page that they were taken from."""
_KEPT = 2_000
"""Typed forms that are kept: who looks at a tool looks again, and to find the words that can go takes most of a ms."""
_NEWLINE, _INDENTED = "\n", "\n  "
_NOTABLE = 60
"""So many tokens left out are worth saying that the full form has them."""


def brief(tool: Tool, also: Sequence[str] = ()) -> str:
    """One line: address, parameters, first sentence, and tools of other servers that do the same."""
    line = f"{flat(shown(tool.address))}({signature(tool)})"
    sentence = first_sentence(tool.description) or first_sentence(tool.title)
    line = f"{line} — {sentence}" if sentence else line
    return f"{line} (also: {addresses(also)})" if also else line


def addresses(names: Sequence[str], most: int = _ALSO) -> str:
    """Tools by address, as many as a line can bear."""
    rest = [f"…+{len(names) - most}"] if len(names) > most else []
    return ", ".join([*(flat(shown(name)) for name in names[:most]), *rest])


def schema(tool: Tool, also: Sequence[str] = ()) -> str:
    """The compact typed form: what the tool does, and every parameter with all a caller needs to know of it."""
    return f"{_typed(tool)}\nalso: {addresses(also)}" if also else _typed(tool)


@lru_cache(maxsize=_KEPT)
def _typed(tool: Tool) -> str:
    # Imported here, because a gateway's first answers are brief and these patterns take milliseconds to compile.
    from portico.disclosure.docstring import docstring
    from portico.disclosure.shorten import described
    from portico.disclosure.typed import Typed, returns

    tree = input_outline(tool)
    names = {param.name for param in tree.params}
    written = docstring(shown(tool.description), names)
    typed = Typed(tree, written.notes)
    lines = typed.lines()
    about = described(written.rest, names)
    text = about.text or first_sentence(written.rest) or first_sentence(tool.title)
    hints = ", ".join(_hints(tool.annotations))
    head = flat(shown(tool.address)) + ("" if lines else "()") + (f" [{hints}]" if hints else "")
    if text:
        head = f"{head} — {text}"
    if about.left_out + typed.left_out > _NOTABLE:
        head = f"{head} (shortened: see detail=full)"
    output = tool.definition.get("outputSchema")
    if isinstance(output, dict) and (given := returns(outline(output))):
        lines.append(f"returns: {given}")
    return "\n".join((head, *lines))


def full(tool: Tool, *, extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Everything that is known of a tool; `definition` is what its server listed, every key of it."""
    return {
        **(extra or {}),
        "tool": tool.address,
        "server": tool.server,
        "upstream_name": tool.upstream_name,
        "hash": tool.hash,
        "tags": list(tool.tags),
        "warnings": list(tool.warnings),
        "example": example(tool),
        "examples": examples(tool),
        "resource": resource(tool),
        "definition": copy.deepcopy(dict(tool.definition)),
    }


def full_text(tool: Tool, *, extra: Mapping[str, Any] | None = None) -> str:
    """The typed form, the whole description, examples, what else is known, then every other key of the raw definition.

    Each key is one line of JSON. What every call changes (`extra`) stands before what only the server can change.
    """
    head = schema(tool)
    words = prose(tool.description)
    # Indented, so that no line of it can be taken for one of ours.
    lines = [] if flat(words) in head else [f"description: {words.replace(_NEWLINE, _INDENTED)}"]
    lines += (f"example: {jsontext.dumps(arguments).decode()}" for arguments in examples(tool))
    lines.append(f"resource: {resource(tool)}")
    raw = {key: value for key, value in tool.definition.items() if key not in ("name", "description")}
    known = {**(extra or {}), "warnings": list(tool.warnings)}
    for key, value in known.items():
        if value and key not in raw:
            lines += _fact(bare(key), value)
    lines += (f"{bare(key)}: {jsontext.dumps(value).decode()}" for key, value in raw.items())
    return "\n".join((head, *lines))


def resource(tool: Tool) -> str:
    """Where a client reads the same as a resource."""
    return f"portico://tool/{quote(tool.address, safe='')}"


def _fact(name: str, value: Any) -> Iterator[str]:
    """Something that is known: text as it is, several texts a line each, anything else as JSON."""
    if isinstance(value, str):
        yield f"{name}: {flat(shown(value))}"
    elif isinstance(value, Mapping) and value and all(isinstance(text, str) for text in value.values()):
        yield from (f"{name} {key}: {flat(shown(text))}" for key, text in value.items())
    else:
        yield f"{name}: {jsontext.dumps(value).decode()}"


def signature(tool: Tool) -> str:
    """A tool's parameters in one short line: required names always, types and options as far as they fit."""
    entries = list(glance(tool.definition.get("inputSchema")))
    required = [(bare(name), kind) for name, needed, kind in entries if needed]
    costs = [count(f" {name}") + 1 for name, _ in required]
    spare = _PARAMS_TOKENS - sum(costs)
    used, parts = 0, list[str]()
    for (name, kind), cost in zip(required, costs, strict=True):
        if used + cost > _REQUIRED_TOKENS:
            parts.append(f"…+{len(required) - len(parts)} required")
            break
        used += cost
        kind_cost = _kind_cost(kind)
        if kind_cost and kind_cost <= spare:
            name, spare, used = f"{name}: {kind}", spare - kind_cost, used + kind_cost
        parts.append(name)
    optional = entries[len(required) :]
    for done, (raw_name, _, kind) in enumerate(optional):
        name = f"{bare(raw_name)}?"
        used += count(f" {name}") + 1
        if used > _PARAMS_TOKENS:
            parts.append(f"…+{len(optional) - done}")
            break
        kind_cost = 0 if kind in _SCALARS else _kind_cost(kind)
        if kind_cost and used + kind_cost <= _PARAMS_TOKENS:
            name, used = f"{name}: {kind}", used + kind_cost
        parts.append(name)
    return ", ".join(parts)


def _kind_cost(kind: str) -> int:
    return 0 if kind in ("string", "any") else count(f": {kind}")


def _hints(annotations: Mapping[str, Any]) -> Iterator[str]:
    """What a tool does to the world, where its server says so; what it says beside that is in the full form."""
    if annotations.get("readOnlyHint") is True:
        yield "read-only"
        return
    if annotations.get("destructiveHint") is True:
        yield "destructive"
    if annotations.get("idempotentHint") is True:
        yield "idempotent"
