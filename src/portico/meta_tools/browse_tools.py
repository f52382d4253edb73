"""The meta-tool `browse_tools`, and explanations of unknown names. Pure but for `run`.

Every response fits its budget, says what was left out and how to get it. One entry is always shown
whole, however small the budget: a truncated schema would be wrong, and an empty page would leave
the agent with no next step.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from portico.catalog.address import find_identifier, fold, split_name
from portico.catalog.snapshot import ServerEntry, Snapshot
from portico.catalog.tool import Tool, sanitize_text
from portico.errors import BackendUnavailable, PorticoError, SignInNeeded, UnknownName
from portico.meta_tools.instructions import truncate_instructions
from portico.rendering import cursor as cursors
from portico.rendering.one_line_tool import render_addresses, render_brief
from portico.rendering.prose import clip_line
from portico.rendering.server_lines import (
    ServerState,
    ServerStates,
    mark_unusable,
    render_server_line,
)
from portico.rendering.token_budget import (
    compute_remaining_tokens,
    count_tokens,
    format_count,
    pack,
    to_short_line,
)
from portico.rendering.tool import render_schema
from portico.rendering.tool_result import make_text_result
from portico.upstream.backend import Raw
from portico.upstream.lifecycle.status import TROUBLED_STATES
from portico.usage.tool_tiers import MIN_HOT_LIST_SIZE, HotListBasis, RankedCatalog, RankedCategory

if TYPE_CHECKING:
    from portico.profiles.profile_state import ProfileState

HOT_LIST_HEADINGS: Mapping[HotListBasis, str] = {
    "use": "Most used tools:",
    "pins": "Pinned tools:",
    "some of each server": ("Some tools to start with (no use is known yet: some of each server):"),
}
PAGE_SIZE = 50
EVERY_SERVER = "*"
_MAX_NAMED_SERVERS = 3
_MIN_LINE_TOKENS = 30


async def run(profile_state: "ProfileState", arguments: Raw) -> Raw:
    """Answer `browse_tools` with checked arguments."""
    states = profile_state.get_server_states()
    budget = profile_state.settings.discovery_budget
    render = browse if arguments.get("server") or arguments.get("category") else render_overview
    if render is render_overview:
        arguments = {"cursor": arguments.get("cursor")}
    ranked_catalog = profile_state.ranked_catalog
    text = await profile_state.snapshot.run_scan(
        partial(render, ranked_catalog, states, budget, **arguments)
    )
    return make_text_result(text)


def _render_hot_list(ranked_catalog: RankedCatalog, states: ServerStates, budget: int) -> list[str]:
    heading = render_hot_heading(ranked_catalog)
    tools = ranked_catalog.hot_list.tools
    # Long lines are cut, so that ten fit.
    line_tokens = max(budget // MIN_HOT_LIST_SIZE - 2, _MIN_LINE_TOKENS)
    lines = (
        mark_unusable(clip_line(render_brief(tool), line_tokens), tool, states) for tool in tools
    )
    return [heading, *pack(lines, budget - count_tokens(heading)).texts]


def render_overview(
    ranked_catalog: RankedCatalog, states: ServerStates, budget: int, cursor: str | None = None
) -> str:
    """Render tools to start with, the categories, and the servers with tool counts and states."""
    snapshot = ranked_catalog.snapshot
    listing = "overview"
    offset = 0
    if cursor:
        offset = cursors.decode(cursor, listing, ranked_catalog.version)
    head = [_render_size(ranked_catalog)]
    if not offset and ranked_catalog.hot_list.tools:
        # A third of the budget, so that most of it is left for categories and servers.
        head += _render_hot_list(ranked_catalog, states, budget // 3)
    entries = [
        *ranked_catalog.categories.values(),
        *(snapshot.servers[name] for name in sorted(snapshot.servers)),
    ]
    kinds = len(ranked_catalog.categories)
    foot = (
        f'Next: browse_tools(category=…) or (server=…; "{EVERY_SERVER}": all tools), or'
        " search_tools(query=…)."
    )

    def render_more(reached: int) -> list[str]:
        left = (
            (max(kinds - reached, 0), "category", "categories"),
            (len(entries) - max(kinds, reached), "server", "servers"),
        )
        remaining = " and ".join(
            format_count(number, entry, many) for number, entry, many in left if number
        )
        after = cursors.encode(listing, ranked_catalog.version, reached)
        if remaining:
            return [f'{remaining} more: browse_tools(cursor="{after}")']
        return []

    def render_entries() -> Iterator[str]:
        for place, entry in enumerate(entries[offset:], offset):
            if place == offset < kinds:
                heading = "Categories:\n"
            elif place in (offset, kinds):
                heading = "Servers:\n"
            else:
                heading = ""
            yield heading + (
                render_category_line(entry)
                if isinstance(entry, RankedCategory)
                else render_server_line(entry, states, snapshot.server_identifiers)
            )

    packed = pack(
        render_entries(), compute_remaining_tokens(budget, *head, *render_more(offset), foot)
    )
    return "\n".join([*head, *packed.texts, *render_more(offset + len(packed.texts)), foot])


def render_hot_heading(ranked_catalog: RankedCatalog) -> str:
    hot = ranked_catalog.hot_list
    heading = HOT_LIST_HEADINGS[hot.basis]
    if hot.basis == "some of each server":
        return heading
    if hot.basis == "use" and hot.tools[0].address in ranked_catalog.pins:
        heading = "Pinned, then most used tools:"
    if hot.tools[-1].address not in {*ranked_catalog.pins, *ranked_catalog.standings}:
        return f"{heading[:-1]}, then some of each server:"
    return heading


def _render_size(ranked_catalog: RankedCatalog) -> str:
    snapshot = ranked_catalog.snapshot
    categories = ""
    if ranked_catalog.categories:
        count = format_count(len(ranked_catalog.categories), "category", "categories")
        categories = f" in {count}"
    tools = format_count(len(snapshot.tools), "tool")
    servers = format_count(len(snapshot.servers), "server")
    return f"{tools} on {servers}{categories}."


def render_category_line(ranked_category: RankedCategory) -> str:
    """Render a category with its size, servers and example tools."""
    servers = ", ".join(ranked_category.servers[:_MAX_NAMED_SERVERS])
    if len(ranked_category.servers) > _MAX_NAMED_SERVERS:
        servers += " …"
    size = f"{format_count(len(ranked_category.tools), 'tool')} of {servers}"
    examples = render_addresses([tool.address for tool in ranked_category.popular_tools[:2]])
    return f"{ranked_category.category.key} ({size}) e.g. {examples}"


def browse(
    ranked_catalog: RankedCatalog,
    states: ServerStates,
    budget: int,
    server: str | None = None,
    category: str | None = None,
    page_size: int = PAGE_SIZE,
    cursor: str | None = None,
) -> str:
    """Render a page of the tools of a server, of a category, or of both, hottest first.

    EVERY_SERVER as the server means all tools.
    """
    snapshot = ranked_catalog.snapshot
    entry = snapshot.resolve_server(server) if server and server != EVERY_SERVER else None
    ranked_category = ranked_catalog.find_category(category) if category else None
    tools = _select_tools(ranked_catalog, entry, ranked_category)
    arguments = _render_arguments(entry, ranked_category)
    listing = f"browse\0{arguments}"
    offset = 0
    if cursor:
        offset = cursors.decode(cursor, listing, ranked_catalog.version)
    head = _render_header(
        ranked_catalog, entry, ranked_category, states, budget, is_first_page=not offset
    )
    other_offers: list[str] = []
    if entry and not ranked_category:
        other_offers += _render_other_offers(entry)
    if not tools:
        return "\n".join(
            [*head, *_explain_no_tools(ranked_catalog, entry, ranked_category), *other_offers]
        )

    def render_footer(reached: int) -> list[str]:
        left = len(tools) - reached
        after = cursors.encode(listing, ranked_catalog.version, reached)
        if left:
            return [f'{left:,} more: browse_tools({arguments}, cursor="{after}")']
        return other_offers

    page = (
        mark_unusable(_render_listed_tool(tool, snapshot), tool, states)
        for tool in tools[offset : offset + page_size]
    )
    packed = pack(
        page, compute_remaining_tokens(budget, *head, *render_footer(offset), *other_offers)
    )
    return "\n".join([*head, *packed.texts, *render_footer(offset + len(packed.texts))])


def _render_listed_tool(tool: Tool, snapshot: Snapshot) -> str:
    """Render a tool's line, with its name in scripts where that differs."""
    identifier = find_identifier(tool.name, snapshot.servers[tool.server].tool_identifiers)
    if identifier == tool.name:
        return render_brief(tool)
    return f"{render_brief(tool)} [in scripts: {identifier}]"


