"""Checks tools for what clients reject or misread: names, schemas, descriptions. Pure.

One finding for each server and kind of flaw.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import jsonschema_rs

from portico.catalog.address import FLAT_NAME_CHARS, make_flat_name
from portico.catalog.schema_references import ABSENT, count_references, resolve_pointer
from portico.catalog.snapshot import ServerEntry
from portico.catalog.tool import Tool
from portico.catalog.visible_text import sanitize_text
from portico.cli.doctor.checks.server_probes import CLIENT_CUT_CHARS
from portico.cli.doctor.finding import ConfigLocations, DoctorFinding, Severity, join_names
from portico.rendering.lines import format_count

_LEGAL_NAME = re.compile(rf"[A-Za-z0-9_-]{{1,{FLAT_NAME_CHARS}}}")
_HARMLESS_INVISIBLE = re.compile("[\ufe00-\ufe0f\u200d\u00ad\r\u0085\u2028\u2029]")
"""Invisible characters with a purpose: emoji variants, hyphenation, line ends."""
_REPORT_TO_AUTHOR = "Report it to its author"


@dataclass(frozen=True)
class ToolFlaw:
    """A flaw of one tool."""

    id: str
    detail: str = ""
    """Details for this tool."""


@dataclass(frozen=True)
class FlawKind:
    """The finding for tools of a server with the same flaw; `{}` is their number and names."""

    severity: Severity
    message: str
    remedy: str
    only_full: bool = False
    """Matters only if tools are listed themselves."""


FLAW_KINDS: Mapping[str, FlawKind] = {
    "tool.name": FlawKind(
        "warning",
        "{}: names that clients reject (other than A-Z a-z 0-9 _ -, or over 64 characters "
        "with the server's name)",
        "Portico lists them under other names, as shown; or give them names of your own under "
        "tools.rename.",
        only_full=True,
    ),
    "tool.schema_invalid": FlawKind(
        "warning",
        "{}: input schemas that are no JSON Schema; arguments are passed unchecked, and some "
        "clients drop the tool",
        f"{_REPORT_TO_AUTHOR}, or leave it out: tools: {{deny: [NAME]}}.",
    ),
    "tool.ref_unresolved": FlawKind(
        "warning",
        "{}: input schemas with a $ref that leads nowhere; some clients drop the tool, or the "
        "whole list",
        f"{_REPORT_TO_AUTHOR}, or leave it out: tools: {{deny: [NAME]}}.",
    ),
    "tool.schema_root": FlawKind(
        "note",
        "{}: input schemas whose root is not a plain object; some clients skip such tools",
        f"{_REPORT_TO_AUTHOR}; through call_tool they work.",
    ),
    "tool.description_empty": FlawKind(
        "note",
        "{}: no description, so neither search nor a model can tell what they do",
        f"{_REPORT_TO_AUTHOR}, or describe the server in the configuration: description: …",
    ),
    "tool.description_long": FlawKind(
        "warning",
        f"{{}}: descriptions over {CLIENT_CUT_CHARS:,} characters, which clients cut",
        "Write exposure: meta, where descriptions are shortened with care; or report it to "
        "its author.",
        only_full=True,
    ),
    "tool.hidden_characters": FlawKind(
        "warning",
        "{}: texts with characters that cannot be seen, a way to tell a model what you do not read",
        "Portico takes them out. Read the texts (portico describe NAME), and leave out what you "
        "do not trust: tools: {deny: [NAME]}.",
    ),
    "tool.kept_in_part": FlawKind(
        "warning",
        "{}: definitions that could not be kept whole",
        f"{_REPORT_TO_AUTHOR}; Portico keeps what can be kept.",
    ),
    "tool.rename_refused": FlawKind(
        "warning",
        "{}: cannot have the name that tools.rename gives",
        "Choose a name that no other tool has.",
    ),
}


def check(entry: ServerEntry, locations: ConfigLocations, *, full: bool) -> Iterator[DoctorFinding]:
    """Yield the flaws of a server's tools; `full` is whether any endpoint lists them directly."""
    found: dict[str, list[tuple[Tool, ToolFlaw]]] = defaultdict(list)
    for tool in entry.tools.values():
        for flaw in find_flaws(tool):
            found[flaw.id].append((tool, flaw))
    for name, cases in found.items():
        kind = FLAW_KINDS[name]
        if kind.only_full and not full and name != "tool.name":
            continue
        names = join_names(sanitize_text(tool.name)[:80] for tool, _ in cases)
        tools = f"{format_count(len(cases), 'tool')} ({names})"
        yield DoctorFinding(
            name,
            "note" if kind.only_full and not full else kind.severity,
            kind.message.replace("{}", tools),
            kind.remedy,
            details=tuple(
                f"{sanitize_text(tool.name)[:80]}: {sanitize_text(flaw.detail)[:200]}"
                for tool, flaw in cases[:5]
                if flaw.detail
            ),
            **locations.locate_server(entry.name),
        )


