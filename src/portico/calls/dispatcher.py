"""The last part of the pipeline: the server's limits, retries, the request, a check of its result.

limit           starts the server, and waits until its limits admit the call
retry           calls again where the connection was lost and the tool may run twice
send_and_check  sends the request, and compares the result with the tool's output schema

A tool may run twice if it is annotated as read-only or idempotent, the configuration names it, or
the server cannot have begun. Timeouts, busy servers and errors that the server returned are never
retried.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

from portico.calls.call import Call, Handler, ServerRequest
from portico.calls.definition_tracker import DefinitionTracker
from portico.calls.server_task import declare_tasks, declares_tasks, is_task
from portico.calls.validation import find_mismatches
from portico.catalog.skills import is_skill, parse_skill, select_file, to_result
from portico.catalog.tool import Tool
from portico.config import BackendConfig
from portico.config.backend import RetryConfig
from portico.errors import BackendBusy, BackendTimeout, BackendUnavailable, PorticoError
from portico.fair_limiter import FairLimiter, LimitExceeded, LimitSettings
from portico.json_text import json_codec
from portico.observability.tracing import Span, inject_headers, inject_meta, start_upstream_span
from portico.policy.rules import NO_RULES, RuleSet
from portico.results.learned_shapes import LearnedShapes
from portico.results.result_meta import MISMATCH, add_gateway_meta, strip_gateway_meta
from portico.upstream.backend import Raw, RequestOptions
from portico.upstream.lifecycle.server_lifecycle import MAX_CALL_S
from portico.upstream.lifecycle.supervisor import Upstream
from portico.upstream.protocol.envelope import filter_for_server
from portico.upstream.secret_reader import SecretReader

FIRST_BACKOFF_S = 0.1
MAX_BACKOFF_S = 2.0
_MIN_TIMEOUT_S = 0.001
"""A call whose time was used up in the queue is still sent, and fails with a timeout error."""
_DEFAULT_RETRY = RetryConfig()


def can_run_twice(tool: Tool, globs: Iterable[str] = ()) -> bool:
    """Return whether a tool may run twice: by its annotations, or by one of these globs."""
    hints = tool.annotations
    if hints.get("readOnlyHint") is True or hints.get("idempotentHint") is True:
        return True
    return any(fnmatchcase(tool.name, glob) for glob in globs)


def should_retry(rule: RetryConfig, tool: Tool, error: PorticoError, attempt: int) -> bool:
    """Return whether to retry after `error` at this attempt (1 is the first)."""
    if attempt > rule.times or not error.retryable:
        return False
    if isinstance(error, BackendTimeout | BackendBusy):
        return False
    may_have_begun = not isinstance(error, BackendUnavailable) or error.may_have_begun
    return not may_have_begun or can_run_twice(tool, rule.tools)


def mark_possibly_executed(rule: RetryConfig, tool: Tool, error: BackendUnavailable) -> None:
    """Make the error non-retryable with advice, if a tool that must not run twice may have run."""
    if isinstance(error, BackendBusy) or not (error.was_sent and error.may_have_begun):
        return
    if rule.times > 0 and can_run_twice(tool, rule.tools):
        return
    error.retryable = False
    error.advice = "It may have run: find out before you call it again."
    if isinstance(error, BackendTimeout):
        error.advice += " A longer wait is this server's timeouts.call_s."


def compute_backoff(attempt: int) -> float:
    """Return the seconds to wait before the next attempt."""
    return min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** (attempt - 1))


@dataclass(frozen=True)
class CallSettings:
    """Settings of the servers by name, the longest call in seconds, the rules, and what reads the
    secrets among fixed arguments."""

    servers: Mapping[str, BackendConfig] = field(default_factory=dict)
    max_call_s: float = MAX_CALL_S
    rules: RuleSet = NO_RULES
    secrets: SecretReader | None = None


class ServerLimiter(FairLimiter):
    """Limiter of one server: concurrent calls and calls per second; bound to one event loop.

    The queue is fair between callers and first-in-first-out for each: a script that makes two
    hundred calls delays any other caller by one call at most. A full queue rejects at once, and
    queueing time is deducted from the call's timeout. A server without limits has no limiter.
    """

    def __init__(
        self, server: str, limits: LimitSettings, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(limits, clock=clock)
        self._server = server

    async def acquire(self, key: str, timeout_s: float | None) -> None:
        """Acquire a slot within `timeout_s`, else raise BackendBusy. Pair with `release`."""
        try:
            await super().acquire(key, timeout_s)
        except LimitExceeded as refused:
            raise BackendBusy(
                f"{self._server} is busy: {refused.reason}",
                advice=f"Nothing was sent. Try again in {refused.retry_after_s:g} s, "
                "or make fewer calls at once.",
                retry_after_s=refused.retry_after_s,
            ) from None


class Dispatcher:
    """Sends calls and other requests to servers, within their limits."""

    def __init__(
        self,
        upstreams: Mapping[str, Upstream],
        settings: CallSettings,
        shapes: LearnedShapes,
        definitions: DefinitionTracker | None,
    ) -> None:
        self._upstreams = upstreams
        self._shapes = shapes
        self._definitions = definitions
        self._max_call_s = settings.max_call_s
        self._servers: Mapping[str, BackendConfig] = {}
        self._timeouts: dict[str, float] = {}
        self._limiters: dict[str, ServerLimiter] = {}
        self.configure(settings.servers)

    def configure(self, servers: Mapping[str, BackendConfig]) -> None:
        """Apply new settings; calls queued at an unchanged limit stay queued."""
        limiters: dict[str, ServerLimiter] = {}
        for name, server in servers.items():
            limits = server.limits
            limiter = self._limiters.get(name)
            if limiter is not None and limits == self._servers[name].limits:
                limiters[name] = limiter
            elif limits.concurrency > 0 or limits.rate_per_s > 0:
                limiters[name] = ServerLimiter(name, limits)
            self._timeouts[name] = min(server.timeouts.call_s, self._max_call_s)
        self._limiters = limiters
        self._servers = servers

    async def limit(self, call: Call, call_next: Handler[Call]) -> Raw:
        """Middleware: start the server, then hold one of its slots during the call.

        The instance is in use meanwhile, so that it is not evicted for another caller's while this
        waits, or between two rounds of input requests.
        """
        caller = call.context.caller
        call.upstream = upstream = self._get_upstream(call.server)
        may_have_changed = call.has_waited or call.spent_s > _MIN_TIMEOUT_S
        key = upstream.select_key(caller)
        if upstream.get_connection(key) is None:
            was_stopped = upstream.any_connection is None
            asked_at = time.perf_counter()
            try:
                await upstream.ensure_started(key)
            finally:
                call.server_start_s = time.perf_counter() - asked_at
            if was_stopped and self._definitions is not None:
                await self._definitions.wait_for_listing(call.server)
                may_have_changed = True
        limiter = self._limiters.get(call.server)
        with upstream.in_use(key):
            if limiter is not None and not limiter.try_acquire(caller.owner):
                queued_at = time.perf_counter()
                await limiter.acquire(caller.owner, self._get_timeout(call.server, call.spent_s))
                call.server_queue_s = time.perf_counter() - queued_at
                call.spent_s += call.server_queue_s
                may_have_changed = True
            try:
                if may_have_changed and self._definitions is not None:
                    self._definitions.recheck(call)
                call.started_at = time.perf_counter()
                return await call_next(call)
            finally:
                if limiter is not None:
                    limiter.release(caller.owner)

    async def retry(self, call: Call, call_next: Handler[Call]) -> Raw:
        """Middleware: repeat a call whose connection was lost, if the tool may run twice."""
        while True:
            assert call.upstream is not None
            key = call.upstream.select_key(call.context.caller)
            was_connected = call.upstream.get_connection(key) is not None
            try:
                return await call_next(call)
            except BackendUnavailable as error:
                server = self._servers.get(call.server)
                rule = server.retry if server is not None else _DEFAULT_RETRY
                if call.is_continuation or not should_retry(rule, call.tool, error, call.attempts):
                    if was_connected:
                        mark_possibly_executed(rule, call.tool, error)
                    raise
                backoff_s = compute_backoff(call.attempts)
                call.spent_s += time.perf_counter() - call.started_at + backoff_s
                if call.spent_s >= self._max_call_s:
                    raise
            await asyncio.sleep(backoff_s)
            call.attempts += 1
            call.upstream = self._get_upstream(call.server)  # it may have been replaced
            await call.upstream.ensure_started(call.upstream.select_key(call.context.caller))
            call.started_at = time.perf_counter()

    async def send_and_check(self, call: Call) -> Raw:
        """Send a call; marks a result that does not fit the output schema, and learns its shape."""
        tool = call.tool
        upstream = call.upstream
        assert upstream is not None
        if is_skill(tool):
            return await self._read_skill(call, upstream)
        params = dict(call.params)
        if "_meta" in params:
            params = self._filter_meta(call.server, params)
        arguments = call.arguments if call.server_arguments is None else call.server_arguments
        params["name"] = tool.upstream_name
        params["arguments"] = arguments
        headers: Mapping[str, str] = {}
        if header_map := _get_header_map(tool.own_blob or tool.blob):
            headers = _build_param_headers(header_map, arguments)
        with start_upstream_span(
            call.method, tool.upstream_name, call.server, upstream.backend.kind
        ) as span:
            if span.is_recording():
                params = inject_meta(span, params)
                headers = inject_headers(span, headers)
                _describe_connection(span, upstream, call)
            options = RequestOptions(
                self._get_timeout(call.server, call.spent_s),
                call.relay,
                headers,
                max(_MIN_TIMEOUT_S, self._max_call_s - call.spent_s),
            )
            key = upstream.select_key(call.context.caller)
            connection = upstream.get_connection(key)
            if connection is not None and declares_tasks(connection.initialize_info):
                params = declare_tasks(params, known=call.context.task_mode != "none")
            result = await upstream.request(call.method, params, options, key)
        if is_task(result):
            return result
        return self.check_result(call, result)

    async def _read_skill(self, call: Call, upstream: Upstream) -> Raw:
        """Read the file of a skill that a call asks for, and check that it is the listed one."""
        skill = parse_skill(call.tool)
        path = select_file(skill, call.arguments)
        options = RequestOptions(
            self._get_timeout(call.server, call.spent_s),
            call.relay,
            total_timeout=max(_MIN_TIMEOUT_S, self._max_call_s - call.spent_s),
        )
        params = self._filter_meta(call.server, {**call.params, "uri": skill.root + path})
        key = upstream.select_key(call.context.caller)
        read = await upstream.request("resources/read", params, options, key)
        if read.get("resultType", "complete") != "complete":
            return read
        return await asyncio.to_thread(to_result, skill, path, read)

    def check_result(self, call: Call, result: Raw) -> Raw:
        """Return the result of a tool, marked if it does not fit the output schema."""
        tool = call.tool
        result = strip_gateway_meta(result)
        if problems := find_mismatches(tool, result):
            call.is_mismatched = True
            result = add_gateway_meta(result, {MISMATCH: list(problems)})
        self._shapes.learn(tool, result)
        return result

    async def send_about_task(self, call: Call, method: str, params: Raw) -> Raw:
        """Send `tasks/get`, `tasks/update` or `tasks/cancel` about the task of a call."""
        upstream = self._get_upstream(call.server)
        declared = declare_tasks(
            self._filter_meta(call.server, {"_meta": call.params.get("_meta")})
        )
        options = RequestOptions(
            self._get_timeout(call.server, 0.0), total_timeout=self._max_call_s
        )
        key = upstream.select_key(call.context.caller)
        return await upstream.request(method, {**declared, **params}, options, key)

    def get_upstream(self, server: str) -> Upstream:
        """Return a server; raises BackendUnavailable if it does not run here."""
        return self._get_upstream(server)

    async def send_request(self, request: ServerRequest) -> Raw:
        """Send a request that is not a call of a tool in the catalog."""
        server = request.server
        upstream = self._get_upstream(server)
        params = request.params
        name = params.get("name") if params else None
        target = name if isinstance(name, str) else ""
        with start_upstream_span(request.method, target, server, upstream.backend.kind) as span:
            sent = None
            if params is not None:
                sent = inject_meta(span, self._filter_meta(server, params))
            options = RequestOptions(
                self._get_timeout(server, 0.0),
                request.relay,
                inject_headers(span, {}),
                self._max_call_s,
            )
            key = upstream.select_key(request.context.caller)
            return await upstream.request(request.method, sent, options, key)

    def _get_upstream(self, server: str) -> Upstream:
        upstream = self._upstreams.get(server)
        if upstream is None:
            raise BackendUnavailable(f"{server} is not running here")
        return upstream

    def _get_timeout(self, server: str, spent_s: float) -> float:
        return max(_MIN_TIMEOUT_S, self._timeouts.get(server, self._max_call_s) - spent_s)

    def _filter_meta(self, server: str, params: Mapping[str, Any]) -> Raw:
        settings = self._servers.get(server)
        return filter_for_server(params, settings.client_meta if settings is not None else ())


def _describe_connection(span: Span, upstream: Upstream, call: Call) -> None:
    span.set_attribute("portico.attempt", call.attempts)
    if connection := upstream.get_connection(upstream.select_key(call.context.caller)):
        info = connection.initialize_info
        span.set_attribute("mcp.protocol.version", info.protocol_version)
        span.set_attribute("portico.era", info.era)


@lru_cache(maxsize=1_024)
def _get_header_map(definition: bytes) -> Mapping[tuple[str, ...], str]:
    """Return the arguments that a modern server wants mirrored in `Mcp-Param-*` headers."""
    if b'"x-mcp-header"' not in definition:
        return {}
    from mcp.shared.inbound import find_invalid_x_mcp_header, x_mcp_header_map

    schema = json_codec.loads(definition).get("inputSchema")
    if not isinstance(schema, dict) or find_invalid_x_mcp_header(schema):
        return {}
    return x_mcp_header_map(schema)


def _build_param_headers(
    header_map: Mapping[tuple[str, ...], str], arguments: Raw
) -> Mapping[str, str]:
    from mcp.shared.inbound import mcp_param_headers

    return mcp_param_headers(header_map, arguments)
