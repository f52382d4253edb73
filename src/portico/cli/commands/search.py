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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.text import Text

from portico.catalog.snapshot import Snapshot
from portico.catalog.tool import sanitize_text
from portico.cli.commands.browse import render_tool, to_server_data, to_tool_data
from portico.cli.exit import EXIT_FAILED, EXIT_OK, print_error, sanitize_reason, to_error_data
from portico.cli.look_commands import SearchOptions
from portico.cli.screen import Screen
from portico.cli.setup import (
    LISTING_WAIT_S,
    Setup,
    note_starting_servers,
    open_gateway,
    select_unlisted_servers,
    select_view,
)
from portico.errors import ConfigError, PorticoError, UnknownName
from portico.gateway import HABITS_FILE, RECORD_FILE, GatewayRuntime
from portico.meta_tools import search_explanation as explanation
from portico.meta_tools import search_page
from portico.meta_tools.search_explanation import ExpectedToolRank
from portico.meta_tools.search_page import SearchPage
from portico.meta_tools.search_request import DEFAULT_LIMIT, PreparedSearch, SearchRequest
from portico.rendering.server_lines import ServerState, ServerStates
from portico.rendering.token_budget import format_count
from portico.storage.gateway_store import GatewayStore
from portico.storage.learning_store import ForgottenCounts, LearningStore

ENCODING_WAIT_S = 15.0
"""How long a search waits for tools to be encoded, in seconds."""
_SPINNER_DELAY_S = 1.0
_MAX_TOOLS_TO_ENCODE = 2_000
"""Number of tools that can be encoded in that time; with more, search is by words at once."""
_MAX_GUESSES = 3
_NEAR_SERVERS_TOKENS = 2_000
"""Token budget for the nearest servers, large enough to show people all of them."""


async def forget_learning(setup: Setup, screen: Screen, server: str | None) -> int:
    """Forget everything, or what was learned in a profile or of a server.

    Running gateways notice within seconds. Plans involve several servers, so they stay if only one
    server is to be forgotten.
    """
    path = setup.config.data_dir / HABITS_FILE
    forgotten = await asyncio.to_thread(_forget_habits, path, setup.profile, server)
    if forgotten is None:
        raise PorticoError(
            f"{path} cannot be written: nothing was forgotten",
            advice="Try again, or stop Portico and delete the file.",
        )
    plans = 0
    if server is None:
        plans = await _forget_plans(setup)
    is_empty = forgotten.is_empty and not plans
    if is_empty and setup.profile is not None and setup.config.learning.scope == "shared":
        raise PorticoError(
            f"all profiles learn together here: nothing is kept for {setup.profile} alone, "
            "and nothing was forgotten",
            advice="Without --profile, what all have taught is forgotten.",
        )
    if screen.as_json:
        counts = {**asdict(forgotten), "plans": plans}
        screen.write_json({"forgotten": counts, "profile": setup.profile, "server": server})
    elif is_empty:
        screen.write_text("Nothing was learnt yet that could be forgotten.")
    else:
        screen.write_text(_render_forgotten(forgotten, plans))
    return EXIT_OK


def _forget_habits(path: Path, profile: str | None, server: str | None) -> ForgottenCounts | None:
    if not any(path.parent.glob(f"{path.name}*")):
        return ForgottenCounts()
    store = LearningStore(path)
    try:
        return store.forget(profile, server)
    finally:
        store.close()


async def _forget_plans(setup: Setup) -> int:
    """Forget stored plans and return their number."""
    url = setup.config.database_url
    path = setup.config.data_dir / RECORD_FILE
    if url is None and not path.exists():
        return 0
    record = GatewayStore(url.get_secret_value() if url else None, path)
    try:
        return await record.forget_plans(setup.profile)
    finally:
        await record.close()


def _render_forgotten(forgotten: ForgottenCounts, plans: int) -> str:
    text = (
        f"Forgot {format_count(forgotten.followed, 'call')} after a search, "
        f"{format_count(forgotten.together, 'pair')} of tools used together"
    )
    if plans:
        text += f", {format_count(plans, 'plan')} that worked"
    text += f" and the use of {format_count(forgotten.used, 'tool')}."
    if forgotten.unreadable:
        text += f" Deleted {format_count(forgotten.unreadable, 'file')} that could not be read."
    return text


@dataclass(frozen=True)
class _SearchReport:
    options: SearchOptions
    search: PreparedSearch
    page: SearchPage
    similar_names: tuple[str, ...]
    """Similar names, if nothing matches."""
    standings: tuple[ExpectedToolRank, ...]
    errors: tuple[PorticoError, ...]
    unlisted_servers: tuple[dict[str, Any], ...]
    states: ServerStates


