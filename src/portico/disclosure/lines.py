"""Lines that answers have in common, such as a server with its state, and the room that they leave. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from portico.catalog.snapshot import ServerEntry, Snapshot
from portico.catalog.visible import shown
from portico.disclosure.budget import cut
from portico.disclosure.tokens import count
from portico.upstream.status import TROUBLED

_USED, _KEPT_BACK = 0.95, 60
"""How much of a budget is used. What an answer costs is estimated, and where one server's odd names fill it, the
estimate is low by up to a seventh in short answers and a twentieth in long ones."""

_CHARS = 64
"""Characters of a text that are looked at for each token of it that is shown."""


@dataclass(frozen=True)
class ServerState:
    """What a listing says about a server beside its tools."""

    state: str
    reason: str = ""
    since: float = 0.0


States = Mapping[str, ServerState]


def server_line(entry: ServerEntry, states: States) -> str:
    """A server: how many tools, what it is for, and what is wrong with it."""
    state = states.get(entry.name, ServerState("configured"))
    tools = counted(len(entry.tools), "tool") if entry.known else "not listed yet"
    about = one_paragraph(entry.description or (entry.title if entry.title != entry.name else ""), 30)
    line = f"{entry.name}: {tools}" + (f" — {about}" if about else "")
    if state.state in TROUBLED:
        line += f" [{state.state}: {one_paragraph(state.reason, 40)}]"
    elif state.state == "starting":
        line += " [starting]"
    return line


def unlisted(snapshot: Snapshot, states: States) -> Iterator[str]:
    """Servers whose tools are not known, because a search cannot have looked there."""
    if waiting := snapshot.unlisted:
        named = ", ".join(f"{name} ({states[name].state})" if name in states else name for name in waiting[:5])
        yield f"Not searched, because not listed yet: {named}{' …' if len(waiting) > 5 else ''}"


def counted(number: int, one: str, many: str = "") -> str:
    """`1 tool`, `1,200 tools`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def one_paragraph(body: str, tokens: int) -> str:
    """Somebody's text in one line of at most so many tokens."""
    # A token has seldom more than 8 characters, and spaces go: megabytes need not be looked through for a line.
    return cut(" ".join(shown(body[: tokens * _CHARS]).split()), tokens)


def room(budget: int, *beside: str) -> int:
    """What a budget leaves for the entries of an answer beside its other lines."""
    return int(budget * _USED) - _KEPT_BACK - count("\n".join(beside)) - 1
