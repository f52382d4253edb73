"""`portico browse` and `describe`: what an agent gets, laid out for people or as JSON.

Shapes of --json. A tool is `{"name", "server", "brief"}`, with `"schema"` (text) or everything `describe` knows at
detail full. browse: `{"tools": n, "servers": [server]}`, of one server `{"server": server, "tools": [tool]}`. describe:
`{"tools": [tool], "unknown": [error]}`. A server is `{"name", "title", "description", "tags", "known", "tools",
"resources", "prompts", "state", "reason"}`.
"""

from collections.abc import Sequence
from typing import Any

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from portico.app import Gateway
from portico.catalog.address import fold, split_name
from portico.catalog.snapshot import ServerEntry, Snapshot
from portico.catalog.tool import Tool
from portico.catalog.visible import shown
from portico.cli.ending import DONE, FAILED, as_data, complain, note, reason
from portico.cli.opening import PATIENCE_S, Setup, ask, none, opened, still_starting, unlisted
from portico.cli.screen import Screen
from portico.disclosure import discovery
from portico.disclosure.lines import ServerState, counted
from portico.disclosure.render import brief, full, full_text, schema
from portico.errors import PorticoError, UnknownName

_STYLES = {"down": "red", "degraded": "yellow", "disabled": "yellow", "ready": "green"}


async def browse(setup: Setup, screen: Screen, server: str | None, offline: bool) -> int:
    """Every server, or the tools of one."""
    async with opened(setup, screen, none if offline else unlisted, PATIENCE_S) as gateway:
        snapshot = gateway.view(setup.profile).snapshot
        name_late(gateway)
        entries = [snapshot.server(server)] if server else [snapshot.servers[name] for name in sorted(snapshot.servers)]
        facts = [server_data(gateway, entry) for entry in entries]
    if server:
        _show_server(screen, entries[0], facts[0])
    elif screen.as_json:
        screen.data({"tools": len(snapshot.tools), "servers": facts})
    else:
        _show_servers(screen, snapshot, facts)
    return DONE


def _show_server(screen: Screen, entry: ServerEntry, facts: dict[str, Any]) -> None:
    if screen.as_json:
        screen.data({"server": facts, "tools": [tool_data(tool, "brief") for tool in entry.tools.values()]})
        return
    about = entry.description or (entry.title if entry.title != entry.name else "")
    tools = counted(len(entry.tools), "tool") if entry.known else "not listed yet"
    screen.text(Text.assemble((entry.name, "bold"), f": {tools}", f" — {about}" if about else "", _state(facts)))
    if entry.hello and entry.hello.instructions:
        screen.text(Text(f"Its own notes: {' '.join(shown(entry.hello.instructions).split())}", style="dim"))
    screen.text(*(tool_lines(screen, tool, "brief") for tool in entry.tools.values()))
    for kind in ("resources", "prompts"):
        if facts[kind]:
            screen.text(f"Also offers {counted(facts[kind], kind.removesuffix('s'))}.")


def _show_servers(screen: Screen, snapshot: Snapshot, facts: Sequence[dict[str, Any]]) -> None:
    screen.text(f"{counted(len(snapshot.tools), 'tool')} on {counted(len(facts), 'server')}.")
    if not screen.for_people:
        for one in facts:
            about = f" — {one['description'] or one['title']}" if one["description"] or one["title"] else ""
            screen.text(f"{one['name']}: {_tool_count(one)}{about}{_state(one)}")
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("server", style="bold", no_wrap=True)
    table.add_column("tools", justify="right")
    table.add_column("about", ratio=1)
    for one in facts:
        about = Text(one["description"] or one["title"])
        table.add_row(one["name"], str(one["tools"]) if one["known"] else "?", about + _state(one))
    screen.text(table, Text("portico browse SERVER lists its tools; portico search finds them by what they do.", "dim"))


def _tool_count(one: dict[str, Any]) -> str:
    return counted(one["tools"], "tool") if one["known"] else "not listed yet"


def _state(one: dict[str, Any]) -> Text:
    if one["state"] not in ("down", "degraded", "disabled"):
        return Text()
    return Text(f" [{one['state']}: {' '.join(one['reason'].split())}]", style=_STYLES[one["state"]])


