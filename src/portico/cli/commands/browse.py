"""`portico browse` and `describe`: what an agent gets, laid out for people or as JSON.

Shapes of --json. A tool is `{"name", "server", "brief"}`, with `"schema"` (text) or everything
`describe` knows at detail full, `"category"` and `"usage"` among it. browse: `{"tools": n, "hot":
{"grounds", "tools": [tool]}, "categories": [category], "servers": [server]}`, of one server
`{"server": server, "tools": [tool]}`, of a category
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

from portico.app import GatewayRuntime
from portico.catalog.address import fold, split_name
from portico.catalog.snapshot import ServerEntry, Snapshot
from portico.catalog.tool import Tool
from portico.catalog.visible_text import sanitize_text
from portico.cli.exit import (
    EXIT_FAILED,
    EXIT_OK,
    print_error,
    print_note,
    sanitize_reason,
    to_error_data,
)
from portico.cli.screen import Screen
from portico.cli.setup import (
    LISTING_WAIT_S,
    Setup,
    find_starting_servers,
    list_servers,
    open_gateway,
    select_no_servers,
    select_unlisted_servers,
)
from portico.errors import PorticoError, UnknownName
from portico.meta_tools import browse_tools
from portico.profiles.cards import make_category_card
from portico.profiles.tool_details import collect_tool_details
from portico.rendering.lines import ServerState, format_count
from portico.rendering.tool import render_brief, render_full_text, render_schema, to_full_data
from portico.upstream.lifecycle.status import TROUBLED_STATES
from portico.usage.ranked_catalog import RankedCatalog, RankedCategory

_MAX_NAMED_SERVERS = 5
_STYLES = {
    "down": "red",
    "quarantined": "red",
    "degraded": "yellow",
    "disabled": "yellow",
    "ready": "green",
}


async def browse(
    setup: Setup, screen: Screen, server: str | None, category: str | None, offline: bool
) -> int:
    """Hot list, categories and servers; or the tools of one server, of one category, or of both."""
    async with open_gateway(
        setup, screen, select_no_servers if offline else select_unlisted_servers, LISTING_WAIT_S
    ) as gateway:
        await gateway.load_usage()
        shelves = gateway.get_view(setup.profile).ranked_catalog
        snapshot = shelves.snapshot
        note_starting_servers(gateway)
        if server:
            entries = [snapshot.resolve_server(server)]
        else:
            entries = [snapshot.servers[name] for name in sorted(snapshot.servers)]
        facts = [to_server_data(gateway, entry) for entry in entries]
        if category:
            shelf = shelves.find_category(category)
        else:
            shelf = None
    if shelf:
        _show_category(screen, shelf, entries[0].name if server else None)
    elif server:
        _show_server(screen, entries[0], facts[0], shelves.list_server_tools(entries[0].name))
    elif screen.as_json:
        hot = {
            "grounds": shelves.hot_list.basis,
            "tools": [to_tool_data(tool, "brief") for tool in shelves.hot_list.tools],
        }
        cards = [make_category_card(one) for one in shelves.categories.values()]
        screen.write_json(
            {"tools": len(snapshot.tools), "hot": hot, "categories": cards, "servers": facts}
        )
    else:
        _show_overview(screen, shelves, facts)
    return EXIT_OK


def _show_category(screen: Screen, shelf: RankedCategory, server: str | None) -> None:
    tools = [tool for tool in shelf.tools if server in (None, tool.server)]
    if screen.as_json:
        screen.write_json(
            {
                "category": make_category_card(shelf),
                "tools": [to_tool_data(tool, "brief") for tool in tools],
            }
        )
        return
    kind = shelf.category
    on = server or format_count(len(shelf.servers), "server")
    about = f" — {kind.title}. {kind.description}".rstrip()
    screen.write_text(
        Text.assemble((kind.key, "bold"), f": {format_count(len(tools), 'tool')} on {on}", about)
    )
    screen.write_text(*(render_tool(screen, tool, "brief") for tool in tools))
    if not tools:
        screen.write_text(
            f"It has tools of {', '.join(shelf.servers[:_MAX_NAMED_SERVERS])}{' …' * (len(shelf.servers) > _MAX_NAMED_SERVERS)}."
        )


def _show_server(
    screen: Screen, entry: ServerEntry, facts: dict[str, Any], tools: Sequence[Tool]
) -> None:
    if screen.as_json:
        screen.write_json(
            {"server": facts, "tools": [to_tool_data(tool, "brief") for tool in tools]}
        )
        return
    about = entry.description or (entry.title if entry.title != entry.name else "")
    if entry.is_listed:
        number = format_count(len(entry.tools), "tool")
    else:
        number = "not listed yet"
    screen.write_text(
        Text.assemble(
            (entry.name, "bold"),
            f": {number}",
            f" — {about}" if about else "",
            _render_state(facts),
        )
    )
    if entry.initialize_info and entry.initialize_info.instructions:
        screen.write_text(
            Text(
                f"Its own notes: {' '.join(sanitize_text(entry.initialize_info.instructions).split())}",
                style="dim",
            )
        )
    screen.write_text(*(render_tool(screen, tool, "brief") for tool in tools))
    for kind in ("resources", "prompts"):
        if facts[kind]:
            screen.write_text(f"Also offers {format_count(facts[kind], kind.removesuffix('s'))}.")


def _show_overview(screen: Screen, shelves: RankedCatalog, facts: Sequence[dict[str, Any]]) -> None:
    kinds = list(shelves.categories.values())
    hot = shelves.hot_list
    if kinds:
        inside = f" in {format_count(len(kinds), 'category', 'categories')}"
    else:
        inside = ""
    screen.write_text(
        f"{format_count(len(shelves.snapshot.tools), 'tool')} on {format_count(len(facts), 'server')}{inside}."
    )
    if hot.tools:
        screen.write_text(Text(browse_tools.HOT_LIST_HEADINGS[hot.basis], style="bold"))
        screen.write_text(*(render_tool(screen, tool, "brief") for tool in hot.tools))
    if kinds:
        screen.write_text(Text("Categories:", style="bold"))
        _show_categories(screen, kinds)
    if facts:
        screen.write_text(Text("Servers:", style="bold"))
        _show_servers(screen, facts)


def _show_categories(screen: Screen, categories: Sequence[RankedCategory]) -> None:
    if not screen.is_stdout_terminal:
        screen.write_text(*(browse_tools.render_category_line(shelf) for shelf in categories))
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("category", style="bold", no_wrap=True)
    table.add_column("tools", justify="right")
    table.add_column("about", ratio=1)
    for shelf in categories:
        about = shelf.category.description or f"of {', '.join(shelf.servers[:_MAX_NAMED_SERVERS])}"
        table.add_row(shelf.category.key, f"{len(shelf.tools):,}", Text(about))
    screen.write_text(table)


def _show_servers(screen: Screen, facts: Sequence[dict[str, Any]]) -> None:
    if not screen.is_stdout_terminal:
        for one in facts:
            if one["description"] or one["title"]:
                about = f" — {one['description'] or one['title']}"
            else:
                about = ""
            screen.write_text(
                f"{one['name']}: {_render_tool_count(one)}{about}{_render_state(one)}"
            )
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("server", style="bold", no_wrap=True)
    table.add_column("tools", justify="right")
    table.add_column("about", ratio=1)
    for one in facts:
        about = Text(one["description"] or one["title"])
        table.add_row(
            one["name"], str(one["tools"]) if one["known"] else "?", about + _render_state(one)
        )
    more = "portico browse SERVER, or --category NAME, lists tools; portico search finds them by what they do."
    screen.write_text(table, Text(more, "dim"))


def _render_tool_count(one: dict[str, Any]) -> str:
    if one["known"]:
        return format_count(one["tools"], "tool")
    return "not listed yet"


def _render_state(one: dict[str, Any]) -> Text:
    if one["state"] not in TROUBLED_STATES:
        return Text()
    return Text(
        f" [{one['state']}: {' '.join(one['reason'].split())}]", style=_STYLES[one["state"]]
    )


async def describe(setup: Setup, screen: Screen, names: Sequence[str], detail: str) -> int:
    """What each tool takes; exit code 1 when one is unknown."""
    async with open_gateway(setup, screen, select_no_servers) as gateway:
        await ensure_listed(gateway, setup, screen, names)
        tools: list[Tool] = []
        wrong: list[PorticoError] = []
        for name in names:
            try:
                tools.append(find_tool(gateway, setup, name))
            except PorticoError as error:
                wrong.append(error)
        if detail == "full":
            more = await _collect_extras(gateway, setup, tools)
        else:
            more = {}
    if screen.as_json:
        data = [{**to_tool_data(tool, detail), **more.get(tool.address, {})} for tool in tools]
        screen.write_json({"tools": data, "unknown": [to_error_data(one) for one in wrong]})
    else:
        if detail != "brief":
            separator = [""]
        else:
            separator = []
        for place, tool in enumerate(tools):
            screen.write_text(
                *(separator if place else ()),
                render_tool(screen, tool, detail, extra=more.get(tool.address)),
            )
    for error in wrong:
        print_error(error)
    if wrong:
        return EXIT_FAILED
    return EXIT_OK


async def _collect_extras(
    gateway: GatewayRuntime, setup: Setup, tools: Sequence[Tool]
) -> Mapping[str, Mapping[str, Any]]:
    """What is known of tools beside their definitions."""
    await gateway.load_usage()
    sight = gateway.get_view(setup.profile).profile_state
    return {tool.address: collect_tool_details(sight, tool) for tool in tools}


async def ensure_listed(
    gateway: GatewayRuntime,
    setup: Setup,
    screen: Screen,
    names: Sequence[str],
    idle_timeout: float | None = LISTING_WAIT_S,
) -> None:
    """Ask the servers that could have these tools, if a tool is not known without asking.

    A server that a name begins with is waited for with this patience; all of them, where a name has
    none, never long.
    """
    snapshot = gateway.get_view(setup.profile).snapshot
    missing = [name for name in names if not _is_known_tool(snapshot, name)]
    owners = [{fold(server) for server, _ in split_name(name)} for name in missing]
    asked = select_unlisted_servers(gateway)
    named = {name for name in asked if any(fold(name) in meant for meant in owners)}
    if all(any(fold(name) in meant for name in snapshot.servers) for meant in owners):
        await list_servers(gateway, screen, named, idle_timeout)
    else:
        await list_servers(gateway, screen, asked, LISTING_WAIT_S)
    note_starting_servers(gateway)


def note_starting_servers(gateway: GatewayRuntime) -> None:
    """Say on stderr which servers were not waited for."""
    if late := find_starting_servers(gateway):
        print_note(
            f"Still starting: {', '.join(late)}; `portico status` waits for {'it' if len(late) == 1 else 'them'}."
        )


def find_tool(gateway: GatewayRuntime, setup: Setup, name: str) -> Tool:
    """The tool a name means; raises what an agent would be told."""
    snapshot = gateway.get_view(setup.profile).snapshot
    try:
        return snapshot.resolve_tool(name)
    except UnknownName as error:
        meant = {fold(server) for server, _ in split_name(name)}
        for server in snapshot.servers:
            if fold(server) in meant and gateway.upstreams[server].state == "disabled":
                # Our own words about the configuration: as what a server said, they would be
                # masked.
                raise PorticoError(
                    f"{server} cannot be used: {gateway.upstreams[server].reason}",
                    advice="Mend the configuration.",
                ) from error
        states = {
            one.name: ServerState(one.state, one.reason, one.state_since)
            for one in gateway.list_statuses()
        }
        raise browse_tools.explain_unknown_name(error, name, snapshot, states) from error


def _is_known_tool(snapshot: Snapshot, name: str) -> bool:
    try:
        snapshot.resolve_tool(name)
    except UnknownName:
        return False
    return True


def to_tool_data(tool: Tool, detail: str) -> dict[str, Any]:
    """A tool as --json shows it."""
    data = {"name": tool.address, "server": tool.server, "brief": render_brief(tool)}
    if detail == "schema":
        data["schema"] = render_schema(tool)
    if detail == "full":
        return {**data, **to_full_data(tool)}
    return data


def to_server_data(gateway: GatewayRuntime, entry: ServerEntry) -> dict[str, Any]:
    """A server as --json shows it."""
    upstream = gateway.upstreams[entry.name]
    return {
        "name": entry.name,
        "title": "" if entry.title == entry.name else entry.title,
        "description": entry.description,
        "tags": list(entry.tags),
        "category": gateway.catalog.snapshot.main_categories[entry.name],
        "known": entry.is_listed,
        "tools": len(entry.tools),
        "resources": len(entry.offers.resources),
        "prompts": len(entry.offers.prompts),
        "state": upstream.state,
        "reason": sanitize_reason(upstream.state, upstream.reason),
    }


def render_tool(
    screen: Screen,
    tool: Tool,
    detail: str,
    twins: Sequence[str] = (),
    extra: Mapping[str, Any] | None = None,
) -> Text | Group:
    """A tool at a level of detail, in full with what else is known; for programs exactly as agents
    see it."""
    if detail == "brief":
        if screen.is_stdout_terminal:
            return _render_brief(tool, twins)
        return Text(render_brief(tool, twins))
    if detail == "schema":
        body = render_schema(tool, twins)
    else:
        body = render_full_text(tool, details=extra)
    head, newline, rest = body.partition("\n")
    return Text.assemble(_render_heading(head), newline, rest)


def _render_brief(tool: Tool, twins: Sequence[str]) -> Group:
    signature, _, sentence = render_brief(tool, twins).partition(") — ")
    if sentence:
        whole = f"{signature})"
    else:
        whole = signature
    address = " ".join(sanitize_text(tool.address).split())
    line = Text.assemble((address, "bold cyan"), (whole.removeprefix(address), "dim"))
    if sentence:
        return Group(line, Padding(Text(sentence), (0, 0, 0, 2), expand=False))
    return Group(line)


def _render_heading(head: str) -> Text:
    name, dash, rest = head.partition(" — ")
    return Text.assemble((name, "bold cyan"), dash, rest)
