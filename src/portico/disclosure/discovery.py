"""Search, browse and describe over one snapshot. Pure: a question and a snapshot in, text out.

Every answer fits its budget, says what was left out and how to get it, and none is a dead end.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from portico.catalog.snapshot import ServerEntry, Snapshot
from portico.catalog.tool import Tool
from portico.disclosure import cursor as cursors
from portico.disclosure.budget import pack
from portico.disclosure.guidance import upstream_instructions
from portico.disclosure.render import brief, full_text, schema
from portico.disclosure.tokens import count
from portico.errors import UnknownName
from portico.search import Ranking

Detail = str
FOOTER_TOKENS = 120
"""Kept free in every answer for the head line and for what to do next."""
NEAREST = 5


@dataclass(frozen=True)
class ServerState:
    """What a listing says about a server beside its tools."""

    state: str
    reason: str = ""


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
) -> str:
    """Ranked tools, or what is nearest when none fits."""
    only = snapshot.server(server).name if server else None
    question = f"search\0{query}\0{only}\0{limit}\0{detail}"
    offset = cursors.decode(cursor, question, snapshot.version) if cursor else 0
    ranking = rank(snapshot, query, only, limit, offset)
    page = [snapshot.tools[hit.id] for hit in ranking.hits]
    if not page:
        return _nothing(snapshot, states, query, only)
    show = brief if detail == "brief" else schema
    packed = pack((show(tool) for tool in page), budget - FOOTER_TOKENS)
    shown = len(packed.texts)
    lines = [f"{_count(ranking.total, 'match', 'matches')} for {query!r}{f' on {only}' if only else ''}, best first:"]
    if ranking.weak and not offset:
        lines = [f"Nothing here fits {query!r} well. The nearest:"]
    lines += packed.texts
    if offset + shown < ranking.total:
        after = cursors.encode(question, snapshot.version, offset + shown)
        lines.append(f'More: the same search with cursor="{after}"')
    lines.append(
        "Next: call_tool(name, arguments)" + (", or describe_tools(names) first." if detail == "brief" else ".")
    )
    lines += _unlisted(snapshot, states)
    return "\n".join(lines)


def rank(snapshot: Snapshot, query: str, server: str | None = None, limit: int = 8, offset: int = 0) -> Ranking:
    """The addresses that match best among those the snapshot's scope sees; `server` is a name, spelt as it is."""
    visible = None if snapshot.scope.everything else snapshot.tools.__contains__
    return snapshot.index.search(query, limit, offset=offset, groups={server} if server else None, allow=visible)


def nearest(snapshot: Snapshot, query: str) -> list[Tool]:
    """The tools whose names are spelt most like a query that matched nothing."""
    return [snapshot.tools[name] for name in snapshot.index.nearest_names(query, NEAREST) if name in snapshot.tools]


def _nothing(snapshot: Snapshot, states: States, query: str, server: str | None) -> str:
    where = f"on {server}" if server else f"on these {_count(len(snapshot.servers), 'server')}"
    lines = [f"No tool {where} matches {query!r}."]
    if near := nearest(snapshot, query):
        lines += ["Nearest names:", *map(brief, near)]
    if server:
        lines.append(f'Search all servers, or browse_tools(server="{server}").')
    else:
        lines.append("Try other words for the same thing, or browse_tools() to see every server.")
    return "\n".join([*lines, *_unlisted(snapshot, states)])


def overview(
    snapshot: Snapshot, states: States, budget: int, pins: Sequence[str] = (), cursor: str | None = None
) -> str:
    """Every server with its number of tools and its state, and tools to start with."""
    question = "overview"
    offset = cursors.decode(cursor, question, snapshot.version) if cursor else 0
    servers = [snapshot.servers[name] for name in sorted(snapshot.servers)]
    lines = [f"{_count(len(snapshot.tools), 'tool')} on {_count(len(servers), 'server')}."]
    if not offset:
        pinned = [snapshot.tools[name] for name in pins if name in snapshot.tools]
        representative = [next(iter(entry.tools.values())) for entry in servers if entry.tools]
        start = pack((brief(tool) for tool in pinned or representative), budget // 3)
        if start.texts:
            lines.append(
                "Pinned tools:" if pinned else "Some tools to start with (one per server; no usage is known yet):"
            )
            lines += start.texts
    lines.append("Servers:")
    spent = sum(len(line) for line in lines) // 3
    packed = pack((_server_line(entry, states) for entry in servers[offset:]), max(200, budget - spent - FOOTER_TOKENS))
    lines += packed.texts
    if offset + len(packed.texts) < len(servers):
        after = cursors.encode(question, snapshot.version, offset + len(packed.texts))
        lines.append(f'{len(servers) - offset - len(packed.texts)} more servers: browse_tools(cursor="{after}")')
    lines.append("Next: browse_tools(server=…) or search_tools(query=…).")
    return "\n".join(lines)


def browse(
    snapshot: Snapshot, states: States, budget: int, server: str, page_size: int = 50, cursor: str | None = None
) -> str:
    """One server's tools, a page at a time."""
    entry = snapshot.server(server)
    question = f"browse\0{entry.name}"
    offset = cursors.decode(cursor, question, snapshot.version) if cursor else 0
    tools = list(entry.tools.values())
    page = tools[offset : offset + page_size]
    lines = [_server_line(entry, states)]
    if not offset and entry.hello and entry.hello.instructions:
        lines.append(f"Its own notes: {_one_paragraph(upstream_instructions(entry.hello.instructions), budget // 5)}")
    spent = sum(len(line) for line in lines) // 3
    packed = pack((brief(tool) for tool in page), max(200, budget - spent - FOOTER_TOKENS))
    lines += packed.texts
    reached = offset + len(packed.texts)
    if reached < len(tools):
        after = cursors.encode(question, snapshot.version, reached)
        lines.append(f'{len(tools) - reached} more: browse_tools(server="{entry.name}", cursor="{after}")')
    for kind, items in (("resources", entry.offers.resources), ("prompts", entry.offers.prompts)):
        if items and reached >= len(tools):
            lines.append(f"Also offers {len(items)} {kind}.")
    return "\n".join(lines)


def describe(snapshot: Snapshot, budget: int, names: Sequence[str], detail: Detail = "schema") -> tuple[str, bool]:
    """The tools asked for, and whether at least one was found. A wrong name costs only itself."""
    show = {"brief": brief, "schema": schema, "full": full_text}[detail]
    parts: list[str] = []
    wrong: list[str] = []
    left: list[str] = []
    spent = 0
    for name in names:
        try:
            tool = snapshot.tool(name)
        except UnknownName as error:
            wrong.append(f"{error.message}. {error.advice}")
            continue
        body = show(tool)
        cost = count(body)
        # One tool alone is always shown whole: cutting a schema would make it a lie.
        if parts and spent + cost > budget:
            left.append(tool.address)
            continue
        parts.append(body)
        spent += cost
    if left:
        parts.append(f"Left out to fit: {', '.join(left)}. Ask for them separately.")
    return ("\n" if detail == "brief" else "\n\n").join([*parts, *wrong]), bool(parts)


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
    flat = " ".join(body.split())
    return flat if len(flat) <= tokens * 4 else flat[: tokens * 4].rsplit(" ", 1)[0] + " …"
