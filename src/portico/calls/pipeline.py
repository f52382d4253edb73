"""The one pipeline: every call of a tool, whoever makes it, goes this way and no other.

The definition as it is now → arguments that fit, repaired where that is certain → cache → the
server's limits → the server, once more where it was lost and the tool may run twice → is it what
the tool declares → learn → record → the audit log, before anybody has the answer.

The answer is the upstream's result object, untouched; whatever there is to say of it is in its
`_meta` (`marks`).
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
"""A call that waited for its turn until its time was up still gets an answer that says so."""


class _CallState:
    """One call on its way."""

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
        """The definition that the call was made by."""
        self.arguments = arguments
        """As they are sent; as they were given, as long as they do not fit."""
        self.is_validated = False
        """The arguments fit: from here on it is the tool's success or failure."""
        self.outcome = INTERNAL
        self.is_cached = False
        self.repair_notes: tuple[str, ...] = ()
        self.attempts = 1
        self.is_mismatched = False
        self.started_at = time.perf_counter()
        """Since when the tool is at work: a server that has to be started first is no slower for
        it."""
        self.duration_s: float | None = None

    def prepare_arguments(self, arguments: Any) -> Raw:
        """The arguments, repaired if need be; raises InvalidArguments."""
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
        """Seconds, until now or until it was done."""
        if self.duration_s is not None:
            return self.duration_s
        return time.perf_counter() - self.started_at


