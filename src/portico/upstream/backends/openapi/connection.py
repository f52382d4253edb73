"""Connection to an HTTP API: lists and calls its operations; holds only pooled connections.

Its HTTP client is bounded and follows redirects only within its origin. Proxies of the
environment are used as for every other server; netrc files are not read.
"""

import asyncio
import ssl
import zlib
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, cast
from urllib.parse import quote, urlsplit

import httpx2

from portico.errors import BackendUnavailable
from portico.json_text import chunked_decoder
from portico.upstream.backend import Raw, RequestOptions
from portico.upstream.backends.openapi import request_encoding
from portico.upstream.backends.openapi.loader import ApiDescription
from portico.upstream.backends.openapi.reader import (
    MAX_REDIRECTS,
    parse_origin,
    resolve_redirect,
)
from portico.upstream.backends.openapi.request_encoding import EncodedBody, RequestPlan
from portico.upstream.backends.openapi.responses import ApiResponse, to_tool_result
from portico.upstream.backends.tool_connection import (
    ToolConnection,
    make_error_result,
    make_unknown_tool_error,
)
from portico.upstream.protocol import jsonrpc
from portico.upstream.protocol.jsonrpc import Deadline
from portico.upstream.transports.http_errors import (
    MASK,
    ServerUnreachable,
    StreamInterrupted,
    extract_secrets,
    mask_secrets,
)
from portico.upstream.transports.http_headers import redact_url
from portico.upstream.transports.http_sender import CONNECT_TIMEOUT_S
from portico.upstream.transports.proxy import ProxyError, find_proxy

_IDENTITY_ENCODINGS = ("", "identity")
_ZLIB_ENCODINGS = ("gzip", "x-gzip", "deflate")
_AUTO_HEADER_WBITS = zlib.MAX_WBITS | 32
"""Accepts both gzip and zlib headers."""


class DecompressionError(Exception):
    """The response cannot be unpacked; the message says why."""


class BoundedDecompressor:
    """Unpacks the pieces of one response, which was compressed unasked, up to a limit.

    The HTTP client would unpack a piece at once and in full, through as many layers as a server
    names: a few kilobytes can become gigabytes. Some hosts store responses compressed and send them
    so to every client, hence one layer is accepted.
    """

    def __init__(self, encoding: str, max_bytes: int) -> None:
        self.is_over_limit = False
        """Whether there is more data than the limit."""
        self._remaining_bytes = max_bytes
        codec = encoding.strip().lower()
        if codec not in (*_IDENTITY_ENCODINGS, *_ZLIB_ENCODINGS):
            raise DecompressionError(
                f"it was compressed ({codec[:50]}), though it was asked for plainly"
            )
        if codec in _ZLIB_ENCODINGS:
            self._decompressor = zlib.decompressobj(_AUTO_HEADER_WBITS)
        else:
            self._decompressor = None

    def decompress(self, piece: bytes) -> bytes:
        """Return one unpacked piece; sets `is_over_limit` if there is more than the limit."""
        if self._decompressor is not None:
            try:
                piece = self._decompressor.decompress(piece, self._remaining_bytes + 1)
            except zlib.error:
                raise DecompressionError(
                    "it says that it was compressed, but cannot be unpacked"
                ) from None
        self.is_over_limit = len(piece) > self._remaining_bytes
        self._remaining_bytes -= len(piece)
        return piece


def get_ssl_context(url: str) -> ssl.SSLContext:
    """Return the TLS context for a URL; loading certificates is slow, so only for https."""
    # An empty context trusts nobody: a mistake here leads to a refusal, not to a leak.
    if parse_origin(url)[0] == "https":
        return _load_certificates()
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@cache
def _load_certificates() -> ssl.SSLContext:
    return httpx2.create_ssl_context()


def make_proxy(url: str) -> httpx2.Proxy | None:
    """Return the proxy that the environment names for a URL; raises BackendUnavailable."""
    try:
        proxy = find_proxy(urlsplit(url))
    except ProxyError as error:
        raise _make_permanent_error(str(error)) from None
    if proxy is None:
        return None
    headers = {"proxy-authorization": proxy.authorization} if proxy.authorization else {}
    return httpx2.Proxy(f"http://{proxy}", headers=headers)


MAX_CONNECTIONS = 100
MAX_ERROR_BYTES = 1024 * 1024
_ACCEPT = "application/json, text/*;q=0.9, */*;q=0.8"


class OpenApiClient:
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
            proxy=make_proxy(server),
            # The caller has a deadline for the whole request.
            timeout=httpx2.Timeout(None, connect=CONNECT_TIMEOUT_S),
            limits=httpx2.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=16),
        )

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: EncodedBody | None
    ) -> ApiResponse:
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


_SECRET_NAME_PARTS = (
    "auth", "key", "token", "secret", "cookie", "password", "passwd", "sig", "appid", "app_id",
    "credential",
)  # fmt: skip


