"""`portico browse` and `describe`: what an agent gets, laid out for people or as JSON.

Shapes of --json. A tool is `{"name", "server", "brief"}`, with `"schema"` (text) or everything `describe` knows at
detail full, `"category"` and `"usage"` among it. browse: `{"tools": n, "hot": {"grounds", "tools": [tool]},
"categories": [category], "servers": [server]}`, of one server `{"server": server, "tools": [tool]}`, of a category
`{"category": category, "tools": [tool]}`, hottest first. describe: `{"tools": [tool], "unknown": [error]}`. A server is
`{"name", "title", "description", "tags", "category", "known", "tools", "resources", "prompts", "state", "reason"}`, a
category and a usage as `disclosure.cards` makes them.
"""

from collections.abc import Mapping, Sequence
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
from portico.disclosure.cards import category_card
from portico.disclosure.extras import extras
from portico.disclosure.lines import ServerState, counted
from portico.disclosure.render import brief, full, full_text, schema
from portico.disclosure.shelves import Shelf, Shelves
from portico.errors import PorticoError, UnknownName
from portico.upstream.status import TROUBLED

_NAMED = 5
_STYLES = {"down": "red", "quarantined": "red", "degraded": "yellow", "disabled": "yellow", "ready": "green"}


async def browse(setup: Setup, screen: Screen, server: str | None, category: str | None, offline: bool) -> int:
    """Hot list, categories and servers; or the tools of one server, of one category, or of both."""
    async with opened(setup, screen, none if offline else unlisted, PATIENCE_S) as gateway:
        await gateway.recall()
        shelves = gateway.view(setup.profile).shelves
        snapshot = shelves.snapshot
        name_late(gateway)
        entries = [snapshot.server(server)] if server else [snapshot.servers[name] for name in sorted(snapshot.servers)]
        facts = [server_data(gateway, entry) for entry in entries]
        shelf = shelves.category(category) if category else None
    if shelf:
        _show_category(screen, shelf, entries[0].name if server else None)
    elif server:
        _show_server(screen, entries[0], facts[0], shelves.server(entries[0].name))
    elif screen.as_json:
        hot = {"grounds": shelves.hot.grounds, "tools": [tool_data(tool, "brief") for tool in shelves.hot.tools]}
        cards = [category_card(one) for one in shelves.categories.values()]
        screen.data({"tools": len(snapshot.tools), "hot": hot, "categories": cards, "servers": facts})
    else:
        _show_overview(screen, shelves, facts)
    return DONE


def _show_category(screen: Screen, shelf: Shelf, server: str | None) -> None:
    tools = [tool for tool in shelf.tools if server in (None, tool.server)]
    if screen.as_json:
        screen.data({"category": category_card(shelf), "tools": [tool_data(tool, "brief") for tool in tools]})
        return
    kind = shelf.category
    on = server or counted(len(shelf.servers), "server")
    about = f" — {kind.title}. {kind.description}".rstrip()
    screen.text(Text.assemble((kind.key, "bold"), f": {counted(len(tools), 'tool')} on {on}", about))
    screen.text(*(tool_lines(screen, tool, "brief") for tool in tools))
    if not tools:
        screen.text(f"It has tools of {', '.join(shelf.servers[:_NAMED])}{' …' * (len(shelf.servers) > _NAMED)}.")


def _show_server(screen: Screen, entry: ServerEntry, facts: dict[str, Any], tools: Sequence[Tool]) -> None:
    if screen.as_json:
        screen.data({"server": facts, "tools": [tool_data(tool, "brief") for tool in tools]})
        return
    about = entry.description or (entry.title if entry.title != entry.name else "")
    number = counted(len(entry.tools), "tool") if entry.known else "not listed yet"
    screen.text(Text.assemble((entry.name, "bold"), f": {number}", f" — {about}" if about else "", _state(facts)))
    if entry.hello and entry.hello.instructions:
        screen.text(Text(f"Its own notes: {' '.join(shown(entry.hello.instructions).split())}", style="dim"))
    screen.text(*(tool_lines(screen, tool, "brief") for tool in tools))
    for kind in ("resources", "prompts"):
        if facts[kind]:
            screen.text(f"Also offers {counted(facts[kind], kind.removesuffix('s'))}.")


