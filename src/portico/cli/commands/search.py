"""`portico search`: what an agent would find, why it ranks so, and where an expected tool ranked.

--json: `{"query", "server", "category", "filters": {"servers", "tags", "max_latency_ms",
"min_success_rate"}, "total", "weak", "meaning": {"searched", "problem", "unencoded"}, "near":
[{"name", "description", "tags"}], "tools": [tool + "score", "twins"], "nearest": [tool],
"unlisted": [server]}`. With --explain each tool also has `"why"`, and there is `"explain":
{"confidence", "weak_below", "meaning", "named": [standing], "unknown": [error]}`, made by
`meta_tools.search_explanation`.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from portico.access import Caller
from portico.app import GatewayRuntime
from portico.catalog.snapshot import Snapshot
from portico.catalog.visible_text import sanitize_text
from portico.cli.commands.browse import (
    note_starting_servers,
    render_tool,
    to_server_data,
    to_tool_data,
)
from portico.cli.exit import EXIT_FAILED, EXIT_OK, print_error, sanitize_reason, to_error_data
from portico.cli.screen import Screen
from portico.cli.setup import LISTING_WAIT_S, Setup, open_gateway, select_unlisted_servers
from portico.errors import PorticoError, UnknownName
from portico.meta_tools import no_match, search_page
from portico.meta_tools import search_explanation as explain
from portico.meta_tools.search_explanation import ExpectedToolRank
from portico.meta_tools.search_page import SearchPage
from portico.meta_tools.search_request import PreparedSearch, SearchRequest
from portico.rendering.lines import ServerState, ServerStates, format_count

ENCODING_WAIT_S = 15.0
"""How long a search waits for tools to be encoded, in seconds."""
_SPINNER_DELAY_S = 1.0
_MAX_TOOLS_TO_ENCODE = 2_000
"""Number of tools that can be encoded in that time; with more, search is by words at once."""
_MAX_GUESSES = 3
_NEAR_SERVERS_TOKENS = 2_000
"""Token budget for the nearest servers, large enough to show people all of them."""


@dataclass(frozen=True)
class SearchCommandOptions:
    """Options of the command line."""

    request: SearchRequest
    weak_limit: int | None
    """How many tools to show if nothing fits; None for the usual limit."""
    explain: bool = False
    explained_tools: tuple[str, ...] = ()
    """Tools whose rank is explained."""
    offline: bool = False


@dataclass(frozen=True)
class _SearchReport:
    search: PreparedSearch
    page: SearchPage
    similar_names: tuple[str, ...]
    """Similar names, if nothing matches."""
    standings: tuple[ExpectedToolRank, ...]
    errors: tuple[PorticoError, ...]
    unlisted_servers: tuple[dict[str, Any], ...]
    states: ServerStates


async def search(setup: Setup, screen: Screen, options: SearchCommandOptions) -> int:
    """Show ranked tools; exit code 1 if nothing matches, or a named tool is unknown."""
    server_name = options.request.server

    def select_servers(gateway: GatewayRuntime) -> list[str]:
        """Select unlisted servers, at most the one that the search is limited to."""
        if server_name:
            searched_servers = {gateway.catalog.snapshot.resolve_server(server_name).name}
        else:
            searched_servers = set(gateway.upstreams)
        if options.offline:
            return []
        return [name for name in select_unlisted_servers(gateway) if name in searched_servers]

    async with open_gateway(setup, screen, select_servers, LISTING_WAIT_S) as gateway:
        await wait_for_encoding(gateway, screen)
        await gateway.load_usage()
        report = await _run_search(gateway, setup, options)
        note_starting_servers(gateway)
    if screen.as_json:
        screen.write_json(_to_data(report, options))
    else:
        _show(screen, report, options)
    for error in report.errors:
        print_error(error)
    if report.page.hits and not report.errors:
        return EXIT_OK
    return EXIT_FAILED


async def wait_for_encoding(gateway: GatewayRuntime, screen: Screen) -> None:
    """Wait briefly for tools that are not encoded yet, if they are few."""
    unencoded = gateway.catalog.unencoded_count
    if (
        not 0 < unencoded <= _MAX_TOOLS_TO_ENCODE
        or (encoding := gateway.catalog.start_encoding()) is None
    ):
        return
    # Not cancelled on timeout: the vectors computed so far are kept for the next search.
    await asyncio.wait({encoding}, timeout=_SPINNER_DELAY_S)
    if not encoding.done():
        with screen.show_spinner_or_note(
            f"Encoding {format_count(unencoded, 'tool')}, so that they are found by meaning …"
        ):
            await asyncio.wait({encoding}, timeout=ENCODING_WAIT_S - _SPINNER_DELAY_S)


async def _run_search(
    gateway: GatewayRuntime, setup: Setup, options: SearchCommandOptions
) -> _SearchReport:
    view = gateway.get_view(setup.profile)
    snapshot = view.snapshot
    _, search = await view.search_service.prepare_search(
        snapshot, options.request, Caller(profile=setup.profile or "")
    )
    page = search_page.rank_page(search, options.request.limit, max_unlikely=options.weak_limit)
    standings = list[ExpectedToolRank]()
    unknown = list[PorticoError]()
    for name in options.explained_tools:
        try:
            address = _resolve_address(gateway, setup, name)
        except UnknownName as error:
            unknown.append(_add_nearest(error, gateway.catalog.snapshot, name))
            continue
        found = explain.rank_expected_tool(
            search, page.hits, address, compares_meaning=page.ranking.uses_embeddings
        )
        if found is not None:
            standings.append(found)
    return _SearchReport(
        search,
        page,
        () if page.hits else tuple(no_match.find_similar_names(search)),
        tuple(standings),
        tuple(unknown),
        tuple(
            to_server_data(gateway, entry)
            for entry in snapshot.servers.values()
            if not entry.is_listed
        ),
        {
            status.name: ServerState(
                status.state, sanitize_reason(status.state, status.reason), status.state_since
            )
            for status in gateway.list_statuses()
        },
    )


def _resolve_address(gateway: GatewayRuntime, setup: Setup, name: str) -> str:
    """Resolve a name among the profile's tools, else among all, because the scope may hide it."""
    try:
        return gateway.get_view(setup.profile).snapshot.resolve_tool(name).address
    except UnknownName:
        return gateway.catalog.snapshot.resolve_tool(name).address


