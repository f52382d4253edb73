"""The call pipeline: every tool call runs through it, in this order.

Current definition → arguments, repaired if unambiguous → cache → limits of the server → the server,
with retries where the tool may run twice → validation of the result → learned shapes → events →
audit log, written before the result is returned.

The result is the upstream's object unchanged, except for marks in its `_meta` (`results.marks`).
"""

import asyncio
import time
from collections.abc import Awaitable, Mapping
from dataclasses import replace
from typing import Any

from portico.calls.cache import ResultCache
from portico.calls.context import DEFAULT_CONTEXT, CallContext
from portico.calls.definition_tracker import DefinitionTracker, looks_like_schema_mismatch
from portico.calls.elicitation import MULTI_ROUND_METHODS
from portico.calls.elicitation_labels import call_with_labelled_elicitation
from portico.calls.outcome import (
    CANCELLED,
    INTERNAL,
    SUCCESSFUL,
    TOOL_ERROR,
    get_error_kind,
    get_outcome,
)
from portico.calls.param_headers import build_param_headers
from portico.calls.retry import (
    DEFAULT_RETRY_RULE,
    RetryRule,
    compute_backoff,
    mark_possibly_executed,
    should_retry,
)
from portico.calls.server_limiter import Limit, ServerLimiter
from portico.calls.validation import find_mismatches, is_valid, repair_or_raise
from portico.catalog.tool import Tool
from portico.errors import BackendUnavailable, InvalidArguments, RemoteError
from portico.events import CallRefused, EventBus, ToolCalled
from portico.observability.audit import AuditEntry, AuditLog, make_request_entry
from portico.observability.tracing import (
    Span,
    get_trace_id,
    inject_headers,
    inject_meta,
    mark_failed,
    set_call_attributes,
    start_tool_span,
    start_upstream_span,
)
from portico.results.learned_shapes import LearnedShapes
from portico.results.marks import CHANGED, MISMATCH, REPAIRED, add_marks, get_cache_age, strip_marks
from portico.upstream.backend import Raw, RequestOptions
from portico.upstream.lifecycle.supervisor import Upstream
from portico.upstream.protocol.envelope import filter_for_server

_NO_LIMITS: Mapping[str, Limit] = {}
_NO_RETRY_RULES: Mapping[str, RetryRule] = {}
_NO_CLIENT_META: Mapping[str, tuple[str, ...]] = {}
_MIN_TIMEOUT_S = 0.001
"""A call whose time was used up in the queue is still sent, and fails with a timeout error."""


class _CallState:
    """Progress of one call."""

    __slots__ = (
        "arguments",
        "attempts",
        "duration_s",
        "initial_hash",
        "is_cached",
        "is_mismatched",
        "is_validated",
        "outcome",
        "repair_notes",
        "started_at",
        "tool",
    )  # fmt: skip

    def __init__(self, tool: Tool, arguments: Any, initial_hash: str) -> None:
        self.tool = tool
        self.initial_hash = initial_hash
        """Hash of the definition that the call was made by."""
        self.arguments = arguments
        """Arguments as sent; as received until they are validated."""
        self.is_validated = False
        """The arguments fit, so the outcome counts for the tool."""
        self.outcome = INTERNAL
        self.is_cached = False
        self.repair_notes: tuple[str, ...] = ()
        self.attempts = 1
        self.is_mismatched = False
        self.started_at = time.perf_counter()
        """Start of the tool's work; excludes the start of its server."""
        self.duration_s: float | None = None

    def prepare_arguments(self, arguments: Any) -> Raw:
        """Return valid arguments, repaired if necessary; raises InvalidArguments."""
        if isinstance(arguments, dict) and is_valid(self.tool, arguments):
            return arguments
        repair = repair_or_raise(self.tool, arguments)
        self.repair_notes = (*self.repair_notes, *repair.notes)
        self.arguments = repair.arguments
        return repair.arguments

    def finish(self) -> None:
        self.duration_s = time.perf_counter() - self.started_at

    @property
    def elapsed_s(self) -> float:
        """Seconds until now, or until the call finished."""
        if self.duration_s is not None:
            return self.duration_s
        return time.perf_counter() - self.started_at


