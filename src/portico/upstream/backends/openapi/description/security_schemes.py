"""What access an operation asks for, and what to configure for it. Pure."""

from collections.abc import Mapping
from typing import Any, cast

from portico.upstream.backend import Raw
from portico.upstream.backends.openapi.description import swagger
from portico.upstream.backends.openapi.description.documents import ApiDocuments, DocumentNode

MAX_SCHEMES = 5
MAX_SCHEME_CHARS = 300


def describe_security_schemes(documents: ApiDocuments) -> Mapping[str, str]:
    """Security scheme → what to configure for it, in words."""
    root = documents.root
    if swagger.is_swagger(root):
        listed = root.with_value(root.entries.get("securityDefinitions"))
    else:
        components = documents.resolve(root.with_value(root.entries.get("components")))
        listed = components.with_value(components.entries.get("securitySchemes"))
    return {
        str(name): _describe_scheme(documents.resolve(listed.with_value(entry)))
        for name, entry in listed.entries.items()
    }


def describe_required_credentials(
    security: Any, known_schemes: Mapping[str, str]
) -> tuple[str, ...]:
    """What an operation asks for; empty where it may be called by anybody."""
    if isinstance(security, list):
        alternatives = cast("list[Any]", security)
    else:
        alternatives = []
    listed = [cast(Raw, one) for one in alternatives if isinstance(one, dict)]
    if any(not one for one in listed):
        return ()
    asked = [
        " and ".join(known_schemes.get(name, str(name)) for name in one)[:MAX_SCHEME_CHARS]
        for one in listed
    ]
    return tuple(dict.fromkeys(asked))[:MAX_SCHEMES]


def advise_on_refusal(
    server: str, required_credentials: tuple[str, ...], has_credentials: bool
) -> str:
    """What to do about HTTP 401 and 403."""
    if required_credentials:
        what = f"It takes {' or '.join(required_credentials)}. "
    else:
        what = ""
    if has_credentials:
        return f"{what}The credentials configured for {server} were not accepted: expired, or without this permission."
    return (
        f"{what or 'It wants credentials. '}Put that in the configuration of the server {server}."
    )


def _describe_scheme(scheme: DocumentNode) -> str:
    given = swagger.convert_security_scheme(scheme.entries)
    kind = given.get("type")
    name = given.get("name")
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
