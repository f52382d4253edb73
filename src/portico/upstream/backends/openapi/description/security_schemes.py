"""Describes the credentials that an operation requires, and how to configure them. Pure."""

from collections.abc import Mapping
from typing import Any, cast

from portico.upstream.backend import Raw
from portico.upstream.backends.openapi.description import swagger
from portico.upstream.backends.openapi.description.documents import ApiDocuments, DocumentNode

MAX_SCHEMES = 5
MAX_SCHEME_CHARS = 300


def describe_security_schemes(documents: ApiDocuments) -> Mapping[str, str]:
    """Return, by scheme name, what to configure for it."""
    root = documents.root
    if swagger.is_swagger(root):
        schemes = root.with_value(root.entries.get("securityDefinitions"))
    else:
        components = documents.resolve(root.with_value(root.entries.get("components")))
        schemes = components.with_value(components.entries.get("securitySchemes"))
    return {
        str(name): _describe_scheme(documents.resolve(schemes.with_value(entry)))
        for name, entry in schemes.entries.items()
    }


def describe_required_credentials(
    security: Any, known_schemes: Mapping[str, str]
) -> tuple[str, ...]:
    """Return what an operation requires; empty if it may be called without credentials."""
    alternatives = cast("list[Any]", security) if isinstance(security, list) else []
    requirements = [cast(Raw, entry) for entry in alternatives if isinstance(entry, dict)]
    if not all(requirements):
        return ()
    described = [
        " and ".join(known_schemes.get(name, str(name)) for name in requirement)[:MAX_SCHEME_CHARS]
        for requirement in requirements
    ]
    return tuple(dict.fromkeys(described))[:MAX_SCHEMES]


def advise_on_refusal(
    server: str, required_credentials: tuple[str, ...], has_credentials: bool
) -> str:
    """Return the advice for HTTP 401 and 403."""
    what = f"It takes {' or '.join(required_credentials)}. " if required_credentials else ""
    if has_credentials:
        return (
            f"{what}The credentials configured for {server} were not accepted: "
            "expired, or without this permission."
        )
    return (
        f"{what or 'It wants credentials. '}Put that in the configuration of the server {server}."
    )


def _describe_scheme(scheme: DocumentNode) -> str:
    entries = swagger.convert_security_scheme(scheme.entries)
    kind = entries.get("type")
    name = entries.get("name")
    if kind == "apiKey" and isinstance(name, str):
        location = entries.get("in")
        if location == "query":
            return f'`query: {{{name}: "${{API_KEY}}"}}`'
        if location == "cookie":
            return f'`headers: {{Cookie: "{name}=${{API_KEY}}"}}`'
        return f'`headers: {{{name}: "${{API_KEY}}"}}`'
    if kind == "http" and str(entries.get("scheme")).lower() == "basic":
        return '`headers: {Authorization: "Basic ${BASE64_OF_USER_AND_PASSWORD}"}`'
    if kind == "http" and str(entries.get("scheme")).lower() != "bearer":
        return f'`headers: {{Authorization: "{entries.get("scheme")} ${{TOKEN}}"}}`'
    if kind == "mutualTLS":
        return "a client certificate, which cannot be configured"
    return '`headers: {Authorization: "Bearer ${TOKEN}"}`'
