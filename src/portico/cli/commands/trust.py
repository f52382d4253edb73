"""`portico trust`: what servers say differently than when they were trusted, and trusting it.

--json: `{"servers": [{"server", "seen" (stands for these changes), "changes": [{"kind", "name",
"digest", "held", "notes", "renamed_from", "findings": [{"meaning", "path", "excerpt"}], "fields":
[{"path", "before", "after", "harmless"}]}]}], "trusted": [digest]}`.
"""

import asyncio
from collections.abc import Sequence

from portico.catalog.scan_findings import list_open_points
from portico.catalog.snapshot import ServerEntry, Snapshot
from portico.catalog.tool import quote_text
from portico.cli.exit import EXIT_OK
from portico.cli.look_commands import TrustOptions
from portico.cli.screen import Screen
from portico.cli.setup import LISTING_WAIT_S, open_gateway, select_unlisted_servers
from portico.errors import PorticoError, UnknownName
from portico.policy.definition_change import DefinitionChange
from portico.rendering.definition_changes import (
    identify_changes,
    make_change_object,
    render_change,
    summarize_points,
)


async def run_trust(name: str | None, options: TrustOptions) -> int:
    """Show what is held back, or trust it."""
    setup, screen = options.load()
    async with open_gateway(setup, screen, select_unlisted_servers, LISTING_WAIT_S) as gateway:
        snapshot = gateway.catalog.snapshot
        if name is None:
            await asyncio.to_thread(_show_servers, screen, snapshot)
            return EXIT_OK
        entry = snapshot.resolve_server(name)
        points = await asyncio.to_thread(list_open_points, snapshot, entry)
        changes = _select(entry, points, options.tool)
        seen = identify_changes(changes)
        if options.diff or not changes:
            await asyncio.to_thread(_show_changes, screen, entry, changes, seen)
            return EXIT_OK
        if options.seen is not None and options.seen != seen:
            raise PorticoError(
                f"{entry.name} says something else by now than what was looked at",
                advice=f"Look again: portico trust {entry.name} --diff",
            )
        await gateway.catalog.trust(entry.name, changes)
    if screen.as_json:
        screen.write_json({"servers": [], "trusted": [change.digest for change in changes]})
        return EXIT_OK
    for change in changes:
        screen.write_text(*render_change(change, with_fields=False))
    screen.write_text(f"What {entry.name} says of these is trusted now.")
    return EXIT_OK


def _select(
    entry: ServerEntry, points: Sequence[DefinitionChange], tools: Sequence[str] | None
) -> tuple[DefinitionChange, ...]:
    """Return what waits for a look, or that of some of the tools; raises UnknownName."""
    if not tools:
        return tuple(points)
    exposed = {name: tool.upstream_name for name, tool in entry.tools.items()}
    wanted = {exposed.get(tool.removeprefix(f"{entry.name}."), tool) for tool in tools}
    chosen = tuple(change for change in points if change.name in wanted)
    missing = wanted - {change.name for change in chosen}
    if missing:
        raise UnknownName(
            f"nothing of {quote_text(min(missing))} waits to be looked at in {entry.name}",
            nearest=tuple(change.name for change in points if change.name),
            advice=f"portico trust {entry.name} --diff shows everything that does.",
        )
    return chosen


def _show_servers(screen: Screen, snapshot: Snapshot) -> None:
    found = {
        name: points
        for name in sorted(snapshot.servers)
        if (points := list_open_points(snapshot, snapshot.servers[name]))
    }
    if screen.as_json:
        servers = [
            {
                "server": name,
                "seen": identify_changes(points),
                "changes": [make_change_object(change) for change in points],
            }
            for name, points in found.items()
        ]
        screen.write_json({"servers": servers, "trusted": []})
        return
    for name, points in found.items():
        screen.write_text(f"{name}: {summarize_points(points)}")
    if found:
        screen.write_text("`portico trust NAME --diff` shows what waits for your look.")
    else:
        screen.write_text("Every server says what it said when it was trusted.")


def _show_changes(
    screen: Screen, entry: ServerEntry, changes: Sequence[DefinitionChange], seen: str
) -> None:
    if screen.as_json:
        found = [make_change_object(change) for change in changes]
        screen.write_json(
            {
                "servers": [{"server": entry.name, "seen": seen, "changes": found}],
                "trusted": [],
            }
        )
        return
    for change in changes:
        screen.write_text(*render_change(change, with_fields=True))
    if changes:
        screen.write_text(f"To trust exactly this: portico trust {entry.name} --seen {seen}")
    else:
        screen.write_text(f"{entry.name} says what it said when it was trusted.")
