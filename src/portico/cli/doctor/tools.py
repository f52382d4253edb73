"""Tools that clients would reject or misread: names, schemas, descriptions. One finding a server and kind. Pure."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import jsonschema_rs

from portico.catalog.address import FLAT_NAME_CHARS, flat_name
from portico.catalog.references import ABSENT, count_references, resolve
from portico.catalog.snapshot import ServerEntry
from portico.catalog.tool import Tool
from portico.catalog.visible import shown
from portico.cli.doctor.finding import Finding, Places, Severity, several
from portico.cli.doctor.visits import CUT_AT
from portico.disclosure.lines import counted

_LEGAL = re.compile(rf"[A-Za-z0-9_-]{{1,{FLAT_NAME_CHARS}}}")
_SEEN = re.compile("[\ufe00-\ufe0f\u200d\u00ad\r\u0085\u2028\u2029]")
"""What is not seen but belongs to what is: the looks of an emoji, hyphenation, ends of lines."""
_TOLD = "Report it to its author"


@dataclass(frozen=True)
class Flaw:
    """What is wrong with one tool."""

    id: str
    why: str = ""
    """What is peculiar to this tool."""


@dataclass(frozen=True)
class Kind:
    """What is said about the tools of a server that share a flaw; `{}` is how many they are, and which."""

    severity: Severity
    message: str
    remedy: str
    only_full: bool = False
    """Of no account unless tools are listed themselves."""


KINDS: Mapping[str, Kind] = {
    "tool.name": Kind(
        "warning",
        "{}: names that clients reject (other than A-Z a-z 0-9 _ -, or over 64 characters with the server's name)",
        "Portico lists them under other names, as shown; or give them names of your own under tools.rename.",
        only_full=True,
    ),
    "tool.schema_invalid": Kind(
        "warning",
        "{}: input schemas that are no JSON Schema; arguments are passed unchecked, and some clients drop the tool",
        f"{_TOLD}, or leave it out: tools: {{deny: [NAME]}}.",
    ),
    "tool.ref_unresolved": Kind(
        "warning",
        "{}: input schemas with a $ref that leads nowhere; some clients drop the tool, or the whole list",
        f"{_TOLD}, or leave it out: tools: {{deny: [NAME]}}.",
    ),
    "tool.schema_root": Kind(
        "note",
        "{}: input schemas whose root is not a plain object; some clients skip such tools",
        f"{_TOLD}; through call_tool they work.",
    ),
    "tool.description_empty": Kind(
        "note",
        "{}: no description, so neither search nor a model can tell what they do",
        f"{_TOLD}, or describe the server in the configuration: description: …",
    ),
    "tool.description_long": Kind(
        "warning",
        f"{{}}: descriptions over {CUT_AT:,} characters, which clients cut",
        "Write exposure: meta, where descriptions are shortened with care; or report it to its author.",
        only_full=True,
    ),
    "tool.hidden_characters": Kind(
        "warning",
        "{}: texts with characters that cannot be seen, a way to tell a model what you do not read",
        "Portico takes them out. Read the texts (portico describe NAME), and leave out what you do not trust: "
        "tools: {deny: [NAME]}.",
    ),
    "tool.kept_in_part": Kind(
        "warning", "{}: definitions that could not be kept whole", f"{_TOLD}; Portico keeps what can be kept."
    ),
    "tool.rename_refused": Kind(
        "warning", "{}: cannot have the name that tools.rename gives", "Choose a name that no other tool has."
    ),
}


def check(entry: ServerEntry, places: Places, *, full: bool) -> Iterator[Finding]:
    """What is wrong with the tools of one server; `full` is whether any door lists them themselves."""
    found: dict[str, list[tuple[Tool, Flaw]]] = defaultdict(list)
    for tool in entry.tools.values():
        for flaw in flaws(tool):
            found[flaw.id].append((tool, flaw))
    for name, cases in found.items():
        kind = KINDS[name]
        if kind.only_full and not full and name != "tool.name":
            continue
        tools = f"{counted(len(cases), 'tool')} ({several(shown(tool.name)[:80] for tool, _ in cases)})"
        yield Finding(
            name,
            "note" if kind.only_full and not full else kind.severity,
            kind.message.replace("{}", tools),
            kind.remedy,
            details=tuple(f"{shown(tool.name)[:80]}: {shown(flaw.why)[:200]}" for tool, flaw in cases[:5] if flaw.why),
            **places.server(entry.name),
        )


def flaws(tool: Tool) -> Iterator[Flaw]:
    """What is wrong with one tool."""
    flat = f"{tool.server}__{tool.name}"
    if not _LEGAL.fullmatch(flat):
        yield Flaw("tool.name", f"listed as {flat_name(tool.server, tool.name)}")
    schema = tool.definition.get("inputSchema")
    if isinstance(schema, dict):
        yield from _schema_flaws(schema)
    else:
        yield Flaw("tool.schema_root", "there is no input schema")
    description = tool.description
    if not description.strip():
        yield Flaw("tool.description_empty")
    elif len(description) > CUT_AT:
        yield Flaw("tool.description_long", f"{len(description):,} characters")
    if hidden := _hidden([tool.name, tool.title, description, *_texts(tool.input_schema)]):
        yield Flaw("tool.hidden_characters", f"U+{ord(hidden):04X}")
    for warning in tool.warnings:
        if "was left out" in warning or "not text" in warning:
            yield Flaw("tool.kept_in_part", warning)
        elif "cannot be renamed" in warning:
            yield Flaw("tool.rename_refused", warning)


def _schema_flaws(schema: dict[str, Any]) -> Iterator[Flaw]:
    problem = _compiled(schema)
    if problem:
        lost = [
            pointer
            for pointer in count_references(schema)
            if not pointer.startswith("#") or (pointer.startswith("#/") and resolve(pointer, schema) is ABSENT)
        ]
        yield Flaw("tool.ref_unresolved", several(lost, 3)) if lost else Flaw("tool.schema_invalid", problem)
    unions = [key for key in ("anyOf", "oneOf", "allOf") if key in schema]
    if schema.get("type") != "object":
        yield Flaw("tool.schema_root", "the root does not say type: object")
    elif unions:
        yield Flaw("tool.schema_root", f"{' and '.join(unions)} at the root")


def _compiled(schema: dict[str, Any]) -> str:
    """Why a schema cannot be used; empty when it can."""
    try:
        jsonschema_rs.validator_for(schema, retriever=_refuse)
    except (ValueError, TypeError, RecursionError) as error:
        return " ".join(str(error).split())[:200] or type(error).__name__
    return ""


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"remote reference {uri} is not fetched")


def _texts(schema: Any) -> Iterator[str]:
    """Every description and title in a schema."""
    pending: list[Any] = [schema]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            yield from (node[key] for key in ("description", "title") if isinstance(node.get(key), str))
            pending.extend(node.values())
        elif isinstance(node, list):
            pending.extend(node)


def _hidden(texts: Iterable[str]) -> str:
    """The first character that cannot be seen, in any of these."""
    clean: Callable[[str], str] = lambda text: _SEEN.sub("", text)  # noqa: E731
    for text in map(clean, texts):
        seen = shown(text)
        if seen != text:
            return next((char for char in text if not shown(char)), "\x1b")
    return ""
