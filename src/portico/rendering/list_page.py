"""Long lists of the protocol, a page at a time. Pure."""

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
    """The page that the params of a listing ask for, with what is to be said of the whole; raises
    StaleCursor.

    `show` makes of an item what is listed: only those of the page are asked for.
    """
    given = params.get("cursor")
    if given is not None:
        offset = cursors.decode(str(given), method, version)
    else:
        offset = 0
    some = items[offset : offset + PAGE_SIZE]
    found: Raw = {key: list(map(render, some)) if render else list(some)}
    if offset + PAGE_SIZE < len(items):
        found["nextCursor"] = cursors.encode(method, version, offset + PAGE_SIZE)
    if meta:
        found["_meta"] = meta
    return found