async def run_search(query: Sequence[str], options: SearchOptions) -> int:
    """Show ranked tools; exit code 1 if nothing matches, or a named tool is unknown."""
    server = options.server
    if options.forget and query:
        raise ConfigError("--forget takes no query", advice="Narrow it with --server or --profile.")
    if not options.forget and not query:
        raise ConfigError(
            "search needs a QUERY", advice='Say what you want to do: portico search "send a mail".'
        )
    setup, screen = options.load()
    if options.forget:
        return await forget_learning(setup, screen, server)

    def select_servers(gateway: GatewayRuntime) -> list[str]:
        """Select unlisted servers, at most the one that the search is limited to."""
        only = gateway.catalog.snapshot.resolve_server(server).name if server else None
        unlisted = [] if options.offline else select_unlisted_servers(gateway)
        return [name for name in unlisted if only in (None, name)]

    async with open_gateway(setup, screen, select_servers, LISTING_WAIT_S) as gateway:
        await _wait_for_encoding(gateway, screen)
        await gateway.load_usage()
        report = await _run_search(gateway, setup, options, " ".join(query))
        note_starting_servers(gateway)
    if screen.as_json:
        screen.write_json(_to_data(report))
    else:
        _show(screen, report)
    for error in report.errors:
        print_error(error)
    if report.page.hits and not report.errors:
        return EXIT_OK
    return EXIT_FAILED


async def _wait_for_encoding(gateway: GatewayRuntime, screen: Screen) -> None:
    """Wait briefly for tools that are not encoded yet, if they are few."""
    unencoded = gateway.catalog.unencoded_count
    if not 0 < unencoded <= _MAX_TOOLS_TO_ENCODE:
        return
    encoding = gateway.catalog.start_encoding()
    if encoding is None:
        return
    # Not cancelled on timeout: the vectors computed so far are kept for the next search.
    await asyncio.wait({encoding}, timeout=_SPINNER_DELAY_S)
    if not encoding.done():
        with screen.show_spinner_or_note(
            f"Encoding {format_count(unencoded, 'tool')}, so that they are found by meaning …"
        ):
            await asyncio.wait({encoding}, timeout=ENCODING_WAIT_S - _SPINNER_DELAY_S)


async def _run_search(
    gateway: GatewayRuntime, setup: Setup, options: SearchOptions, query: str
) -> _SearchReport:
    request = _make_request(options, query)
    # An explicit --limit applies to unlikely matches too.
    max_unlikely = search_page.MAX_UNLIKELY if options.limit is None else None
    view = select_view(gateway, setup)
    snapshot = view.snapshot
    _, search = await view.search_service.prepare_search(snapshot, request, setup.caller)
    page = search_page.rank_page(search, request.limit, max_unlikely=max_unlikely)
    standings = list[ExpectedToolRank]()
    unknown = list[PorticoError]()
    for name in options.tool or ():
        try:
            address = _resolve_address(gateway, setup, name)
        except UnknownName as error:
            unknown.append(_add_nearest(error, gateway.catalog.snapshot, name))
            continue
        found = explanation.rank_expected_tool(
            search, page.hits, address, compares_meaning=page.ranking.uses_embeddings
        )
        if found is not None:
            standings.append(found)
    unlisted = [entry for entry in snapshot.servers.values() if not entry.is_listed]
    return _SearchReport(
        options,
        search,
        page,
        () if page.hits else tuple(search_page.find_similar_names(search)),
        tuple(standings),
        tuple(unknown),
        tuple(to_server_data(gateway, entry) for entry in unlisted),
        {
            status.name: ServerState(
                status.state, sanitize_reason(status.state, status.reason), status.state_since
            )
            for status in gateway.list_statuses()
        },
    )


def _make_request(options: SearchOptions, query: str) -> SearchRequest:
    """Make the request that an agent would send."""
    return SearchRequest(
        query,
        options.server,
        tuple(options.tag or ()),
        options.max_latency_ms,
        options.min_success_rate,
        limit=options.limit or DEFAULT_LIMIT,
        detail=options.detail,
        category=options.category,
    )


def _resolve_address(gateway: GatewayRuntime, setup: Setup, name: str) -> str:
    """Resolve a name among the profile's tools, else among all, because the scope may hide it."""
    try:
        return select_view(gateway, setup).snapshot.resolve_tool(name).address
    except UnknownName:
        return gateway.catalog.snapshot.resolve_tool(name).address


def _add_nearest(error: UnknownName, snapshot: Snapshot, name: str) -> UnknownName:
    """Add tools that share words with the wrong name, if none is spelt like it."""
    if error.nearest:
        return error
    found = PreparedSearch(snapshot, SearchRequest(name)).rank(_MAX_GUESSES).hits
    near = tuple(hit.id for hit in found if hit.reasons)
    if not near:
        return error
    advice = f"Did you mean {', '.join(map(sanitize_text, near))}?"
    return UnknownName(error.message, nearest=near, advice=advice)


