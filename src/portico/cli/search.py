"""`portico search`: what an agent would find, why it ranks so, and where a tool stood that was missed.

--json: `{"query", "server", "category", "filters": {"servers", "tags", "max_latency_ms", "min_success_rate"}, "total",
"weak", "meaning": {"searched", "problem", "unencoded"}, "near": [{"name", "description", "tags"}], "tools": [tool +
"score", "twins"], "nearest": [tool], "unlisted": [server]}`. With --explain each tool also has `"why"`, and there is
`"explain": {"confidence", "weak_below", "meaning", "named": [standing], "unknown": [error]}`; `disclosure.explain`
makes these.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from portico.access import Caller
from portico.app import Gateway
from portico.catalog.snapshot import Snapshot
from portico.catalog.visible import shown
from portico.cli.discover import name_late, server_data, tool_data, tool_lines
from portico.cli.ending import DONE, FAILED, as_data, complain, reason
from portico.cli.opening import PATIENCE_S, Setup, opened, unlisted
from portico.cli.screen import Screen
from portico.disclosure import explain, misfit, results
from portico.disclosure.explain import Standing
from portico.disclosure.lines import ServerState, States, counted
from portico.disclosure.question import Question, Search
from portico.disclosure.results import Page
from portico.errors import PorticoError, UnknownName

ENCODING_S = 15.0
"""How long a search waits for tools to be encoded."""
_SILENT_S = 1.0
_SMALL = 2_000
"""Tools that can be encoded in that time: for more, an answer by words at once is better than one by words too late."""
_GUESSES = 3
_FOR_SERVERS = 2_000
"""Tokens for the nearest servers: people get all of them."""


@dataclass(frozen=True)
class Asked:
    """What the command line asks for."""

    question: Question
    unlikely: int | None
    """How many tools to show where nothing fits; None for as many as otherwise."""
    explained: bool = False
    named: tuple[str, ...] = ()
    """Tools of which to tell where they stood."""
    offline: bool = False


@dataclass(frozen=True)
class _Answer:
    search: Search
    page: Page
    near: tuple[str, ...]
    """Names spelt alike, where nothing matches."""
    standings: tuple[Standing, ...]
    unknown: tuple[PorticoError, ...]
    waiting: tuple[dict[str, Any], ...]
    states: States


async def search(setup: Setup, screen: Screen, asked: Asked) -> int:
    """Ranked tools; exit code 1 when nothing matches, or a named tool is unknown."""
    only = asked.question.server

    def wanted(gateway: Gateway) -> list[str]:
        """The servers nothing is known of; of one server's tools, no other server has to be asked."""
        meant = {gateway.catalog.snapshot.server(only).name} if only else set(gateway.upstreams)
        return [] if asked.offline else [name for name in unlisted(gateway) if name in meant]

    async with opened(setup, screen, wanted, PATIENCE_S) as gateway:
        await encoded(gateway, screen)
        await gateway.recall()
        answer = await _answer(gateway, setup, asked)
        name_late(gateway)
    if screen.as_json:
        screen.data(_data(answer, asked))
    else:
        _show(screen, answer, asked)
    for error in answer.unknown:
        complain(error)
    return DONE if answer.page.hits and not answer.unknown else FAILED


async def encoded(gateway: Gateway, screen: Screen) -> None:
    """Wait for the few tools that cannot be found by meaning yet, but not long."""
    left = gateway.catalog.unencoded
    if not 0 < left <= _SMALL or (encoding := gateway.catalog.encode()) is None:
        return
    # Not cancelled when time is up: what it has done by then is kept, and used next time.
    await asyncio.wait({encoding}, timeout=_SILENT_S)
    if not encoding.done():
        with screen.telling(f"Encoding {counted(left, 'tool')}, so that they are found by meaning …"):
            await asyncio.wait({encoding}, timeout=ENCODING_S - _SILENT_S)


async def _answer(gateway: Gateway, setup: Setup, asked: Asked) -> _Answer:
    view = gateway.view(setup.profile)
    snapshot = view.snapshot
    _, search = await view.searching.prepared(snapshot, asked.question, Caller(profile=setup.profile or ""))
    page = results.page(search, asked.question.limit, unlikely=asked.unlikely)
    standings, unknown = list[Standing](), list[PorticoError]()
    for name in asked.named:
        try:
            address = _address(gateway, setup, name)
        except UnknownName as error:
            unknown.append(_with_nearest(error, gateway.catalog.snapshot, name))
            continue
        found = explain.standing(search, page.hits, address, compared=page.ranking.dense)
        if found is not None:
            standings.append(found)
    return _Answer(
        search,
        page,
        () if page.hits else tuple(misfit.spelt_alike(search)),
        tuple(standings),
        tuple(unknown),
        tuple(server_data(gateway, entry) for entry in snapshot.servers.values() if not entry.known),
        {one.name: ServerState(one.state, reason(one.state, one.reason), one.since) for one in gateway.statuses()},
    )


