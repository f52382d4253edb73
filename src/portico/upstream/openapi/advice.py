"""What access an operation asks for, and what to configure for it. Pure."""

from collections.abc import Mapping
from typing import Any, cast

from portico.upstream.backend import Raw
from portico.upstream.openapi import swagger
from portico.upstream.openapi.documents import Documents, Node

MOST_SCHEMES = 5
SCHEME_CHARS = 300


def schemes(documents: Documents) -> Mapping[str, str]:
    """Security scheme → what to configure for it, in words."""
    root = documents.root
    if swagger.is_swagger(root):
        listed = root.at(root.entries.get("securityDefinitions"))
    else:
        components = documents.resolved(root.at(root.entries.get("components")))
        listed = components.at(components.entries.get("securitySchemes"))
    return {str(name): _wanted(documents.resolved(listed.at(entry))) for name, entry in listed.entries.items()}


def wanted(security: Any, known: Mapping[str, str]) -> tuple[str, ...]:
    """What an operation asks for; empty where it may be called by anybody."""
    alternatives = cast("list[Any]", security) if isinstance(security, list) else []
    listed = [cast(Raw, one) for one in alternatives if isinstance(one, dict)]
    if any(not one for one in listed):
        return ()
    asked = [" and ".join(known.get(name, str(name)) for name in one)[:SCHEME_CHARS] for one in listed]
    return tuple(dict.fromkeys(asked))[:MOST_SCHEMES]


def refused(server: str, asked: tuple[str, ...], configured: bool) -> str:
    """What to do about HTTP 401 and 403."""
    what = f"It takes {' or '.join(asked)}. " if asked else ""
    if configured:
        return f"{what}The credentials configured for {server} were not accepted: expired, or without this permission."
    return f"{what or 'It wants credentials. '}Put that in the configuration of the server {server}."


def _wanted(scheme: Node) -> str:
    given = swagger.security_scheme(scheme.entries)
    kind, name = given.get("type"), given.get("name")
    if kind == "apiKey" and isinstance(name, str):
        place = given.get("in")
        if place == "query":
            return f'`query: {{{name}: "${{API_KEY}}"}}`'
        if place == "cookie":
            return f'`headers: {{Cookie: "{name}=${{API_KEY}}"}}`'
        return f'`headers: {{{name}: "${{API_KEY}}"}}`'
    if kind == "http" and str(given.get("scheme")).lower() == "basic":
        return '`headers: {Authorization: "Basic ${BASE64_OF_USER_AND_PASSWORD}"}`'
    if kind == "http" and str(given.get("scheme")).lower() != "bearer":
        return f'`headers: {{Authorization: "{given.get("scheme")} ${{TOKEN}}"}}`'
    if kind == "mutualTLS":
        return "a client certificate, which cannot be configured"
    return '`headers: {Authorization: "Bearer ${TOKEN}"}`'
