"""`portico browse` and `describe`: what an agent gets, formatted for people or as JSON.

Shapes of --json. A tool is `{"name", "server", "brief"}`, with `"schema"` (text) or everything
`describe` knows at detail full, including `"category"` and `"usage"`. browse: `{"tools": n, "hot":
{"grounds", "tools": [tool]}, "categories": [category], "servers": [server]}`, of one server
`{"server": server, "tools": [tool]}`, of a category `{"category": category, "tools": [tool]}`,
hottest first. describe: `{"tools": [tool], "unknown": [error]}`. A server is `{"name", "title",
"description", "tags", "category", "known", "tools", "resources", "prompts", "state", "reason"}`, a
category and a usage as `profiles.cards` makes them.
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
    """Show hot list, categories and servers, or the tools of a server, a category, or both."""
    async with open_gateway(
        setup, screen, select_no_servers if offline else select_unlisted_servers, LISTING_WAIT_S
    ) as gateway:
        await gateway.load_usage()
        ranked_catalog = gateway.get_view(setup.profile).ranked_catalog
        snapshot = ranked_catalog.snapshot
        note_starting_servers(gateway)
        if server:
            entries = [snapshot.resolve_server(server)]
        else:
            entries = [snapshot.servers[name] for name in sorted(snapshot.servers)]
        facts = [to_server_data(gateway, entry) for entry in entries]
        if category:
            ranked_category = ranked_catalog.find_category(category)
        else:
            ranked_category = None
    if ranked_category:
        _show_category(screen, ranked_category, entries[0].name if server else None)
    elif server:
        _show_server(
            screen, entries[0], facts[0], ranked_catalog.list_server_tools(entries[0].name)
        )
    elif screen.as_json:
        hot = {
            "grounds": ranked_catalog.hot_list.basis,
            "tools": [to_tool_data(tool, "brief") for tool in ranked_catalog.hot_list.tools],
        }
        category_cards = [
            make_category_card(ranked) for ranked in ranked_catalog.categories.values()
        ]
        screen.write_json(
            {
                "tools": len(snapshot.tools),
                "hot": hot,
                "categories": category_cards,
                "servers": facts,
            }
        )
    else:
        _show_overview(screen, ranked_catalog, facts)
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
    category = shelf.category
    where = server or format_count(len(shelf.servers), "server")
    description = f" — {category.title}. {category.description}".rstrip()
    screen.write_text(
        Text.assemble(
            (category.key, "bold"), f": {format_count(len(tools), 'tool')} on {where}", description
        )
    )
    screen.write_text(*(render_tool(screen, tool, "brief") for tool in tools))
    if not tools:
        names = ", ".join(shelf.servers[:_MAX_NAMED_SERVERS])
        more = " …" if len(shelf.servers) > _MAX_NAMED_SERVERS else ""
        screen.write_text(f"It has tools of {names}{more}.")


def _show_server(
    screen: Screen, entry: ServerEntry, facts: dict[str, Any], tools: Sequence[Tool]
) -> None:
    if screen.as_json:
        screen.write_json(
            {"server": facts, "tools": [to_tool_data(tool, "brief") for tool in tools]}
        )
        return
    description = entry.description or (entry.title if entry.title != entry.name else "")
    if entry.is_listed:
        tool_count = format_count(len(entry.tools), "tool")
    else:
        tool_count = "not listed yet"
    screen.write_text(
        Text.assemble(
            (entry.name, "bold"),
            f": {tool_count}",
            f" — {description}" if description else "",
            _render_state(facts),
        )
    )
    if entry.initialize_info and entry.initialize_info.instructions:
        notes = " ".join(sanitize_text(entry.initialize_info.instructions).split())
        screen.write_text(Text(f"Its own notes: {notes}", style="dim"))
    screen.write_text(*(render_tool(screen, tool, "brief") for tool in tools))
    for kind in ("resources", "prompts"):
        if facts[kind]:
            screen.write_text(f"Also offers {format_count(facts[kind], kind.removesuffix('s'))}.")


def _show_overview(screen: Screen, shelves: RankedCatalog, facts: Sequence[dict[str, Any]]) -> None:
    categories = list(shelves.categories.values())
    hot = shelves.hot_list
    if categories:
        in_categories = f" in {format_count(len(categories), 'category', 'categories')}"
    else:
        in_categories = ""
    screen.write_text(
        f"{format_count(len(shelves.snapshot.tools), 'tool')} on "
        f"{format_count(len(facts), 'server')}{in_categories}."
    )
    if hot.tools:
        screen.write_text(Text(browse_tools.HOT_LIST_HEADINGS[hot.basis], style="bold"))
        screen.write_text(*(render_tool(screen, tool, "brief") for tool in hot.tools))
    if categories:
        screen.write_text(Text("Categories:", style="bold"))
        _show_categories(screen, categories)
    if facts:
        screen.write_text(Text("Servers:", style="bold"))
        _show_servers(screen, facts)


def _show_categories(screen: Screen, categories: Sequence[RankedCategory]) -> None:
    if not screen.is_stdout_terminal:
        screen.write_text(*(browse_tools.render_category_line(category) for category in categories))
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("category", style="bold", no_wrap=True)
    table.add_column("tools", justify="right")
    table.add_column("about", ratio=1)
    for category in categories:
        about = (
            category.category.description
            or f"of {', '.join(category.servers[:_MAX_NAMED_SERVERS])}"
        )
        table.add_row(category.category.key, f"{len(category.tools):,}", Text(about))
    screen.write_text(table)


def _show_servers(screen: Screen, facts: Sequence[dict[str, Any]]) -> None:
    if not screen.is_stdout_terminal:
        for server in facts:
            if server["description"] or server["title"]:
                about = f" — {server['description'] or server['title']}"
            else:
                about = ""
            screen.write_text(
                f"{server['name']}: {_render_tool_count(server)}{about}{_render_state(server)}"
            )
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("server", style="bold", no_wrap=True)
    table.add_column("tools", justify="right")
    table.add_column("about", ratio=1)
    for server in facts:
        about = Text(server["description"] or server["title"])
        table.add_row(
            server["name"],
            str(server["tools"]) if server["known"] else "?",
            about + _render_state(server),
        )
    hint = (
        "portico browse SERVER, or --category NAME, lists tools; portico search finds them by "
        "what they do."
    )
    screen.write_text(table, Text(hint, "dim"))


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
    """Show what each tool takes; exit code 1 if one is unknown."""
    async with open_gateway(setup, screen, select_no_servers) as gateway:
        await ensure_listed(gateway, setup, screen, names)
        tools: list[Tool] = []
        errors: list[PorticoError] = []
        for name in names:
            try:
                tools.append(find_tool(gateway, setup, name))
            except PorticoError as error:
                errors.append(error)
        if detail == "full":
            extras = await _collect_extras(gateway, setup, tools)
        else:
            extras = {}
    if screen.as_json:
        data = [{**to_tool_data(tool, detail), **extras.get(tool.address, {})} for tool in tools]
        screen.write_json(
            {"tools": data, "unknown": [to_error_data(error_item) for error_item in errors]}
        )
    else:
        if detail != "brief":
            separator = [""]
        else:
            separator = []
        for index, tool in enumerate(tools):
            screen.write_text(
                *(separator if index else ()),
                render_tool(screen, tool, detail, extra=extras.get(tool.address)),
            )
    for error in errors:
        print_error(error)
    if errors:
        return EXIT_FAILED
    return EXIT_OK


async def _collect_extras(
    gateway: GatewayRuntime, setup: Setup, tools: Sequence[Tool]
) -> Mapping[str, Mapping[str, Any]]:
    """Return what is known of tools besides their definitions."""
    await gateway.load_usage()
    profile_state = gateway.get_view(setup.profile).profile_state
    return {tool.address: collect_tool_details(profile_state, tool) for tool in tools}


async def ensure_listed(
    gateway: GatewayRuntime,
    setup: Setup,
    screen: Screen,
    names: Sequence[str],
    idle_timeout: float | None = LISTING_WAIT_S,
) -> None:
    """List the servers that could have these tools, unless the tools are already known.

    A server named in a tool address is awaited with `idle_timeout`; if a name has no server, all
    are, for a short time.
    """
    snapshot = gateway.get_view(setup.profile).snapshot
    missing = [name for name in names if not _is_known_tool(snapshot, name)]
    servers_by_name = [{fold(server) for server, _ in split_name(name)} for name in missing]
    unlisted = select_unlisted_servers(gateway)
    named = {name for name in unlisted if any(fold(name) in servers for servers in servers_by_name)}
    if all(any(fold(name) in servers for name in snapshot.servers) for servers in servers_by_name):
        await list_servers(gateway, screen, named, idle_timeout)
    else:
        await list_servers(gateway, screen, unlisted, LISTING_WAIT_S)
    note_starting_servers(gateway)


def note_starting_servers(gateway: GatewayRuntime) -> None:
    """Print a note about servers that are still starting."""
    if starting := find_starting_servers(gateway):
        print_note(
            f"Still starting: {', '.join(starting)}; `portico status` waits for "
            f"{'it' if len(starting) == 1 else 'them'}."
        )


def find_tool(gateway: GatewayRuntime, setup: Setup, name: str) -> Tool:
    """Resolve a tool name; raises the error that an agent would get."""
    snapshot = gateway.get_view(setup.profile).snapshot
    try:
        return snapshot.resolve_tool(name)
    except UnknownName as error:
        possible_servers = {fold(server) for server, _ in split_name(name)}
        for server in snapshot.servers:
            if fold(server) in possible_servers and gateway.upstreams[server].state == "disabled":
                # A text about the configuration is ours; as a server's text it would be masked.
                raise PorticoError(
                    f"{server} cannot be used: {gateway.upstreams[server].reason}",
                    advice="Mend the configuration.",
                ) from error
        states = {
            status.name: ServerState(status.state, status.reason, status.state_since)
            for status in gateway.list_statuses()
        }
        raise browse_tools.explain_unknown_name(error, name, snapshot, states) from error


def _is_known_tool(snapshot: Snapshot, name: str) -> bool:
    try:
        snapshot.resolve_tool(name)
    except UnknownName:
        return False
    return True


def to_tool_data(tool: Tool, detail: str) -> dict[str, Any]:
    """Convert a tool for --json."""
    data = {"name": tool.address, "server": tool.server, "brief": render_brief(tool)}
    if detail == "schema":
        data["schema"] = render_schema(tool)
    if detail == "full":
        return {**data, **to_full_data(tool)}
    return data


def to_server_data(gateway: GatewayRuntime, entry: ServerEntry) -> dict[str, Any]:
    """Convert a server for --json."""
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
    """Render a tool at a level of detail; without a terminal exactly as agents see it."""
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
        full_signature = f"{signature})"
    else:
        full_signature = signature
    address = " ".join(sanitize_text(tool.address).split())
    line = Text.assemble((address, "bold cyan"), (full_signature.removeprefix(address), "dim"))
    if sentence:
        return Group(line, Padding(Text(sentence), (0, 0, 0, 2), expand=False))
    return Group(line)


def _render_heading(head: str) -> Text:
    name, dash, rest = head.partition(" — ")
    return Text.assemble((name, "bold cyan"), dash, rest)