def _select_tools(
    ranked_catalog: RankedCatalog, entry: ServerEntry | None, ranked_category: RankedCategory | None
) -> tuple[Tool, ...]:
    if ranked_category is None:
        if entry:
            return ranked_catalog.list_server_tools(entry.name)
        return ranked_catalog.all_tools
    return tuple(
        tool for tool in ranked_category.tools if entry is None or tool.server == entry.name
    )


def _render_arguments(entry: ServerEntry | None, ranked_category: RankedCategory | None) -> str:
    if not entry and not ranked_category:
        return f'server="{EVERY_SERVER}"'
    arguments = {
        "server": entry.name if entry else "",
        "category": ranked_category.category.key if ranked_category else "",
    }
    return ", ".join(f'{key}="{value}"' for key, value in arguments.items() if value)


def _render_header(
    ranked_catalog: RankedCatalog,
    entry: ServerEntry | None,
    ranked_category: RankedCategory | None,
    states: ServerStates,
    budget: int,
    *,
    is_first_page: bool,
) -> list[str]:
    head: list[str] = []
    if not entry and not ranked_category:
        head.append(_render_size(ranked_catalog))
    if ranked_category:
        kind = ranked_category.category
        about = f" {kind.description}" if kind.description and is_first_page else ""
        tools = format_count(len(ranked_category.tools), "tool")
        servers = format_count(len(ranked_category.servers), "server")
        head.append(f"{kind.key}: {tools} on {servers}. {kind.title}.{about}")
    if entry:
        head.append(render_server_line(entry, states, ranked_catalog.snapshot.server_identifiers))
        if is_first_page and not ranked_category:
            head += _introduce_server(ranked_catalog.snapshot, entry, budget)
    return head


