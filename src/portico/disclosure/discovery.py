"""Search, browse and describe over one snapshot. Pure: a question and a snapshot in, text out.

Every answer fits its budget, says what was left out and how to get it, and none is a dead end. One entry is always
shown, whole, however small the budget: a schema that is cut would be a lie, and an empty page a dead end.
"""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from portico.catalog.address import fold, split_name
from portico.catalog.snapshot import ServerEntry, Snapshot
from portico.catalog.tool import Tool
from portico.catalog.visible import quoted, shown
from portico.disclosure import cursor as cursors
from portico.disclosure import metatools
from portico.disclosure.budget import cut, pack
from portico.disclosure.guidance import upstream_instructions
from portico.disclosure.render import brief, full_text, schema
from portico.disclosure.tokens import count
from portico.errors import BackendUnavailable, PorticoError, UnknownName
from portico.search import Ranking

Detail = str
NEAREST = 5
_USED, _KEPT_BACK = 0.95, 60
"""How much of a budget is used. What an answer costs is estimated, and where one server's odd names fill it, the
estimate is low by up to a seventh in short answers and a twentieth in long ones."""


@dataclass(frozen=True)
class ServerState:
    """What a listing says about a server beside its tools."""

    state: str
    reason: str = ""
    since: float = 0.0


States = Mapping[str, ServerState]


def search(
    snapshot: Snapshot,
    states: States,
    budget: int,
    query: str,
    server: str | None = None,
    limit: int = 8,
    detail: Detail = "brief",
    cursor: str | None = None,
    there: Collection[str] = metatools.NAMES,
) -> str:
    """Ranked tools, or what is nearest when none fits. `there` are the meta-tools that the asker has."""
    only = snapshot.server(server).name if server else None
    question = f"search\0{query}\0{only}\0{limit}\0{detail}"
    offset = cursors.decode(cursor, question, snapshot.version) if cursor else 0
    ranking = rank(snapshot, query, only, limit, offset)
    page = [snapshot.tools[hit.id] for hit in ranking.hits]
    if not page:
        return _nothing(snapshot, states, budget, query, only, there)
    where = f" on {only}" if only else ""
    head = f"{_count(ranking.total, 'match', 'matches')} for {quoted(query)}{where}, best first:"
    if ranking.weak and not offset:
        head = f"Nothing here fits {quoted(query)} well. The nearest:"
    call = ["call_tool(name, arguments)"] if metatools.CALL in there else []
    read = ["describe_tools(names)"] if metatools.DESCRIBE in there and detail == "brief" else []
    steps = ", or ".join([*call, *(f"{step} first" if call else step for step in read)])
    foot = [*([f"Next: {steps}."] if steps else []), *_unlisted(snapshot, states)]

    def more(reached: int) -> list[str]:
        left = reached < ranking.total
        after = cursors.encode(question, snapshot.version, reached)
        return [f'More: the same search with cursor="{after}"'] if left else []

    show = brief if detail == "brief" else schema
    packed = pack((show(tool) for tool in page), _room(budget, head, *more(offset), *foot))
    return "\n".join([head, *packed.texts, *more(offset + len(packed.texts)), *foot])


def rank(snapshot: Snapshot, query: str, server: str | None = None, limit: int = 8, offset: int = 0) -> Ranking:
    """The addresses that match best among those the snapshot's scope sees; `server` is a name, spelt as it is."""
    visible = None if snapshot.scope.everything else snapshot.tools.__contains__
    return snapshot.index.search(query, limit, offset=offset, groups={server} if server else None, allow=visible)


def nearest(snapshot: Snapshot, query: str) -> list[Tool]:
    """The tools whose names are spelt most like a query that matched nothing."""
    return [snapshot.tools[name] for name in snapshot.index.nearest_names(query, NEAREST) if name in snapshot.tools]


def _nothing(
    snapshot: Snapshot, states: States, budget: int, query: str, server: str | None, there: Collection[str]
) -> str:
    where = f"on {server}" if server else "here"
    head = [f"No tool {where} matches {quoted(query)}."]
    step = "Search all servers" if server else "Try other words for the same thing"
    if metatools.BROWSE in there:
        step += f', or browse_tools(server="{server}")' if server else ", or browse_tools() to see every server"
    foot = [f"{step}."]
    foot += _unlisted(snapshot, states)
    if near := nearest(snapshot, query):
        head.append("Nearest names:")
        head += pack(map(brief, near), _room(budget, *head, *foot)).texts
    return "\n".join([*head, *foot])