class CallPipeline:
    """Runs tools."""

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
        """`timeouts` are how long each server may be silent, `longest` how long any call may take in all.

        `cache` keeps answers, `shapes` learns what they look like, `limits` and `retries` are by server, as are the
        keys of a client's `_meta` that go there too (`client_meta`); `changes` notices other
        definitions, `audit` writes down every call; each is optional.
        """
        self.audit = audit
        """May be replaced by another, or none, at any time."""
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
        """Go by these from now on; who stands in a line whose limits stay keeps its place."""
        self._timeouts = timeouts
        self._retries = retries
        self._client_meta = client_meta
        kept = {
            server: gate
            for server, gate in self._limiters.items()
            if limits.get(server) == self._limits[server]
        }
        made = {
            server: ServerLimiter(server, limit)
            for server, limit in limits.items()
            if not limit.is_unlimited
        }
        self._limiters = {**made, **kept}
        self._limits = limits

    async def call(self, tool: Tool, arguments: Any, context: CallContext = DEFAULT_CONTEXT) -> Raw:
        """Run a tool and return its raw result.

        Raises InvalidArguments, DefinitionChanged, BackendUnavailable (and its kinds), RemoteError.
        """
        with start_tool_span(tool.address, tool.hash, context.extra.get("_meta")) as span:
            work = _CallState(
                self._changes.get_current(tool) if self._changes else tool, arguments, tool.hash
            )
            try:
                result = await self._execute(work, arguments, context)
                work.outcome = get_outcome(result)
                if work.outcome == TOOL_ERROR:
                    mark_failed(span, TOOL_ERROR)
            except BaseException as error:
                work.outcome = get_error_kind(error)
                raise
            finally:
                set_call_attributes(
                    span,
                    attempts=work.attempts,
                    repaired=bool(work.repair_notes),
                    mismatched=work.is_mismatched,
                    cached=work.is_cached,
                )
                self._record_outcome(work, context, span)
                if self.audit is not None and self.audit.sync and work.outcome != CANCELLED:
                    await self.audit.wait_for_sync()
            return result

    async def _execute(self, state: _CallState, arguments: Any, context: CallContext) -> Raw:
        given = self._prepare_arguments(state, arguments, context)
        state.is_validated = True
        try:
            if self._cache is None or context.is_continuation:
                result = await self._call_server(state, given, context)
            else:
                result = await self._cache.get_or_call(
                    state.tool,
                    given,
                    context.caller,
                    lambda: self._call_server(state, given, context),
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
        """Tell everybody how it went; the audit log has it, too, when this returns."""
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
        """Write down a call that came to nothing before there was a tool to run: there is none of
        that name."""
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
        """Any other request to one server: resources, prompts, completion, a tool that it does not
        list."""
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
            named = params.get("name")
        else:
            named = None
        with start_upstream_span(
            method, named if isinstance(named, str) else "", server, upstream.backend.kind
        ) as span:
            if params is not None:
                sent = inject_meta(span, self._filter_params(server, params))
            else:
                sent = None
            ask = RequestOptions(
                self._timeouts.get(server),
                context.relay,
                inject_headers(span, {}),
                self._max_call_s,
            )
            return await upstream.request(method, sent, ask, context.caller.instance_key)

    # --- the way there

    def _prepare_arguments(self, state: _CallState, arguments: Any, context: CallContext) -> Raw:
        if self._changes is not None:
            self._changes.check_unchanged(
                state.initial_hash, state.tool, context.caller, context.via
            )
        try:
            return state.prepare_arguments(arguments)
        except InvalidArguments as error:
            if news := self._describe_change(state, context):
                raise InvalidArguments(
                    error.message, problems=error.problems, advice=news
                ) from error
            raise

    async def _call_server(self, state: _CallState, arguments: Raw, context: CallContext) -> Raw:
        server = state.tool.server
        context = context.label_elicitations(server)
        upstream = self._get_upstream(server)
        waited = upstream.any_connection is None
        await upstream.ensure_started(context.caller.instance_key)
        if waited and self._changes is not None:
            await self._changes.wait_for_listing(server)
        gate = self._limiters.get(server)
        spent = context.queued_s
        if gate is not None:
            arrived = time.perf_counter()
            with upstream.in_use(
                context.caller.instance_key
            ):  # its instance must not go for another's while it waits
                await gate.acquire(
                    _reduce_timeout(self._get_queue_timeout(server), context.queued_s),
                    context.caller.owner,
                )
            spent += time.perf_counter() - arrived
        try:
            if (waited or spent > _MIN_TIMEOUT_S) and self._changes is not None:
                now = self._changes.get_current(state.tool)
                if now is not state.tool:
                    state.tool = now
                    arguments = self._prepare_arguments(state, arguments, context)
            state.started_at = time.perf_counter()

            def send(extra: Mapping[str, Any]) -> Awaitable[Raw]:
                if extra is context.extra:
                    given = context
                else:
                    given = replace(context, extra=extra)
                return self._send_with_retries(upstream, state, arguments, given, spent)

            # Between two rounds of questions nothing is asked of it, and it is still at work for
            # this caller.
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
            if gate is not None:
                gate.release(context.caller.owner)
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
        silence = self._timeouts.get(tool.server)
        longest = self._max_call_s
        while True:
            there = upstream.get_connection(context.caller.instance_key) is not None
            try:
                with start_upstream_span(
                    "tools/call", tool.upstream_name, tool.server, upstream.backend.kind
                ) as span:
                    sent = inject_headers(span, headers)
                    ask = RequestOptions(
                        _reduce_timeout(silence, spent_s),
                        context.relay,
                        sent,
                        _reduce_timeout(longest, spent_s),
                    )
                    if span.is_recording():
                        span.set_attributes(_build_connection_attributes(upstream, context, state))
                    return await upstream.request(
                        "tools/call", inject_meta(span, params), ask, context.caller.instance_key
                    )
            except BackendUnavailable as error:
                rule = self._retries.get(tool.server, DEFAULT_RETRY_RULE)
                if context.is_continuation or not should_retry(rule, tool, error, state.attempts):
                    if there:
                        mark_possibly_executed(rule, tool, error)
                    raise
                rest = compute_backoff(state.attempts)
                spent_s += time.perf_counter() - state.started_at + rest
                if longest is not None and spent_s >= longest:
                    raise
            await asyncio.sleep(rest)
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

    # --- what there is to say

    async def _refresh_definition(self, state: _CallState, changes: DefinitionTracker) -> None:
        """The server refused as if its tool were another: perhaps it is."""
        await changes.relist_after_mismatch(state.tool)
        state.tool = changes.get_current(state.tool)

    def _mark_result(self, state: _CallState, result: Raw, context: CallContext) -> Raw:
        marks: Raw = {}
        if state.repair_notes:
            marks[REPAIRED] = list(state.repair_notes)
        if self._changes is not None and (
            was := self._changes.take_unseen_change(context.caller, state.tool)
        ):
            found = self._changes.compare_to_hash(was, state.tool)
            marks[CHANGED] = {
                "tool": state.tool.address, "hash": state.tool.hash, "was": was, "changes": list(found.notes)
            }  # fmt: skip
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
    talk = upstream.get_connection(context.caller.instance_key)
    if talk:
        hello = {
            "mcp.protocol.version": talk.initialize_info.protocol_version,
            "portico.era": talk.initialize_info.era,
        }
    else:
        hello = {}
    return {**hello, "portico.attempt": state.attempts}


def _reduce_timeout(timeout_s: float | None, spent_s: float) -> float | None:
    if timeout_s is None:
        return None
    if spent_s:
        return max(_MIN_TIMEOUT_S, timeout_s - spent_s)
    return timeout_s
