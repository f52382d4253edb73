"""Connection to an HTTP API: lists and calls its operations; holds only pooled connections."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast
from urllib.parse import quote

from portico.errors import INVALID_PARAMS, METHOD_NOT_FOUND, BackendUnavailable, RemoteError
from portico.json_text import chunked_decoder
from portico.upstream.backend import NO_OPTIONS, InitializeInfo, Raw, RequestOptions
from portico.upstream.backends.openapi import parameter_styles, request_bodies
from portico.upstream.backends.openapi.description import security_schemes
from portico.upstream.backends.openapi.description.loader import ApiDescription
from portico.upstream.backends.openapi.http_client import OpenApiClient
from portico.upstream.backends.openapi.request_plans import RequestPlan
from portico.upstream.backends.openapi.responses import (
    ApiResponse,
    make_error_result,
    to_tool_result,
)
from portico.upstream.backends.openapi.urls import parse_origin
from portico.upstream.protocol import jsonrpc
from portico.upstream.protocol.deadline import Deadline
from portico.upstream.protocol.envelope import MODERN_VERSION
from portico.upstream.transports.http_errors import MASK, extract_secrets, mask_secrets
from portico.upstream.transports.http_headers import redact_url

_SECRET_NAME_PARTS = (
    "auth",
    "key",
    "token",
    "secret",
    "cookie",
    "password",
    "passwd",
    "sig",
    "appid",
    "app_id",
    "credential",
)


class OpenApiConnection:
    """Connection to one API."""

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
        info = {"name": api.title or name, "version": api.version}
        self._initialize_info = InitializeInfo(
            "modern", MODERN_VERSION, {"tools": {}}, info, api.instructions
        )

    @property
    def initialize_info(self) -> InitializeInfo:
        return self._initialize_info

    async def request(
        self, method: str, params: Raw | None = None, options: RequestOptions = NO_OPTIONS
    ) -> Raw:
        """List the operations or call one."""
        if self._is_closed:
            raise BackendUnavailable(f"{self._name}: the connection was closed")
        if method == "tools/list":
            return {"tools": await self._list_definitions()}
        if method != "tools/call":
            raise RemoteError(METHOD_NOT_FOUND, f"{method} is not available on an HTTP API")
        params = params or {}
        plan = self._api.plans.get(str(params.get("name")))
        if plan is None:
            raise RemoteError(INVALID_PARAMS, f"Unknown tool: {params.get('name')}")
        arguments = params.get("arguments")
        if not isinstance(arguments, dict):
            arguments = {}
        deadline = Deadline(options)
        try:
            async with deadline.timeout:
                return await self._call(plan, cast(Raw, arguments))
        except TimeoutError:
            raise jsonrpc.make_timeout_error(
                self._name, f"{plan.method} {plan.path}", options, deadline.elapsed_s
            ) from None

    async def notify(self, method: str, params: Raw | None = None) -> None:
        """Ignore the notification."""

    async def close(self) -> None:
        """Close the HTTP client."""
        self._is_closed = True
        await self._client.close()

    async def _list_definitions(self) -> list[Raw]:
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
            headers = parameter_styles.build_headers(plan, arguments)
            body = request_bodies.encode_body(plan.body, arguments)
        except (parameter_styles.UnsendableArgument, TypeError, RecursionError) as error:
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
        from_arguments = parameter_styles.build_query(plan, arguments, self._query)
        parts = (server_query.partition("#")[0], from_arguments, configured)
        query = "&".join(part for part in parts if part)
        url = f"{server.rstrip('/')}{parameter_styles.build_path(plan, arguments)}"
        return f"{url}?{query}" if query else url

    def _build_result(self, plan: RequestPlan, response: ApiResponse) -> Raw:
        body = response.body
        for secret in self._secrets:
            body = body.replace(secret.encode(), MASK.encode())
        headers = cast("Mapping[str, str]", mask_secrets(dict(response.headers), self._secrets))
        advice = ""
        if response.status in (401, 403, 407):
            advice = security_schemes.advise_on_refusal(
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
    lower: Any = name.lower()
    return any(word in lower for word in _SECRET_NAME_PARTS)