async def describe(setup: Setup, screen: Screen, names: Sequence[str], detail: str) -> int:
    """What each tool takes; exit code 1 when one is unknown."""
    async with opened(setup, screen, none) as gateway:
        await known(gateway, setup, screen, names)
        tools: list[Tool] = []
        wrong: list[PorticoError] = []
        for name in names:
            try:
                tools.append(found(gateway, setup, name))
            except PorticoError as error:
                wrong.append(error)
    if screen.as_json:
        screen.data({"tools": [tool_data(tool, detail) for tool in tools], "unknown": [as_data(one) for one in wrong]})
    else:
        separator = [""] if detail != "brief" else []
        for place, tool in enumerate(tools):
            screen.text(*(separator if place else ()), tool_lines(screen, tool, detail))
    for error in wrong:
        complain(error)
    return FAILED if wrong else DONE


async def known(
    gateway: Gateway, setup: Setup, screen: Screen, names: Sequence[str], patience: float | None = PATIENCE_S
) -> None:
    """Ask the servers that could have these tools, if a tool is not known without asking.

    A server that a name begins with is waited for with this patience; all of them, where a name has none, never long.
    """
    snapshot = gateway.view(setup.profile).snapshot
    missing = [name for name in names if not _resolves(snapshot, name)]
    owners = [{fold(server) for server, _ in split_name(name)} for name in missing]
    asked = unlisted(gateway)
    named = {name for name in asked if any(fold(name) in meant for meant in owners)}
    if all(any(fold(name) in meant for name in snapshot.servers) for meant in owners):
        await ask(gateway, screen, named, patience)
    else:
        await ask(gateway, screen, asked, PATIENCE_S)
    name_late(gateway)


def name_late(gateway: Gateway) -> None:
    """Say on stderr which servers were not waited for."""
    if late := still_starting(gateway):
        note(f"Still starting: {', '.join(late)}; `portico status` waits for {'it' if len(late) == 1 else 'them'}.")


def found(gateway: Gateway, setup: Setup, name: str) -> Tool:
    """The tool a name means; raises what an agent would be told."""
    snapshot = gateway.view(setup.profile).snapshot
    try:
        return snapshot.tool(name)
    except UnknownName as error:
        meant = {fold(server) for server, _ in split_name(name)}
        for server in snapshot.servers:
            if fold(server) in meant and gateway.upstreams[server].state == "disabled":
                # Our own words about the configuration: as what a server said, they would be masked.
                raise PorticoError(
                    f"{server} cannot be used: {gateway.upstreams[server].reason}", advice="Mend the configuration."
                ) from error
        states = {one.name: ServerState(one.state, one.reason, one.since) for one in gateway.statuses()}
        raise discovery.explained(error, name, snapshot, states) from error


def _resolves(snapshot: Snapshot, name: str) -> bool:
    try:
        snapshot.tool(name)
    except UnknownName:
        return False
    return True


def tool_data(tool: Tool, detail: str) -> dict[str, Any]:
    """A tool as --json shows it."""
    data = {"name": tool.address, "server": tool.server, "brief": brief(tool)}
    if detail == "schema":
        data["schema"] = schema(tool)
    return {**data, **full(tool)} if detail == "full" else data


def server_data(gateway: Gateway, entry: ServerEntry) -> dict[str, Any]:
    """A server as --json shows it."""
    upstream = gateway.upstreams[entry.name]
    return {
        "name": entry.name,
        "title": "" if entry.title == entry.name else entry.title,
        "description": entry.description,
        "tags": list(entry.tags),
        "known": entry.known,
        "tools": len(entry.tools),
        "resources": len(entry.offers.resources),
        "prompts": len(entry.offers.prompts),
        "state": upstream.state,
        "reason": reason(upstream.state, upstream.reason),
    }


def tool_lines(screen: Screen, tool: Tool, detail: str, also: Sequence[str] = ()) -> Text | Group:
    """A tool at a level of detail; for programs exactly as agents see it."""
    if detail == "brief":
        return _brief_lines(tool, also) if screen.for_people else Text(brief(tool, also))
    body = schema(tool, also) if detail == "schema" else full_text(tool)
    head, newline, rest = body.partition("\n")
    return Text.assemble(_headed(head), newline, rest)


def _brief_lines(tool: Tool, also: Sequence[str]) -> Group:
    signature, _, sentence = brief(tool, also).partition(") — ")
    whole = f"{signature})" if sentence else signature
    address = " ".join(shown(tool.address).split())
    line = Text.assemble((address, "bold cyan"), (whole.removeprefix(address), "dim"))
    return Group(line, Padding(Text(sentence), (0, 0, 0, 2), expand=False)) if sentence else Group(line)


def _headed(head: str) -> Text:
    name, dash, rest = head.partition(" — ")
    return Text.assemble((name, "bold cyan"), dash, rest)