def _add_nearest(error: UnknownName, snapshot: Snapshot, name: str) -> UnknownName:
    """Add tools that share words with the wrong name, if none is spelt like it."""
    if error.nearest:
        return error
    found = PreparedSearch(snapshot, SearchRequest(name)).rank(_MAX_GUESSES).hits
    near = tuple(hit.id for hit in found if hit.reasons)
    if near:
        advice = f"Did you mean {', '.join(map(sanitize_text, near))}?"
    else:
        advice = error.advice
    return UnknownName(error.message, nearest=near, advice=advice)


def _to_data(report: _SearchReport, options: SearchCommandOptions) -> dict[str, Any]:
    search = report.search
    page = report.page
    ranking = page.ranking
    tools = search.snapshot.tools
    encoder = search.snapshot.index.encoder
    query = options.request.query
    groups = search.filters.groups
    near = [search.snapshot.servers[name] for name in ranking.nearest_groups if ranking.is_weak]
    found = [
        {
            **to_tool_data(tools[hit.id], options.request.detail),
            "score": round(hit.score, 4),
            "twins": list(hit.duplicates),
            **({"why": explain.to_hit_data(rank, hit)} if options.explain else {}),
        }
        for rank, hit in enumerate(page.hits, 1)
    ]
    data: dict[str, Any] = {
        "query": query,
        "server": next(iter(groups)) if groups else None,
        "category": next(iter(search.filters.categories), None),
        "filters": explain.to_filters_data(search.filters),
        "total": ranking.total,
        "weak": ranking.is_weak,
        "meaning": {
            "searched": ranking.uses_embeddings,
            "problem": encoder.problem if encoder else "",
            "unencoded": no_match.count_unencoded(search),
        },
        "near": [
            {"name": one.name, "description": one.description, "tags": list(one.tags)}
            for one in near
        ],
        "tools": found,
        "nearest": [to_tool_data(tools[name], "brief") for name in report.similar_names],
        "unlisted": list(report.unlisted_servers),
    }
    if options.explain:
        named = [explain.to_rank_data(one) for one in report.standings]
        unknown = [to_error_data(error) for error in report.errors]
        data["explain"] = {**explain.to_summary_data(ranking), "named": named, "unknown": unknown}
    return data


