"""`portico browse` and `describe`: what an agent gets, formatted for people or as JSON.

Shapes of --json. A tool is `{"name", "server", "brief"}`, with `"schema"` (text) or everything
`describe` knows at detail full, including `"category"` and `"usage"`. browse: `{"tools": n, "hot":
{"grounds", "tools": [tool]}, "categories": [category], "servers": [server]}`, of one server
`{"server": server, "tools": [tool]}`, of a category `{"category": category, "tools": [tool]}`,
hottest first. describe: `{"tools": [tool], "unknown": [error]}`. A server is `{"name", "title",
"description", "tags", "category", "known", "tools", "resources", "prompts", "state", "reason"}`, a
category and a usage as `profiles.json_objects` makes them.
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from portico.catalog.address import find_identifier, fold, split_name
from portico.catalog.snapshot import ServerEntry, Snapshot
from portico.catalog.tool import Tool, sanitize_text
from portico.cli.columns import SERVER_COLUMN, Column, build_table, numbers
from portico.cli.exit import EXIT_FAILED, EXIT_OK, print_error, sanitize_reason, to_error_data
from portico.cli.look_commands import BrowseOptions, DescribeDetail
from portico.cli.options import ProfileOptions
from portico.cli.screen import Screen
from portico.cli.setup import (
    LISTING_WAIT_S,
    Setup,
    list_servers,
    note_starting_servers,
    open_gateway,
    select_unlisted_servers,
    select_view,
)
from portico.errors import PorticoError, UnknownName
from portico.gateway import GatewayRuntime
from portico.meta_tools import browse_tools
from portico.profiles.json_objects import collect_tool_details, make_category_object
from portico.rendering.one_line_tool import render_brief
from portico.rendering.server_lines import ServerState
from portico.rendering.token_budget import format_count
from portico.rendering.tool import render_full_text, render_schema, to_full_data
from portico.upstream.lifecycle.status import TROUBLED_STATES
from portico.usage.tool_tiers import RankedCatalog, RankedCategory

_MAX_NAMED_SERVERS = 5
_HINT = (
    "portico browse SERVER, or --category NAME, lists tools; portico search finds them by "
    "what they do."
)


async def run_browse(server: str | None, options: BrowseOptions) -> int:
    """Show hot list, categories and servers, or the tools of a server, a category, or both."""
    setup, screen = options.load()
    select_servers = None if options.offline else select_unlisted_servers
    async with open_gateway(setup, screen, select_servers, LISTING_WAIT_S) as gateway:
        await gateway.load_usage()
        catalog = select_view(gateway, setup).ranked_catalog
        snapshot = catalog.snapshot
        note_starting_servers(gateway)
        entry = snapshot.resolve_server(server) if server else None
        names = [entry.name] if entry else sorted(snapshot.servers)
        facts = [to_server_data(gateway, snapshot.servers[name]) for name in names]
        shown_category = catalog.find_category(options.category) if options.category else None
    if shown_category:
        _show_category(screen, shown_category, entry and entry.name)
    elif entry:
        _show_server(screen, entry, facts[0], catalog.list_server_tools(entry.name))
    elif screen.as_json:
        hot = catalog.hot_list
        tools = [to_tool_data(tool, "brief") for tool in hot.tools]
        screen.write_json(
            {
                "tools": len(snapshot.tools),
                "hot": {"grounds": hot.basis, "tools": tools},
                "categories": [make_category_object(one) for one in catalog.categories.values()],
                "servers": facts,
            }
        )
    else:
        _show_overview(screen, catalog, facts)
    return EXIT_OK


def _show_category(screen: Screen, ranked: RankedCategory, server: str | None) -> None:
    tools = [tool for tool in ranked.tools if server in (None, tool.server)]
    if screen.as_json:
        data = [to_tool_data(tool, "brief") for tool in tools]
        screen.write_json({"category": make_category_object(ranked), "tools": data})
        return
    category = ranked.category
    where = server or format_count(len(ranked.servers), "server")
    description = f" — {category.title}. {category.description}".rstrip()
    count = f": {format_count(len(tools), 'tool')} on {where}"
    screen.write_text(Text.assemble((category.key, "bold"), count, description))
    screen.write_text(*(render_tool(screen, tool, "brief") for tool in tools))
    if not tools:
        names = ", ".join(ranked.servers[:_MAX_NAMED_SERVERS])
        more = " …" if len(ranked.servers) > _MAX_NAMED_SERVERS else ""
        screen.write_text(f"It has tools of {names}{more}.")


def _show_server(
    screen: Screen, entry: ServerEntry, facts: dict[str, Any], tools: Sequence[Tool]
) -> None:
    if screen.as_json:
        data = [to_tool_data(tool, "brief") for tool in tools]
        screen.write_json({"server": facts, "tools": data})
        return
    screen.write_text(Text.assemble((entry.name, "bold"), *_render_server(facts)))
    if entry.initialize_info and entry.initialize_info.instructions:
        notes = " ".join(sanitize_text(entry.initialize_info.instructions).split())
        screen.write_text(Text(f"Its own notes: {notes}", style="dim"))
    screen.write_text(*(render_tool(screen, tool, "brief") for tool in tools))
    for kind in ("resources", "prompts"):
        if facts[kind]:
            screen.write_text(f"Also offers {format_count(facts[kind], kind.removesuffix('s'))}.")


def _show_overview(screen: Screen, catalog: RankedCatalog, facts: list[dict[str, Any]]) -> None:
    categories = list(catalog.categories.values())
    line = f"{format_count(len(catalog.snapshot.tools), 'tool')} on "
    line += format_count(len(facts), "server")
    if categories:
        line += f" in {format_count(len(categories), 'category', 'categories')}"
    screen.write_text(f"{line}.")
    hot = catalog.hot_list
    if hot.tools:
        screen.write_text(Text(browse_tools.render_hot_heading(catalog), style="bold"))
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
    rows: list[tuple[str, str, str]] = []
    for ranked in categories:
        about = f"of {', '.join(ranked.servers[:_MAX_NAMED_SERVERS])}"
        about = ranked.category.description or about
        rows.append((ranked.category.key, f"{len(ranked.tools):,}", about))
    first = Column("category", style="bold", no_wrap=True)
    screen.write_text(build_table((first, *numbers("tools"), Column("about", fill=True)), rows))


def _show_servers(screen: Screen, facts: Sequence[dict[str, Any]]) -> None:
    if not screen.is_stdout_terminal:
        screen.write_text(*(Text.assemble(one["name"], *_render_server(one)) for one in facts))
        return
    rows = [
        (
            server["name"],
            str(server["tools"]) if server["known"] else "?",
            Text(server["description"] or server["title"]) + _render_state(server),
        )
        for server in facts
    ]
    columns = (SERVER_COLUMN, *numbers("tools"), Column("about", fill=True))
    screen.write_text(build_table(columns, rows), Text(_HINT, "dim"))


def _render_server(facts: Mapping[str, Any]) -> tuple[str, str, Text]:
    count = ": not listed yet"
    if facts["known"]:
        count = f": {format_count(facts['tools'], 'tool')}"
    about = facts["description"] or facts["title"]
    return count, f" — {about}" if about else "", _render_state(facts)


def _render_state(facts: Mapping[str, Any]) -> Text:
    state = facts["state"]
    if state not in TROUBLED_STATES:
        return Text()
    style = "red" if state in ("down", "quarantined") else "yellow"
    return Text(f" [{state}: {' '.join(facts['reason'].split())}]", style=style)


async def run_describe(
    wanted: Sequence[str],
    detail: DescribeDetail,
    options: ProfileOptions,
    *,
    original: bool = False,
) -> int:
    """Show what each tool takes; exit code 1 if one is unknown. `original` as its server has it."""
    setup, screen = options.load()
    async with open_gateway(setup, screen) as gateway:
        await ensure_listed(gateway, setup, screen, wanted)
        tools: list[Tool] = []
        errors: list[PorticoError] = []
        for one in wanted:
            try:
                tools.append(find_tool(gateway, setup, one))
            except PorticoError as error:
                errors.append(error)
        details: dict[str, Mapping[str, Any]] = {}
        if original:
            tools = [tool.original for tool in tools]
        elif detail == "full":
            await gateway.load_usage()
            state = select_view(gateway, setup).profile_state
            details = {tool.address: collect_tool_details(state, tool) for tool in tools}
    if screen.as_json:
        data = [{**to_tool_data(tool, detail), **details.get(tool.address, {})} for tool in tools]
        screen.write_json({"tools": data, "unknown": [to_error_data(error) for error in errors]})
    else:
        for index, tool in enumerate(tools):
            if index and detail != "brief":
                screen.write_text("")
            screen.write_text(render_tool(screen, tool, detail, extra=details.get(tool.address)))
    for error in errors:
        print_error(error)
    if errors:
        return EXIT_FAILED
    return EXIT_OK


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
    snapshot = select_view(gateway, setup).snapshot
    missing = [name for name in names if not _is_known_tool(snapshot, name)]
    servers_by_name = [{fold(server) for server, _ in split_name(name)} for name in missing]
    unlisted = select_unlisted_servers(gateway)
    if all(any(fold(name) in servers for name in snapshot.servers) for servers in servers_by_name):
        named = set[str]().union(*servers_by_name)
        unlisted = [name for name in unlisted if fold(name) in named]
    else:
        idle_timeout = LISTING_WAIT_S
    await list_servers(gateway, screen, unlisted, idle_timeout)
    note_starting_servers(gateway)


def find_tool(gateway: GatewayRuntime, setup: Setup, name: str) -> Tool:
    """Resolve a tool name; raises the error that an agent would get."""
    snapshot = select_view(gateway, setup).snapshot
    try:
        return snapshot.resolve_tool(name)
    except UnknownName as error:
        _explain_switched_off(gateway, setup, name)
        possible_servers = {fold(server) for server, _ in split_name(name)}
        for server in snapshot.servers:
            if fold(server) in possible_servers and gateway.upstreams[server].state == "disabled":
                # A text about the configuration is ours; as a server's text it would be masked.
                raise PorticoError(
                    f"{server} cannot be used: {gateway.upstreams[server].reason}",
                    advice="Correct the configuration.",
                ) from error
        states = {
            status.name: ServerState(status.state, status.reason, status.state_since)
            for status in gateway.list_statuses()
        }
        raise browse_tools.explain_unknown_name(error, name, snapshot, states) from error


def _explain_switched_off(gateway: GatewayRuntime, setup: Setup, name: str) -> None:
    """Raise PorticoError if the user has switched off the tool, or its server."""
    scope = gateway.get_view(setup.profile).settings.scope
    for server_name, tool in split_name(name):
        for key, server in gateway.config.servers.items():
            if fold(key) != fold(server_name) or not scope.can_see_server(key):
                continue
            if server.disabled:
                raise _make_switched_off_error(key)
            if any(fnmatchcase(tool, glob) for glob in server.tools.deny):
                raise _make_switched_off_error(f"{key}.{tool}")


def _make_switched_off_error(name: str) -> PorticoError:
    advice = f"`portico enable {name}` switches it on."
    return PorticoError(f"{name} is switched off", advice=advice)


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
        "identifier": find_identifier(entry.name, gateway.catalog.snapshot.server_identifiers),
        "type": entry.kind,
        "title": entry.own_title,
        "description": entry.own_description,
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
    signature, dash, sentence = render_brief(tool, twins).partition(") — ")
    if dash:
        signature += ")"
    address = " ".join(sanitize_text(tool.address).split())
    line = Text.assemble((address, "bold cyan"), (signature.removeprefix(address), "dim"))
    if not sentence:
        return Group(line)
    return Group(line, Padding(Text(sentence), (0, 0, 0, 2), expand=False))


def _render_heading(head: str) -> Text:
    name, dash, rest = head.partition(" — ")
    return Text.assemble((name, "bold cyan"), dash, rest)
