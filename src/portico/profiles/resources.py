"""The gateway's own resources as text and JSON, each within a token budget, paged by cursors."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from portico.callers import Caller
from portico.catalog.tool import Tool, sanitize_text
from portico.errors import RESOURCE_NOT_FOUND, RemoteError, UnknownName
from portico.events import CatalogChanged, Event, StandingsChanged, UpstreamLost, UpstreamReady
from portico.json_text import json_codec
from portico.meta_tools import instructions
from portico.meta_tools.browse_tools import explain_unknown_name
from portico.profiles.json_objects import (
    JsonObject,
    collect_tool_details,
    make_category_object,
    make_server_object,
    make_statistics_object,
    make_tool_object,
    to_iso_time,
)
from portico.profiles.profile_state import ProfileState
from portico.rendering import cursor as cursors
from portico.rendering.resource_uris import SCHEME, GatewayUri, parse_gateway_uri
from portico.rendering.token_budget import (
    compute_remaining_tokens,
    count_tokens,
    find_part_end,
    format_count,
    pack,
)
from portico.rendering.tool import extract_first_sentence, to_full_data
from portico.rendering.tool_result import make_annotations
from portico.upstream.backend import Raw
from portico.visibility import MAX_URI_CHARS

DEFAULT_BUDGET = 8_000
RESOURCE_BUDGETS: Mapping[str, int] = {
    "hot": 2_000, "categories": 2_000, "category": 4_000, "backend tools": 4_000, "tool": 4_000,
}  # fmt: skip
"""Token budget per kind. Reading one after the other stays within the budgets of the four tiers."""
_INDEX_ENTRY_TOKENS = 10
_MIN_INDEX_WORDS_TOKENS = 3
"""Tokens of a tool in the compact index, without its quotes, and of its words at least."""
WHOLE = "whole"
"""As a tool's cursor: everything in one answer, whatever its size."""
_JSON = "application/json"
_MARKDOWN = "text/markdown"
_TEXT = "text/plain"


def _make_resource(
    name: str, title: str, description: str, priority: float, mime: str = _JSON
) -> Raw:
    audience = ["user", "assistant"] if priority >= 0.7 else ["assistant"]
    return {
        "uri": f"{SCHEME}{name}",
        "name": name,
        "title": title,
        "description": description,
        "mimeType": mime,
        "annotations": {"audience": audience, "priority": priority},
    }


def _make_template(path: str, name: str, title: str, description: str, mime: str = _JSON) -> Raw:
    described = {"name": name, "title": title, "description": description}
    template: Raw = {"uriTemplate": f"{SCHEME}{path}", **described}
    if mime:
        template["mimeType"] = mime
    return template


_OVERVIEW = "What is behind this gateway and how to find it, in brief."
_BACKENDS = "Every server: what it is for, its tools' number, version and state."
_HOT = "The tools to start with: pinned, most used, or some of each server."
_CATEGORIES = "The kinds of tools with counts, servers and popular tools."
RESOURCES: tuple[Raw, ...] = (
    _make_resource("overview", "Overview", _OVERVIEW, 0.9, _MARKDOWN),
    _make_resource("backends", "Servers", _BACKENDS, 0.7),
    _make_resource("tools", "Tool index", "Every tool with what it does in a few words.", 0.3),
    _make_resource("hot", "Hot tools", _HOT, 0.7),
    _make_resource("categories", "Categories", _CATEGORIES, 0.7),
    _make_resource("stats", "Statistics", "Use of the tools, and tokens shown and saved.", 0.5),
)
TEMPLATES: tuple[Raw, ...] = (
    _make_template(
        "tool/{tool_name}",
        "tool",
        "Tool",
        "Everything about one tool: schema, examples, use; ?cursor=whole: however long.",
    ),
    _make_template(
        "backend/{backend_name}",
        "backend",
        "Server",
        "A server with its own notes and its tools' names.",
    ),
    _make_template(
        "backend/{backend_name}/tools",
        "backend_tools",
        "Tools of a server",
        "A server's tools, hottest first.",
    ),
    _make_template(
        "category/{category}",
        "category",
        "Tools of a category",
        "A category's tools, hottest first.",
    ),
    _make_template(
        "result/{result_id}",
        "result",
        "Result",
        "A large result of a tool you called, whole, for an hour.",
        "",
    ),
    _make_template(
        "backend/{backend_name}/resource/{+uri}",
        "backend_resource",
        "Resource of a server",
        "A server's own resource, by the URI the server knows it by.",
        "",
    ),
)


