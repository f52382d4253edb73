"""Long lists of the protocol, a page at a time. Pure."""

from collections.abc import Sequence
from typing import Any

from portico.disclosure import cursor as cursors
from portico.upstream.backend import Raw

PAGE = 250


def page(method: str, key: str, items: Sequence[Any], version: str, params: Raw, meta: Raw | None = None) -> Raw:
    """The page that the params of a listing ask for, with what is to be said of the whole; raises StaleCursor."""
    given = params.get("cursor")
    offset = cursors.decode(str(given), method, version) if given is not None else 0
    found: Raw = {key: list(items[offset : offset + PAGE])}
    if offset + PAGE < len(items):
        found["nextCursor"] = cursors.encode(method, version, offset + PAGE)
    if meta:
        found["_meta"] = meta
    return found
