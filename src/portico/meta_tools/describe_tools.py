"""Tools described by name, in brief, typed or whole, within a budget. Pure.

What does not fit one answer is given in parts, the most needed first; a cursor continues, and
nothing is lost.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from portico.catalog.snapshot import Snapshot
from portico.catalog.tool import Tool
from portico.catalog.visible_text import sanitize_text, to_literal
from portico.errors import StaleCursor, UnknownName
from portico.meta_tools.browse_tools import explain_unknown_name
from portico.rendering import cursor as cursors
from portico.rendering.budget import find_part_end, pack
from portico.rendering.lines import ServerStates, compute_remaining_tokens
from portico.rendering.prose import clip_line, collapse_whitespace
from portico.rendering.token_count import count_tokens
from portico.rendering.tool import render_addresses, render_brief, render_full_text, render_schema

Detail = str
GetDetails = Callable[[Tool], Mapping[str, Any]]
"""What is known of a tool beside its definition, for the full form."""

MIN_FULL_BUDGET = 8_000
"""What an answer in full may take: whoever asks for everything has seen the shorter forms."""
CONTINUATION_MARK = "… "
"""Stands before a part that begins inside a line."""
MAX_RENDERED_BYTES = 128 * 1024
"""Bytes of the definitions that are rendered for one answer; the first tool is, whatever its size.
"""
_MIN_PART_TOKENS = 40
"""A part has at least so many tokens, however little a budget leaves: what is asked again and again
must end."""


@dataclass(frozen=True)
class ResolvedNames:
    """What names mean."""

    tools: Mapping[str, Tool]
    """By address."""
    problems: Sequence[str]
    """What is to be said of each name that means nothing."""


def resolve_names(
    snapshot: Snapshot, names: Sequence[str], states: ServerStates | None = None
) -> ResolvedNames:
    """The tools that these names mean. Compares wrong ones with every tool's."""
    tools: dict[str, Tool] = {}
    wrong: list[str] = []
    for name in names:
        try:
            tool = snapshot.resolve_tool(name)
            tools[tool.address] = tool
        except UnknownName as error:
            reason = explain_unknown_name(error, name, snapshot, states or {})
            wrong.append(collapse_whitespace(sanitize_text(f"{reason.message}. {reason.advice}")))
    return ResolvedNames(tools, wrong)


def describe(
    snapshot: Snapshot,
    budget: int,
    names: Sequence[str] | ResolvedNames,
    detail: Detail = "schema",
    cursor: str | None = None,
    states: ServerStates | None = None,
    get_details: GetDetails | None = None,
) -> tuple[str, bool]:
    """The tools asked for, and whether at least one was found. A wrong name costs only itself."""
    if detail == "full":
        budget = max(budget, MIN_FULL_BUDGET)
    else:
        budget = budget
    if isinstance(names, ResolvedNames):
        named = names
    else:
        named = resolve_names(snapshot, names, states)
    tools = named.tools
    wrong = named.problems
    bodies = {
        address: _render(tool, detail, get_details)
        for address, tool in choose_rendered(tools).items()
    }
    if cursor and tools:
        return _continue_tool(bodies, cursor, snapshot.version, detail, budget), True
    notes = [*pack(wrong, budget // 2).texts]
    if len(notes) < len(wrong):
        notes.append(f"{len(wrong) - len(notes)} more names are unknown here.")
    costs = {address: count_tokens(body) + 1 for address, body in bodies.items()}
    fit = _take_fitting(bodies, costs, compute_remaining_tokens(budget, *notes))
    if len(fit) < len(tools):
        fit = _take_fitting(
            bodies, costs, compute_remaining_tokens(budget, *notes, _render_left_out(tools))
        )
        if not fit:
            first = next(iter(bodies))
            if len(tools) > 1:
                others = [_render_left_out(tools.keys() - {first})]
            else:
                others = []
            fit[first] = _render_part(
                bodies[first],
                0,
                first,
                snapshot.version,
                detail,
                compute_remaining_tokens(budget, *notes, *others),
            )
        if len(fit) < len(tools):
            notes.append(_render_left_out(address for address in tools if address not in fit))
    return ("\n" if detail == "brief" else "\n\n").join([*fit.values(), *notes]), bool(tools)


def choose_rendered(tools: Mapping[str, Tool]) -> dict[str, Tool]:
    """The tools that are rendered: rendering what cannot fit takes time, too."""
    first: dict[str, Tool] = {}
    left = MAX_RENDERED_BYTES
    for address, tool in tools.items():
        left -= len(tool.blob)
        if left >= 0 or not first:
            first[address] = tool
    return first


def _render(tool: Tool, detail: Detail, get_details: GetDetails | None) -> str:
    if detail == "full":
        return render_full_text(tool, details=get_details(tool) if get_details else None)
    return {"brief": render_brief, "schema": render_schema}[detail](tool)


def _take_fitting(bodies: Mapping[str, str], costs: Mapping[str, int], room: int) -> dict[str, str]:
    fit: dict[str, str] = {}
    for address, body in bodies.items():
        if costs[address] <= room:
            fit[address] = body
            room -= costs[address]
    return fit


def _render_left_out(names: Iterable[str]) -> str:
    left = list(names)
    return f"Left out to fit: {render_addresses(left, len(left))}. Ask for them separately."


# --- parts


def _continue_tool(
    bodies: Mapping[str, str], cursor: str, version: str, detail: Detail, budget: int
) -> str:
    if len(bodies) != 1:
        raise StaleCursor(
            "a cursor continues one tool", advice="Name the one tool that the cursor came with."
        )
    ((address, body),) = bodies.items()
    left = cursors.decode(cursor, _make_cursor_key(address, detail), version)
    head = f"{render_addresses((address,))}, continued:"
    start = max(0, len(body) - left)
    # A part that begins inside a line must not look like a line of ours.
    if not start or body[start - 1] == "\n":
        mark = ""
    else:
        mark = CONTINUATION_MARK
    return f"{head}\n{mark}{_render_part(body, start, address, version, detail, compute_remaining_tokens(budget, head, mark))}"


def _render_part(
    body: str, start: int, address: str, version: str, detail: Detail, max_tokens: int
) -> str:
    """As much of a body as fits, and how to get the rest."""
    if count_tokens(body[start:]) <= max_tokens:
        return body[start:]
    note = _render_continuation(body, start, address, version, detail)
    end = find_part_end(body, start, max(max_tokens - count_tokens(note) - 1, _MIN_PART_TOKENS))
    if end == len(body):
        return body[start:]
    return f"{body[start:end].removesuffix(_NEWLINE)}\n{_render_continuation(body, end, address, version, detail)}"


_NEWLINE = "\n"


def _render_continuation(body: str, end: int, address: str, version: str, detail: Detail) -> str:
    """What is left, and the call that continues. The cursor counts from the end: what use changes
    stands before it."""
    cursor = cursors.encode(_make_cursor_key(address, detail), version, len(body) - end)
    line = body[body.rfind("\n", 0, end) + 1 :].split("\n", 1)[0]
    if not end or body[end - 1] == "\n":
        within = ""
    else:
        within = " (inside a line)"
    where = clip_line(line.split(" — ", 1)[0].split(": ", 1)[0].strip()[:60], 12)
    return (
        f"Left to fit, about {count_tokens(body[end:]):,} tokens from {where}{within} on: "
        f'describe_tools(names=[{to_literal(address)}], detail="{detail}", cursor="{cursor}")'
    )


def _make_cursor_key(address: str, detail: Detail) -> str:
    return f"describe\0{detail}\0{address}"
