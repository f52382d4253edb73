"""Tools described by name, in brief, typed or whole, within a budget. Pure.

What does not fit one answer is given in parts, the most needed first; a cursor continues, and nothing is lost.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from portico.catalog.snapshot import Snapshot
from portico.catalog.tool import Tool
from portico.catalog.visible import literal, shown
from portico.disclosure import cursor as cursors
from portico.disclosure.budget import pack, part
from portico.disclosure.discovery import explained
from portico.disclosure.lines import States, room
from portico.disclosure.prose import clipped, flat
from portico.disclosure.render import addresses, brief, full_text, schema
from portico.disclosure.tokens import count
from portico.errors import StaleCursor, UnknownName

Detail = str
Extra = Callable[[Tool], Mapping[str, Any]]
"""What is known of a tool beside its definition, for the full form."""

FULL_TOKENS = 8_000
"""What an answer in full may take: whoever asks for everything has seen the shorter forms."""
INSIDE = "… "
"""Stands before a part that begins inside a line."""
MAX_RENDERED = 128 * 1024
"""Bytes of the definitions that are rendered for one answer; the first tool is, whatever its size."""
_LEAST = 40
"""A part has at least so many tokens, however little a budget leaves: what is asked again and again must end."""


@dataclass(frozen=True)
class Named:
    """What names mean."""

    tools: Mapping[str, Tool]
    """By address."""
    wrong: Sequence[str]
    """What is to be said of each name that means nothing."""


def find_named(snapshot: Snapshot, names: Sequence[str], states: States | None = None) -> Named:
    """The tools that these names mean. Compares wrong ones with every tool's."""
    tools: dict[str, Tool] = {}
    wrong: list[str] = []
    for name in names:
        try:
            tool = snapshot.tool(name)
            tools[tool.address] = tool
        except UnknownName as error:
            reason = explained(error, name, snapshot, states or {})
            wrong.append(flat(shown(f"{reason.message}. {reason.advice}")))
    return Named(tools, wrong)


def describe(
    snapshot: Snapshot,
    budget: int,
    names: Sequence[str] | Named,
    detail: Detail = "schema",
    cursor: str | None = None,
    states: States | None = None,
    extra: Extra | None = None,
) -> tuple[str, bool]:
    """The tools asked for, and whether at least one was found. A wrong name costs only itself."""
    budget = max(budget, FULL_TOKENS) if detail == "full" else budget
    named = names if isinstance(names, Named) else find_named(snapshot, names, states)
    tools, wrong = named.tools, named.wrong
    bodies = {address: _shown(tool, detail, extra) for address, tool in choose_rendered(tools).items()}
    if cursor and tools:
        return _continued(bodies, cursor, snapshot.version, detail, budget), True
    notes = [*pack(wrong, budget // 2).texts]
    if len(notes) < len(wrong):
        notes.append(f"{len(wrong) - len(notes)} more names are unknown here.")
    costs = {address: count(body) + 1 for address, body in bodies.items()}
    fit = _fitting(bodies, costs, room(budget, *notes))
    if len(fit) < len(tools):
        fit = _fitting(bodies, costs, room(budget, *notes, _left_out(tools)))
        if not fit:
            first = next(iter(bodies))
            others = [_left_out(tools.keys() - {first})] if len(tools) > 1 else []
            fit[first] = _part(bodies[first], 0, first, snapshot.version, detail, room(budget, *notes, *others))
        if len(fit) < len(tools):
            notes.append(_left_out(address for address in tools if address not in fit))
    return ("\n" if detail == "brief" else "\n\n").join([*fit.values(), *notes]), bool(tools)


def choose_rendered(tools: Mapping[str, Tool]) -> dict[str, Tool]:
    """The tools that are rendered: rendering what cannot fit takes time, too."""
    first: dict[str, Tool] = {}
    left = MAX_RENDERED
    for address, tool in tools.items():
        left -= len(tool.blob)
        if left >= 0 or not first:
            first[address] = tool
    return first


def _shown(tool: Tool, detail: Detail, extra: Extra | None) -> str:
    if detail == "full":
        return full_text(tool, extra=extra(tool) if extra else None)
    return {"brief": brief, "schema": schema}[detail](tool)


def _fitting(bodies: Mapping[str, str], costs: Mapping[str, int], room: int) -> dict[str, str]:
    fit: dict[str, str] = {}
    for address, body in bodies.items():
        if costs[address] <= room:
            fit[address] = body
            room -= costs[address]
    return fit


def _left_out(names: Iterable[str]) -> str:
    left = list(names)
    return f"Left out to fit: {addresses(left, len(left))}. Ask for them separately."


# --- parts


def _continued(bodies: Mapping[str, str], cursor: str, version: str, detail: Detail, budget: int) -> str:
    if len(bodies) != 1:
        raise StaleCursor("a cursor continues one tool", advice="Name the one tool that the cursor came with.")
    ((address, body),) = bodies.items()
    left = cursors.decode(cursor, _question(address, detail), version)
    head = f"{addresses((address,))}, continued:"
    start = max(0, len(body) - left)
    # A part that begins inside a line must not look like a line of ours.
    mark = "" if not start or body[start - 1] == "\n" else INSIDE
    return f"{head}\n{mark}{_part(body, start, address, version, detail, room(budget, head, mark))}"


def _part(body: str, start: int, address: str, version: str, detail: Detail, tokens: int) -> str:
    """As much of a body as fits, and how to get the rest."""
    if count(body[start:]) <= tokens:
        return body[start:]
    note = _rest(body, start, address, version, detail)
    end = part(body, start, max(tokens - count(note) - 1, _LEAST))
    if end == len(body):
        return body[start:]
    return f"{body[start:end].removesuffix(_NEWLINE)}\n{_rest(body, end, address, version, detail)}"


_NEWLINE = "\n"


def _rest(body: str, end: int, address: str, version: str, detail: Detail) -> str:
    """What is left, and the call that continues. The cursor counts from the end: what use changes stands before it."""
    cursor = cursors.encode(_question(address, detail), version, len(body) - end)
    line = body[body.rfind("\n", 0, end) + 1 :].split("\n", 1)[0]
    within = "" if not end or body[end - 1] == "\n" else " (inside a line)"
    where = clipped(line.split(" — ", 1)[0].split(": ", 1)[0].strip()[:60], 12)
    return (
        f"Left to fit, about {count(body[end:]):,} tokens from {where}{within} on: "
        f'describe_tools(names=[{literal(address)}], detail="{detail}", cursor="{cursor}")'
    )


def _question(address: str, detail: Detail) -> str:
    return f"describe\0{detail}\0{address}"
