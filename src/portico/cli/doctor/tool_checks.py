"""Checks tools for what clients reject or misread, and the commands of command-line tools.

One finding for each server and kind of flaw.
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import jsonschema_rs

from portico.catalog.address import FLAT_NAME_CHARS, make_flat_name
from portico.catalog.schema_types import ABSENT, count_references, resolve_pointer
from portico.catalog.snapshot import ServerEntry
from portico.catalog.tool import Tool, sanitize_text
from portico.cli.doctor.finding import (
    ConfigLocation,
    ConfigLocations,
    DoctorFinding,
    Severity,
    broken,
    join_names,
    note,
    warning,
)
from portico.cli.doctor.server_checks import CLIENT_CUT_CHARS
from portico.cli.doctor.server_command_checks import find_program
from portico.config import BackendConfig
from portico.config.command_tool import CommandTool
from portico.config.command_words import END_OF_OPTIONS, find_injected_code
from portico.policy.definition_change import DefinitionChange
from portico.rendering.definition_changes import render_finding
from portico.rendering.token_budget import format_count

_LEGAL_NAME = re.compile(rf"[A-Za-z0-9_-]{{1,{FLAT_NAME_CHARS}}}")
_HARMLESS_INVISIBLE = re.compile("[\ufe00-\ufe0f\u200d\u00ad\r\u0085\u2028\u2029]")
"""Invisible characters with a purpose: emoji variants, hyphenation, line ends."""
_REPORT_TO_AUTHOR = "Report it to its author"


@dataclass(frozen=True)
class ToolFlaw:
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
            locations.locate_server(entry.name),
            details=tuple(
                f"{sanitize_text(tool.name)[:80]}: {sanitize_text(flaw.detail)[:200]}"
                for tool, flaw in cases[:5]
                if flaw.detail
            ),
        )


def check_trust(
    entry: ServerEntry, points: Iterable[DefinitionChange], locations: ConfigLocations
) -> Iterator[DoctorFinding]:
    """Yield what of a server waits for a person's look."""
    held = [point for point in points if point.is_held]
    suspicious = [point for point in points if point.findings]
    at = locations.locate_server(entry.name)
    remedy = f"Look at it: portico trust {entry.name} --diff"
    if held:
        names = join_names(sanitize_text(point.label)[:80] for point in held)
        yield warning(
            "trust.held", f"{names}: held back, because nobody has looked at it", remedy, at
        )
    if suspicious:
        names = join_names(sanitize_text(point.label)[:80] for point in suspicious)
        yield warning(
            "trust.suspicious",
            f"{names}: texts that speak to the model instead of describing something",
            f"{remedy}. What you trust there is not named again; or leave it out: "
            "tools: {deny: [NAME]}.",
            at,
            details=[
                f"{point.label}: {render_finding(finding)}"[:300]
                for point in suspicious[:5]
                for finding in point.findings[:2]
            ],
        )


def find_flaws(tool: Tool) -> Iterator[ToolFlaw]:
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
    for text in tool.warnings:
        if "was left out" in text or "not text" in text:
            yield ToolFlaw("tool.kept_in_part", text)
        elif "cannot be renamed" in text:
            yield ToolFlaw("tool.rename_refused", text)


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


def check_command_tools(
    name: str, server: BackendConfig, locations: ConfigLocations
) -> Iterator[DoctorFinding]:
    """Yield what is wrong with a server's commands, without running any."""
    if server.cwd is not None and not os.path.isdir(server.cwd):
        yield broken(
            "program.cwd_missing",
            f"the working directory {server.cwd} does not exist, so that none of its commands runs",
            f"mkdir -p {server.cwd}  or correct `cwd`",
            locations.locate_server(name, "cwd"),
        )
        return
    for key, tool in server.commands.items():
        at = locations.locate_server(name, "commands", key, "command")
        yield from _check_program(key, tool, server, at)
        # An argument that is only a part of the code was already rejected by the configuration.
        for code in find_injected_code(tool.words):
            if tool.arguments[code.argument].is_free_text:
                yield warning(
                    "program.runs_code",
                    f"{key}: {code.program} runs whatever a caller writes for {{{code.argument}}}, "
                    "with all your rights",
                    "Name the program that should run and make its words arguments; scripts are "
                    "safe in run_code.",
                    at,
                )
        yield from _check_options(key, tool, at)
        placed = {one for word in (*tool.words, tool.stdin_word) for one in word.names}
        unplaced = [
            one for one, about in tool.arguments.items() if one not in placed and not about.flag
        ]
        if unplaced:
            yield note(
                "program.unplaced",
                f"{key}: no word names {', '.join(unplaced)}; what is given follows at the end",
                f"Put {{{unplaced[0]}}} where it belongs, or give it a `flag`.",
                locations.locate_server(name, "commands", key, "arguments"),
            )


def _check_program(
    key: str, tool: CommandTool, server: BackendConfig, at: ConfigLocation
) -> Iterator[DoctorFinding]:
    program = os.path.expanduser(tool.command[0])
    if find_program(program, server) is not None:
        return
    path = os.path.abspath(os.path.join(server.cwd or "", program))
    has_folder = bool(os.path.dirname(program))
    if has_folder and os.path.isfile(path):
        message = f"{key}: {program} is not executable"
        yield broken("program.not_executable", message, f"chmod +x {path}", at)
        return
    words = program.split()
    remedy = "Install it, write its full path, or add its folder to PATH in the server's `env`."
    if len(words) > 1:
        remedy = f"Each word by itself: [{', '.join(words)}, …]."
    yield broken(
        "program.missing",
        f"{key}: the program {program!r} does not exist{'' if has_folder else ' on PATH'}",
        f"{remedy} The other commands work.",
        at,
    )


def _check_options(key: str, tool: CommandTool, at: ConfigLocation) -> Iterator[DoctorFinding]:
    for word in tool.words:
        first = word.pieces[0]
        free = [name for name in word.names if tool.arguments[name].is_free_text]
        if free and first in ("-", END_OF_OPTIONS):
            yield warning(
                "program.any_option",
                f"{key}: each caller chooses the option {first}{{{free[0]}}}",
                f"Give {free[0]} `choices`, or a boolean with a `flag` for each option.",
                at,
            )
    for before, word in zip(tool.words[1:], tool.words[2:], strict=False):
        option = before.literal_text or ""
        takes_value = option.startswith("-") and option != END_OF_OPTIONS and "=" not in option
        if takes_value and _is_optional(tool, word.sole_argument):
            yield warning(
                "program.lonely_option",
                f"{key}: without {word.sole_argument}, {option} stays alone and takes the next "
                "word for its value",
                f"Take {option} out of the words and write flag: '{option} {{}}' at "
                f"{word.sole_argument}; or make it required.",
                at,
            )


def _is_optional(tool: CommandTool, name: str) -> bool:
    if not name or tool.arguments[name].flag:
        return False
    argument = tool.arguments[name]
    return argument.default is None and not argument.required and argument.type != "boolean"
