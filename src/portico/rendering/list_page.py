"""Pagination of the protocol's list methods. Pure."""

from collections.abc import Callable, Sequence
from typing import Any

from portico.rendering import cursor as cursors
from portico.upstream.backend import Raw

PAGE_SIZE = 250


def make_list_page(
    method: str,
    key: str,
    items: Sequence[Any],
    version: str,
    params: Raw,
    meta: Raw | None = None,
    render: Callable[[Any], Any] | None = None,
) -> Raw:
    """Return the page that the params of a listing request; raises StaleCursor.

    `meta` describes the whole list. `render` turns an item into its listed form, for this page
    only.
    """
    cursor = params.get("cursor")
    if cursor is not None:
        offset = cursors.decode(str(cursor), method, version)
    else:
        offset = 0
    page_items = items[offset : offset + PAGE_SIZE]
    page: Raw = {key: list(map(render, page_items)) if render else list(page_items)}
    if offset + PAGE_SIZE < len(items):
        page["nextCursor"] = cursors.encode(method, version, offset + PAGE_SIZE)
    if meta:
        page["_meta"] = meta
    return page
