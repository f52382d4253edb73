"""Resources of many servers under one roof. Pure.

An upstream resource is `portico://backend/{server}/resource/{its own URI}`. (Prompts are `server__prompt`, as tools.)
"""

from typing import Any, cast

from portico.errors import INVALID_PARAMS, RESOURCE_NOT_FOUND, RemoteError
from portico.upstream.backend import Era, Raw

_ROOT = "portico://backend/"
_RESOURCE = "/resource/"


def outer_uri(server: str, uri: str) -> str:
    """A server's URI as clients see it."""
    return f"{_ROOT}{server}{_RESOURCE}{uri}"


def inner_uri(uri: str) -> tuple[str, str] | None:
    """Server and own URI of a namespaced one."""
    if not uri.startswith(_ROOT):
        return None
    server, found, inner = uri.removeprefix(_ROOT).partition(_RESOURCE)
    return (server, inner) if found and inner else None


def outer_resource(server: str, resource: Raw) -> Raw:
    """A listed resource under its outer URI, everything else untouched."""
    return {**resource, "uri": outer_uri(server, resource["uri"])}


def outer_template(server: str, template: Raw) -> Raw:
    """A listed resource template under its outer URI template, everything else untouched."""
    return {**template, "uriTemplate": outer_uri(server, template["uriTemplate"])}


def not_found_code(error: RemoteError, era: Era) -> int:
    """The code each era has for a resource that does not exist, whichever era its server speaks."""
    if era == "modern":
        return INVALID_PARAMS if error.code == RESOURCE_NOT_FOUND else error.code
    names_it = isinstance(error.data, dict) and "uri" in error.data
    return RESOURCE_NOT_FOUND if error.code == INVALID_PARAMS and names_it else error.code


def outer_contents(server: str, result: Raw) -> Raw:
    """What was read, under the URIs clients see."""
    contents = result.get("contents")
    if not isinstance(contents, list):
        return result
    outer = [
        {**part, "uri": outer_uri(server, part["uri"])}
        if isinstance(part, dict) and isinstance(part.get("uri"), str)
        else part
        for part in cast("list[Any]", contents)
    ]
    return {**result, "contents": outer}