def _introduce_server(snapshot: Snapshot, entry: ServerEntry, budget: int) -> Iterator[str]:
    """Yield the version, category, tags and instructions, which a server's line leaves out."""
    info = entry.initialize_info
    facts = {
        "version": to_short_line(str(info.server_info.get("version", "")), 20) if info else "",
        "category": snapshot.main_categories[entry.name],
        "tags": ", ".join(map(sanitize_text, entry.tags)),
    }
    if summary := "; ".join(f"{key} {value}" for key, value in facts.items() if value):
        yield f"{to_short_line(summary, budget // 20)}."
    if info and info.instructions:
        instructions = truncate_instructions(info.instructions)
        yield f"Its own notes: {to_short_line(instructions, budget // 5)}"


def _render_other_offers(entry: ServerEntry) -> Iterator[str]:
    offers = (("resource", entry.offers.resources), ("prompt", entry.offers.prompts))
    return (f"Also offers {format_count(len(items), kind)}." for kind, items in offers if items)


def _explain_no_tools(
    ranked_catalog: RankedCatalog, entry: ServerEntry | None, ranked_category: RankedCategory | None
) -> Iterator[str]:
    """Explain why a server shows no tool in a category, and where its tools are."""
    if entry and ranked_category and entry.tools:
        categories = sorted(
            {ranked_catalog.snapshot.get_category(tool.address) for tool in entry.tools.values()}
        )
        key = ranked_category.category.key
        yield f"None of its tools is in {key}; they are in {', '.join(categories)}."


def explain_unknown_name(
    error: UnknownName,
    name: str,
    snapshot: Snapshot,
    states: ServerStates,
    disabled_servers: Sequence[str] = (),
) -> PorticoError:
    """Return the error for an unknown tool; its server may be switched off or not listed yet."""
    server_names = {fold(server) for server, _ in split_name(name)}
    for server in disabled_servers:
        if fold(server) in server_names:
            return BackendUnavailable(
                f"{server} is switched off",
                advice="Only the user can switch it on; use another tool.",
            )
    for entry in snapshot.servers.values():
        if not entry.is_listed and fold(entry.name) in server_names:
            state = states.get(entry.name, ServerState("configured"))
            if state.state not in TROUBLED_STATES:
                return BackendUnavailable(
                    f"{entry.name} is {state.state}: its tools are not listed yet",
                    advice="Try again shortly.",
                )
            if state.state == "needs sign-in":
                # The lifecycle puts the advice after the reason.
                reason, _, advice = state.reason.partition(". ")
                advice = advice or f"The user signs in with `portico login {entry.name}`."
                return SignInNeeded(
                    f"{entry.name} needs a sign-in: {to_short_line(reason, 60)}",
                    advice=f"{advice} Its tools are not known before.",
                )
            since = ""
            if state.state_since:
                since = f" since {time.strftime('%H:%M:%S', time.localtime(state.state_since))}"
            return BackendUnavailable(
                f"{entry.name} is known but unavailable{since}: {to_short_line(state.reason, 60)}",
                advice="Its tools are not known, because it could never be listed.",
            )
    return error


def render_schema_hint(tool: Tool, budget: int) -> str:
    """Render the parameters of a tool whose call failed, in brief if they exceed the budget."""
    body = render_schema(tool)
    if count_tokens(body) <= budget:
        return body
    return render_brief(tool)