def _show(screen: Screen, report: _SearchReport, options: SearchCommandOptions) -> None:
    search = report.search
    page = report.page
    tools = search.snapshot.tools
    detail = options.request.detail
    if page.hits:
        screen.write_text(
            *search_page.render_header(
                search, page, report.states, _NEAR_SERVERS_TOKENS, with_explanation=options.explain
            )
        )
    else:
        screen.write_text(
            no_match.render_unmatched(search), *(["Nearest names:"] if report.similar_names else [])
        )
    if options.explain:
        screen.write_text(*_render_explanations(report))
    else:
        screen.write_text(
            *(render_tool(screen, tools[hit.id], detail, hit.duplicates) for hit in page.hits)
        )
    screen.write_text(*(render_tool(screen, tools[name], detail) for name in report.similar_names))
    uncovered = (standing for standing in report.standings if not _is_covered_by_page(standing))
    screen.write_text(
        *(line for standing in uncovered for line in explain.render_rank_lines(search, standing))
    )
    screen.write_text(*(Text(line, style="dim") for line in _suggest_next_commands(search, page)))
    if report.unlisted_servers:
        states = ", ".join(
            f"{standing['name']} ({standing['reason'] or standing['state']})"
            for standing in report.unlisted_servers
        )
        screen.write_text(Text(f"Not searched, because not listed yet: {states}", style="yellow"))
    if words_only_note := no_match.render_words_only_note(search, with_reason=True):
        if no_match.count_unencoded(search) > _MAX_TOOLS_TO_ENCODE:
            encoding_note = " A running gateway encodes them in the background."
        else:
            encoding_note = ""
        screen.write_text(Text(words_only_note + encoding_note, style="yellow"))


def _is_covered_by_page(standing: ExpectedToolRank) -> bool:
    """Return whether the page already says everything about a named tool."""
    return standing.place is not None and standing.shares_place_with is None


def _render_explanations(report: _SearchReport) -> list[str]:
    named = {standing.address for standing in report.standings if _is_covered_by_page(standing)}
    lines = list[str]()
    for rank, hit in enumerate(report.page.hits, 1):
        first, *rest = explain.render_hit_lines(rank, hit)
        lines += [f"{first} ← the tool you asked about" if hit.id in named else first, *rest]
    return lines


def _suggest_next_commands(search: PreparedSearch, page: SearchPage) -> Sequence[str]:
    """Suggest how to go on, as commands."""
    lines = list[str]()
    if page.has_more(len(page.hits)):
        lines.append(f"More: --limit {search.request.limit * 4}")
    if page.ranking.is_weak:
        if search.scope_text:
            suggestion = "search without the filters"
        else:
            suggestion = "try other words for the same thing"
        lines += [
            f"{suggestion.capitalize()}, or look around: portico browse "
            f"{' '.join(page.ranking.nearest_groups[:1])}".rstrip()
        ]
    if search.is_unmeasured:
        return [*lines, search_page.UNMEASURED_NOTE]
    return lines
