"""Links seen in results, so that a client can read the resource that a tool pointed it to.

A link is known to the session or state handle that received it. Servers may claim any URI: one that
two servers claim cannot be read by either, and each server's links are limited separately.
"""

from collections import OrderedDict
from typing import Any, cast

from portico.access import MAX_URI_CHARS, Caller, choose_entry_to_drop
from portico.upstream.backend import Raw

MAX_SESSIONS = 256
MAX_LINKS = 1_024
"""Maximum links per server and session."""


class ResultLinks:
    """The links that one view's clients received."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, dict[str, OrderedDict[str, None]]] = OrderedDict()
        self._owners: dict[str, str] = {}
        """Owner of each session's links, for the fair choice of what to drop."""

    def remember(self, caller: Caller, server: str, result: Raw) -> None:
        """Store the last links in a server's result of a tool or prompt.

        Callers without a session or handle share one entry, and can read its links only with the
        server's name.
        """
        session = caller.state_key
        uris = [
            uri for block in _take_last_blocks(result) if (uri := _parse_link(block)) is not None
        ]
        if not uris:
            return
        links = self._sessions.setdefault(session, {}).setdefault(server, OrderedDict())
        self._sessions.move_to_end(session)
        self._owners[session] = caller.owner
        for uri in uris:
            links[uri] = None
            links.move_to_end(uri)
            if len(links) > MAX_LINKS:
                links.popitem(last=False)
        if len(self._sessions) > MAX_SESSIONS:
            dropped = choose_entry_to_drop({key: self._owners[key] for key in self._sessions})
            del self._sessions[dropped], self._owners[dropped]

    def find_servers(self, session: str, uri: str) -> set[str]:
        """Return the servers that gave this session or handle the link."""
        return {server for server, links in self._sessions.get(session, {}).items() if uri in links}


def _take_last_blocks(result: Raw) -> list[Any]:
    """Return the last content blocks of a tool's result or of a prompt's messages."""
    content = result.get("content")
    messages = result.get("messages")
    if isinstance(content, list):
        blocks: list[Any] = cast("list[Any]", content)[-MAX_LINKS:]
    else:
        blocks = []
    last_messages = cast("list[Any]", messages)[-MAX_LINKS:] if isinstance(messages, list) else []
    for message in last_messages:
        body = cast(Raw, message).get("content") if isinstance(message, dict) else None
        blocks += cast("list[Any]", body)[-MAX_LINKS:] if isinstance(body, list) else [body]
    return blocks[-MAX_LINKS:]


def _parse_link(block: Any) -> str | None:
    if not isinstance(block, dict) or block.get("type") != "resource_link":
        return None
    uri = cast("Raw", block).get("uri")
    if isinstance(uri, str) and len(uri.strip()) <= MAX_URI_CHARS:
        return uri.strip()
    return None
