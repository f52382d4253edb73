"""Resources of many servers under one roof. Pure.

An upstream resource is `portico://backend/{server}/resource/{its own URI}`. (Prompts are `server__prompt`, as tools.)
"""

from portico.upstream.backend import Raw

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
