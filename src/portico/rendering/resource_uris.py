"""URIs of the gateway's own resources and of the servers', in one namespace.

The gateway's are `portico://overview`, `portico://tool/{tool_name}` and so on, with `?cursor=…` for
the next part of a long one. An upstream resource is `portico://backend/{server}/resource/{its own
URI}`. (Prompts are `server__prompt`, like tools.) An app keeps its scheme, since hosts render no
other: `ui://x` of a server that alone has it, else `ui://portico+{server}/x`. Pure.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args
from urllib.parse import quote, unquote

from portico.errors import INVALID_PARAMS, RESOURCE_NOT_FOUND, RemoteError
from portico.upstream.backend import Era, Raw
from portico.upstream.protocol.extensions import UI_SCHEME
from portico.visibility import MAX_URI_CHARS

SCHEME = "portico://"
_BACKEND_PREFIX = f"{SCHEME}backend/"
_RESOURCE_SEGMENT = "/resource/"
_TOOLS_SUFFIX = "/tools"
_APP_PREFIX = f"{UI_SCHEME}portico+"
_CURSOR = re.compile(r"\?cursor=([^?#&/]*)$")

FixedKind = Literal["overview", "backends", "tools", "hot", "categories", "stats"]
NamedKind = Literal["tool", "backend", "backend tools", "category", "result"]
FIXED_KINDS: tuple[FixedKind, ...] = get_args(FixedKind)


@dataclass(frozen=True)
class GatewayUri:
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


def to_app_uri(server: str, uri: str) -> str:
    """Return an app's URI with its server's name; `uri` begins with `ui://`."""
    return f"{_APP_PREFIX}{server}/{uri.removeprefix(UI_SCHEME)}"


def parse_app_uri(uri: str) -> tuple[str, str] | None:
    """Split an app's URI that names its server into server and the server's own URI."""
    if not uri.startswith(_APP_PREFIX):
        return None
    server, found, inner = uri.removeprefix(_APP_PREFIX).partition("/")
    return (server, f"{UI_SCHEME}{inner}") if found and inner else None


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


def rename_contents(result: Raw, rename: Callable[[str], str]) -> Raw:
    """Return the result of `resources/read` under the URIs that clients see."""
    contents = result.get("contents")
    if not isinstance(contents, list):
        return result
    outer: list[Any] = []
    for part in cast("list[Any]", contents):
        if isinstance(part, dict) and isinstance(part.get("uri"), str):
            part = {**part, "uri": rename(part["uri"])}
        outer.append(part)
    return {**result, "contents": outer}
