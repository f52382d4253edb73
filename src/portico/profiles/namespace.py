"""URIs of the gateway's own resources and of the servers', in one namespace.

The gateway's are `portico://overview`, `portico://tool/{tool_name}` and so on, with `?cursor=…` for
the next part of a long one. An upstream resource is `portico://backend/{server}/resource/{its own
URI}`. (Prompts are `server__prompt`, like tools.) Pure, except that large results are checked in a
thread.
"""

import asyncio
import re
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args
from urllib.parse import quote, unquote

from portico.access import MAX_URI_CHARS
from portico.errors import INVALID_PARAMS, RESOURCE_NOT_FOUND, RemoteError
from portico.upstream.backend import Era, Raw

SCHEME = "portico://"
_BACKEND_PREFIX = f"{SCHEME}backend/"
_RESOURCE_SEGMENT = "/resource/"
_TOOLS_SUFFIX = "/tools"
_GATEWAY_SCHEME = re.compile(r"[\x00-\x20\x7f]*portico:", re.IGNORECASE)
_CURSOR = re.compile(r"\?cursor=([^?#&/]*)$")
_MANY_BLOCKS = 5_000
"""Content blocks above which a thread is used, at about half a microsecond per block."""

FixedKind = Literal["overview", "backends", "tools", "hot", "categories", "stats"]
NamedKind = Literal["tool", "backend", "backend tools", "category", "result"]
FIXED_KINDS: tuple[FixedKind, ...] = get_args(FixedKind)


@dataclass(frozen=True)
class GatewayUri:
    """A parsed URI of the gateway."""

    kind: FixedKind | NamedKind
    name: str = ""
    cursor: str | None = None

    @property
    def uri(self) -> str:
        """The URI in its canonical form, without a cursor."""
        if not self.name:
            return f"{SCHEME}{self.kind}"
        name = quote(self.name, safe="")
        if self.kind == "backend tools":
            return f"{_BACKEND_PREFIX}{name}{_TOOLS_SUFFIX}"
        return f"{SCHEME}{self.kind}/{name}"


def parse_gateway_uri(uri: str) -> GatewayUri | None:
    """Parse a gateway URI; None for any other. Names may be percent-encoded."""
    if not uri.startswith(SCHEME) or len(uri) > MAX_URI_CHARS or parse_outer_uri(uri):
        return None
    cursor_match = _CURSOR.search(uri)
    path = uri[len(SCHEME) : cursor_match.start() if cursor_match else None].rstrip("/")
    cursor = unquote(cursor_match[1]) if cursor_match else None
    if path in FIXED_KINDS:
        return GatewayUri(path, cursor=cursor)
    head, _, name = path.partition("/")
    if head == "backend" and name.endswith(_TOOLS_SUFFIX):
        head = "backend tools"
        name = name.removesuffix(_TOOLS_SUFFIX)
    if head in get_args(NamedKind) and name:
        return GatewayUri(cast(NamedKind, head), unquote(name), cursor)
    return None


def to_outer_uri(server: str, uri: str) -> str:
    """Return a server's URI as clients see it."""
    return f"{_BACKEND_PREFIX}{server}{_RESOURCE_SEGMENT}{uri}"


def parse_outer_uri(uri: str) -> tuple[str, str] | None:
    """Split a namespaced URI into server and its own URI; None for any other."""
    if not uri.startswith(_BACKEND_PREFIX):
        return None
    server, found, inner = uri.removeprefix(_BACKEND_PREFIX).partition(_RESOURCE_SEGMENT)
    if found and inner:
        return (server, inner)
    return None


def to_outer_resource(server: str, resource: Raw) -> Raw:
    """Return a listed resource under its outer URI, otherwise unchanged."""
    return {**resource, "uri": to_outer_uri(server, resource["uri"])}


def to_outer_template(server: str, template: Raw) -> Raw:
    """Return a listed resource template under its outer URI template, otherwise unchanged."""
    return {**template, "uriTemplate": to_outer_uri(server, template["uriTemplate"])}


def get_not_found_code(error: RemoteError, era: Era) -> int:
    """Return the error's code, translated to `era` where it means "resource not found"."""
    if era == "modern":
        if error.code == RESOURCE_NOT_FOUND:
            return INVALID_PARAMS
        return error.code
    names_uri = isinstance(error.data, dict) and "uri" in error.data
    if error.code == INVALID_PARAMS and names_uri:
        return RESOURCE_NOT_FOUND
    return error.code


async def confine_links(server: str, result: Raw) -> Raw:
    """Return a result of a tool or prompt whose links can only lead to its own server.

    A link or an embedded resource whose URI looks like the gateway's would otherwise be read from
    whichever server it names. A tool's result without such a link is returned unchanged.
    """
    content = result.get("content")
    has_many = isinstance(content, list) and len(cast("list[Any]", content)) > _MANY_BLOCKS
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
    if isinstance(message, dict):
        content = cast(Raw, message).get("content")
    else:
        content = None
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


def to_outer_contents(server: str, result: Raw) -> Raw:
    """Return the result of `resources/read` under the URIs that clients see."""
    contents = result.get("contents")
    if not isinstance(contents, list):
        return result
    outer: list[Any] = []
    for part in cast("list[Any]", contents):
        if isinstance(part, dict) and isinstance(part.get("uri"), str):
            part = {**part, "uri": to_outer_uri(server, part["uri"])}
        outer.append(part)
    return {**result, "contents": outer}
