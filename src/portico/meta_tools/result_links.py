"""Links in results of tools and prompts: remembered, so that a client can read the resource that it
was pointed to, and confined to the server that gave them.

A link is known to the session or state handle that received it. Servers may claim any URI: one that
two servers claim cannot be read by either, and each server's links are limited separately.
"""

import asyncio
import re
from collections import OrderedDict
from typing import Any, cast

from portico.callers import Caller, choose_entry_to_drop
from portico.rendering.resource_uris import to_outer_uri
from portico.upstream.backend import Raw
from portico.visibility import MAX_URI_CHARS

MAX_SESSIONS = 256
MAX_LINKS = 1_024
"""Maximum links per server and session."""
_GATEWAY_SCHEME = re.compile(r"[\x00-\x20\x7f]*portico:", re.IGNORECASE)
MANY_BLOCKS = 5_000
"""Content blocks above which a thread is used, at about half a microsecond per block."""


class ResultLinks:
    """The links that one view's clients received."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, dict[str, OrderedDict[str, None]]] = OrderedDict()
        self._owners: dict[str, str] = {}
        """Owner of each session's links, for the fair choice of what to drop."""

    def remember(self, caller: Caller, server: str, result: Raw) -> None:
        """Store the last links in a server's result of a tool or prompt.

        Callers without a session, handle or key share one entry, and can read its links only with
        the server's name.
        """
        session = caller.link_owner
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
    blocks: list[Any] = cast("list[Any]", content)[-MAX_LINKS:] if isinstance(content, list) else []
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


async def confine_links(server: str, result: Raw) -> Raw:
    """Return a result of a tool or prompt whose links can only lead to its own server.

    A link or an embedded resource whose URI looks like the gateway's would otherwise be read from
    whichever server it names. A tool's result without such a link is returned unchanged.
    """
    content = result.get("content")
    has_many = isinstance(content, list) and len(cast("list[Any]", content)) > MANY_BLOCKS
    if has_many or "messages" in result:
        return await asyncio.to_thread(_confine_links, server, result)
    return _confine_links(server, result)


def _confine_links(server: str, result: Raw) -> Raw:
    content = result.get("content")
    messages = result.get("messages")
    if isinstance(content, list) and any(map(_has_gateway_uri, cast("list[Any]", content))):
        result = {
            **result,
            "content": [_confine_block(server, block) for block in cast("list[Any]", content)],
        }
    if isinstance(messages, list):
        confined = [_confine_message(server, message) for message in cast("list[Any]", messages)]
        result = {**result, "messages": confined}
    return result


def _confine_message(server: str, message: Any) -> Any:
    content = cast(Raw, message).get("content") if isinstance(message, dict) else None
    if isinstance(content, dict):
        return {**message, "content": _confine_block(server, content)}
    if isinstance(content, list):
        return {
            **message,
            "content": [_confine_block(server, block) for block in cast("list[Any]", content)],
        }
    return message


def _confine_block(server: str, block: Any) -> Any:
    if not _has_gateway_uri(block):
        return block
    confined: Raw = dict(block)
    if _is_gateway_uri(confined.get("uri")):
        confined["uri"] = to_outer_uri(server, confined["uri"].strip())
    if isinstance(confined.get("resource"), dict) and _is_gateway_uri(
        confined["resource"].get("uri")
    ):
        confined["resource"] = {
            **confined["resource"],
            "uri": to_outer_uri(server, confined["resource"]["uri"].strip()),
        }
    return confined


def _has_gateway_uri(block: Any) -> bool:
    """Return whether a content block has a URI with the gateway's scheme."""
    if not isinstance(block, dict):
        return False
    inner = cast(Raw, block).get("resource")
    return _is_gateway_uri(cast(Raw, block).get("uri")) or (
        isinstance(inner, dict) and _is_gateway_uri(cast(Raw, inner).get("uri"))
    )


def _is_gateway_uri(uri: Any) -> bool:
    """Return whether a URI has the gateway's scheme, in any case and with leading blanks."""
    return isinstance(uri, str) and _GATEWAY_SCHEME.match(uri) is not None
