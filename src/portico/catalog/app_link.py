"""MCP Apps: what a tool's definition says of its user interface, and who may call it. Pure.

A tool names its app, a resource with the scheme `ui`, in `_meta.ui.resourceUri` or under the older
key `ui/resourceUri`. `_meta.ui.visibility` says whether models, apps or both may call it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard, cast

from portico.catalog.tool import Tool
from portico.json_text.json_codec import to_object
from portico.upstream.backend import Raw
from portico.upstream.protocol.extensions import UI_SCHEME
from portico.visibility import MAX_URI_CHARS

_UI_KEY = "ui"
_FLAT_KEY = "ui/resourceUri"
_UI_BYTES = b'"ui'
"""Beginning of either key, which nearly no other definition has."""


@dataclass(frozen=True)
class AppLink:
    """A tool's part in an app of its server."""

    uri: str = ""
    """The app in which results are shown, as the server knows it; empty: none."""
    is_for_models: bool = True
    is_for_apps: bool = True


NO_LINK = AppLink()


def read_app_link(tool: Tool) -> AppLink:
    """Return what a tool's definition says of apps."""
    if _UI_BYTES not in tool.blob:
        return NO_LINK
    meta = to_object(tool.definition.get("_meta"))
    ui = to_object(meta.get(_UI_KEY))
    uri = next(filter(is_app_uri, (ui.get("resourceUri"), meta.get(_FLAT_KEY))), "")
    visibility = ui.get("visibility")
    if not isinstance(visibility, list):
        return AppLink(uri)
    shown_to = cast("list[Any]", visibility)
    return AppLink(uri, "model" in shown_to, "app" in shown_to)


def is_app_uri(uri: Any) -> TypeGuard[str]:
    """Return whether a value is the address of an app."""
    return isinstance(uri, str) and uri.startswith(UI_SCHEME) and len(uri) <= MAX_URI_CHARS


def rename_app(item: Raw, rename: Callable[[str], str]) -> Raw:
    """Return a tool's definition or result whose app has the address that clients know."""
    meta = to_object(item.get("_meta"))
    ui = to_object(meta.get(_UI_KEY))
    changed: Raw = {}
    if is_app_uri(uri := ui.get("resourceUri")) and (outer := rename(uri)) != uri:
        changed[_UI_KEY] = {**ui, "resourceUri": outer}
    if is_app_uri(uri := meta.get(_FLAT_KEY)) and (outer := rename(uri)) != uri:
        changed[_FLAT_KEY] = outer
    return {**item, "_meta": {**meta, **changed}} if changed else item


def add_app(result: Raw, uri: str) -> Raw:
    """Return a result that says where the app is in which it is shown; what the server says of that
    itself counts."""
    meta = to_object(result.get("_meta"))
    ui: Mapping[str, Any] = to_object(meta.get(_UI_KEY))
    if is_app_uri(ui.get("resourceUri")):
        return result
    return {
        **result,
        "_meta": {_FLAT_KEY: uri, **meta, _UI_KEY: {**ui, "resourceUri": uri}},
    }
