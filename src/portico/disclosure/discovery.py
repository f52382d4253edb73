"""Browsing what is there, and why a name leads nowhere. Pure: a question and the shelves in, text out.

Every answer fits its budget, says what was left out and how to get it, and none is a dead end. One entry is always
shown, whole, however small the budget: a schema that is cut would be a lie, and an empty page a dead end.
"""

import time
from collections.abc import Iterator, Mapping

from portico.catalog.address import fold, split_name
from portico.catalog.snapshot import ServerEntry, Snapshot
from portico.catalog.tool import Tool
from portico.catalog.visible import shown
from portico.disclosure import cursor as cursors
from portico.disclosure.budget import pack
from portico.disclosure.guidance import upstream_instructions
from portico.disclosure.lines import ServerState, States, counted, one_paragraph, room, server_line
from portico.disclosure.render import addresses, brief, schema
from portico.disclosure.shelves import Grounds, Shelf, Shelves
from portico.disclosure.tokens import count
from portico.errors import BackendUnavailable, PorticoError, UnknownName
from portico.upstream.status import TROUBLED

GROUNDS: Mapping[Grounds, str] = {
    "use": "Most used tools:",
    "pins": "Pinned tools:",
    "one of each server": "Some tools to start with (no use is known yet: one tool of each server):",
}
PAGE = 50
_NAMED = 3


