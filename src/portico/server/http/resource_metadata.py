"""Where clients get a token for an endpoint: protected resource metadata (RFC 9728) for each, and
the challenges that name them (RFC 6750).

/.well-known/oauth-protected-resource/mcp/p/work   of /mcp/p/work

They are public and say only what every client has to know. Without authorization servers there are
none.
"""

import re
from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from portico.auth.token_verifier import Rejection, TokenVerifier

WELL_KNOWN_PATH = "/.well-known/oauth-protected-resource"
MAX_AGE_S = 300
_HOST = re.compile(r"[A-Za-z0-9.:\[\]-]{1,255}")
_ENDPOINT_PATH = re.compile(r"/mcp(?:/p/([A-Za-z0-9_-]{1,64}))?")
_UNQUOTABLE = re.compile(r"[^\x20-\x21\x23-\x5b\x5d-\x7e]")
_CORS_HEADERS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "GET",
    "Access-Control-Allow-Headers": "*",
}


class ResourceMetadata:
    def __init__(
        self, verifiers: Sequence[TokenVerifier] = (), public_url: str | None = None
    ) -> None:
        """Without `public_url`, the address is the one that a request came to."""
        self._verifiers = verifiers
        self._public_url = public_url

    def make_challenge(self, scope: Scope, rejection: Rejection | None) -> str:
        """Return the WWW-Authenticate header for a request without a token, or with this rejected
        one; empty where another token would not help."""
        parameters = {"realm": "portico"}
        profile = scope.get("path_params", {}).get("profile", "")
        scopes = self._list_scopes(profile)
        if rejection is not None and rejection.status == 403:
            if not scopes:
                return ""
            parameters["error"] = "insufficient_scope"
        elif rejection is not None and self._verifiers:
            parameters["error"] = "invalid_token"
        if rejection is not None and self._verifiers:
            parameters["error_description"] = rejection.reason
        if self._verifiers:
            parameters["scope"] = " ".join(scopes)
            parameters["resource_metadata"] = self._locate_metadata(scope, profile)
        quoted = (
            f'{name}="{_UNQUOTABLE.sub("", value)}"' for name, value in parameters.items() if value
        )
        return f"Bearer {', '.join(quoted)}"

    def list_routes(self) -> Iterable[BaseRoute]:
        if self._verifiers:
            yield Route(f"{WELL_KNOWN_PATH}{{resource:path}}", _MetadataEndpoint(self))

    def describe(self, scope: Scope, path: str) -> dict[str, object] | None:
        """Return the metadata of the endpoint at a path; None where there cannot be one.

        Whether a profile exists is not said.
        """
        root = self._find_root(scope)
        inner = path.removeprefix(urlsplit(root).path) or "/mcp"
        found = _ENDPOINT_PATH.fullmatch(inner)
        if found is None or not root:
            return None
        document: dict[str, object] = {
            "resource": f"{root}{inner}",
            "resource_name": "Portico",
            "authorization_servers": self._list_servers(),
            "bearer_methods_supported": ["header"],
        }
        scopes = self._list_scopes(found[1] or "")
        if scopes:
            document["scopes_supported"] = scopes
        return document

    def _locate_metadata(self, scope: Scope, profile: str) -> str:
        root = self._find_root(scope)
        if not root:
            return ""
        parts = urlsplit(root)
        endpoint = f"/mcp/p/{profile}" if profile else "/mcp"
        return f"{parts.scheme}://{parts.netloc}{WELL_KNOWN_PATH}{parts.path}{endpoint}"

    def _find_root(self, scope: Scope) -> str:
        """Return the gateway's address; empty if a request names none that can be written."""
        if self._public_url is not None:
            return self._public_url
        host = Request(scope).headers.get("host", "")
        return f"{scope['scheme']}://{host}" if _HOST.fullmatch(host) else ""

    def _list_servers(self) -> list[str]:
        servers = (server for one in self._verifiers for server in one.authorization_servers)
        return list(dict.fromkeys(servers))

    def _list_scopes(self, profile: str) -> list[str]:
        scopes = (scope for one in self._verifiers for scope in one.list_scopes(profile))
        return list(dict.fromkeys(scopes))


class _MetadataEndpoint:
    """Answers any page and program: there is nothing to protect."""

    def __init__(self, metadata: ResourceMetadata) -> None:
        self._metadata = metadata

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._answer(scope)(scope, receive, send)

    def _answer(self, scope: Scope) -> Response:
        if scope["method"] == "OPTIONS":
            return Response(status_code=204, headers=_CORS_HEADERS)
        if scope["method"] not in ("GET", "HEAD"):
            return Response(status_code=405, headers={"Allow": "GET, HEAD, OPTIONS"})
        document = self._metadata.describe(scope, scope["path_params"]["resource"])
        if document is None:
            return JSONResponse({"error": "there is no endpoint of this address"}, 404)
        headers = {**_CORS_HEADERS, "Cache-Control": f"max-age={MAX_AGE_S}", "Vary": "Host"}
        return JSONResponse(document, headers=headers)
