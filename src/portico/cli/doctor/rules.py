"""Globs, pins and profiles that lead to no tool. Pure: it goes by what the servers listed."""

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase

from portico.access import Scope
from portico.catalog.address import nearest
from portico.catalog.snapshot import ServerEntry
from portico.cli.doctor.finding import Finding, Places
from portico.config import BackendConfig, Config


def of_server(name: str, server: BackendConfig, listed: Iterable[str], places: Places) -> Iterator[Finding]:
    """Rules of one server that match none of the tools it listed, by their own names."""
    own = list(listed)
    if not own:
        return
    rules = server.tools
    here = {*own, *(rules.name_of(tool) for tool in own)}
    for section in ("allow", "deny", "destructive"):
        globs: tuple[str, ...] = getattr(rules, section)
        for position, glob in enumerate(globs):
            if not any(fnmatchcase(tool, glob) for tool in here):
                yield _nothing(f"tools.{section}", glob, here, places.server(name, "tools", section, position))
    for old in rules.rename:
        if old not in own:
            yield _nothing("tools.rename", old, set(own), places.server(name, "tools", "rename", old))
    for glob in rules.categories:
        if not any(fnmatchcase(tool, glob) for tool in here):
            yield _nothing("tools.categories", glob, here, places.server(name, "tools", "categories", glob))
    if not any(rules.permits(tool) for tool in own):
        yield Finding(
            "rules.nothing_left",
            "warning",
            f"tools.allow and tools.deny leave none of its {len(own)} tools",
            f"Its tools: {', '.join(own[:8])}.",
            **places.server(name, "tools"),
        )


def of_house(config: Config, entries: Mapping[str, ServerEntry], places: Places) -> Iterator[Finding]:
    """Pins and profiles; only what concerns servers that were heard."""
    tools = {tool.address for entry in entries.values() for tool in entry.tools.values()}
    for position, pin in enumerate(config.pins):
        server, dot, _ = pin.partition(".")
        if (server in entries and pin not in tools) or not dot:
            near = nearest(pin, tools, 3)
            remedy = (
                f"Did you mean {', '.join(near)}?" if near else "`portico browse` lists the tools; write server.tool."
            )
            yield Finding(
                "pin.unknown", "warning", f"the pin {pin!r} names no tool", remedy, **places.at("pins", position)
            )
    silent = {name for name, server in config.servers.items() if not server.disabled} - set(entries)
    for name, profile in config.profiles.items():
        scope = Scope(profile.servers, profile.tools)
        if not any(map(scope.sees, tools)) and not any(map(scope.sees_server, silent)) and entries:
            yield Finding(
                "profile.empty",
                "warning",
                f"the profile {name} shows no tool",
                "Correct its `servers` and `tools`; a pattern is a tool's name or server.tool, and may have *.",
                **places.at("profiles", name),
            )


def _nothing(rule: str, glob: str, tools: Iterable[str], at: Mapping[str, object]) -> Finding:
    near = nearest(glob, tools, 3)
    remedy = (
        f"Did you mean {', '.join(near)}?"
        if near
        else "Correct it, or take it out; `portico browse SERVER` lists its tools."
    )
    return Finding("rules.match_nothing", "warning", f"{rule}: {glob!r} matches none of its tools", remedy, **at)  # pyright: ignore[reportArgumentType]