def _show_overview(screen: Screen, shelves: Shelves, facts: Sequence[dict[str, Any]]) -> None:
    kinds, hot = list(shelves.categories.values()), shelves.hot
    inside = f" in {counted(len(kinds), 'category', 'categories')}" if kinds else ""
    screen.text(f"{counted(len(shelves.snapshot.tools), 'tool')} on {counted(len(facts), 'server')}{inside}.")
    if hot.tools:
        screen.text(Text(discovery.GROUNDS[hot.grounds], style="bold"))
        screen.text(*(tool_lines(screen, tool, "brief") for tool in hot.tools))
    if kinds:
        screen.text(Text("Categories:", style="bold"))
        _show_categories(screen, kinds)
    if facts:
        screen.text(Text("Servers:", style="bold"))
        _show_servers(screen, facts)


def _show_categories(screen: Screen, kinds: Sequence[Shelf]) -> None:
    if not screen.for_people:
        screen.text(*(discovery.category_line(shelf) for shelf in kinds))
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("category", style="bold", no_wrap=True)
    table.add_column("tools", justify="right")
    table.add_column("about", ratio=1)
    for shelf in kinds:
        about = shelf.category.description or f"of {', '.join(shelf.servers[:_NAMED])}"
        table.add_row(shelf.category.key, f"{len(shelf.tools):,}", Text(about))
    screen.text(table)


def _show_servers(screen: Screen, facts: Sequence[dict[str, Any]]) -> None:
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
    more = "portico browse SERVER, or --category NAME, lists tools; portico search finds them by what they do."
    screen.text(table, Text(more, "dim"))


def _tool_count(one: dict[str, Any]) -> str:
    return counted(one["tools"], "tool") if one["known"] else "not listed yet"


def _state(one: dict[str, Any]) -> Text:
    if one["state"] not in TROUBLED:
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
        more = await _more(gateway, setup, tools) if detail == "full" else {}
    if screen.as_json:
        data = [{**tool_data(tool, detail), **more.get(tool.address, {})} for tool in tools]
        screen.data({"tools": data, "unknown": [as_data(one) for one in wrong]})
    else:
        separator = [""] if detail != "brief" else []
        for place, tool in enumerate(tools):
            screen.text(*(separator if place else ()), tool_lines(screen, tool, detail, extra=more.get(tool.address)))
    for error in wrong:
        complain(error)
    return FAILED if wrong else DONE


async def _more(gateway: Gateway, setup: Setup, tools: Sequence[Tool]) -> Mapping[str, Mapping[str, Any]]:
    """What is known of tools beside their definitions."""
    await gateway.recall()
    sight = gateway.view(setup.profile).sight
    return {tool.address: extras(sight, tool) for tool in tools}


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
        "category": gateway.catalog.snapshot.main_categories[entry.name],
        "known": entry.known,
        "tools": len(entry.tools),
        "resources": len(entry.offers.resources),
        "prompts": len(entry.offers.prompts),
        "state": upstream.state,
        "reason": reason(upstream.state, upstream.reason),
    }


def tool_lines(
    screen: Screen, tool: Tool, detail: str, also: Sequence[str] = (), extra: Mapping[str, Any] | None = None
) -> Text | Group:
    """A tool at a level of detail, in full with what else is known; for programs exactly as agents see it."""
    if detail == "brief":
        return _brief_lines(tool, also) if screen.for_people else Text(brief(tool, also))
    body = schema(tool, also) if detail == "schema" else full_text(tool, extra=extra)
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
