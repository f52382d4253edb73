"""First listings: decides which requests wait for servers that were never listed, and how long.

A request is answered from what is known. It waits only if it names a server that is starting, if
it lists tools for clients that list once, or if nothing at all is known yet. A server that has
failed is never waited for.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from portico.catalog.address import fold
from portico.catalog.snapshot import ServerEntry
from portico.meta_tools import tool_definitions
from portico.profiles.profile_state import ProfileState
from portico.upstream.backend import Raw
from portico.upstream.lifecycle.status import TROUBLED_STATES

WaitForListing = Callable[[Callable[[], bool]], Awaitable[None]]
"""Waits until its predicate holds, or the servers that are starting have had their time."""

FURTHER_LISTINGS_S = 1.0
"""Seconds that the first answer of a new configuration waits for more servers after the first."""
_MAX_TEXT_CHARS = 20_000
"""Characters of a script or a workflow that are searched for names of servers."""
_NAMING_ARGUMENTS = {
    tool_definitions.SEARCH_TOOLS: "server",
    tool_definitions.BROWSE_TOOLS: "server",
    tool_definitions.DESCRIBE_TOOLS: "names",
    **dict.fromkeys((tool_definitions.CALL_TOOL, *tool_definitions.SPLIT_CALL_NAMES), "name"),
    tool_definitions.RUN_CODE: "code",
    tool_definitions.RUN_WORKFLOW: "steps",
}
"""The argument of each meta-tool that may name a server."""


class FirstListing:
    """The wait of one profile's requests for servers on their first start."""

    def __init__(self, profile_state: ProfileState, wait: WaitForListing | None) -> None:
        self._profile_state = profile_state
        self._wait = wait
        self.complete_servers: Mapping[str, ServerEntry] | None = None
        """The server map in which every server is listed, so that no request needs to wait."""

    async def wait_for(self, method: str, params: Raw) -> None:
        """Wait as long as the answer to this request should, usually not at all."""
        servers = self._profile_state.snapshot.servers
        if self._wait is None:
            return
        if all(entry.is_listed for entry in servers.values()):
            self.complete_servers = servers
            return
        settings = self._profile_state.settings
        if method == "tools/list":
            if settings.exposure in ("full", "semantic") or params.get("query"):
                await self.wait_for_all()
            return
        if not any(entry.is_listed for entry in servers.values()):
            await self._wait_for_some(self._wait)
        if method == "tools/call" and (names := self._find_named_servers(params)):
            await self._wait(lambda: names.isdisjoint(self._list_starting()))

    async def wait_for_all(self) -> None:
        """Wait until every server is listed or has failed, within their time."""
        if self._wait is not None:
            await self._wait(lambda: not self._list_starting())

    async def _wait_for_some(self, wait: WaitForListing) -> None:
        """Wait for the first listing, and shortly for those that follow it."""

        def is_enough() -> bool:
            servers = self._profile_state.snapshot.servers
            return any(entry.is_listed for entry in servers.values()) or not self._list_starting()

        await wait(is_enough)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FURTHER_LISTINGS_S):
                await self.wait_for_all()

    def _list_starting(self) -> set[str]:
        """Return the servers that may be listed soon."""
        states = self._profile_state.get_server_states()
        return {
            name
            for name in self._profile_state.snapshot.unlisted_servers
            if name in states and states[name].state not in TROUBLED_STATES
        }

    def _find_named_servers(self, params: Raw) -> set[str]:
        """Return the starting servers that a call mentions, unless its tool is known."""
        named: Any = params.get("name")
        if named in self._profile_state.settings.enabled_meta_tools:
            arguments = params.get("arguments")
            named = None
            if isinstance(arguments, dict):
                named = arguments.get(_NAMING_ARGUMENTS.get(params["name"], ""))
        if not isinstance(named, str | list) or not named:
            return set()
        if isinstance(named, str) and named in self._profile_state.snapshot.tool_names:
            return set()
        text = fold(str(named)[:_MAX_TEXT_CHARS])
        return {name for name in self._list_starting() if fold(name) in text}