def _address(gateway: Gateway, setup: Setup, name: str) -> str:
    """The tool a name means: one that the profile sees, or else any, because it may be missed for that very reason."""
    try:
        return gateway.view(setup.profile).snapshot.tool(name).address
    except UnknownName:
        return gateway.catalog.snapshot.tool(name).address


def _with_nearest(error: UnknownName, snapshot: Snapshot, name: str) -> UnknownName:
    """The error with tools that have words of the wrong name, where none is spelt like it."""
    if error.nearest:
        return error
    found = Search(snapshot, Question(name)).ranking(_GUESSES).hits
    near = tuple(hit.id for hit in found if hit.reasons)
    advice = f"Did you mean {', '.join(map(shown, near))}?" if near else error.advice
    return UnknownName(error.message, nearest=near, advice=advice)


def _data(answer: _Answer, asked: Asked) -> dict[str, Any]:
    search, page, ranking = answer.search, answer.page, answer.page.ranking
    tools, encoder = search.snapshot.tools, search.snapshot.index.encoder
    query, groups = asked.question.query, search.filters.groups
    near = [search.snapshot.servers[name] for name in ranking.near if ranking.weak]
    found = [
        {
            **tool_data(tools[hit.id], asked.question.detail),
            "score": round(hit.score, 4),
            "twins": list(hit.twins),
            **({"why": explain.hit_data(place, hit)} if asked.explained else {}),
        }
        for place, hit in enumerate(page.hits, 1)
    ]
    data: dict[str, Any] = {
        "query": query,
        "server": next(iter(groups)) if groups else None,
        "category": next(iter(search.filters.categories), None),
        "filters": explain.filters_data(search.filters),
        "total": ranking.total,
        "weak": ranking.weak,
        "meaning": {
            "searched": ranking.dense,
            "problem": encoder.problem if encoder else "",
            "unencoded": misfit.unencoded(search),
        },
        "near": [{"name": one.name, "description": one.description, "tags": list(one.tags)} for one in near],
        "tools": found,
        "nearest": [tool_data(tools[name], "brief") for name in answer.near],
        "unlisted": list(answer.waiting),
    }
    if asked.explained:
        named = [explain.standing_data(one) for one in answer.standings]
        unknown = [as_data(error) for error in answer.unknown]
        data["explain"] = {**explain.summary_data(ranking), "named": named, "unknown": unknown}
    return data


def _show(screen: Screen, answer: _Answer, asked: Asked) -> None:
    search, page = answer.search, answer.page
    tools, detail = search.snapshot.tools, asked.question.detail
    if page.hits:
        screen.text(*results.head(search, page, answer.states, _FOR_SERVERS, explained=asked.explained))
    else:
        screen.text(misfit.unmatched(search), *(["Nearest names:"] if answer.near else []))
    if asked.explained:
        screen.text(*_explained(answer))
    else:
        screen.text(*(tool_lines(screen, tools[hit.id], detail, hit.twins) for hit in page.hits))
    screen.text(*(tool_lines(screen, tools[name], detail) for name in answer.near))
    beside = (one for one in answer.standings if not _is_entry(one))
    screen.text(*(line for one in beside for line in explain.standing_lines(search, one)))
    screen.text(*(Text(line, style="dim") for line in _next(search, page)))
    if answer.waiting:
        states = ", ".join(f"{one['name']} ({one['reason'] or one['state']})" for one in answer.waiting)
        screen.text(Text(f"Not searched, because not listed yet: {states}", style="yellow"))
    if only := misfit.words_only(search, reason=True):
        later = " A running gateway encodes them in the background." if misfit.unencoded(search) > _SMALL else ""
        screen.text(Text(only + later, style="yellow"))


def _is_entry(one: Standing) -> bool:
    """Whether the page has all there is to say of a named tool."""
    return one.place is not None and one.with_ is None


def _explained(answer: _Answer) -> list[str]:
    named = {one.address for one in answer.standings if _is_entry(one)}
    lines = list[str]()
    for place, hit in enumerate(answer.page.hits, 1):
        first, *rest = explain.hit_lines(place, hit)
        lines += [f"{first} ← the tool you asked about" if hit.id in named else first, *rest]
    return lines


def _next(search: Search, page: Page) -> Sequence[str]:
    """How to go on, in commands."""
    lines = list[str]()
    if page.more(len(page.hits)):
        lines.append(f"More: --limit {search.question.limit * 4}")
    if page.ranking.weak:
        other = "search without the filters" if search.where else "try other words for the same thing"
        lines += [f"{other.capitalize()}, or look around: portico browse {' '.join(page.ranking.near[:1])}".rstrip()]
    return [*lines, results.UNMEASURED] if search.unmeasured else lines