def overview(
    snapshot: Snapshot, states: States, budget: int, pins: Sequence[str] = (), cursor: str | None = None
) -> str:
    """Every server with its number of tools and its state, and tools to start with."""
    question = "overview"
    offset = cursors.decode(cursor, question, snapshot.version) if cursor else 0
    servers = [snapshot.servers[name] for name in sorted(snapshot.servers)]
    head = [f"{_count(len(snapshot.tools), 'tool')} on {_count(len(servers), 'server')}."]
    if not offset:
        pinned = [snapshot.tools[name] for name in pins if name in snapshot.tools]
        representative = (next(iter(entry.tools.values())) for entry in servers if entry.tools)
        start = pack((brief(tool) for tool in pinned or representative), budget // 3)
        if start.texts:
            head.append(
                "Pinned tools:" if pinned else "Some tools to start with (one per server; no usage is known yet):"
            )
            head += start.texts
    head.append("Servers:")
    foot = "Next: browse_tools(server=…) or search_tools(query=…)."

    def more(reached: int) -> list[str]:
        left = len(servers) - reached
        after = cursors.encode(question, snapshot.version, reached)
        return [f'{_count(left, "more server")}: browse_tools(cursor="{after}")'] if left else []

    packed = pack(
        (_server_line(entry, states) for entry in servers[offset:]), _room(budget, *head, *more(offset), foot)
    )
    return "\n".join([*head, *packed.texts, *more(offset + len(packed.texts)), foot])


def browse(
    snapshot: Snapshot, states: States, budget: int, server: str, page_size: int = 50, cursor: str | None = None
) -> str:
    """One server's tools, a page at a time."""
    entry = snapshot.server(server)
    question = f"browse\0{entry.name}"
    offset = cursors.decode(cursor, question, snapshot.version) if cursor else 0
    tools = list(entry.tools.values())
    head = [_server_line(entry, states)]
    if not offset and entry.hello and entry.hello.instructions:
        head.append(f"Its own notes: {_one_paragraph(upstream_instructions(entry.hello.instructions), budget // 5)}")
    offers = (("resource", entry.offers.resources), ("prompt", entry.offers.prompts))
    also = [f"Also offers {_count(len(items), kind)}." for kind, items in offers if items]

    def foot(reached: int) -> list[str]:
        left = len(tools) - reached
        after = cursors.encode(question, snapshot.version, reached)
        return [f'{left:,} more: browse_tools(server="{entry.name}", cursor="{after}")'] if left else also

    page = (brief(tool) for tool in tools[offset : offset + page_size])
    packed = pack(page, _room(budget, *head, *foot(offset), *also))
    return "\n".join([*head, *packed.texts, *foot(offset + len(packed.texts))])


def describe(
    snapshot: Snapshot, budget: int, names: Sequence[str], detail: Detail = "schema", states: States | None = None
) -> tuple[str, bool]:
    """The tools asked for, and whether at least one was found. A wrong name costs only itself."""
    show = {"brief": brief, "schema": schema, "full": full_text}[detail]
    tools: dict[str, Tool] = {}
    wrong: list[str] = []
    for name in names:
        try:
            tool = snapshot.tool(name)
            tools[tool.address] = tool
        except UnknownName as error:
            reason = explained(error, name, snapshot, states or {})
            wrong.append(f"{reason.message}. {reason.advice}")
    notes = [*pack(wrong, budget // 2).texts]
    if len(notes) < len(wrong):
        notes.append(f"{len(wrong) - len(notes)} more names are unknown here.")
    bodies = {address: show(tool) for address, tool in tools.items()}
    fit = _fitting(bodies, _room(budget, *notes))
    if len(fit) < len(bodies):
        fit = _fitting(bodies, _room(budget, *notes, _left_out(bodies)))
        notes.append(_left_out(address for address in bodies if address not in fit))
    return ("\n" if detail == "brief" else "\n\n").join([*fit.values(), *notes]), bool(tools)


def _fitting(bodies: Mapping[str, str], room: int) -> dict[str, str]:
    fit: dict[str, str] = {}
    for address, body in bodies.items():
        cost = count(body) + 1
        if not fit or cost <= room:
            fit[address] = body
            room -= cost
    return fit


def _left_out(addresses: Iterable[str]) -> str:
    return f"Left out to fit: {', '.join(map(shown, addresses))}. Ask for them separately."


def explained(error: UnknownName, name: str, snapshot: Snapshot, states: States) -> PorticoError:
    """Why a name leads nowhere: a tool of a server that could not be listed yet is not a tool that does not exist."""
    meant = {fold(server) for server, _ in split_name(name)}
    for entry in snapshot.servers.values():
        if not entry.known and fold(entry.name) in meant:
            state = states.get(entry.name, ServerState("configured"))
            if state.state not in ("down", "degraded", "disabled"):
                return BackendUnavailable(
                    f"{entry.name} is {state.state}: its tools are not listed yet", advice="Try again shortly."
                )
            since = f" since {time.strftime('%H:%M:%S', time.localtime(state.since))}" if state.since else ""
            return BackendUnavailable(
                f"{entry.name} is known but unavailable{since}: {_one_paragraph(state.reason, 60)}",
                advice="Its tools are not known, because it could never be listed.",
            )
    return error


def schema_hint(tool: Tool, budget: int) -> str:
    """The parameters of a tool whose call went wrong."""
    body = schema(tool)
    return body if count(body) <= budget else brief(tool)


def _server_line(entry: ServerEntry, states: States) -> str:
    state = states.get(entry.name, ServerState("configured"))
    tools = _count(len(entry.tools), "tool") if entry.known else "not listed yet"
    about = _one_paragraph(entry.description or (entry.title if entry.title != entry.name else ""), 30)
    line = f"{entry.name}: {tools}" + (f" — {about}" if about else "")
    if state.state in ("down", "degraded", "disabled"):
        line += f" [{state.state}: {_one_paragraph(state.reason, 40)}]"
    elif state.state == "starting":
        line += " [starting]"
    return line


def _unlisted(snapshot: Snapshot, states: States) -> Iterator[str]:
    """Servers whose tools are not known, because a search cannot have looked there."""
    waiting = sorted(name for name, entry in snapshot.servers.items() if not entry.known)
    if waiting:
        shown = ", ".join(f"{name} ({states[name].state})" if name in states else name for name in waiting[:5])
        yield f"Not searched, because not listed yet: {shown}{' …' if len(waiting) > 5 else ''}"


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _one_paragraph(body: str, tokens: int) -> str:
    return cut(" ".join(shown(body).split()), tokens)


def _room(budget: int, *beside: str) -> int:
    """What a budget leaves for the entries of an answer beside its other lines."""
    return int(budget * _USED) - _KEPT_BACK - count("\n".join(beside)) - 1
