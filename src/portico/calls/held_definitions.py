"""Refuses what is held back: a tool, prompt or template that nobody has looked at since it changed.

In a snapshot such a tool says so itself (`Tool.held`), so that the check costs an attribute.
"""

from collections.abc import Coroutine, Mapping
from typing import Any, cast

from portico.calls.call import Call, Handler, ServerRequest
from portico.catalog.catalog import Catalog
from portico.catalog.snapshot import ServerEntry
from portico.catalog.tool import quote_text, sanitize_text
from portico.catalog.uri_template import matches_any, parse_templates
from portico.errors import DefinitionHeld
from portico.upstream.backend import Raw

_MAX_REASON_CHARS = 200
_RESOURCE_METHODS = frozenset({"resources/read", "resources/subscribe"})
_REASON = "nobody has looked at what its server says of it now"


def check_held_call(call: Call, /, call_next: Handler[Call]) -> Coroutine[Any, Any, Raw]:
    """Middleware: raises DefinitionHeld for a tool that is held back."""
    if call.tool.held:
        raise make_error(call.server, call.tool.address, call.tool.held)
    return call_next(call)


class HeldOffers:
    """Middleware for prompts, resource templates and tools that a server does not list."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def check_request(
        self, request: ServerRequest, /, call_next: Handler[ServerRequest]
    ) -> Coroutine[Any, Any, Raw]:
        """Raise DefinitionHeld for what is held back."""
        entry = self._catalog.snapshot.servers.get(request.server)
        if entry is not None and (entry.held_offers or entry.changes):
            name = find_held(entry, request.method, request.params or {})
            if name is not None:
                raise make_error(request.server, f"{request.server}: {quote_text(name)}", _REASON)
        return call_next(request)


def find_held(entry: ServerEntry, method: str, params: Mapping[str, Any]) -> str | None:
    """Return what a request is about if that is held back."""
    reference = params.get("ref") if method == "completion/complete" else None
    if isinstance(reference, Mapping):
        known = cast("Mapping[str, Any]", reference)
        params = known
        method = "prompts/get" if known.get("type") == "ref/prompt" else "resources/read"
    if method == "prompts/get":
        name = str(params.get("name"))
        return name if ("prompt", name) in entry.held_offers else None
    if method == "tools/call":
        name = str(params.get("name"))
        held = any(one.kind == "tool" and one.name == name and one.is_held for one in entry.changes)
        return name if held else None
    if method in _RESOURCE_METHODS:
        uri = str(params.get("uri"))
        return uri if _is_held_resource(entry, uri) else None
    return None


def _is_held_resource(entry: ServerEntry, uri: str) -> bool:
    """Return whether a URI is one of a held template alone."""
    held = [name for kind, name in entry.held_offers if kind == "template"]
    if not held or uri in entry.resource_uris:
        return False
    if uri in held:
        return True
    others = [
        template["uriTemplate"]
        for template in entry.offers.templates
        if template["uriTemplate"] not in held
    ]
    return matches_any(parse_templates(held), uri) and not matches_any(parse_templates(others), uri)


def make_error(server: str, address: str, reason: str) -> DefinitionHeld:
    """Return the error for something that is held back."""
    shown = " ".join(sanitize_text(reason).split())[:_MAX_REASON_CHARS]
    return DefinitionHeld(
        f"{address} is held back ({shown})",
        advice="Nothing was sent to its server. A person has to look first: "
        f"portico trust {server} --diff",
    )