def overview(shelves: Shelves, states: States, budget: int, cursor: str | None = None) -> str:
    """Tools to start with, the categories, and every server with its number of tools and its state."""
    snapshot, question = shelves.snapshot, "overview"
    offset = cursors.decode(cursor, question, shelves.version) if cursor else 0
    head = [_size(shelves)]
    if not offset and shelves.hot.tools:
        heading = _grounds(shelves)
        # The room it leaves for the rest is at least what it takes.
        head += [heading, *pack((brief(tool) for tool in shelves.hot.tools), budget // 3 - count(heading)).texts]
    entries = [*shelves.categories.values(), *(snapshot.servers[name] for name in sorted(snapshot.servers))]
    kinds = len(shelves.categories)
    foot = "Next: browse_tools(category=…) or (server=…), or search_tools(query=…)."

    def more(reached: int) -> list[str]:
        left = (
            (max(kinds - reached, 0), "category", "categories"),
            (len(entries) - max(kinds, reached), "server", "servers"),
        )
        said = " and ".join(counted(number, one, many) for number, one, many in left if number)
        after = cursors.encode(question, shelves.version, reached)
        return [f'{said} more: browse_tools(cursor="{after}")'] if said else []

    def texts() -> Iterator[str]:
        for place, one in enumerate(entries[offset:], offset):
            heading = "Categories:\n" if place == offset < kinds else "Servers:\n" if place in (offset, kinds) else ""
            yield heading + (category_line(one) if isinstance(one, Shelf) else server_line(one, states))

    packed = pack(texts(), room(budget, *head, *more(offset), foot))
    return "\n".join([*head, *packed.texts, *more(offset + len(packed.texts)), foot])


def _grounds(shelves: Shelves) -> str:
    hot = shelves.hot
    pinned = hot.grounds == "use" and hot.tools[0].address in shelves.pins
    return "Pinned, then most used tools:" if pinned else GROUNDS[hot.grounds]


def _size(shelves: Shelves) -> str:
    snapshot = shelves.snapshot
    inside = f" in {counted(len(shelves.categories), 'category', 'categories')}" if shelves.categories else ""
    return f"{counted(len(snapshot.tools), 'tool')} on {counted(len(snapshot.servers), 'server')}{inside}."


def category_line(shelf: Shelf) -> str:
    """A category: how much is in it, where from, and what stands for it."""
    servers = ", ".join(shelf.servers[:_NAMED]) + (" …" if len(shelf.servers) > _NAMED else "")
    size = f"{counted(len(shelf.tools), 'tool')} of {servers}"
    return f"{shelf.category.key} ({size}) e.g. {addresses([tool.address for tool in shelf.popular[:2]])}"


def browse(
    shelves: Shelves,
    states: States,
    budget: int,
    server: str | None = None,
    category: str | None = None,
    page_size: int = PAGE,
    cursor: str | None = None,
) -> str:
    """The tools of a server, of a category, or of both, hottest first, a page at a time."""
    entry = shelves.snapshot.server(server) if server else None
    shelf = shelves.category(category) if category else None
    tools, arguments = _chosen(shelves, entry, shelf), _arguments(entry, shelf)
    question = f"browse\0{arguments}"
    offset = cursors.decode(cursor, question, shelves.version) if cursor else 0
    head = _head(shelves, entry, shelf, states, budget, first=not offset)
    also = list(_beside(entry)) if entry and not shelf else []
    if not tools:
        return "\n".join([*head, *_none(shelves, entry, shelf), *also])

    def foot(reached: int) -> list[str]:
        left = len(tools) - reached
        after = cursors.encode(question, shelves.version, reached)
        return [f'{left:,} more: browse_tools({arguments}, cursor="{after}")'] if left else also

    page = (brief(tool) for tool in tools[offset : offset + page_size])
    packed = pack(page, room(budget, *head, *foot(offset), *also))
    return "\n".join([*head, *packed.texts, *foot(offset + len(packed.texts))])


def _chosen(shelves: Shelves, entry: ServerEntry | None, shelf: Shelf | None) -> tuple[Tool, ...]:
    if shelf is None:
        return shelves.server(entry.name) if entry else ()
    return tuple(tool for tool in shelf.tools if entry is None or tool.server == entry.name)


def _arguments(entry: ServerEntry | None, shelf: Shelf | None) -> str:
    given = {"server": entry.name if entry else "", "category": shelf.category.key if shelf else ""}
    return ", ".join(f'{key}="{value}"' for key, value in given.items() if value)


def _head(
    shelves: Shelves, entry: ServerEntry | None, shelf: Shelf | None, states: States, budget: int, *, first: bool
) -> list[str]:
    head: list[str] = []
    if shelf:
        kind = shelf.category
        about = f" {kind.description}" if kind.description and first else ""
        size = f"{counted(len(shelf.tools), 'tool')} on {counted(len(shelf.servers), 'server')}"
        head.append(f"{kind.key}: {size}. {kind.title}.{about}")
    if entry:
        head.append(server_line(entry, states))
        if first and not shelf:
            head += _introduction(shelves.snapshot, entry, budget)
    return head


def _introduction(snapshot: Snapshot, entry: ServerEntry, budget: int) -> Iterator[str]:
    """What a server's line has no room for."""
    version = one_paragraph(str(entry.hello.server_info.get("version", "")), 20) if entry.hello else ""
    category = snapshot.main_categories[entry.name]
    facts = {"version": version, "category": category, "tags": ", ".join(map(shown, entry.tags))}
    if said := "; ".join(f"{key} {value}" for key, value in facts.items() if value):
        yield f"{one_paragraph(said, budget // 20)}."
    if entry.hello and entry.hello.instructions:
        yield f"Its own notes: {one_paragraph(upstream_instructions(entry.hello.instructions), budget // 5)}"


def _beside(entry: ServerEntry) -> Iterator[str]:
    offers = (("resource", entry.offers.resources), ("prompt", entry.offers.prompts))
    return (f"Also offers {counted(len(items), kind)}." for kind, items in offers if items)


def _none(shelves: Shelves, entry: ServerEntry | None, shelf: Shelf | None) -> Iterator[str]:
    """Why a server shows no tool, and where its tools are."""
    if entry and shelf and entry.tools:
        kinds = sorted({shelves.snapshot.category(tool.address) for tool in entry.tools.values()})
        yield f"None of its tools is in {shelf.category.key}; they are in {', '.join(kinds)}."


def explained(error: UnknownName, name: str, snapshot: Snapshot, states: States) -> PorticoError:
    """Why a name leads nowhere: a tool of a server that could not be listed yet is not a tool that does not exist."""
    meant = {fold(server) for server, _ in split_name(name)}
    for entry in snapshot.servers.values():
        if not entry.known and fold(entry.name) in meant:
            state = states.get(entry.name, ServerState("configured"))
            if state.state not in TROUBLED:
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
