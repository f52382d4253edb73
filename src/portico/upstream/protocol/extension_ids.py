"""Ids of extensions that the gateway does not know, with the name of their server. Pure.

Members named `id`, `uri`, or so at the end (`widgetId`, `page_uri`, `widgetIds`) are ids wherever
they stand, other than in `_meta`: `portico+{server}:{the server's own}`. A message with more
members or levels than here is refused before anything is changed.
"""

import re
from collections.abc import Callable
from typing import Any, cast

from portico.errors import INVALID_PARAMS, RemoteError
from portico.upstream.backend import Raw

MAX_NODES = 10_000
"""Members and items of one message."""
MAX_LEVELS = 64
MAX_ID_CHARS = 4_096
_PREFIX = "portico+"
_ID_KEY = re.compile(r"(?:^(?:id|uri)|Id|ID|Uri|URI|_id|_uri)s?$")


def add_server(message: Raw, server: str) -> Raw:
    """Return a message of a server whose ids name that server; raises RemoteError."""
    return _rename_ids(message, lambda own: f"{_PREFIX}{server}:{own}")


def remove_servers(message: Raw) -> tuple[Raw, set[str]]:
    """Return a message of a client with the servers' own ids, and the servers they named; raises
    RemoteError."""
    servers: set[str] = set()

    def remove(outer: str) -> str:
        server, found, own = outer.removeprefix(_PREFIX).partition(":")
        if not outer.startswith(_PREFIX) or not found:
            return outer
        servers.add(server)
        return own

    return _rename_ids(message, remove), servers


def _rename_ids(message: Raw, rename: Callable[[str], str]) -> Raw:
    left = MAX_NODES

    def rename_value(value: Any, is_id: bool, levels: int) -> Any:
        nonlocal left
        left -= 1
        if left < 0 or levels < 0:
            raise RemoteError(
                INVALID_PARAMS,
                "a message of an extension that is not known here may have"
                f" {MAX_NODES} members and {MAX_LEVELS} levels",
            )
        if isinstance(value, str):
            return rename(value) if is_id and len(value) <= MAX_ID_CHARS else value
        if isinstance(value, list):
            items = cast("list[Any]", value)
            return [rename_value(item, is_id, levels - 1) for item in items]
        if isinstance(value, dict):
            return {
                key: item if key == "_meta" else rename_value(item, _is_id_key(key), levels - 1)
                for key, item in cast(Raw, value).items()
            }
        return value

    return rename_value(message, False, MAX_LEVELS)


def _is_id_key(key: str) -> bool:
    return len(key) <= 64 and _ID_KEY.search(key) is not None
