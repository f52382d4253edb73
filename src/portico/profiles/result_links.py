"""Whose the links in results were, so that a client can read what a tool pointed it to.

A link is known to the session, or to the handle, that was given it. A server can say anything:
where two of them claim one URI neither can be read by it, and each forgets only its own links when
it makes too many.
"""

from collections import OrderedDict
from typing import Any, cast

from portico.access import MAX_URI_CHARS, Caller, choose_entry_to_drop
from portico.upstream.backend import Raw

MAX_SESSIONS = 256
MAX_LINKS = 1_024
"""Of one server, in one session."""


class ResultLinks:
    """The links of one view's clients."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, dict[str, OrderedDict[str, None]]] = OrderedDict()
        self._owners: dict[str, str] = {}
        """Whom the links of each session are counted for."""

    def remember(self, caller: Caller, server: str, result: Raw) -> None:
        """Keep the last links of a server's result: of a tool, or of a prompt.

        Callers without a session or a handle share theirs, and can only read them by the server's
        name.
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
        """The servers that gave this session, or this handle, the link."""
        return {server for server, links in self._sessions.get(session, {}).items() if uri in links}


def _take_last_blocks(result: Raw) -> list[Any]:
    """The last blocks of content, of a tool's result or of a prompt's messages."""
    content = result.get("content")
    messages = result.get("messages")
    if isinstance(content, list):
        blocks: list[Any] = cast("list[Any]", content)[-MAX_LINKS:]
    else:
        blocks = []
    for message in cast("list[Any]", messages)[-MAX_LINKS:] if isinstance(messages, list) else ():
        if isinstance(message, dict):
            said = cast(Raw, message).get("content")
        else:
            said = None
        blocks += cast("list[Any]", said)[-MAX_LINKS:] if isinstance(said, list) else [said]
    return blocks[-MAX_LINKS:]


def _parse_link(block: Any) -> str | None:
    if not isinstance(block, dict) or block.get("type") != "resource_link":
        return None
    uri = cast("Raw", block).get("uri")
    if isinstance(uri, str):
        uri = uri.strip()
    else:
        uri = uri
    if isinstance(uri, str) and len(uri) <= MAX_URI_CHARS:
        return uri
    return None
