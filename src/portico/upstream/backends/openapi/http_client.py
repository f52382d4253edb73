"""HTTP client for one API: pooled, bounded, following redirects only within its origin.

Proxy settings and netrc files of the environment are not read, as for every other server.
"""

from collections.abc import Mapping
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import httpx2

from portico.errors import BackendUnavailable
from portico.upstream.backends.openapi.decompression import BoundedDecompressor, DecompressionError
from portico.upstream.backends.openapi.request_bodies import EncodedBody
from portico.upstream.backends.openapi.responses import ApiResponse
from portico.upstream.backends.openapi.tls import get_ssl_context
from portico.upstream.backends.openapi.urls import MAX_REDIRECTS, resolve_redirect
from portico.upstream.transports.http_exchange import (
    CONNECT_TIMEOUT_S,
    ServerUnreachable,
    StreamInterrupted,
)
from portico.upstream.transports.http_headers import redact_url

MAX_CONNECTIONS = 100
MAX_ERROR_BYTES = 1024 * 1024
_ACCEPT = "application/json, text/*;q=0.9, */*;q=0.8"


class OpenApiClient:
    """Sends requests to one API."""

    def __init__(self, name: str, server: str, headers: Mapping[str, str], max_bytes: int) -> None:
        """Create it in a thread: certificates may have to be loaded."""
        self._name = name
        self._max_bytes = max_bytes
        self.request_count = 0
        self._headers = {"accept": _ACCEPT, "accept-encoding": "identity", "user-agent": "portico"}
        self._headers |= {key.lower(): value for key, value in headers.items()}
        self._client = httpx2.AsyncClient(
            trust_env=False,
            follow_redirects=False,
            # Cookies are never stored: one caller's must not reach another's request.
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
            verify=get_ssl_context(server),
            # The caller has a deadline for the whole request.
            timeout=httpx2.Timeout(None, connect=CONNECT_TIMEOUT_S),
            limits=httpx2.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=16),
        )

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: EncodedBody | None
    ) -> ApiResponse:
        """Send a request and read the response."""
        try:
            for _ in range(MAX_REDIRECTS + 1):
                self.request_count += 1
                request = self._build_request(method, url, headers, body)
                response = await self._client.send(request, stream=True)
                try:
                    target = resolve_redirect(
                        method, url, response.status_code, response.headers.get("location")
                    )
                    if target is None:
                        return await self._read_response(url, response)
                finally:
                    await response.aclose()
                if target[0] != method:
                    body = None
                method, url = target
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            raise ServerUnreachable(
                f"{self._describe_target(url)} cannot be reached: {_describe_cause(error)}",
                advice="Check that the API runs and that `base_url` is right.",
            ) from error
        except httpx2.InvalidURL as error:
            raise BackendUnavailable(
                f"{self._describe_target(url)} is no address: {error}", advice="Check `base_url`."
            ) from error
        except httpx2.HTTPError as error:
            raise StreamInterrupted(
                f"{self._describe_target(url)}: {_describe_cause(error)}",
                advice="Whether it was carried out is not known.",
            ) from error
        raise _make_permanent_error(f"{self._describe_target(url)} redirects again and again")

    async def close(self) -> None:
        await self._client.aclose()

    def _build_request(
        self, method: str, url: str, headers: Mapping[str, str], body: EncodedBody | None
    ) -> httpx2.Request:
        request_headers = dict(self._headers)
        for key, value in headers.items():
            if key == "cookie" and "cookie" in request_headers:
                # The configured cookies are credentials, and stay.
                value = f"{request_headers['cookie']}; {value}"
            request_headers[key.lower()] = value
        content: dict[str, Any] = {}
        if body is not None:
            request_headers.pop("content-type", None)
            if body.files:
                content["files"] = list(body.files)
            elif body.media_type:
                content["content"] = body.content
                request_headers["content-type"] = body.media_type
        encoded = [
            (key.encode("latin-1"), value.encode()) for key, value in request_headers.items()
        ]
        return self._client.build_request(method, url, headers=encoded, **content)

    async def _read_response(self, url: str, reply: httpx2.Response) -> ApiResponse:
        failed = reply.status_code >= 400
        pieces = list[bytes]()
        try:
            limit = min(self._max_bytes, MAX_ERROR_BYTES) if failed else self._max_bytes
            decompressor = BoundedDecompressor(reply.headers.get("content-encoding", ""), limit)
            async for packed in reply.aiter_raw():
                piece = decompressor.decompress(packed)
                if decompressor.is_over_limit:
                    if failed:
                        break
                    advice = "Ask for less at once, or raise limits.max_message_bytes."
                    raise _make_permanent_error(
                        f"{self._name} sent a message over {self._max_bytes} bytes", advice
                    )
                pieces.append(piece)
        except DecompressionError as error:
            raise _make_permanent_error(
                f"{self._describe_target(url)} was answered, but {error}"
            ) from None
        headers = {key.lower(): value for key, value in reply.headers.items()}
        return ApiResponse(redact_url(url), reply.status_code, headers, b"".join(pieces))

    def _describe_target(self, url: str) -> str:
        return f"{self._name} ({redact_url(url)})"


def _make_permanent_error(message: str, advice: str = "") -> BackendUnavailable:
    """Return an error that is not retried, because the next call would fail the same way."""
    error = BackendUnavailable(message, advice=advice)
    error.retryable = False
    return error


def _describe_cause(error: Exception) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ConnectionRefusedError):
            return "connection refused"
        cause = cause.__cause__ or cause.__context__
    return str(error) or type(error).__name__
