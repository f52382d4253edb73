"""Lines about servers and their states, which several responses share. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from portico.catalog.address import find_identifier
from portico.catalog.snapshot import ServerEntry
from portico.catalog.tool import Tool
from portico.rendering.token_budget import format_count, to_short_line
from portico.upstream.lifecycle.status import TROUBLED_STATES, UNUSABLE_STATES


@dataclass(frozen=True)
class ServerState:
    """A server's state, as listings show it."""

    state: str
    reason: str = ""
    state_since: float = 0.0


ServerStates = Mapping[str, ServerState]


def render_server_line(
    entry: ServerEntry, states: ServerStates, identifiers: Mapping[str, str] | None = None
) -> str:
    """Render a server's number of tools, its purpose and its problem, if any.

    With `identifiers` also its name in scripts, where that differs.
    """
    state = states.get(entry.name, ServerState("configured"))
    if entry.is_listed:
        tools = format_count(len(entry.tools), "tool")
    else:
        tools = "not listed yet"
    about = to_short_line(entry.own_description or entry.own_title, 30)
    identifier = find_identifier(entry.name, identifiers) if identifiers else entry.name
    name = entry.name if identifier == entry.name else f"{entry.name} (in scripts: {identifier})"
    line = f"{name}: {tools}" + (f" — {about}" if about else "")
    if state.state in TROUBLED_STATES:
        line += f" [{state.state}: {to_short_line(state.reason, 40)}]"
    elif state.state == "starting":
        line += " [starting]"
    return line


def render_unlisted_servers(names: Sequence[str], states: ServerStates) -> Iterator[str]:
    """Render the servers that a search could not cover, because they were never listed."""
    if names:
        named = ", ".join(_render_unlisted_server(name, states) for name in names[:5])
        yield f"Not searched, because not listed yet: {named}{' …' if len(names) > 5 else ''}"


def _render_unlisted_server(name: str, states: ServerStates) -> str:
    if name not in states:
        return name
    # One that is connected and being listed is still starting for a client that waits for tools.
    state = states[name].state
    return f"{name} ({state if state in TROUBLED_STATES else 'starting'})"


def mark_unusable(text: str, tool: Tool, states: ServerStates) -> str:
    """Add the state to the first line of a tool's text, if its server cannot be used now."""
    if tool.server in states and (state := states[tool.server].state) in UNUSABLE_STATES:
        first, line_break, rest = text.partition("\n")
        return f"{first} [{state}]{line_break}{rest}"
    return text
