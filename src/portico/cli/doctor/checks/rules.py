"""Checks globs, pins and profiles that match no tool of the listed servers. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase

from portico.access import Scope
from portico.catalog.address import find_nearest_names
from portico.catalog.snapshot import ServerEntry
from portico.cli.doctor.finding import ConfigLocations, DoctorFinding
from portico.config import BackendConfig, Config


def check_server_rules(
    name: str, server: BackendConfig, listed: Iterable[str], locations: ConfigLocations
) -> Iterator[DoctorFinding]:
    """Yield rules of one server that match none of its listed tools."""
    own = list(listed)
    if not own:
        return
    rules = server.tools
    tool_names = {*own, *(rules.get_exposed_name(tool) for tool in own)}
    for section in ("allow", "deny", "destructive"):
        globs: tuple[str, ...] = getattr(rules, section)
        for position, glob in enumerate(globs):
            if not any(fnmatchcase(tool, glob) for tool in tool_names):
                yield _make_no_match_finding(
                    f"tools.{section}",
                    glob,
                    tool_names,
                    locations.locate_server(name, "tools", section, position),
                )
    for old in rules.rename:
        if old not in own:
            yield _make_no_match_finding(
                "tools.rename", old, set(own), locations.locate_server(name, "tools", "rename", old)
            )
    for glob in rules.categories:
        if not any(fnmatchcase(tool, glob) for tool in tool_names):
            yield _make_no_match_finding(
                "tools.categories",
                glob,
                tool_names,
                locations.locate_server(name, "tools", "categories", glob),
            )
    if not any(rules.permits(tool) for tool in own):
        yield DoctorFinding(
            "rules.nothing_left",
            "warning",
            f"tools.allow and tools.deny leave none of its {len(own)} tools",
            f"Its tools: {', '.join(own[:8])}.",
            **locations.locate_server(name, "tools"),
        )


def check_gateway_rules(
    config: Config, entries: Mapping[str, ServerEntry], locations: ConfigLocations
) -> Iterator[DoctorFinding]:
    """Yield pins and profiles without a tool, as far as they concern listed servers."""
    tools = {tool.address for entry in entries.values() for tool in entry.tools.values()}
    for position, pin in enumerate(config.pins):
        server, dot, _ = pin.partition(".")
        if (server in entries and pin not in tools) or not dot:
            near = find_nearest_names(pin, tools, 3)
            if near:
                remedy = f"Did you mean {', '.join(near)}?"
            else:
                remedy = "`portico browse` lists the tools; write server.tool."
            yield DoctorFinding(
                "pin.unknown",
                "warning",
                f"the pin {pin!r} names no tool",
                remedy,
                **locations.locate("pins", position),
            )
    unlisted = {name for name, server in config.servers.items() if not server.disabled} - set(
        entries
    )
    for name, profile in config.profiles.items():
        scope = Scope(profile.servers, profile.tools)
        if (
            not any(map(scope.can_see_tool, tools))
            and not any(map(scope.can_see_server, unlisted))
            and entries
        ):
            yield DoctorFinding(
                "profile.empty",
                "warning",
                f"the profile {name} shows no tool",
                "Correct its `servers` and `tools`; a pattern is a tool's name or "
                "server.tool, and may have *.",
                **locations.locate("profiles", name),
            )


def _make_no_match_finding(
    rule: str, glob: str, tools: Iterable[str], at: Mapping[str, object]
) -> DoctorFinding:
    near = find_nearest_names(glob, tools, 3)
    if near:
        remedy = f"Did you mean {', '.join(near)}?"
    else:
        remedy = "Correct it, or take it out; `portico browse SERVER` lists its tools."
    return DoctorFinding(
        "rules.match_nothing",
        "warning",
        f"{rule}: {glob!r} matches none of its tools",
        remedy,
        **at,  # pyright: ignore[reportArgumentType]
    )