class GatewayResources:
    """The gateway's resources as one view's clients read them."""

    def __init__(self, profile_state: ProfileState) -> None:
        self._profile_state = profile_state

    async def load_lookups(self, gateway_uri: GatewayUri) -> None:
        """Build the lookups that a gateway URI needs, off the event loop where they take long."""
        snapshot = self._profile_state.snapshot
        ranked_catalog = self._profile_state.ranked_catalog
        if gateway_uri.kind == "tool":
            with contextlib.suppress(UnknownName):
                await snapshot.find_tool(gateway_uri.name)
        elif gateway_uri.kind == "tools":
            await snapshot.run_scan(lambda: ranked_catalog.all_tools)
        elif gateway_uri.kind in ("overview", "category", "categories"):
            await snapshot.run_scan(lambda: ranked_catalog.categories)

    def read(self, uri: str, gateway_uri: GatewayUri, caller: Caller) -> Raw:
        """Return the contents of a gateway URI.

        Raises RemoteError where it names nothing, StaleCursor for an outdated cursor.
        """
        readers: Mapping[str, Callable[[GatewayUri], list[Raw]]] = {
            "overview": lambda own: [_make_content(uri, self.render_overview(), _MARKDOWN)],
            "backends": self._read_backends,
            "tools": self._read_tools,
            "hot": self._read_hot_tools,
            "categories": self._read_categories,
            "stats": lambda own: [
                _make_content(uri, _to_json(make_statistics_object(self._profile_state, caller)))
            ],
            "tool": self._read_tool,
            "backend": self._read_backend,
            "backend tools": self._read_backend_tools,
            "category": self._read_category,
        }
        self.check_exists(uri, gateway_uri)
        first, *rest = readers[gateway_uri.kind](gateway_uri)
        # Clients look the contents up under the URI that they requested.
        return {"contents": [{**first, "uri": uri}, *rest]}

    def render_overview(self) -> str:
        """Render the overview of servers, categories and meta-tools."""
        state = self._profile_state
        return instructions.render_overview_text(
            state.ranked_catalog, state.get_server_states(), state.settings.enabled_meta_tools
        )

    def read_tool(self, tool: Tool) -> list[Raw]:
        """Return the contents of a tool's resource."""
        return self._read_tool(GatewayUri("tool", tool.address))

    def check_exists(self, uri: str, gateway_uri: GatewayUri) -> None:
        """Raise RemoteError if a gateway URI names nothing that exists."""
        snapshot = self._profile_state.snapshot
        find: Mapping[str, Callable[[str], object]] = {
            "tool": snapshot.resolve_tool,
            "backend": snapshot.resolve_server,
            "backend tools": snapshot.resolve_server,
            "category": self._profile_state.ranked_catalog.find_category,
        }
        try:
            find.get(gateway_uri.kind, str)(gateway_uri.name)
        except UnknownName as error:
            nearest = [GatewayUri(gateway_uri.kind, name).uri for name in error.nearest]
            reason = ""
            if gateway_uri.kind == "tool":
                explained = explain_unknown_name(
                    error, gateway_uri.name, snapshot, self._profile_state.get_server_states()
                )
                reason = explained.message if explained is not error else ""
            raise make_not_found_error(uri, nearest, reason) from error

    # --- contents

    def _read_backends(self, gateway_uri: GatewayUri) -> list[Raw]:
        snapshot = self._profile_state.snapshot
        entries = [snapshot.servers[name] for name in sorted(snapshot.servers)]
        make_card = partial(make_server_object, self._profile_state)
        head: JsonObject = {
            "servers_in_all": len(snapshot.servers),
            "tools_in_all": len(snapshot.tools),
        }
        return self._pack_items(gateway_uri, head, "servers", entries, make_card)

    def _read_tools(self, gateway_uri: GatewayUri) -> list[Raw]:
        tools = self._profile_state.ranked_catalog.all_tools

        def render_line(tool: Tool) -> str:
            address = sanitize_text(tool.address)
            left = _INDEX_ENTRY_TOKENS - count_tokens(address) - 1
            words = max(left, _MIN_INDEX_WORDS_TOKENS)
            about = extract_first_sentence(tool.description or tool.title, words)
            return f"{address}{about and ': '}{about}"

        return self._pack_items(
            gateway_uri, {"tools_in_all": len(tools)}, "tools", tools, render_line
        )

    def _read_hot_tools(self, gateway_uri: GatewayUri) -> list[Raw]:
        hot = self._profile_state.ranked_catalog.hot_list
        grounds = {
            "use": "pins and use",
            "pins": "pins",
            "some of each server": "no use is known yet: some of each server",
        }
        head: JsonObject = {"chosen_by": grounds[hot.basis]}
        if self._profile_state.ranked_catalog.computed_at:
            head["computed"] = to_iso_time(self._profile_state.ranked_catalog.computed_at)
        make_card = partial(make_tool_object, self._profile_state, is_summary=False)
        return self._pack_items(gateway_uri, head, "tools", hot.tools, make_card)

    def _read_categories(self, gateway_uri: GatewayUri) -> list[Raw]:
        ranked_catalog = self._profile_state.ranked_catalog
        head: JsonObject = {"tools_in_all": len(ranked_catalog.snapshot.tools)}
        kinds = [*ranked_catalog.categories.values()]
        return self._pack_items(gateway_uri, head, "categories", kinds, make_category_object)

    def _read_tool(self, gateway_uri: GatewayUri) -> list[Raw]:
        tool = self._profile_state.snapshot.resolve_tool(gateway_uri.name)
        gateway_uri = GatewayUri("tool", tool.address, gateway_uri.cursor)
        body = _to_json(to_full_data(tool, details=collect_tool_details(self._profile_state, tool)))
        if gateway_uri.cursor == WHOLE:
            return [_make_content(gateway_uri.uri, body)]
        version = self._profile_state.snapshot.version
        # The cursor counts from the end, because usage figures at the start may change in length.
        start = 0
        if gateway_uri.cursor:
            left = cursors.decode(gateway_uri.cursor, gateway_uri.uri, version)
            start = max(0, len(body) - left)
        space = compute_remaining_tokens(_get_budget(gateway_uri))
        if not start and count_tokens(body) <= space:
            return [_make_content(gateway_uri.uri, body)]
        end = find_part_end(body, start, space - 100)
        contents = [_make_content(gateway_uri.uri, body[start:end], _TEXT)]
        if end < len(body):
            cursor = cursors.encode(gateway_uri.uri, version, len(body) - end)
            rest = f"{gateway_uri.uri}?cursor={cursor}"
            left = format_count(count_tokens(body[end:]), "token")
            note = (
                f"This JSON is too long for one answer; about {left} more: {rest}"
                f" (the whole in one: {gateway_uri.uri}?cursor={WHOLE})"
            )
            contents.append(_make_content(rest, note, _TEXT))
        return contents

    def _read_backend(self, gateway_uri: GatewayUri) -> list[Raw]:
        entry = self._profile_state.snapshot.resolve_server(gateway_uri.name)
        card = make_server_object(self._profile_state, entry, detailed=True)
        gateway_uri = GatewayUri("backend", entry.name, gateway_uri.cursor)
        tools = self._profile_state.ranked_catalog.list_server_tools(entry.name)
        names = [sanitize_text(tool.name) for tool in tools]
        return self._pack_items(gateway_uri, card, "tool_names", names, str)

    def _read_backend_tools(self, gateway_uri: GatewayUri) -> list[Raw]:
        entry = self._profile_state.snapshot.resolve_server(gateway_uri.name)
        gateway_uri = GatewayUri("backend tools", entry.name, gateway_uri.cursor)
        head: JsonObject = {"server": entry.name, "tools_in_all": len(entry.tools)}
        tools = self._profile_state.ranked_catalog.list_server_tools(entry.name)
        return self._pack_items(gateway_uri, head, "tools", tools, self._make_card)

    def _read_category(self, gateway_uri: GatewayUri) -> list[Raw]:
        ranked_category = self._profile_state.ranked_catalog.find_category(gateway_uri.name)
        gateway_uri = GatewayUri("category", ranked_category.category.key, gateway_uri.cursor)
        head = {
            f"{key}_in_all" if key == "tools" else key: value
            for key, value in make_category_object(ranked_category).items()
        }
        return self._pack_items(gateway_uri, head, "tools", ranked_category.tools, self._make_card)

    def _make_card(self, tool: Tool) -> JsonObject:
        return make_tool_object(self._profile_state, tool)

    def _pack_items(
        self,
        gateway_uri: GatewayUri,
        head: Mapping[str, Any],
        key: str,
        items: Sequence[Any],
        render: Callable[[Any], Any],
    ) -> list[Raw]:
        """Render as many items as fit, under `key`, and the URI of the next part."""
        version = self._profile_state.ranked_catalog.version
        offset = 0
        if gateway_uri.cursor:
            offset = cursors.decode(gateway_uri.cursor, gateway_uri.uri, version)

        def make_continuation(reached: int) -> JsonObject:
            rest = f"{gateway_uri.uri}?cursor={cursors.encode(gateway_uri.uri, version, reached)}"
            if reached < len(items):
                return {"more": {"left_out": len(items) - reached, "uri": rest}}
            return {}

        start = _to_json(head if not offset else {})
        texts = (_to_json(render(item)) for item in items[offset:])
        around = (start, _to_json(make_continuation(offset)))
        packed = pack(texts, compute_remaining_tokens(_get_budget(gateway_uri), *around))
        listed = f'"{key}":[{",".join(packed.texts)}]'
        continuation = _to_json(make_continuation(offset + len(packed.texts)))[1:-1]
        members = ",".join(filter(None, (start[1:-1], listed, continuation)))
        return [_make_content(gateway_uri.uri, f"{{{members}}}")]

    # --- changes

    def is_affected(self, uri: str, event: Event) -> bool:
        """Return whether the contents of a gateway URI may differ after an event."""
        own = parse_gateway_uri(uri)
        if own is None or own.kind == "result":
            return False
        if isinstance(event, StandingsChanged):
            return own.kind in ("hot", "categories", "category", "stats", "backend tools")
        if isinstance(event, UpstreamLost | UpstreamReady):
            named = own.kind == "backend" and self._is_same_server(own.name, event.server)
            return named or own.kind in ("overview", "backends", "stats")
        if not isinstance(event, CatalogChanged):
            return False
        if own.kind in ("backend", "backend tools"):
            return self._is_same_server(own.name, event.server)
        if own.kind == "tool":
            return event.tools_changed and self._is_changed_tool(own.name, event)
        return event.tools_changed

    def _is_same_server(self, name: str, server: str) -> bool:
        with contextlib.suppress(UnknownName):
            return server in (name, self._profile_state.snapshot.resolve_server(name).name)
        return False

    def _is_changed_tool(self, name: str, event: CatalogChanged) -> bool:
        touched = {*event.added, *event.removed, *event.changed}
        # Not `resolve_tool`, which would search the nearest names for every removed one.
        addresses = self._profile_state.snapshot.find_addresses(name)
        return name in touched or (len(addresses) == 1 and addresses[0] in touched)


def make_not_found_error(uri: str, nearest: Sequence[str] = (), reason: str = "") -> RemoteError:
    """Return the error for a URI that names nothing, with the nearest existing URIs.

    Of a URI that is too long to name anything only the beginning is repeated.
    """
    notes = [reason] if reason else []
    if nearest:
        notes.append(f"nearest: {', '.join(nearest[:3])}")
    message = f"Resource not found: {sanitize_text(uri if len(uri) <= 200 else f'{uri[:200]}…')}"
    if notes:
        message += f" ({'; '.join(notes)})"
    if len(uri) > MAX_URI_CHARS:
        uri = f"{uri[:MAX_URI_CHARS]}…"
    return RemoteError(RESOURCE_NOT_FOUND, message, {"uri": uri})


def _get_budget(gateway_uri: GatewayUri) -> int:
    return RESOURCE_BUDGETS.get(gateway_uri.kind, DEFAULT_BUDGET)


def _make_content(uri: str, text: str, mime: str = _JSON) -> Raw:
    return {"uri": uri, "mimeType": mime, "text": text, "annotations": make_annotations(text)}


def _to_json(value: Any) -> str:
    return json_codec.dumps(value).decode()
