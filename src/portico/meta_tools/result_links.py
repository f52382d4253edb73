"""Links in results of tools and prompts: remembered, so that a client can read the resource that it
was pointed to, and confined to the server that gave them.

A link is known to the session or state handle that received it. Servers may claim any URI: one that
two servers claim cannot be read by either, and each server's links are limited separately.
"""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from portico.callers import Caller, choose_entry_to_drop
from portico.rendering.resource_uris import to_outer_uri
from portico.upstream.backend import Raw
from portico.upstream.protocol.extensions import UI_SCHEME
from portico.visibility import MAX_URI_CHARS

MAX_SESSIONS = 256
MAX_LINKS = 1_024
"""Maximum links per server and session."""
RenameLink = Callable[[str, str], str]
_UI_SCHEME = re.compile(r"[\x00-\x20\x7f]*ui://", re.IGNORECASE)
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


async def confine_links(server: str, result: Raw, to_outer_link: RenameLink) -> Raw:
    """Return a result of a tool or prompt whose links can only lead to its own server.

    A link or an embedded resource whose URI looks like the gateway's would otherwise be read from
    whichever server it names; `to_outer_link` gives the apps' own theirs. A tool's result without
    such a link is returned unchanged.
    """
    content = result.get("content")
    has_many = isinstance(content, list) and len(cast("list[Any]", content)) > MANY_BLOCKS
    confine = partial(_confine_block, partial(_confine_uri, server, to_outer_link))
    if has_many or "messages" in result:
        return await asyncio.to_thread(_confine_links, result, confine)
    return _confine_links(result, confine)


def _confine_links(result: Raw, confine: Callable[[Any], Any]) -> Raw:
    content = result.get("content")
    messages = result.get("messages")
    if isinstance(content, list):
        blocks = cast("list[Any]", content)
        confined = list(map(confine, blocks))
        if any(new is not old for new, old in zip(confined, blocks, strict=True)):
            result = {**result, "content": confined}
    if isinstance(messages, list):
        confined = [_confine_message(message, confine) for message in cast("list[Any]", messages)]
        result = {**result, "messages": confined}
    return result


def _confine_message(message: Any, confine: Callable[[Any], Any]) -> Any:
    content = cast(Raw, message).get("content") if isinstance(message, dict) else None
    if isinstance(content, dict):
        return {**message, "content": confine(content)}
    if isinstance(content, list):
        return {**message, "content": list(map(confine, cast("list[Any]", content)))}
    return message


def _confine_block(confine_uri: Callable[[Any], Any], block: Any) -> Any:
    """Return a content block whose URIs are confined; the same object where nothing changes."""
    if not isinstance(block, dict):
        return block
    fields = cast(Raw, block)
    changed: Raw = {}
    if (uri := confine_uri(fields.get("uri"))) is not fields.get("uri"):
        changed["uri"] = uri
    inner = fields.get("resource")
    if isinstance(inner, dict):
        resource = cast(Raw, inner)
        if (uri := confine_uri(resource.get("uri"))) is not resource.get("uri"):
            changed["resource"] = {**resource, "uri": uri}
    return {**fields, **changed} if changed else fields


def _confine_uri(server: str, to_outer_link: RenameLink, uri: Any) -> Any:
    """Return a URI that leads to this server only: one with the gateway's scheme, in any case and
    with leading blanks, is the server's own, and an app's has its server's name where it has to."""
    if not isinstance(uri, str):
        return uri
    if _GATEWAY_SCHEME.match(uri) is not None:
        return to_outer_uri(server, uri.strip())
    if _UI_SCHEME.match(uri) is not None:
        return to_outer_link(server, _UI_SCHEME.sub(UI_SCHEME, uri, count=1))
    return uri
