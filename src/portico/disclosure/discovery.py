"""Search, browse and describe over one snapshot. Pure: a question and a snapshot in, text out.

Every answer fits its budget, says what was left out and how to get it, and none is a dead end. One entry is always
shown, whole, however small the budget: a schema that is cut would be a lie, and an empty page a dead end.
"""

import time
from collections.abc import Iterable, Mapping, Sequence

from portico.catalog.address import fold, split_name
from portico.catalog.snapshot import Snapshot
from portico.catalog.tool import Tool
from portico.catalog.visible import shown
from portico.disclosure import cursor as cursors
from portico.disclosure.budget import pack
from portico.disclosure.guidance import upstream_instructions
from portico.disclosure.lines import ServerState, States, counted, one_paragraph, room, server_line
from portico.disclosure.render import brief, full_text, schema
from portico.disclosure.tokens import count
from portico.errors import BackendUnavailable, PorticoError, UnknownName

Detail = str


def overview(
    snapshot: Snapshot, states: States, budget: int, pins: Sequence[str] = (), cursor: str | None = None
) -> str:
    """Every server with its number of tools and its state, and tools to start with."""
    question = "overview"
    offset = cursors.decode(cursor, question, snapshot.version) if cursor else 0
    servers = [snapshot.servers[name] for name in sorted(snapshot.servers)]
    head = [f"{counted(len(snapshot.tools), 'tool')} on {counted(len(servers), 'server')}."]
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
        return [f'{counted(left, "more server")}: browse_tools(cursor="{after}")'] if left else []

    packed = pack((server_line(entry, states) for entry in servers[offset:]), room(budget, *head, *more(offset), foot))
    return "\n".join([*head, *packed.texts, *more(offset + len(packed.texts)), foot])


def browse(
    snapshot: Snapshot, states: States, budget: int, server: str, page_size: int = 50, cursor: str | None = None
) -> str:
    """One server's tools, a page at a time."""
    entry = snapshot.server(server)
    question = f"browse\0{entry.name}"
    offset = cursors.decode(cursor, question, snapshot.version) if cursor else 0
    tools = list(entry.tools.values())
    head = [server_line(entry, states)]
    if not offset and entry.hello and entry.hello.instructions:
        head.append(f"Its own notes: {one_paragraph(upstream_instructions(entry.hello.instructions), budget // 5)}")
    offers = (("resource", entry.offers.resources), ("prompt", entry.offers.prompts))
    also = [f"Also offers {counted(len(items), kind)}." for kind, items in offers if items]

    def foot(reached: int) -> list[str]:
        left = len(tools) - reached
        after = cursors.encode(question, snapshot.version, reached)
        return [f'{left:,} more: browse_tools(server="{entry.name}", cursor="{after}")'] if left else also

    page = (brief(tool) for tool in tools[offset : offset + page_size])
    packed = pack(page, room(budget, *head, *foot(offset), *also))
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
    fit = _fitting(bodies, room(budget, *notes))
    if len(fit) < len(bodies):
        fit = _fitting(bodies, room(budget, *notes, _left_out(bodies)))
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
                f"{entry.name} is known but unavailable{since}: {one_paragraph(state.reason, 60)}",
                advice="Its tools are not known, because it could never be listed.",
            )
    return error


def schema_hint(tool: Tool, budget: int) -> str:
    """The parameters of a tool whose call went wrong."""
    body = schema(tool)
    return body if count(body) <= budget else brief(tool)
