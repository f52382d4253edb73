"""The one pipeline: every call of a tool, whoever makes it, goes this way and no other.

The definition as it is now → arguments that fit, repaired where that is certain → cache → the server's limits → the
server, once more where it was lost and the tool may run twice → is it what the tool declares → learn → record → the
audit log, before anybody has the answer.

The answer is the upstream's result object, untouched; whatever there is to say of it is in its `_meta` (`marks`).
"""

import asyncio
import time
from collections.abc import Awaitable, Mapping
from dataclasses import replace
from typing import Any

from portico.catalog.tool import Tool
from portico.errors import BackendUnavailable, InvalidArguments, RemoteError
from portico.events import Bus, CallRefused, ToolCalled
from portico.execution.cache import Cache, age_of
from portico.execution.changes import Changes, smells
from portico.execution.headers import param_headers
from portico.execution.learned import Shapes
from portico.execution.limiting import Gate, Limit
from portico.execution.marks import CHANGED, MISMATCH, REPAIRED, marked, unmarked
from portico.execution.origin import NOBODY, Origin
from portico.execution.outcome import CANCELLED, FINE, INTERNAL, TOOL_ERROR, kind_of, outcome_of
from portico.execution.question_labels import settle_with_labels
from portico.execution.questions import IN_ROUNDS
from portico.execution.retrying import ONCE_MORE, RetryRule, again, doubtful, pause
from portico.execution.validation import fits, mended, mismatches
from portico.observability.audit import Audit, Called, describe_request
from portico.observability.tracing import Span, asked, described, executing, failed, in_headers, in_meta, trace_of
from portico.upstream.backend import Ask, Raw
from portico.upstream.envelope import filter_for_server
from portico.upstream.supervisor import Upstream

_NO_LIMITS: Mapping[str, Limit] = {}
_NO_RULES: Mapping[str, RetryRule] = {}
_NO_META: Mapping[str, tuple[str, ...]] = {}
_LEAST_S = 0.001
"""A call that waited for its turn until its time was up still gets an answer that says so."""


class _Work:
    """One call on its way."""

    __slots__ = (
        "arguments", "attempts", "began", "cached", "mismatched", "notes", "outcome", "ready", "seconds", "started",
        "tool",
    )  # fmt: skip

    def __init__(self, tool: Tool, arguments: Any, began: str) -> None:
        self.tool = tool
        self.began = began
        """The definition that the call was made by."""
        self.arguments = arguments
        """As they are sent; as they were given, as long as they do not fit."""
        self.ready = False
        """The arguments fit: from here on it is the tool's success or failure."""
        self.outcome = INTERNAL
        self.cached = False
        self.notes: tuple[str, ...] = ()
        self.attempts = 1
        self.mismatched = False
        self.started = time.perf_counter()
        """Since when the tool is at work: a server that has to be started first is no slower for it."""
        self.seconds: float | None = None

    def fitting(self, arguments: Any) -> Raw:
        """The arguments, repaired if need be; raises InvalidArguments."""
        if isinstance(arguments, dict) and fits(self.tool, arguments):
            return arguments
        repair = mended(self.tool, arguments)
        self.notes = (*self.notes, *repair.notes)
        self.arguments = repair.arguments
        return repair.arguments

    def done(self) -> None:
        self.seconds = time.perf_counter() - self.started

    @property
    def took(self) -> float:
        """Seconds, until now or until it was done."""
        return self.seconds if self.seconds is not None else time.perf_counter() - self.started


