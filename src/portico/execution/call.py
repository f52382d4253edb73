"""The one pipeline: every call of a tool, whoever makes it, goes validate → cache → backend → learn → record.

The answer is the upstream's result object, untouched; one that was kept says so in its `_meta`.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from portico.access import Caller
from portico.catalog.tool import Tool
from portico.errors import BackendUnavailable, InvalidArguments
from portico.events import Bus, ToolCalled
from portico.execution.cache import Cache, age_of, unmarked
from portico.execution.headers import param_headers
from portico.execution.learned import Shapes
from portico.execution.validation import check
from portico.upstream.backend import Ask, Raw, Relay
from portico.upstream.supervisor import Upstream


@dataclass(frozen=True)
class Origin:
    """Where a request came from and the way back to it."""

    caller: Caller = field(default_factory=Caller)
    relay: Relay | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    """What the client sent beside name and arguments: `_meta`, `inputResponses`, `requestState` …"""


NOBODY = Origin()


@dataclass
class _Timing:
    """Since when a tool is at work: a server that has to be started first is no slower for it."""

    started: float = field(default_factory=time.perf_counter)


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
    ) -> None:
        """`timeouts` are how long each server may be silent, `longest` how long any call may take in all.

        `cache` keeps answers, `shapes` learns what they look like; both are optional.
        """
        self._upstreams = upstreams
        self._timeouts = timeouts
        self._bus = bus
        self._longest = longest
        self._cache = cache
        self._shapes = shapes

    async def call(self, tool: Tool, arguments: Any, origin: Origin = NOBODY) -> Raw:
        """Run a tool and return its raw result.

        Raises InvalidArguments, BackendUnavailable (and its kinds), RemoteError.
        """
        if not isinstance(arguments, dict):
            raise InvalidArguments(
                f"the arguments of {tool.address} must be an object, not {type(arguments).__name__}",
                advice="Pass the parameters as one JSON object.",
            )
        check(tool, arguments)
        timing = _Timing()
        ok = cancelled = cached = False
        try:
            # What continues an earlier round, or answers a question, is no question that anybody could have asked.
            if self._cache is None or origin.extra.keys() - {"_meta"}:
                result = await self._run(tool, arguments, origin, timing)
            else:
                result = await self._cache.answer(
                    tool, arguments, origin.caller, lambda: self._run(tool, arguments, origin, timing)
                )
                cached = age_of(result) is not None
            ok = not result.get("isError")
            return result
        except asyncio.CancelledError:
            cancelled = True
            raise
        finally:
            seconds = time.perf_counter() - timing.started
            self._bus.publish(ToolCalled(tool.address, tool.hash, seconds, ok, origin.caller, cancelled, cached))

    async def _run(self, tool: Tool, arguments: Raw, origin: Origin, timing: "_Timing") -> Raw:
        if (upstream := self._upstreams.get(tool.server)) is not None:
            await upstream.woken(origin.caller.session)
            timing.started = time.perf_counter()
        params = {**origin.extra, "name": tool.upstream_name, "arguments": arguments}
        result = unmarked(await self._ask(tool.server, "tools/call", params, origin, param_headers(tool, arguments)))
        if self._shapes is not None:
            self._shapes.learn(tool, result)
        return result

    async def ask(self, server: str, method: str, params: Raw | None, origin: Origin = NOBODY) -> Raw:
        """Any other request to one server: resources, prompts, completion."""
        return await self._ask(server, method, params, origin, {})

    async def _ask(
        self, server: str, method: str, params: Raw | None, origin: Origin, headers: Mapping[str, str]
    ) -> Raw:
        upstream = self._upstreams.get(server)
        if upstream is None:
            raise BackendUnavailable(f"{server} is not running here")
        ask = Ask(self._timeouts.get(server), origin.relay, headers, self._longest)
        return await upstream.request(method, params, ask, origin.caller.session)
