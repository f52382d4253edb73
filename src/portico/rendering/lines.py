"""Lines that several responses share, such as a server with its state, and the remaining budget.

Pure.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from portico.catalog.snapshot import ServerEntry, Snapshot
from portico.catalog.visible_text import sanitize_text
from portico.rendering.budget import truncate
from portico.rendering.token_count import count_tokens
from portico.upstream.lifecycle.status import TROUBLED_STATES

_USABLE_SHARE = 0.95
_RESERVED_TOKENS = 60
"""Part of a budget that is used. Costs are estimated; for a server with unusual names the estimate
is low by up to a seventh in short responses and a twentieth in long ones.
"""

_CHARS_PER_TOKEN = 64
"""Characters of a text that are read per token shown."""


@dataclass(frozen=True)
class ServerState:
    """A server's state, as listings show it."""

    state: str
    reason: str = ""
    state_since: float = 0.0


ServerStates = Mapping[str, ServerState]


def render_server_line(entry: ServerEntry, states: ServerStates) -> str:
    """Render a server's number of tools, its purpose and its problem, if any."""
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
    """Render the servers that a search could not cover, because they were never listed."""
    if unlisted := snapshot.unlisted_servers:
        named = ", ".join(
            f"{name} ({states[name].state})" if name in states else name for name in unlisted[:5]
        )
        yield f"Not searched, because not listed yet: {named}{' …' if len(unlisted) > 5 else ''}"


def format_count(number: int, singular: str, plural: str = "") -> str:
    """Format a number with its noun: `1 tool`, `1,200 tools`."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def to_short_line(text: str, max_tokens: int) -> str:
    """Return an untrusted text as one line of at most `max_tokens`."""
    # Tokens rarely exceed 8 characters, so a long text need not be read to its end.
    return truncate(
        " ".join(sanitize_text(text[: max_tokens * _CHARS_PER_TOKEN]).split()), max_tokens
    )


def compute_remaining_tokens(budget: int, *lines: str) -> int:
    """Return what a budget leaves for the entries of a response beside its other lines."""
    return int(budget * _USABLE_SHARE) - _RESERVED_TOKENS - count_tokens("\n".join(lines)) - 1