class CallPipeline:
    """Runs tool calls and other requests to servers."""

    def __init__(
        self,
        upstreams: Mapping[str, Upstream],
        timeouts: Mapping[str, float],
        bus: EventBus,
        *,
        max_call_s: float | None = None,
        cache: ResultCache | None = None,
        shapes: LearnedShapes | None = None,
        limits: Mapping[str, Limit] = _NO_LIMITS,
        retries: Mapping[str, RetryRule] = _NO_RETRY_RULES,
        client_meta: Mapping[str, tuple[str, ...]] = _NO_CLIENT_META,
        changes: DefinitionTracker | None = None,
        audit: AuditLog | None = None,
    ) -> None:
        """Create a pipeline; the optional collaborators may each be left out.

        `timeouts` are seconds of silence allowed by server, `max_call_s` is the maximum duration of
        any call. `limits`, `retries` and `client_meta` (keys of a client's `_meta` to forward) are
        by server.
        """
        self.audit = audit
        """May be replaced or removed at any time."""
        self._upstreams = upstreams
        self._timeouts = timeouts
        self._bus = bus
        self._max_call_s = max_call_s
        self._cache = cache
        self._shapes = shapes
        self._limiters = {
            server: ServerLimiter(server, limit)
            for server, limit in limits.items()
            if not limit.is_unlimited
        }
        self._limits = limits
        self._retries = retries
        self._client_meta = client_meta
        self._changes = changes

    def configure(
        self,
        timeouts: Mapping[str, float],
        limits: Mapping[str, Limit],
        retries: Mapping[str, RetryRule],
        client_meta: Mapping[str, tuple[str, ...]] = _NO_CLIENT_META,
    ) -> None:
        """Apply new timeouts, limits and retry rules. Calls queued at an unchanged limiter stay
        queued."""
        self._timeouts = timeouts
        self._retries = retries
        self._client_meta = client_meta
        unchanged = {
            server: limiter
            for server, limiter in self._limiters.items()
            if limits.get(server) == self._limits[server]
        }
        created = {
            server: ServerLimiter(server, limit)
            for server, limit in limits.items()
            if not limit.is_unlimited
        }
        self._limiters = {**created, **unchanged}
        self._limits = limits

    async def call(self, tool: Tool, arguments: Any, context: CallContext = DEFAULT_CONTEXT) -> Raw:
        """Run a tool and return its raw result.

        Raises InvalidArguments, DefinitionChanged, BackendUnavailable (and its kinds), RemoteError.
        """
        with start_tool_span(tool.address, tool.hash, context.extra.get("_meta")) as span:
            state = _CallState(
                self._changes.get_current(tool) if self._changes else tool, arguments, tool.hash
            )
            try:
                result = await self._execute(state, arguments, context)
                state.outcome = get_outcome(result)
                if state.outcome == TOOL_ERROR:
                    mark_failed(span, TOOL_ERROR)
            except BaseException as error:
                state.outcome = get_error_kind(error)
                raise
            finally:
                set_call_attributes(
                    span,
                    attempts=state.attempts,
                    repaired=bool(state.repair_notes),
                    mismatched=state.is_mismatched,
                    cached=state.is_cached,
                )
                self._record_outcome(state, context, span)
                if self.audit is not None and self.audit.sync and state.outcome != CANCELLED:
                    await self.audit.wait_for_sync()
            return result

    async def _execute(self, state: _CallState, arguments: Any, context: CallContext) -> Raw:
        prepared = self._prepare_arguments(state, arguments, context)
        state.is_validated = True
        try:
            if self._cache is None or context.is_continuation:
                result = await self._call_server(state, prepared, context)
            else:
                result = await self._cache.get_or_call(
                    state.tool,
                    prepared,
                    context.caller,
                    lambda: self._call_server(state, prepared, context),
                )
                state.is_cached = get_cache_age(result) is not None
            state.finish()
            if (
                result.get("isError")
                and self._changes is not None
                and looks_like_schema_mismatch(result)
            ):
                await self._refresh_definition(state, self._changes)
            return self._mark_result(state, result, context)
        except RemoteError as error:
            state.finish()
            if self._changes is not None and looks_like_schema_mismatch(error):
                await self._refresh_definition(state, self._changes)
                error.advice = error.advice or self._describe_change(state, context)
            raise

    def _record_outcome(self, state: _CallState, context: CallContext, span: Span) -> None:
        """Publish the event of a finished call and write its audit entry."""
        tool = state.tool
        outcome = state.outcome
        seconds = state.elapsed_s
        cancelled = outcome == CANCELLED
        ok = outcome in SUCCESSFUL
        if state.is_validated:
            if ok or cancelled:
                error = ""
            else:
                error = outcome
            self._bus.publish(
                ToolCalled(
                    tool.address,
                    tool.hash,
                    seconds,
                    ok,
                    context.caller,
                    cancelled,
                    state.is_cached,
                    error,
                )
            )
        else:
            self._bus.publish(CallRefused(tool.address, outcome))
        if self.audit is not None:
            self.audit.write(
                AuditEntry(
                    tool.address,
                    tool.hash,
                    state.arguments,
                    outcome,
                    context.caller,
                    context.via,
                    seconds,
                    state.attempts,
                    state.is_cached,
                    bool(state.repair_notes),
                    get_trace_id(span),
                    tool.is_destructive,
                )
            )

    async def record_refusal(
        self, name: str, arguments: Any, context: CallContext, error: BaseException
    ) -> None:
        """Write an audit entry for a call refused because no tool has that name."""
        if self.audit is not None:
            self.audit.write(
                AuditEntry(
                    name,
                    "",
                    arguments,
                    get_error_kind(error),
                    context.caller,
                    context.via,
                    attempts=0,
                )
            )
            await self.audit.wait_for_sync()

    async def request(
        self, server: str, method: str, params: Raw | None, context: CallContext = DEFAULT_CONTEXT
    ) -> Raw:
        """Send any other request to a server: resources, prompts, completion, unlisted tools."""
        if self.audit is None:
            return await self._request_with_elicitation(server, method, params, context)
        audit = self.audit
        outcome = INTERNAL
        started = time.perf_counter()
        try:
            result = await self._request_with_elicitation(server, method, params, context)
            outcome = get_outcome(result)
        except BaseException as error:
            outcome = get_error_kind(error)
            raise
        finally:
            seconds = time.perf_counter() - started
            audit.write(
                make_request_entry(
                    server, method, params or {}, outcome, context.caller, context.via, seconds
                )
            )
            if outcome != CANCELLED:
                await audit.wait_for_sync()
        return result

    async def _request_with_elicitation(
        self, server: str, method: str, params: Raw | None, context: CallContext
    ) -> Raw:
        context = context.label_elicitations(server)
        if params is None or method not in MULTI_ROUND_METHODS:
            return await self._send_request(server, method, params, context)

        def send(sent_params: Mapping[str, Any]) -> Awaitable[Raw]:
            return self._send_request(server, method, dict(sent_params), context)

        return await call_with_labelled_elicitation(
            server, send, params, context.relay, is_multi_round=context.is_multi_round
        )

    async def _send_request(
        self, server: str, method: str, params: Raw | None, context: CallContext
    ) -> Raw:
        upstream = self._get_upstream(server)
        if params:
            name = params.get("name")
        else:
            name = None
        with start_upstream_span(
            method, name if isinstance(name, str) else "", server, upstream.backend.kind
        ) as span:
            if params is not None:
                sent = inject_meta(span, self._filter_params(server, params))
            else:
                sent = None
            options = RequestOptions(
                self._timeouts.get(server),
                context.relay,
                inject_headers(span, {}),
                self._max_call_s,
            )
            return await upstream.request(method, sent, options, context.caller.instance_key)

    # --- sending a call

    def _prepare_arguments(self, state: _CallState, arguments: Any, context: CallContext) -> Raw:
        if self._changes is not None:
            self._changes.check_unchanged(
                state.initial_hash, state.tool, context.caller, context.via
            )
        try:
            return state.prepare_arguments(arguments)
        except InvalidArguments as error:
            if change := self._describe_change(state, context):
                raise InvalidArguments(
                    error.message, problems=error.problems, advice=change
                ) from error
            raise

    async def _call_server(self, state: _CallState, arguments: Raw, context: CallContext) -> Raw:
        server = state.tool.server
        context = context.label_elicitations(server)
        upstream = self._get_upstream(server)
        was_stopped = upstream.any_connection is None
        await upstream.ensure_started(context.caller.instance_key)
        if was_stopped and self._changes is not None:
            await self._changes.wait_for_listing(server)
        limiter = self._limiters.get(server)
        spent_s = context.queued_s
        if limiter is not None:
            queued_at = time.perf_counter()
            # In use, so that the instance is not evicted for another caller's while this waits.
            with upstream.in_use(context.caller.instance_key):
                await limiter.acquire(
                    _reduce_timeout(self._get_queue_timeout(server), context.queued_s),
                    context.caller.owner,
                )
            spent_s += time.perf_counter() - queued_at
        try:
            if (was_stopped or spent_s > _MIN_TIMEOUT_S) and self._changes is not None:
                current = self._changes.get_current(state.tool)
                if current is not state.tool:
                    state.tool = current
                    arguments = self._prepare_arguments(state, arguments, context)
            state.started_at = time.perf_counter()

            def send(extra: Mapping[str, Any]) -> Awaitable[Raw]:
                if extra is context.extra:
                    sent_context = context
                else:
                    sent_context = replace(context, extra=extra)
                return self._send_with_retries(upstream, state, arguments, sent_context, spent_s)

            # Keeps the instance in use between two rounds of input requests, when nothing is sent.
            with upstream.in_use(context.caller.instance_key):
                answer = await call_with_labelled_elicitation(
                    server,
                    send,
                    context.extra,
                    context.relay,
                    is_multi_round=context.is_multi_round,
                )
            result = strip_marks(answer)
        finally:
            if limiter is not None:
                limiter.release(context.caller.owner)
        if problems := find_mismatches(state.tool, result):
            state.is_mismatched = True
            result = add_marks(result, {MISMATCH: list(problems)})
        if self._shapes is not None:
            self._shapes.learn(state.tool, result)
        return result

    async def _send_with_retries(
        self,
        upstream: Upstream,
        state: _CallState,
        arguments: Raw,
        context: CallContext,
        spent_s: float,
    ) -> Raw:
        tool = state.tool
        extra = self._filter_params(tool.server, context.extra)
        params: Raw = {**extra, "name": tool.upstream_name, "arguments": arguments}
        headers = build_param_headers(tool, arguments)
        timeout_s = self._timeouts.get(tool.server)
        max_call_s = self._max_call_s
        while True:
            was_connected = upstream.get_connection(context.caller.instance_key) is not None
            try:
                with start_upstream_span(
                    "tools/call", tool.upstream_name, tool.server, upstream.backend.kind
                ) as span:
                    sent_headers = inject_headers(span, headers)
                    options = RequestOptions(
                        _reduce_timeout(timeout_s, spent_s),
                        context.relay,
                        sent_headers,
                        _reduce_timeout(max_call_s, spent_s),
                    )
                    if span.is_recording():
                        span.set_attributes(_build_connection_attributes(upstream, context, state))
                    return await upstream.request(
                        "tools/call",
                        inject_meta(span, params),
                        options,
                        context.caller.instance_key,
                    )
            except BackendUnavailable as error:
                rule = self._retries.get(tool.server, DEFAULT_RETRY_RULE)
                if context.is_continuation or not should_retry(rule, tool, error, state.attempts):
                    if was_connected:
                        mark_possibly_executed(rule, tool, error)
                    raise
                backoff_s = compute_backoff(state.attempts)
                spent_s += time.perf_counter() - state.started_at + backoff_s
                if max_call_s is not None and spent_s >= max_call_s:
                    raise
            await asyncio.sleep(backoff_s)
            state.attempts += 1
            upstream = self._get_upstream(tool.server)  # it may have been replaced
            await upstream.ensure_started(context.caller.instance_key)
            state.started_at = time.perf_counter()

    def _get_upstream(self, server: str) -> Upstream:
        upstream = self._upstreams.get(server)
        if upstream is None:
            raise BackendUnavailable(f"{server} is not running here")
        return upstream

    def _filter_params(self, server: str, params: Mapping[str, Any]) -> Raw:
        if "_meta" in params:
            return filter_for_server(params, self._client_meta.get(server, ()))
        return dict(params)

    def _get_queue_timeout(self, server: str) -> float | None:
        bounds = [
            bound for bound in (self._timeouts.get(server), self._max_call_s) if bound is not None
        ]
        if bounds:
            return min(bounds)
        return None

    # --- marks and advice

    async def _refresh_definition(self, state: _CallState, changes: DefinitionTracker) -> None:
        """List the server again after an error that looks like another definition."""
        await changes.relist_after_mismatch(state.tool)
        state.tool = changes.get_current(state.tool)

    def _mark_result(self, state: _CallState, result: Raw, context: CallContext) -> Raw:
        marks: Raw = {}
        if state.repair_notes:
            marks[REPAIRED] = list(state.repair_notes)
        if self._changes is not None and (
            old_hash := self._changes.take_unseen_change(context.caller, state.tool)
        ):
            difference = self._changes.compare_to_hash(old_hash, state.tool)
            marks[CHANGED] = {
                "tool": state.tool.address,
                "hash": state.tool.hash,
                "was": old_hash,
                "changes": list(difference.notes),
            }
        if marks:
            return add_marks(result, marks)
        return result

    def _describe_change(self, state: _CallState, context: CallContext) -> str:
        if self._changes is not None:
            return self._changes.describe_change(state.initial_hash, state.tool, context.caller)
        return ""


def _build_connection_attributes(
    upstream: Upstream, context: CallContext, state: _CallState
) -> dict[str, str | int]:
    connection = upstream.get_connection(context.caller.instance_key)
    if connection:
        attributes = {
            "mcp.protocol.version": connection.initialize_info.protocol_version,
            "portico.era": connection.initialize_info.era,
        }
    else:
        attributes = {}
    return {**attributes, "portico.attempt": state.attempts}


def _reduce_timeout(timeout_s: float | None, spent_s: float) -> float | None:
    if timeout_s is None:
        return None
    if spent_s:
        return max(_MIN_TIMEOUT_S, timeout_s - spent_s)
    return timeout_s
