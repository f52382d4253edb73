"""The one pipeline: every call of a tool, whoever makes it, goes this way and no other.

The definition as it is now → arguments that fit, repaired where that is certain → cache → the server's limits → the
server, once more where it was lost and the tool may run twice → is it what the tool declares → learn → record.

The answer is the upstream's result object, untouched; whatever there is to say of it is in its `_meta` (`marks`).
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from portico.access import Caller
from portico.catalog.tool import Tool
from portico.errors import BackendUnavailable, InvalidArguments, RemoteError
from portico.events import Bus, ToolCalled
from portico.execution.cache import Cache, age_of
from portico.execution.changes import Changes, smells
from portico.execution.headers import param_headers
from portico.execution.learned import Shapes
from portico.execution.limiting import Gate, Limit
from portico.execution.marks import CHANGED, MISMATCH, REPAIRED, marked, unmarked
from portico.execution.retrying import ONCE_MORE, RetryRule, again, pause
from portico.execution.validation import fits, mended, mismatches
from portico.observability.tracing import Span, described, executing, failed, forwarded
from portico.upstream.backend import Ask, Raw, Relay
from portico.upstream.supervisor import Upstream

_NO_LIMITS: Mapping[str, Limit] = {}
_NO_RULES: Mapping[str, RetryRule] = {}
_LEAST_S = 0.001
"""A call that waited for its turn until its time was up still gets an answer that says so."""


@dataclass(frozen=True)
class Origin:
    """Where a request came from and the way back to it."""

    caller: Caller = field(default_factory=Caller)
    relay: Relay | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    """What the client sent beside name and arguments: `_meta`, `inputResponses`, `requestState` …"""

    @property
    def goes_on(self) -> bool:
        """Whether this continues an earlier round, or answers a question: nobody else could ask the same."""
        return bool(self.extra) and (len(self.extra) > 1 or "_meta" not in self.extra)


NOBODY = Origin()


class _Work:
    """One call on its way."""

    __slots__ = ("attempts", "began", "extra", "mismatched", "notes", "seconds", "started", "tool")

    def __init__(self, tool: Tool, extra: Mapping[str, Any]) -> None:
        self.tool = tool
        self.began = tool.hash
        """The definition that the call was made by."""
        self.extra = extra
        """What its server is sent beside name and arguments."""
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
        return repair.arguments

    def done(self) -> None:
        self.seconds = time.perf_counter() - self.started


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
        changes: Changes | None = None,
    ) -> None:
        """`timeouts` are how long each server may be silent, `longest` how long any call may take in all.

        `cache` keeps answers, `shapes` learns what they look like, `limits` and `retries` are by server, `changes`
        notices other definitions; each is optional.
        """
        self._upstreams = upstreams
        self._timeouts = timeouts
        self._bus = bus
        self._longest = longest
        self._cache = cache
        self._shapes = shapes
        self._gates = {server: Gate(server, limit) for server, limit in limits.items() if not limit.none}
        self._retries = retries
        self._changes = changes

    async def call(self, tool: Tool, arguments: Any, origin: Origin = NOBODY) -> Raw:
        """Run a tool and return its raw result.

        Raises InvalidArguments, BackendUnavailable (and its kinds), RemoteError.
        """
        with executing(tool.address, tool.hash, origin.extra.get("_meta")) as span:
            result = await self._executed(tool, arguments, origin, span)
            if result.get("isError"):
                failed(span, "tool_error")
            return result

    async def _executed(self, tool: Tool, arguments: Any, origin: Origin, span: Span) -> Raw:
        work = _Work(self._changes.current(tool) if self._changes else tool, forwarded(span, origin.extra))
        given = self._fitting(work, arguments, origin)
        ok = cancelled = cached = False
        try:
            if self._cache is None or origin.goes_on:
                result = await self._run(work, given, origin)
            else:
                result = await self._cache.answer(
                    work.tool, given, origin.caller, lambda: self._run(work, given, origin)
                )
                cached = age_of(result) is not None
            work.done()
            ok = not result.get("isError")
            if not ok and self._changes is not None and smells(result):
                await self._look_again(work, self._changes)
            return self._told(work, result, origin)
        except asyncio.CancelledError:
            cancelled = True
            raise
        except RemoteError as error:
            work.done()
            if self._changes is not None and smells(error):
                await self._look_again(work, self._changes)
                error.advice = error.advice or self._news(work, origin)
            raise
        finally:
            described(span, attempts=work.attempts, repaired=bool(work.notes), mismatched=work.mismatched)
            seconds = work.seconds if work.seconds is not None else time.perf_counter() - work.started
            self._bus.publish(
                ToolCalled(
                    work.tool.address,
                    work.tool.hash,
                    seconds,
                    ok,
                    origin.caller,
                    cancelled,
                    cached,
                )
            )

    async def ask(self, server: str, method: str, params: Raw | None, origin: Origin = NOBODY) -> Raw:
        """Any other request to one server: resources, prompts, completion."""
        ask = Ask(self._timeouts.get(server), origin.relay, {}, self._longest)
        return await self._upstream(server).request(method, params, ask, origin.caller.instance)

    # --- the way there

    def _fitting(self, work: _Work, arguments: Any, origin: Origin) -> Raw:
        try:
            return work.fitting(arguments)
        except InvalidArguments as error:
            if news := self._news(work, origin):
                raise InvalidArguments(error.message, problems=error.problems, advice=news) from error
            raise

    async def _run(self, work: _Work, arguments: Raw, origin: Origin) -> Raw:
        server = work.tool.server
        upstream = self._upstream(server)
        waited = upstream.live is None
        await upstream.woken(origin.caller.instance)
        if waited and self._changes is not None:
            await self._changes.settled(server)
        gate, spent = self._gates.get(server), 0.0
        if gate is not None:
            arrived = time.perf_counter()
            with upstream.held(origin.caller.instance):  # its instance must not go for another's while it waits
                await gate.enter(self._patience(server))
            spent = time.perf_counter() - arrived
        try:
            if (waited or spent > _LEAST_S) and self._changes is not None:
                now = self._changes.current(work.tool)
                if now is not work.tool:
                    work.tool = now
                    arguments = self._fitting(work, arguments, origin)
            work.started = time.perf_counter()
            result = unmarked(await self._answered(upstream, work, arguments, origin, spent))
        finally:
            if gate is not None:
                gate.leave()
        if problems := mismatches(work.tool, result):
            work.mismatched = True
            result = marked(result, {MISMATCH: list(problems)})
        if self._shapes is not None:
            self._shapes.learn(work.tool, result)
        return result

    async def _answered(self, upstream: Upstream, work: _Work, arguments: Raw, origin: Origin, spent: float) -> Raw:
        tool = work.tool
        params = {**work.extra, "name": tool.upstream_name, "arguments": arguments}
        headers = param_headers(tool, arguments)
        silence, longest = self._timeouts.get(tool.server), self._longest
        while True:
            try:
                ask = Ask(_less(silence, spent), origin.relay, headers, _less(longest, spent))
                return await upstream.request("tools/call", params, ask, origin.caller.instance)
            except BackendUnavailable as error:
                rule = self._retries.get(tool.server, ONCE_MORE)
                if origin.goes_on or not again(rule, tool, error, work.attempts):
                    raise
                rest = pause(work.attempts)
                spent += time.perf_counter() - work.started + rest
                if longest is not None and spent >= longest:
                    raise
            await asyncio.sleep(rest)
            work.attempts += 1
            await upstream.woken(origin.caller.instance)
            work.started = time.perf_counter()

    def _upstream(self, server: str) -> Upstream:
        upstream = self._upstreams.get(server)
        if upstream is None:
            raise BackendUnavailable(f"{server} is not running here")
        return upstream

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
            marks[CHANGED] = {"tool": work.tool.address, "hash": work.tool.hash, "was": was}
        return marked(result, marks) if marks else result

    def _news(self, work: _Work, origin: Origin) -> str:
        """What a caller whose call was refused has to know beside why; nothing, mostly."""
        if self._changes is None:
            return ""
        address = work.tool.address
        if self._changes.gone(work.tool):
            return f"{address} is no longer among the tools of its server: search for another."
        # Asked first, since it counts as told then.
        if self._changes.untold(origin.caller, work.tool) or work.began != work.tool.hash:
            return f"The definition of {address} changed since you saw it: call it as it is described now."
        return ""


def _less(bound: float | None, spent: float) -> float | None:
    return None if bound is None else max(_LEAST_S, bound - spent) if spent else bound