def find_flaws(tool: Tool) -> Iterator[ToolFlaw]:
    """Yield the flaws of one tool."""
    flat_name = f"{tool.server}__{tool.name}"
    if not _LEGAL_NAME.fullmatch(flat_name):
        yield ToolFlaw("tool.name", f"listed as {make_flat_name(tool.server, tool.name)}")
    schema = tool.definition.get("inputSchema")
    if isinstance(schema, dict):
        yield from _find_schema_flaws(schema)
    else:
        yield ToolFlaw("tool.schema_root", "there is no input schema")
    description = tool.description
    if not description.strip():
        yield ToolFlaw("tool.description_empty")
    elif len(description) > CLIENT_CUT_CHARS:
        yield ToolFlaw("tool.description_long", f"{len(description):,} characters")
    if hidden := _find_hidden_character(
        [tool.name, tool.title, description, *_iterate_texts(tool.input_schema)]
    ):
        yield ToolFlaw("tool.hidden_characters", f"U+{ord(hidden):04X}")
    for warning in tool.warnings:
        if "was left out" in warning or "not text" in warning:
            yield ToolFlaw("tool.kept_in_part", warning)
        elif "cannot be renamed" in warning:
            yield ToolFlaw("tool.rename_refused", warning)


def _find_schema_flaws(schema: dict[str, Any]) -> Iterator[ToolFlaw]:
    problem = _find_schema_problem(schema)
    if problem:
        unresolved = [
            pointer
            for pointer in count_references(schema)
            if not pointer.startswith("#")
            or (pointer.startswith("#/") and resolve_pointer(pointer, schema) is ABSENT)
        ]
        if unresolved:
            yield ToolFlaw("tool.ref_unresolved", join_names(unresolved, 3))
        else:
            yield ToolFlaw("tool.schema_invalid", problem)
    unions = [key for key in ("anyOf", "oneOf", "allOf") if key in schema]
    if schema.get("type") != "object":
        yield ToolFlaw("tool.schema_root", "the root does not say type: object")
    elif unions:
        yield ToolFlaw("tool.schema_root", f"{' and '.join(unions)} at the root")


def _find_schema_problem(schema: dict[str, Any]) -> str:
    """Return why a schema cannot be used; empty if it can."""
    try:
        jsonschema_rs.validator_for(schema, retriever=_refuse_remote_reference)
    except (ValueError, TypeError, RecursionError) as error:
        return " ".join(str(error).split())[:200] or type(error).__name__
    return ""


def _refuse_remote_reference(uri: str) -> NoReturn:
    raise ValueError(f"remote reference {uri} is not fetched")


def _iterate_texts(schema: Any) -> Iterator[str]:
    """Yield every description and title in a schema."""
    pending: list[Any] = [schema]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            yield from (
                node[key] for key in ("description", "title") if isinstance(node.get(key), str)
            )
            pending.extend(node.values())
        elif isinstance(node, list):
            pending.extend(node)


def _find_hidden_character(texts: Iterable[str]) -> str:
    """Return the first invisible character in these texts."""
    for text in texts:
        visible = _HARMLESS_INVISIBLE.sub("", text)
        if sanitize_text(visible) != visible:
            return next((char for char in visible if not sanitize_text(char)), "\x1b")
    return ""
