"""`portico search`: what an agent would find, why it ranks so, and where a tool stood that was missed.

--json: `{"query", "server", "category", "filters": {"servers", "tags", "max_latency_ms",
"min_success_rate"}, "total", "weak", "meaning": {"searched", "problem", "unencoded"}, "near":
[{"name", "description", "tags"}], "tools": [tool + "score", "twins"], "nearest": [tool],
"unlisted": [server]}`. With --explain each tool also has `"why"`, and there is
`"explain": {"confidence", "weak_below", "meaning", "named": [standing], "unknown": [error]}`; `disclosure.explain`
makes these.
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
"""How long a search waits for tools to be encoded."""
_SPINNER_DELAY_S = 1.0
_MAX_TOOLS_TO_ENCODE = 2_000
"""Tools that can be encoded in that time: for more, an answer by words at once is better than one
by words too late."""
_MAX_GUESSES = 3
_NEAR_SERVERS_TOKENS = 2_000
"""Tokens for the nearest servers: people get all of them."""


@dataclass(frozen=True)
class SearchCommandOptions:
    """What the command line asks for."""

    request: SearchRequest
    weak_limit: int | None
    """How many tools to show where nothing fits; None for as many as otherwise."""
    explain: bool = False
    explained_tools: tuple[str, ...] = ()
    """Tools of which to tell where they stood."""
    offline: bool = False


@dataclass(frozen=True)
class _SearchReport:
    search: PreparedSearch
    page: SearchPage
    similar_names: tuple[str, ...]
    """Names spelt alike, where nothing matches."""
    standings: tuple[ExpectedToolRank, ...]
    errors: tuple[PorticoError, ...]
    unlisted_servers: tuple[dict[str, Any], ...]
    states: ServerStates


async def search(setup: Setup, screen: Screen, options: SearchCommandOptions) -> int:
    """Ranked tools; exit code 1 when nothing matches, or a named tool is unknown."""
    only = options.request.server

    def select_servers(gateway: GatewayRuntime) -> list[str]:
        """The servers nothing is known of; of one server's tools, no other server has to be asked."""
        if only:
            meant = {gateway.catalog.snapshot.resolve_server(only).name}
        else:
            meant = set(gateway.upstreams)
        if options.offline:
            return []
        return [name for name in select_unlisted_servers(gateway) if name in meant]

    async with open_gateway(setup, screen, select_servers, LISTING_WAIT_S) as gateway:
        await wait_for_encoding(gateway, screen)
        await gateway.load_usage()
        answer = await _run_search(gateway, setup, options)
        note_starting_servers(gateway)
    if screen.as_json:
        screen.write_json(_to_data(answer, options))
    else:
        _show(screen, answer, options)
    for error in answer.errors:
        print_error(error)
    if answer.page.hits and not answer.errors:
        return EXIT_OK
    return EXIT_FAILED


async def wait_for_encoding(gateway: GatewayRuntime, screen: Screen) -> None:
    """Wait for the few tools that cannot be found by meaning yet, but not long."""
    left = gateway.catalog.unencoded_count
    if (
        not 0 < left <= _MAX_TOOLS_TO_ENCODE
        or (encoding := gateway.catalog.start_encoding()) is None
    ):
        return
    # Not cancelled when time is up: what it has done by then is kept, and used next time.
    await asyncio.wait({encoding}, timeout=_SPINNER_DELAY_S)
    if not encoding.done():
        with screen.show_spinner_or_note(
            f"Encoding {format_count(left, 'tool')}, so that they are found by meaning …"
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
            one.name: ServerState(
                one.state, sanitize_reason(one.state, one.reason), one.state_since
            )
            for one in gateway.list_statuses()
        },
    )


def _resolve_address(gateway: GatewayRuntime, setup: Setup, name: str) -> str:
    """The tool a name means: one that the profile sees, or else any, because it may be missed for
    that very reason."""
    try:
        return gateway.get_view(setup.profile).snapshot.resolve_tool(name).address
    except UnknownName:
        return gateway.catalog.snapshot.resolve_tool(name).address


def _add_nearest(error: UnknownName, snapshot: Snapshot, name: str) -> UnknownName:
    """The error with tools that have words of the wrong name, where none is spelt like it."""
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
    search, page, ranking = report.search, report.page, report.page.ranking
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
            **({"why": explain.to_hit_data(place, hit)} if options.explain else {}),
        }
        for place, hit in enumerate(page.hits, 1)
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
    beside = (one for one in report.standings if not _is_covered_by_page(one))
    screen.write_text(*(line for one in beside for line in explain.render_rank_lines(search, one)))
    screen.write_text(*(Text(line, style="dim") for line in _suggest_next_commands(search, page)))
    if report.unlisted_servers:
        states = ", ".join(
            f"{one['name']} ({one['reason'] or one['state']})" for one in report.unlisted_servers
        )
        screen.write_text(Text(f"Not searched, because not listed yet: {states}", style="yellow"))
    if only := no_match.render_words_only_note(search, with_reason=True):
        if no_match.count_unencoded(search) > _MAX_TOOLS_TO_ENCODE:
            later = " A running gateway encodes them in the background."
        else:
            later = ""
        screen.write_text(Text(only + later, style="yellow"))


def _is_covered_by_page(standing: ExpectedToolRank) -> bool:
    """Whether the page has all there is to say of a named tool."""
    return standing.place is not None and standing.shares_place_with is None


def _render_explanations(report: _SearchReport) -> list[str]:
    named = {one.address for one in report.standings if _is_covered_by_page(one)}
    lines = list[str]()
    for place, hit in enumerate(report.page.hits, 1):
        first, *rest = explain.render_hit_lines(place, hit)
        lines += [f"{first} ← the tool you asked about" if hit.id in named else first, *rest]
    return lines


def _suggest_next_commands(search: PreparedSearch, page: SearchPage) -> Sequence[str]:
    """How to go on, in commands."""
    lines = list[str]()
    if page.has_more(len(page.hits)):
        lines.append(f"More: --limit {search.request.limit * 4}")
    if page.ranking.is_weak:
        if search.scope_text:
            other = "search without the filters"
        else:
            other = "try other words for the same thing"
        lines += [
            f"{other.capitalize()}, or look around: portico browse {' '.join(page.ranking.nearest_groups[:1])}".rstrip()
        ]
    if search.is_unmeasured:
        return [*lines, search_page.UNMEASURED_NOTE]
    return lines