class OpenApiConnection(ToolConnection):
    noun = "an HTTP API"

    def __init__(
        self,
        name: str,
        api: ApiDescription,
        load_current: Callable[[], Awaitable[ApiDescription]],
        headers: Mapping[str, str],
        query: Mapping[str, str],
        client: OpenApiClient,
    ) -> None:
        """`load_current` reads the description again if it has changed."""
        super().__init__(api.title or name, api.version, api.instructions)
        self._name = name
        self._api = api
        self._load_current = load_current
        self._allowed_origin = parse_origin(api.server)
        """Origin that credentials may go to, even if the description names another one later."""
        self._query = query
        self._client = client
        self._has_listed = False
        self._is_closed = False
        self._has_credentials = any(_is_secret(key) for key in (*headers, *query))
        self._secrets = extract_secrets(
            {key: value for key, value in (*headers.items(), *query.items()) if _is_secret(key)}
        )

    async def call_tool(self, name: str, arguments: Raw, options: RequestOptions) -> Raw:
        plan = self._api.plans.get(name)
        if self._is_closed:
            raise BackendUnavailable(f"{self._name}: the connection was closed")
        if plan is None:
            raise make_unknown_tool_error(name)
        deadline = Deadline(options)
        try:
            async with deadline.timeout:
                return await self._call(plan, arguments)
        except TimeoutError:
            raise jsonrpc.make_timeout_error(
                self._name, f"{plan.method} {plan.path}", options, deadline.elapsed_s
            ) from None

    async def close(self) -> None:
        self._is_closed = True
        await self._client.close()

    async def list_tools(self) -> list[Raw]:
        if self._is_closed:
            raise BackendUnavailable(f"{self._name}: the connection was closed")
        # The description read to connect is recent enough for the first listing.
        if self._has_listed:
            self._api = await self._load_current()
        self._has_listed = True
        return await asyncio.to_thread(self._api.load_definitions)

    async def _call(self, plan: RequestPlan, arguments: Raw) -> Raw:
        if parse_origin(plan.server) != self._allowed_origin:
            scheme, host, port = self._allowed_origin
            return make_error_result(
                f"{plan.method} {plan.path} is on {redact_url(plan.server)}, "
                f"not on {scheme}://{host}:{port}: the gateway does not let a description "
                "send requests to other hosts.\nAdd a second server to the configuration, "
                f"with the same `openapi` and `base_url: {redact_url(plan.server)}`; "
                "or give this one that `base_url` if the whole API has moved there."
            )
        unknown = arguments.keys() - _collect_argument_names(plan)
        if unknown:
            return make_error_result(f"{plan.name} has no argument {', '.join(sorted(unknown))}")
        try:
            url = self._build_url(plan, arguments)
            headers = request_encoding.build_headers(plan, arguments)
            body = request_encoding.encode_body(plan.body, arguments)
        except (request_encoding.UnsendableArgument, TypeError, RecursionError) as error:
            return make_error_result(f"This cannot be sent: {error}")
        response = await self._client.send(plan.method, url, headers, body)
        if len(response.body) < chunked_decoder.LARGE_BYTES:
            return self._build_result(plan, response)
        return await asyncio.to_thread(self._build_result, plan, response)

    def _build_url(self, plan: RequestPlan, arguments: Raw) -> str:
        server, _, server_query = plan.server.partition("?")
        configured = "&".join(
            f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in self._query.items()
        )
        from_arguments = request_encoding.build_query(plan, arguments, self._query)
        parts = (server_query.partition("#")[0], from_arguments, configured)
        query = "&".join(part for part in parts if part)
        url = f"{server.rstrip('/')}{request_encoding.build_path(plan, arguments)}"
        return f"{url}?{query}" if query else url

    def _build_result(self, plan: RequestPlan, response: ApiResponse) -> Raw:
        body = response.body
        for secret in self._secrets:
            body = body.replace(secret.encode(), MASK.encode())
        headers = cast("Mapping[str, str]", mask_secrets(dict(response.headers), self._secrets))
        advice = ""
        if response.status in (401, 403, 407):
            advice = _advise_on_refusal(
                self._name, plan.required_credentials, self._has_credentials
            )
        return to_tool_result(ApiResponse(response.url, response.status, headers, body), advice)


def _collect_argument_names(plan: RequestPlan) -> set[str]:
    names = {parameter.argument for parameter in plan.parameters}
    if plan.body is None:
        return names
    if plan.body.argument:
        return names | {plan.body.argument}
    return names | {part.argument for part in plan.body.fields}


def _is_secret(name: str) -> bool:
    return any(part in name.lower() for part in _SECRET_NAME_PARTS)


def _advise_on_refusal(
    server: str, required_credentials: tuple[str, ...], has_credentials: bool
) -> str:
    what = f"It takes {' or '.join(required_credentials)}. " if required_credentials else ""
    if has_credentials:
        return (
            f"{what}The credentials configured for {server} were not accepted: "
            "expired, or without this permission."
        )
    return (
        f"{what or 'It wants credentials. '}Put that in the configuration of the server {server}."
    )