def _to_data(report: _SearchReport) -> dict[str, Any]:
    search = report.search
    ranking = report.page.ranking
    tools = search.snapshot.tools
    encoder = search.snapshot.index.encoder
    near = [search.snapshot.servers[name] for name in ranking.nearest_groups if ranking.is_weak]
    found: list[dict[str, Any]] = []
    for rank, hit in enumerate(report.page.hits, 1):
        one = to_tool_data(tools[hit.id], report.options.detail)
        one |= {"score": round(hit.score, 4), "twins": list(hit.duplicates)}
        if report.options.shows_reasons:
            one["why"] = explanation.to_hit_data(rank, hit)
        found.append(one)
    data: dict[str, Any] = {
        "query": search.request.query,
        "server": next(iter(search.filters.groups or ()), None),
        "category": next(iter(search.filters.categories), None),
        "filters": explanation.to_filters_data(search.filters),
        "total": ranking.total,
        "weak": ranking.is_weak,
        "meaning": {
            "searched": ranking.uses_embeddings,
            "problem": encoder.problem if encoder else "",
            "unencoded": search_page.count_unencoded(search),
        },
        "near": [
            {"name": one.name, "description": one.description, "tags": list(one.tags)}
            for one in near
        ],
        "tools": found,
        "nearest": [to_tool_data(tools[name], "brief") for name in report.similar_names],
        "unlisted": list(report.unlisted_servers),
    }
    if report.options.shows_reasons:
        named = [explanation.to_rank_data(one) for one in report.standings]
        unknown = [to_error_data(error) for error in report.errors]
        summary = explanation.to_summary_data(ranking)
        data["explain"] = {**summary, "named": named, "unknown": unknown}
    return data


def _show(screen: Screen, report: _SearchReport) -> None:
    search = report.search
    page = report.page
    tools = search.snapshot.tools
    detail = report.options.detail
    explained = report.options.shows_reasons
    if page.hits:
        lines = search_page.render_header(
            search, page, report.states, _NEAR_SERVERS_TOKENS, with_explanation=explained
        )
        screen.write_text(*lines)
    else:
        screen.write_text(search_page.render_unmatched(search))
    if report.similar_names:
        screen.write_text("Nearest names:")
    if explained:
        screen.write_text(*_render_explanations(report))
    else:
        for hit in page.hits:
            screen.write_text(render_tool(screen, tools[hit.id], detail, hit.duplicates))
    for name in report.similar_names:
        screen.write_text(render_tool(screen, tools[name], detail))
    for standing in report.standings:
        if not _is_covered_by_page(standing):
            screen.write_text(*explanation.render_rank_lines(search, standing))
    for line in _suggest_next_commands(search, page):
        screen.write_text(Text(line, style="dim"))
    if report.unlisted_servers:
        names = ", ".join(
            f"{server['name']} ({server['state']})" for server in report.unlisted_servers
        )
        note = f"Not searched, because not listed yet: {names}. `portico status` says why."
        screen.write_text(Text(note, style="yellow"))
    if note := search_page.render_words_only_note(search, with_reason=True):
        if search_page.count_unencoded(search) > _MAX_TOOLS_TO_ENCODE:
            note += " A running gateway encodes them in the background."
        screen.write_text(Text(note, style="yellow"))


def _is_covered_by_page(standing: ExpectedToolRank) -> bool:
    """Return whether the page already says everything about a named tool."""
    return standing.place is not None and standing.shares_place_with is None


def _render_explanations(report: _SearchReport) -> list[str]:
    named = {standing.address for standing in report.standings if _is_covered_by_page(standing)}
    lines = list[str]()
    for rank, hit in enumerate(report.page.hits, 1):
        first, *rest = explanation.render_hit_lines(rank, hit)
        lines += [f"{first} ← the tool you asked about" if hit.id in named else first, *rest]
    return lines


def _suggest_next_commands(search: PreparedSearch, page: SearchPage) -> list[str]:
    lines = list[str]()
    if page.has_more(len(page.hits)):
        lines.append(f"More: --limit {search.request.limit * 4}")
    if page.ranking.is_weak:
        advice = "Try other words for the same thing"
        if search.scope_text:
            advice = "Search without the filters"
        nearest = " ".join(page.ranking.nearest_groups[:1])
        lines.append(f"{advice}, or look around: portico browse {nearest}".rstrip())
    if search.filters.has_usage_limits:
        lines.append(search_page.UNMEASURED_NOTE)
    return lines
