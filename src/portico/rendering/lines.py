"""Lines that answers have in common, such as a server with its state, and the room that they leave.
Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from portico.catalog.snapshot import ServerEntry, Snapshot
from portico.catalog.visible_text import sanitize_text
from portico.rendering.budget import truncate
from portico.rendering.token_count import count_tokens
from portico.upstream.lifecycle.status import TROUBLED_STATES

_USABLE_SHARE = 0.95
_RESERVED_TOKENS = 60
"""How much of a budget is used. What an answer costs is estimated, and where one server's odd names
fill it, the estimate is low by up to a seventh in short answers and a twentieth in long ones."""

_CHARS_PER_TOKEN = 64
"""Characters of a text that are looked at for each token of it that is shown."""


@dataclass(frozen=True)
class ServerState:
    """What a listing says about a server beside its tools."""

    state: str
    reason: str = ""
    state_since: float = 0.0


ServerStates = Mapping[str, ServerState]


def render_server_line(entry: ServerEntry, states: ServerStates) -> str:
    """A server: how many tools, what it is for, and what is wrong with it."""
    state = states.get(entry.name, ServerState("configured"))
    if entry.is_listed:
        tools = format_count(len(entry.tools), "tool")
    else:
        tools = "not listed yet"
    about = to_short_line(
        entry.description or (entry.title if entry.title != entry.name else ""), 30
    )
    line = f"{entry.name}: {tools}" + (f" — {about}" if about else "")
    if state.state in TROUBLED_STATES:
        line += f" [{state.state}: {to_short_line(state.reason, 40)}]"
    elif state.state == "starting":
        line += " [starting]"
    return line


def render_unlisted_servers(snapshot: Snapshot, states: ServerStates) -> Iterator[str]:
    """Servers whose tools are not known, because a search cannot have looked there."""
    if waiting := snapshot.unlisted_servers:
        named = ", ".join(
            f"{name} ({states[name].state})" if name in states else name for name in waiting[:5]
        )
        yield f"Not searched, because not listed yet: {named}{' …' if len(waiting) > 5 else ''}"


def format_count(number: int, singular: str, plural: str = "") -> str:
    """`1 tool`, `1,200 tools`."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def to_short_line(text: str, max_tokens: int) -> str:
    """Somebody's text in one line of at most so many tokens."""
    # A token has seldom more than 8 characters, and spaces go: megabytes need not be looked through
    # for a line.
    return truncate(
        " ".join(sanitize_text(text[: max_tokens * _CHARS_PER_TOKEN]).split()), max_tokens
    )


def compute_remaining_tokens(budget: int, *lines: str) -> int:
    """What a budget leaves for the entries of an answer beside its other lines."""
    return int(budget * _USABLE_SHARE) - _RESERVED_TOKENS - count_tokens("\n".join(lines)) - 1
