"""Recording of every request: a span, an event and a line in the audit log, written before the
result is returned."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from portico.calls.call import (
    CANCELLED,
    INPUT_REQUIRED,
    INTERNAL,
    OK,
    TOOL_ERROR,
    Call,
    CallContext,
    Handler,
    ServerRequest,
    make_call_id,
)
from portico.calls.failed_calls import FailedCalls, describe_error, extract_error_text
from portico.errors import PorticoError
from portico.events import CallRefused, CallStages, CallStarted, EventBus, ToolCalled
from portico.observability.audit import AuditEntry, AuditLog
from portico.observability.tracing import (
    Span,
    get_trace_id,
    mark_failed,
    set_call_attributes,
    start_tool_span,
)
from portico.results.result_meta import REPAIRED, add_gateway_meta
from portico.upstream.backend import Raw


class CallRecorder:
    """Publishes what calls came to, and writes the audit log."""

    def __init__(self, bus: EventBus, audit: AuditLog | None = None) -> None:
        self.bus = bus
        self.audit = audit
        """May be replaced or removed at any time."""
        self.failed_calls = FailedCalls()

    def get_audit_problem(self) -> str:
        """Return why the audit log cannot be written; empty while it can, or is disabled."""
        return self.audit.problem if self.audit is not None else ""

    async def record_call(self, call: Call, call_next: Handler[Call]) -> Raw:
        """Middleware: record a call, and add its marks to the result.

        The outcome counts for the tool once the arguments fit.
        """
        tool = call.tool
        if self.bus.has_subscribers(CallStarted):
            context = call.context
            self.bus.publish(CallStarted(call.id, tool.address, context.caller, context.via))
        message = ""
        with start_tool_span(tool.address, tool.hash, call.params.get("_meta")) as span:
            try:
                result = await call_next(call)
                call.outcome = get_outcome(result)
                if call.outcome == TOOL_ERROR:
                    message = extract_error_text(result)
                return add_gateway_meta(result, call.marks) if call.marks else result
            except BaseException as error:
                call.outcome = get_error_kind(error)
                message = describe_error(error)
                raise
            finally:
                self._publish(call)
                self._keep_failure(call, message)
                if span.is_recording():
                    _describe_call(span, call)
                if (audit := self.audit) is not None:
                    await audit.write_in_turns(_make_call_entry(call, span))
                    if audit.sync and call.outcome != CANCELLED:
                        await audit.wait_for_sync()

    async def record_request(
        self, request: ServerRequest, call_next: Handler[ServerRequest]
    ) -> Raw:
        """Middleware: record any other request, in the audit log only."""
        audit = self.audit
        if audit is None:
            return await call_next(request)
        outcome = INTERNAL
        params = request.params or {}  # before answers to elicitations are added
        try:
            result = await call_next(request)
            outcome = get_outcome(result)
            return result
        except BaseException as error:
            outcome = get_error_kind(error)
            raise
        finally:
            seconds = time.perf_counter() - request.started_at
            entry = _make_request_entry(request, params, outcome, seconds)
            await audit.write_in_turns(entry)
            if outcome != CANCELLED:
                await audit.wait_for_sync()

    async def record_refusal(
        self, name: str, arguments: Any, context: CallContext, error: BaseException
    ) -> None:
        """Record a call that was refused because no tool has that name: an event, among the failed
        calls, and a line in the audit log."""
        kind = get_error_kind(error)
        call_id = make_call_id()
        self.bus.publish(CallRefused(name, kind, context.caller, call_id, context.via))
        self.failed_calls.add(
            call_id,
            name,
            kind,
            describe_error(error),
            context.caller,
            context.via,
            is_refused=True,
        )
        if (audit := self.audit) is not None:
            await audit.write_in_turns(
                AuditEntry(name, "", arguments, kind, context.caller, context.via, attempts=0)
            )
            await audit.wait_for_sync()

    def _keep_failure(self, call: Call, message: str) -> None:
        if call.outcome in (OK, INPUT_REQUIRED, CANCELLED):
            return
        self.failed_calls.add(
            call.id,
            call.tool.address,
            call.outcome,
            message,
            call.context.caller,
            call.context.via,
            is_refused=not call.is_validated,
        )

    def _publish(self, call: Call) -> None:
        tool = call.tool
        context = call.context
        now = time.perf_counter()
        if call.duration_s is None:
            call.duration_s = now - call.started_at
        if not call.is_validated:
            refused = CallRefused(tool.address, call.outcome, context.caller, call.id, context.via)
            self.bus.publish(refused)
            return
        ok = call.outcome in (OK, INPUT_REQUIRED)
        cancelled = call.outcome == CANCELLED
        error = "" if ok or cancelled else call.outcome
        self.bus.publish(
            ToolCalled(
                tool.address,
                tool.hash,
                call.duration_s,
                ok,
                context.caller,
                cancelled,
                call.is_cached,
                error,
                call.id,
                context.via,
                _compute_stages(call, call.duration_s, now),
            )
        )


def _compute_stages(call: Call, tool_s: float, now: float) -> CallStages:
    known_s = call.server_start_s + call.server_queue_s + tool_s
    preparation_s = max(0.0, now - call.created_at - known_s)
    return CallStages(
        call.context.queued_s, preparation_s, call.server_start_s, call.server_queue_s, tool_s
    )


def get_outcome(result: Mapping[str, Any]) -> str:
    if result.get("isError"):
        return TOOL_ERROR
    if result.get("resultType", "complete") == "complete":
        return OK
    return INPUT_REQUIRED


def get_error_kind(error: BaseException) -> str:
    """Return the outcome of a call that raised `error`."""
    if isinstance(error, asyncio.CancelledError):
        return CANCELLED
    if isinstance(error, PorticoError):
        return error.kind
    return INTERNAL


def _describe_call(span: Span, call: Call) -> None:
    if call.outcome == TOOL_ERROR:
        mark_failed(span, TOOL_ERROR)
    set_call_attributes(
        span,
        attempts=call.attempts,
        repaired=REPAIRED in call.marks,
        mismatched=call.is_mismatched,
        cached=call.is_cached,
    )


def _get_rule(request: Call | ServerRequest) -> str:
    return request.decision.rule if request.decision is not None else ""


def _make_request_entry(
    request: ServerRequest, params: Mapping[str, Any], outcome: str, seconds: float
) -> AuditEntry:
    """Return the entry of a request that is not a call of a tool in the catalog."""
    caller = request.context.caller
    if request.method == "tools/call":  # a tool that its server does not list
        address = f"{request.server}.{params.get('name')}"
        arguments = params.get("arguments")
        return AuditEntry(
            *(address, "", arguments, outcome, caller, request.context.via, seconds),
            rule=_get_rule(request),
            approval=request.approval,
        )
    reference: Any = params.get("ref", params)
    target: Any = None
    if isinstance(reference, Mapping):
        target = reference.get("uri") or reference.get("name")
    return AuditEntry(
        target if isinstance(target, str) else "",
        "",
        {key: value for key, value in params.items() if key != "_meta"},
        outcome,
        caller,
        "request",
        seconds,
        method=request.method,
        server=request.server,
        rule=_get_rule(request),
        approval=request.approval,
    )


def _make_call_entry(call: Call, span: Span) -> AuditEntry:
    return AuditEntry(
        call.tool.address,
        call.tool.hash,
        call.arguments,
        call.outcome,
        call.context.caller,
        call.context.via,
        call.duration_s or 0.0,
        call.attempts,
        call.is_cached,
        REPAIRED in call.marks,
        get_trace_id(span),
        call.tool.is_destructive,
        call_id=call.id,
        rule=_get_rule(call),
        approval=call.approval,
    )