class Calls:
    """Runs tools."""

    def __init__(
        self,
        upstreams: Mapping[str, Upstream],
        timeouts: Mapping[str, float],
        bus: Bus,
        *,
        longest: float | None = None,
        cache: Cache | None = None,
        shapes: Shapes | None = None,
        limits: Mapping[str, Limit] = _NO_LIMITS,
        retries: Mapping[str, RetryRule] = _NO_RULES,
        client_meta: Mapping[str, tuple[str, ...]] = _NO_META,
        changes: Changes | None = None,
        audit: Audit | None = None,
    ) -> None:
        """`timeouts` are how long each server may be silent, `longest` how long any call may take in all.

        `cache` keeps answers, `shapes` learns what they look like, `limits` and `retries` are by server, as are the
        keys of a client's `_meta` that go there too (`client_meta`); `changes` notices other definitions, `audit`
        writes down every call; each is optional.
        """
        self.audit = audit
        """May be replaced by another, or none, at any time."""
        self._upstreams = upstreams
        self._timeouts = timeouts
        self._bus = bus
        self._longest = longest
        self._cache = cache
        self._shapes = shapes
        self._gates = {server: Gate(server, limit) for server, limit in limits.items() if not limit.none}
        self._limits = limits
        self._retries = retries
        self._client_meta = client_meta
        self._changes = changes

    def configure(
        self,
        timeouts: Mapping[str, float],
        limits: Mapping[str, Limit],
        retries: Mapping[str, RetryRule],
        client_meta: Mapping[str, tuple[str, ...]] = _NO_META,
    ) -> None:
        """Go by these from now on; who stands in a line whose limits stay keeps its place."""
        self._timeouts, self._retries = timeouts, retries
        self._client_meta = client_meta
        kept = {server: gate for server, gate in self._gates.items() if limits.get(server) == self._limits[server]}
        made = {server: Gate(server, limit) for server, limit in limits.items() if not limit.none}
        self._gates, self._limits = {**made, **kept}, limits

    async def call(self, tool: Tool, arguments: Any, origin: Origin = NOBODY) -> Raw:
        """Run a tool and return its raw result.

        Raises InvalidArguments, DefinitionChanged, BackendUnavailable (and its kinds), RemoteError.
        """
        with executing(tool.address, tool.hash, origin.extra.get("_meta")) as span:
            work = _Work(self._changes.current(tool) if self._changes else tool, arguments, tool.hash)
            try:
                result = await self._executed(work, arguments, origin)
                work.outcome = outcome_of(result)
                if work.outcome == TOOL_ERROR:
                    failed(span, TOOL_ERROR)
            except BaseException as error:
                work.outcome = kind_of(error)
                raise
            finally:
                described(
                    span,
                    attempts=work.attempts,
                    repaired=bool(work.notes),
                    mismatched=work.mismatched,
                    cached=work.cached,
                )
                self._record(work, origin, span)
                if self.audit is not None and self.audit.sync and work.outcome != CANCELLED:
                    await self.audit.settled()
            return result

    async def _executed(self, work: _Work, arguments: Any, origin: Origin) -> Raw:
        given = self._fitting(work, arguments, origin)
        work.ready = True
        try:
            if self._cache is None or origin.goes_on:
                result = await self._run(work, given, origin)
            else:
                result = await self._cache.answer(
                    work.tool, given, origin.caller, lambda: self._run(work, given, origin)
                )
                work.cached = age_of(result) is not None
            work.done()
            if result.get("isError") and self._changes is not None and smells(result):
                await self._look_again(work, self._changes)
            return self._told(work, result, origin)
        except RemoteError as error:
            work.done()
            if self._changes is not None and smells(error):
                await self._look_again(work, self._changes)
                error.advice = error.advice or self._news(work, origin)
            raise

    def _record(self, work: _Work, origin: Origin, span: Span) -> None:
        """Tell everybody how it went; the audit log has it, too, when this returns."""
        tool, outcome, seconds = work.tool, work.outcome, work.took
        cancelled, ok = outcome == CANCELLED, outcome in FINE
        if work.ready:
            error = "" if ok or cancelled else outcome
            self._bus.publish(
                ToolCalled(tool.address, tool.hash, seconds, ok, origin.caller, cancelled, work.cached, error)
            )
        else:
            self._bus.publish(CallRefused(tool.address, outcome))
        if self.audit is not None:
            self.audit.write(
                Called(
                    tool.address,
                    tool.hash,
                    work.arguments,
                    outcome,
                    origin.caller,
                    origin.way,
                    seconds,
                    work.attempts,
                    work.cached,
                    bool(work.notes),
                    trace_of(span),
                    tool.destroys,
                )
            )

    async def refused(self, name: str, arguments: Any, origin: Origin, error: BaseException) -> None:
        """Write down a call that came to nothing before there was a tool to run: there is none of that name."""
        if self.audit is not None:
            self.audit.write(Called(name, "", arguments, kind_of(error), origin.caller, origin.way, attempts=0))
            await self.audit.settled()

    async def ask(self, server: str, method: str, params: Raw | None, origin: Origin = NOBODY) -> Raw:
        """Any other request to one server: resources, prompts, completion, a tool that it does not list."""
        if self.audit is None:
            return await self._asked(server, method, params, origin)
        audit, outcome, started = self.audit, INTERNAL, time.perf_counter()
        try:
            result = await self._asked(server, method, params, origin)
            outcome = outcome_of(result)
        except BaseException as error:
            outcome = kind_of(error)
            raise
        finally:
            seconds = time.perf_counter() - started
            audit.write(describe_request(server, method, params or {}, outcome, origin.caller, origin.way, seconds))
            if outcome != CANCELLED:
                await audit.settled()
        return result

    async def _asked(self, server: str, method: str, params: Raw | None, origin: Origin) -> Raw:
        origin = origin.label_questions_of(server)
        if params is None or method not in IN_ROUNDS:
            return await self._sent(server, method, params, origin)

        def there(given: Mapping[str, Any]) -> Awaitable[Raw]:
            return self._sent(server, method, dict(given), origin)

        return await settle_with_labels(server, there, params, origin.relay, rounds=origin.in_rounds)

    async def _sent(self, server: str, method: str, params: Raw | None, origin: Origin) -> Raw:
        upstream, named = self._upstream(server), params.get("name") if params else None
        with asked(method, named if isinstance(named, str) else "", server, upstream.backend.kind) as span:
            sent = in_meta(span, self._for_server(server, params)) if params is not None else None
            ask = Ask(self._timeouts.get(server), origin.relay, in_headers(span, {}), self._longest)
            return await upstream.request(method, sent, ask, origin.caller.instance)

    # --- the way there

    def _fitting(self, work: _Work, arguments: Any, origin: Origin) -> Raw:
        if self._changes is not None:
            self._changes.check(work.began, work.tool, origin.caller, origin.way)
        try:
            return work.fitting(arguments)
        except InvalidArguments as error:
            if news := self._news(work, origin):
                raise InvalidArguments(error.message, problems=error.problems, advice=news) from error
            raise

    async def _run(self, work: _Work, arguments: Raw, origin: Origin) -> Raw:
        server = work.tool.server
        origin = origin.label_questions_of(server)
        upstream = self._upstream(server)
        waited = upstream.live is None
        await upstream.woken(origin.caller.instance)
        if waited and self._changes is not None:
            await self._changes.settled(server)
        gate, spent = self._gates.get(server), origin.waited
        if gate is not None:
            arrived = time.perf_counter()
            with upstream.held(origin.caller.instance):  # its instance must not go for another's while it waits
                await gate.enter(_less(self._patience(server), origin.waited), origin.caller.owner)
            spent += time.perf_counter() - arrived
        try:
            if (waited or spent > _LEAST_S) and self._changes is not None:
                now = self._changes.current(work.tool)
                if now is not work.tool:
                    work.tool = now
                    arguments = self._fitting(work, arguments, origin)
            work.started = time.perf_counter()

            def there(extra: Mapping[str, Any]) -> Awaitable[Raw]:
                given = origin if extra is origin.extra else replace(origin, extra=extra)
                return self._answered(upstream, work, arguments, given, spent)

            # Between two rounds of questions nothing is asked of it, and it is still at work for this caller.
            with upstream.held(origin.caller.instance):
                answer = await settle_with_labels(server, there, origin.extra, origin.relay, rounds=origin.in_rounds)
            result = unmarked(answer)
        finally:
            if gate is not None:
                gate.leave(origin.caller.owner)
        if problems := mismatches(work.tool, result):
            work.mismatched = True
            result = marked(result, {MISMATCH: list(problems)})
        if self._shapes is not None:
            self._shapes.learn(work.tool, result)
        return result

    async def _answered(self, upstream: Upstream, work: _Work, arguments: Raw, origin: Origin, spent: float) -> Raw:
        tool = work.tool
        extra = self._for_server(tool.server, origin.extra)
        params: Raw = {**extra, "name": tool.upstream_name, "arguments": arguments}
        headers = param_headers(tool, arguments)
        silence, longest = self._timeouts.get(tool.server), self._longest
        while True:
            there = upstream.conversation(origin.caller.instance) is not None
            try:
                with asked("tools/call", tool.upstream_name, tool.server, upstream.backend.kind) as span:
                    sent = in_headers(span, headers)
                    ask = Ask(_less(silence, spent), origin.relay, sent, _less(longest, spent))
                    if span.is_recording():
                        span.set_attributes(_conversation(upstream, origin, work))
                    return await upstream.request("tools/call", in_meta(span, params), ask, origin.caller.instance)
            except BackendUnavailable as error:
                rule = self._retries.get(tool.server, ONCE_MORE)
                if origin.goes_on or not again(rule, tool, error, work.attempts):
                    if there:
                        doubtful(rule, tool, error)
                    raise
                rest = pause(work.attempts)
                spent += time.perf_counter() - work.started + rest
                if longest is not None and spent >= longest:
                    raise
            await asyncio.sleep(rest)
            work.attempts += 1
            upstream = self._upstream(tool.server)  # it may have been replaced
            await upstream.woken(origin.caller.instance)
            work.started = time.perf_counter()

    def _upstream(self, server: str) -> Upstream:
        upstream = self._upstreams.get(server)
        if upstream is None:
            raise BackendUnavailable(f"{server} is not running here")
        return upstream

    def _for_server(self, server: str, params: Mapping[str, Any]) -> Raw:
        return filter_for_server(params, self._client_meta.get(server, ())) if "_meta" in params else dict(params)

    def _patience(self, server: str) -> float | None:
        bounds = [bound for bound in (self._timeouts.get(server), self._longest) if bound is not None]
        return min(bounds) if bounds else None

    # --- what there is to say

    async def _look_again(self, work: _Work, changes: Changes) -> None:
        """The server refused as if its tool were another: perhaps it is."""
        await changes.suspected(work.tool)
        work.tool = changes.current(work.tool)

    def _told(self, work: _Work, result: Raw, origin: Origin) -> Raw:
        marks: Raw = {}
        if work.notes:
            marks[REPAIRED] = list(work.notes)
        if self._changes is not None and (was := self._changes.untold(origin.caller, work.tool)):
            found = self._changes.difference(was, work.tool)
            marks[CHANGED] = {
                "tool": work.tool.address, "hash": work.tool.hash, "was": was, "changes": list(found.notes)
            }  # fmt: skip
        return marked(result, marks) if marks else result

    def _news(self, work: _Work, origin: Origin) -> str:
        return self._changes.news(work.began, work.tool, origin.caller) if self._changes is not None else ""


def _conversation(upstream: Upstream, origin: Origin, work: _Work) -> dict[str, str | int]:
    talk = upstream.conversation(origin.caller.instance)
    hello = {"mcp.protocol.version": talk.hello.protocol_version, "portico.era": talk.hello.era} if talk else {}
    return {**hello, "portico.attempt": work.attempts}


def _less(bound: float | None, spent: float) -> float | None:
    return None if bound is None else max(_LEAST_S, bound - spent) if spent else bound
