"""A conversation with an HTTP API: its operations are listed and called. Nothing is held but pooled connections."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast
from urllib.parse import quote

from portico.errors import INVALID_PARAMS, METHOD_NOT_FOUND, BackendUnavailable, RemoteError
from portico.upstream import json_windows, jsonrpc
from portico.upstream.backend import NO_OPTIONS, Ask, Hello, Raw
from portico.upstream.envelope import MODERN_VERSION
from portico.upstream.http_headers import safe_url
from portico.upstream.http_refusal import MASK, masked, secrets_in
from portico.upstream.openapi import advice, bodies, styles
from portico.upstream.openapi.addresses import origin
from portico.upstream.openapi.answers import Answer, failure, result
from portico.upstream.openapi.exchange import Exchange
from portico.upstream.openapi.loading import Api
from portico.upstream.openapi.plans import Plan
from portico.upstream.patience import Patience

_LARGE = 2**18
"""Bytes of a reply from which it is made a result in a thread."""
_SECRET = ("auth", "key", "token", "secret", "cookie", "password", "passwd", "sig", "appid", "app_id", "credential")


class OpenApiConnection:
    """A conversation."""

    def __init__(
        self,
        name: str,
        api: Api,
        current: Callable[[], Awaitable[Api]],
        headers: Mapping[str, str],
        query: Mapping[str, str],
        exchange: Exchange,
    ) -> None:
        """`current` reads the description again, where it has changed."""
        self._name, self._api, self._current = name, api, current
        self._home = origin(api.server)
        """Where the credentials may go, also when the description names another host one day."""
        self._query = query
        self._exchange = exchange
        self._listed = False
        self._closed = False
        self._credentials = any(_is_secret(key) for key in (*headers, *query))
        self._secrets = secrets_in({key: value for key, value in (*headers.items(), *query.items()) if _is_secret(key)})
        info = {"name": api.title or name, "version": api.version}
        self._hello = Hello("modern", MODERN_VERSION, {"tools": {}}, info, api.instructions)

    @property
    def hello(self) -> Hello:
        return self._hello

    async def request(self, method: str, params: Raw | None = None, ask: Ask = NO_OPTIONS) -> Raw:
        """List the operations or call one."""
        if self._closed:
            raise BackendUnavailable(f"{self._name}: the connection was closed")
        if method == "tools/list":
            return {"tools": await self._definitions()}
        if method != "tools/call":
            raise RemoteError(METHOD_NOT_FOUND, f"{method} is not available on an HTTP API")
        params = params or {}
        plan = self._api.plans.get(str(params.get("name")))
        if plan is None:
            raise RemoteError(INVALID_PARAMS, f"Unknown tool: {params.get('name')}")
        given = params.get("arguments")
        patience = Patience(ask)
        try:
            async with patience.clock:
                return await self._call(plan, cast(Raw, given) if isinstance(given, dict) else {})
        except TimeoutError:
            raise jsonrpc.timed_out(self._name, f"{plan.method} {plan.path}", ask, patience.waited) from None

    async def notify(self, method: str, params: Raw | None = None) -> None:
        """An API takes no notifications."""

    async def close(self) -> None:
        """Hang up."""
        self._closed = True
        await self._exchange.close()

    async def _definitions(self) -> list[Raw]:
        # What was read to connect is new enough for the first listing.
        if self._listed:
            self._api = await self._current()
        self._listed = True
        return await asyncio.to_thread(self._api.definitions)

    async def _call(self, plan: Plan, arguments: Raw) -> Raw:
        if origin(plan.server) != self._home:
            scheme, host, port = self._home
            return failure(
                f"{plan.method} {plan.path} is on {safe_url(plan.server)}, not on {scheme}://{host}:{port}: the "
                "gateway does not let a description send requests to other hosts.\nAdd a second server to the "
                f"configuration, with the same `openapi` and `base_url: {safe_url(plan.server)}`; or give this one "
                "that `base_url` if the whole API has moved there."
            )
        unknown = arguments.keys() - _arguments(plan)
        if unknown:
            return failure(f"{plan.name} has no argument {', '.join(sorted(unknown))}")
        try:
            url, headers = self._address(plan, arguments), styles.headers(plan, arguments)
            body = bodies.made(plan.body, arguments)
        except (styles.Unsendable, TypeError, RecursionError) as error:
            return failure(f"This cannot be sent: {error}")
        answer = await self._exchange.ask(plan.method, url, headers, body)
        if len(answer.body) < _LARGE:
            if len(answer.body) < json_windows.LARGE:
                return self._result(plan, answer)
            return await asyncio.to_thread(self._result, plan, answer)
        return await asyncio.to_thread(self._result, plan, answer)

    def _address(self, plan: Plan, arguments: Raw) -> str:
        server, _, own = plan.server.partition("?")
        fixed = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in self._query.items())
        asked = styles.query(plan, arguments, self._query)
        query = "&".join(part for part in (own.partition("#")[0], asked, fixed) if part)
        return f"{server.rstrip('/')}{styles.path(plan, arguments)}{'?' if query else ''}{query}"

    def _result(self, plan: Plan, answer: Answer) -> Raw:
        body = answer.body
        for secret in self._secrets:
            body = body.replace(secret.encode(), MASK.encode())
        headers = cast("Mapping[str, str]", masked(dict(answer.headers), self._secrets))
        said = ""
        if answer.status in (401, 403, 407):
            said = advice.refused(self._name, plan.security, self._credentials)
        return result(Answer(answer.url, answer.status, headers, body), said)


def _arguments(plan: Plan) -> set[str]:
    found = {slot.argument for slot in plan.slots}
    if plan.body is not None:
        found |= {plan.body.argument} if plan.body.argument else {part.argument for part in plan.body.parts}
    return found


def _is_secret(name: str) -> bool:
    lower: Any = name.lower()
    return any(word in lower for word in _SECRET)
