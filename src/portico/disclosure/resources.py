"""Our own resources: what is here, as text and JSON, each within its budget and continued by a cursor."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from portico.access import Caller
from portico.catalog.tool import Tool
from portico.catalog.visible import shown
from portico.disclosure import cursor as cursors
from portico.disclosure import guidance
from portico.disclosure.answer import annotations
from portico.disclosure.budget import pack, part
from portico.disclosure.cards import Card, category_card, iso, server_card, tool_card
from portico.disclosure.discovery import explained
from portico.disclosure.extras import extras
from portico.disclosure.lines import ServerState, counted, room
from portico.disclosure.namespace import SCHEME, Own, own_uri
from portico.disclosure.render import first_sentence, full
from portico.disclosure.sight import Sight
from portico.disclosure.statistics_card import stats_card
from portico.disclosure.tokens import count
from portico.errors import RESOURCE_NOT_FOUND, RemoteError, UnknownName
from portico.events import CatalogChanged, Event, StandingsChanged, UpstreamLost, UpstreamReady
from portico.upstream import jsontext
from portico.upstream.backend import Raw

BUDGET = 8_000
TIER_BUDGETS: Mapping[str, int] = {
    "hot": 2_000, "categories": 2_000, "category": 4_000, "backend tools": 4_000, "tool": 4_000,
}  # fmt: skip
"""What each of these tells at once: whoever reads one after the other stays within the budgets of the four tiers."""
_INDEXED_TOKENS = 12
"""What the compact index says of a tool."""
_JSON, _MARKDOWN, _TEXT = "application/json", "text/markdown", "text/plain"


def _resource(name: str, title: str, description: str, priority: float, mime: str = _JSON) -> Raw:
    marked = {"audience": ["user", "assistant"] if priority >= 0.7 else ["assistant"], "priority": priority}
    return {
        "uri": f"{SCHEME}{name}", "name": name, "title": title, "description": description, "mimeType": mime,
        "annotations": marked,
    }  # fmt: skip


def _template(path: str, name: str, title: str, description: str, mime: str = _JSON) -> Raw:
    template: Raw = {"uriTemplate": f"{SCHEME}{path}", "name": name, "title": title, "description": description}
    return {**template, "mimeType": mime} if mime else template


RESOURCES: tuple[Raw, ...] = (
    _resource("overview", "Overview", "What is behind this gateway and how to find it, in brief.", 0.9, _MARKDOWN),
    _resource("backends", "Servers", "Every server: what it is for, its tools' number, version and state.", 0.7),
    _resource("tools", "Tool index", "Every tool with what it does in a few words.", 0.3),
    _resource("hot", "Hot tools", "The tools to start with: pinned, most used, or one of each server.", 0.7),
    _resource("categories", "Categories", "The kinds of tools with counts, servers and popular tools.", 0.7),
    _resource("stats", "Statistics", "Use of the tools, and tokens shown and saved.", 0.5),
)
TEMPLATES: tuple[Raw, ...] = (
    _template("tool/{tool_name}", "tool", "Tool", "Everything about one tool: schema, example, use."),
    _template("backend/{backend_name}", "backend", "Server", "A server with its own notes and its tools' names."),
    _template("backend/{backend_name}/tools", "backend_tools", "Tools of a server", "A server's tools, hottest first."),
    _template("category/{category}", "category", "Tools of a category", "A category's tools, hottest first."),
    _template("result/{result_id}", "result", "Result", "A large result of a tool you called, whole, for an hour.", ""),
    _template(
        "backend/{backend_name}/resource/{+uri}",
        "backend_resource",
        "Resource of a server",
        "A server's own resource, by the URI the server knows it by.",
        "",
    ),
)


class OwnResources:
    """What one view can tell of itself."""

    def __init__(self, sight: Sight) -> None:
        self._sight = sight

    async def prepare(self, own: Own) -> None:
        """Have the lookups made that one of our URIs needs, where the event loop would stand still for them."""
        snapshot, shelves = self._sight.snapshot, self._sight.shelves
        if own.kind == "tool":
            with contextlib.suppress(UnknownName):
                await snapshot.find_tool(own.name)
        elif own.kind in ("overview", "category", "categories"):
            await snapshot.look_through(lambda: shelves.categories)

    def read(self, uri: str, own: Own, caller: Caller) -> Raw:
        """The contents of one of our URIs; raises RemoteError where it leads nowhere, StaleCursor."""
        readers: Mapping[str, Callable[[Own], list[Raw]]] = {
            "overview": lambda own: [_content(uri, self.overview(), _MARKDOWN)],
            "backends": self._backends,
            "tools": self._tools,
            "hot": self._hot,
            "categories": self._categories,
            "stats": lambda own: [_content(uri, _dumped(stats_card(self._sight, caller)))],
            "tool": self._tool,
            "backend": self._backend,
            "backend tools": self._backend_tools,
            "category": self._category,
        }
        self.check(uri, own)
        first, *rest = readers[own.kind](own)
        # Under the URI that was asked for: clients look for it there.
        return {"contents": [{**first, "uri": uri}, *rest]}

    def overview(self) -> str:
        """The shortest account of what is here."""
        sight = self._sight
        return guidance.overview_text(sight.shelves, sight.states(), sight.face.enabled)

    def tool(self, tool: Tool) -> list[Raw]:
        """A tool with everything that is known of it, as contents."""
        return self._tool(Own("tool", tool.address))

    def check(self, uri: str, own: Own) -> None:
        """Raise RemoteError where one of our URIs names nothing that is here."""
        snapshot = self._sight.snapshot
        find: Mapping[str, Callable[[str], object]] = {
            "tool": snapshot.tool,
            "backend": snapshot.server,
            "backend tools": snapshot.server,
            "category": self._sight.shelves.category,
        }
        try:
            find.get(own.kind, str)(own.name)
        except UnknownName as error:
            near = [Own(own.kind, name).uri for name in error.nearest]
            why = explained(error, own.name, snapshot, self._sight.states()) if own.kind == "tool" else error
            raise not_found(uri, near, why.message if why is not error else "") from error

    # --- contents

    def _backends(self, own: Own) -> list[Raw]:
        snapshot, states = self._sight.snapshot, self._sight.states()

        def card(name: str) -> Card:
            state = states.get(name, ServerState("configured"))
            return server_card(snapshot.servers[name], state, snapshot.main_categories[name])

        head: Card = {"servers_in_all": len(snapshot.servers), "tools_in_all": len(snapshot.tools)}
        return self._packed(own, head, "servers", sorted(snapshot.servers), card)

    def _tools(self, own: Own) -> list[Raw]:
        tools = self._sight.snapshot.tools

        def line(tool: Tool) -> str:
            about = first_sentence(tool.description or tool.title, _INDEXED_TOKENS)
            return f"{shown(tool.address)}{about and ': '}{about}"

        return self._packed(own, {"tools_in_all": len(tools)}, "tools", [*tools.values()], line)

    def _hot(self, own: Own) -> list[Raw]:
        hot = self._sight.shelves.hot
        grounds = {
            "use": "pins and use",
            "pins": "pins",
            "one of each server": "no use is known yet: one of each server",
        }
        head: Card = {"chosen_by": grounds[hot.grounds]}
        if self._sight.shelves.computed_at:
            head["computed"] = iso(self._sight.shelves.computed_at)
        return self._packed(own, head, "tools", hot.tools, self._card)

    def _categories(self, own: Own) -> list[Raw]:
        shelves = self._sight.shelves
        head: Card = {"tools_in_all": len(shelves.snapshot.tools)}
        return self._packed(own, head, "categories", [*shelves.categories.values()], category_card)

    def _tool(self, own: Own) -> list[Raw]:
        tool = self._sight.snapshot.tool(own.name)
        own = Own("tool", tool.address, own.cursor)
        body, version = _dumped(full(tool, extra=extras(self._sight, tool))), self._sight.snapshot.version
        # Counted from the end: what use changes stands before.
        start = len(body) - cursors.decode(own.cursor, own.uri, version) if own.cursor else 0
        space = room(_budget(own))
        if not start and count(body) <= space:
            return [_content(own.uri, body)]
        end = part(body, max(start, 0), space - 100)
        contents = [_content(own.uri, body[max(start, 0) : end], _TEXT)]
        if end < len(body):
            rest = f"{own.uri}?cursor={cursors.encode(own.uri, version, len(body) - end)}"
            note = f"This JSON is too long for one answer; about {counted(count(body[end:]), 'token')} more: {rest}"
            contents.append(_content(rest, note, _TEXT))
        return contents

    def _backend(self, own: Own) -> list[Raw]:
        snapshot = self._sight.snapshot
        entry = snapshot.server(own.name)
        state = self._sight.states().get(entry.name, ServerState("configured"))
        card = server_card(entry, state, snapshot.main_categories[entry.name], whole=True)
        own = Own("backend", entry.name, own.cursor)
        return self._packed(
            own, card, "tool_names", self._sight.shelves.server(entry.name), lambda tool: shown(tool.name)
        )

    def _backend_tools(self, own: Own) -> list[Raw]:
        entry = self._sight.snapshot.server(own.name)
        own = Own("backend tools", entry.name, own.cursor)
        head: Card = {"server": entry.name, "tools_in_all": len(entry.tools)}
        return self._packed(own, head, "tools", self._sight.shelves.server(entry.name), self._card)

    def _category(self, own: Own) -> list[Raw]:
        shelf = self._sight.shelves.category(own.name)
        own = Own("category", shelf.category.key, own.cursor)
        head = {f"{key}_in_all" if key == "tools" else key: value for key, value in category_card(shelf).items()}
        return self._packed(own, head, "tools", shelf.tools, self._card)

    def _card(self, tool: Tool) -> Card:
        return tool_card(tool, self._sight.use(tool.address), self._sight.shelves.standing(tool.address))

    def _packed(
        self, own: Own, head: Mapping[str, Any], key: str, items: Sequence[Any], show: Callable[[Any], Any]
    ) -> list[Raw]:
        """As many items as fit, under `key`, and the URI that continues."""
        version = self._sight.shelves.version
        offset = cursors.decode(own.cursor, own.uri, version) if own.cursor else 0

        def more(reached: int) -> Card:
            rest = f"{own.uri}?cursor={cursors.encode(own.uri, version, reached)}"
            return {"more": {"left_out": len(items) - reached, "uri": rest}} if reached < len(items) else {}

        start = _dumped(head if not offset else {})
        texts = (_dumped(show(item)) for item in items[offset:])
        packed = pack(texts, room(_budget(own), start, _dumped(more(offset))))
        listed = f'"{key}":[{",".join(packed.texts)}]'
        after = _dumped(more(offset + len(packed.texts)))[1:-1]
        return [_content(own.uri, "{" + ",".join(filter(None, (start[1:-1], listed, after))) + "}")]

    # --- changes

    def touched(self, uri: str, event: Event) -> bool:
        """Whether what one of our URIs says may be another after an event."""
        own = own_uri(uri)
        if own is None or own.kind == "result":
            return False
        if isinstance(event, StandingsChanged):
            return own.kind in ("hot", "categories", "category", "stats", "backend tools")
        if isinstance(event, UpstreamLost | UpstreamReady):
            named = own.kind == "backend" and self._is_server(own.name, event.server)
            return named or own.kind in ("overview", "backends", "stats")
        if not isinstance(event, CatalogChanged):
            return False
        if own.kind in ("backend", "backend tools"):
            return self._is_server(own.name, event.server)
        if own.kind == "tool":
            return event.tools and self._is_tool(own.name, event)
        return event.tools

    def _is_server(self, name: str, server: str) -> bool:
        try:
            return name == server or self._sight.snapshot.server(name).name == server
        except UnknownName:
            return False

    def _is_tool(self, name: str, event: CatalogChanged) -> bool:
        touched = {*event.added, *event.removed, *event.changed}
        # Not `tool`, which would look for the nearest of every name that is gone.
        meant = self._sight.snapshot.find_addresses(name)
        return name in touched or (len(meant) == 1 and meant[0] in touched)


def not_found(uri: str, near: Sequence[str] = (), why: str = "") -> RemoteError:
    """That a URI leads nowhere, with the nearest that lead somewhere."""
    said = "; ".join(filter(None, (why, f"nearest: {', '.join(near[:3])}" if near else "")))
    asked = shown(uri if len(uri) <= 200 else f"{uri[:200]}…")
    return RemoteError(RESOURCE_NOT_FOUND, f"Resource not found: {asked}{said and f' ({said})'}", {"uri": uri})


def _budget(own: Own) -> int:
    return TIER_BUDGETS.get(own.kind, BUDGET)


def _content(uri: str, text: str, mime: str = _JSON) -> Raw:
    return {"uri": uri, "mimeType": mime, "text": text, "annotations": annotations(text)}


def _dumped(value: Any) -> str:
    return jsontext.dumps(value).decode()
