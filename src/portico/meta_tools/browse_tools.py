"""The meta-tool `browse_tools`, and explanations of unknown names. Pure.

Every response fits its budget, says what was left out and how to get it. One entry is always shown
whole, however small the budget: a truncated schema would be wrong, and an empty page would leave
the agent with no next step.
"""

import time
from collections.abc import Iterator, Mapping

from portico.catalog.address import fold, split_name
from portico.catalog.snapshot import ServerEntry, Snapshot
from portico.catalog.tool import Tool
from portico.catalog.visible_text import sanitize_text
from portico.errors import BackendUnavailable, PorticoError, UnknownName
from portico.meta_tools.instructions import truncate_instructions
from portico.rendering import cursor as cursors
from portico.rendering.budget import pack
from portico.rendering.lines import (
    ServerState,
    ServerStates,
    compute_remaining_tokens,
    format_count,
    render_server_line,
    to_short_line,
)
from portico.rendering.token_count import count_tokens
from portico.rendering.tool import render_addresses, render_brief, render_schema
from portico.upstream.lifecycle.status import TROUBLED_STATES
from portico.usage.ranked_catalog import HotListBasis, RankedCatalog, RankedCategory

HOT_LIST_HEADINGS: Mapping[HotListBasis, str] = {
    "use": "Most used tools:",
    "pins": "Pinned tools:",
    "one of each server": (
        "Some tools to start with (no use is known yet: one tool of each server):"
    ),
}
PAGE_SIZE = 50
_MAX_NAMED_SERVERS = 3


def render_overview(
    ranked_catalog: RankedCatalog, states: ServerStates, budget: int, cursor: str | None = None
) -> str:
    """Render tools to start with, the categories, and the servers with tool counts and states."""
    snapshot = ranked_catalog.snapshot
    listing = "overview"
    if cursor:
        offset = cursors.decode(cursor, listing, ranked_catalog.version)
    else:
        offset = 0
    head = [_render_size(ranked_catalog)]
    if not offset and ranked_catalog.hot_list.tools:
        heading = _render_hot_heading(ranked_catalog)
        # A third of the budget, so that most of it is left for categories and servers.
        head += [
            heading,
            *pack(
                (render_brief(tool) for tool in ranked_catalog.hot_list.tools),
                budget // 3 - count_tokens(heading),
            ).texts,
        ]
    entries = [
        *ranked_catalog.categories.values(),
        *(snapshot.servers[name] for name in sorted(snapshot.servers)),
    ]
    kinds = len(ranked_catalog.categories)
    foot = "Next: browse_tools(category=…) or (server=…), or search_tools(query=…)."

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
                else render_server_line(entry, states)
            )

    packed = pack(
        render_entries(), compute_remaining_tokens(budget, *head, *render_more(offset), foot)
    )
    return "\n".join([*head, *packed.texts, *render_more(offset + len(packed.texts)), foot])


def _render_hot_heading(ranked_catalog: RankedCatalog) -> str:
    hot = ranked_catalog.hot_list
    pinned = hot.basis == "use" and hot.tools[0].address in ranked_catalog.pins
    if pinned:
        return "Pinned, then most used tools:"
    return HOT_LIST_HEADINGS[hot.basis]


def _render_size(ranked_catalog: RankedCatalog) -> str:
    snapshot = ranked_catalog.snapshot
    if ranked_catalog.categories:
        count = format_count(len(ranked_catalog.categories), "category", "categories")
        categories = f" in {count}"
    else:
        categories = ""
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
    """Render a page of the tools of a server, of a category, or of both, hottest first."""
    if server:
        entry = ranked_catalog.snapshot.resolve_server(server)
    else:
        entry = None
    if category:
        ranked_category = ranked_catalog.find_category(category)
    else:
        ranked_category = None
    tools = _select_tools(ranked_catalog, entry, ranked_category)
    arguments = _render_arguments(entry, ranked_category)
    listing = f"browse\0{arguments}"
    if cursor:
        offset = cursors.decode(cursor, listing, ranked_catalog.version)
    else:
        offset = 0
    head = _render_header(
        ranked_catalog, entry, ranked_category, states, budget, is_first_page=not offset
    )
    if entry and not ranked_category:
        other_offers = list(_render_other_offers(entry))
    else:
        other_offers = []
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

    page = (render_brief(tool) for tool in tools[offset : offset + page_size])
    packed = pack(
        page, compute_remaining_tokens(budget, *head, *render_footer(offset), *other_offers)
    )
    return "\n".join([*head, *packed.texts, *render_footer(offset + len(packed.texts))])


def _select_tools(
    ranked_catalog: RankedCatalog, entry: ServerEntry | None, ranked_category: RankedCategory | None
) -> tuple[Tool, ...]:
    if ranked_category is None:
        if entry:
            return ranked_catalog.list_server_tools(entry.name)
        return ()
    return tuple(
        tool for tool in ranked_category.tools if entry is None or tool.server == entry.name
    )


def _render_arguments(entry: ServerEntry | None, ranked_category: RankedCategory | None) -> str:
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
    if ranked_category:
        kind = ranked_category.category
        if kind.description and is_first_page:
            about = f" {kind.description}"
        else:
            about = ""
        tools = format_count(len(ranked_category.tools), "tool")
        servers = format_count(len(ranked_category.servers), "server")
        head.append(f"{kind.key}: {tools} on {servers}. {kind.title}.{about}")
    if entry:
        head.append(render_server_line(entry, states))
        if is_first_page and not ranked_category:
            head += _introduce_server(ranked_catalog.snapshot, entry, budget)
    return head


def _introduce_server(snapshot: Snapshot, entry: ServerEntry, budget: int) -> Iterator[str]:
    """Yield the version, category, tags and instructions, which a server's line leaves out."""
    if entry.initialize_info:
        version = to_short_line(str(entry.initialize_info.server_info.get("version", "")), 20)
    else:
        version = ""
    category = snapshot.main_categories[entry.name]
    facts = {
        "version": version,
        "category": category,
        "tags": ", ".join(map(sanitize_text, entry.tags)),
    }
    if summary := "; ".join(f"{key} {value}" for key, value in facts.items() if value):
        yield f"{to_short_line(summary, budget // 20)}."
    if entry.initialize_info and entry.initialize_info.instructions:
        instructions = truncate_instructions(entry.initialize_info.instructions)
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
    error: UnknownName, name: str, snapshot: Snapshot, states: ServerStates
) -> PorticoError:
    """Return the error for an unknown tool; its server may just not be listed yet."""
    server_names = {fold(server) for server, _ in split_name(name)}
    for entry in snapshot.servers.values():
        if not entry.is_listed and fold(entry.name) in server_names:
            state = states.get(entry.name, ServerState("configured"))
            if state.state not in TROUBLED_STATES:
                return BackendUnavailable(
                    f"{entry.name} is {state.state}: its tools are not listed yet",
                    advice="Try again shortly.",
                )
            if state.state_since:
                since = f" since {time.strftime('%H:%M:%S', time.localtime(state.state_since))}"
            else:
                since = ""
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
