"""What servers cost a client in tokens, directly and through Portico: known from last time, or started and asked.

Servers are started through the gateway, so many at a time as it starts, and what they list is remembered: the gateway
that runs on them later need not ask again.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from portico.app import Gateway
from portico.config import Config
from portico.disclosure.cost import Costs, listed_tokens
from portico.disclosure.tokens import Counter, best_counter
from portico.disclosure.view import View
from portico.execution.call import NOBODY

PATIENCE_S = 60.0
"""How long servers may be silent, all of them, before what is known must do: npx may have to download them."""

Heard = Callable[[str], None]


@dataclass(frozen=True)
class Bill:
    """What one server costs a client that is connected to it directly."""

    tools: int
    tokens: int
    """Definitions and instructions."""


@dataclass(frozen=True)
class Bills:
    """What was measured."""

    counter: str
    servers: Mapping[str, Bill]
    """By name; a server that could not be asked is missing."""
    through: int
    """What a client of the gateway pays for all of them before its first word."""
    failures: Mapping[str, str]
    """Name → why it could not be started or listed."""

    def direct(self, names: Collection[str]) -> int:
        """What these cost together."""
        return sum(bill.tokens for name, bill in self.servers.items() if name in names)


async def measured(config: Config, start: Collection[str], heard: Heard = lambda name: None) -> Bills:
    """Count what a configuration's servers list; those in `start` are started where nothing is known of them."""
    gateway = Gateway(config)
    try:
        known = gateway.catalog.snapshot.servers
        unknown = [name for name in gateway.upstreams if name in start and not known[name].known]
        for name in start:
            if name not in unknown:
                heard(name)
        await _asked(gateway, unknown, heard)
        return await _counted(gateway, best_counter(), unknown)
    finally:
        await gateway.close()


async def _asked(gateway: Gateway, names: Collection[str], heard: Heard) -> None:
    if not names:
        return
    try:
        async with asyncio.timeout(PATIENCE_S) as waited:

            def again(name: str) -> None:
                heard(name)
                if not waited.expired():
                    waited.reschedule(asyncio.get_running_loop().time() + PATIENCE_S)

            await gateway.refresh(names, again)
    except TimeoutError:
        return  # who has not answered by now is told among the failures


async def _counted(gateway: Gateway, counter: Counter, asked: Collection[str]) -> Bills:
    costs = Costs(counter.count)
    servers: dict[str, Bill] = {}
    for entry in gateway.catalog.snapshot.servers.values():
        if entry.known:
            greeting = counter.count(entry.hello.instructions) if entry.hello else 0
            servers[entry.name] = Bill(len(entry.tools), costs.total(entry.tools.values()) + greeting)
    failures = {
        name: gateway.upstreams[name].status().reason or "it did not answer in time"
        for name in asked
        if name not in servers
    }
    return Bills(counter.name, servers, await _through(gateway, counter), failures)


async def _through(gateway: Gateway, counter: Counter) -> int:
    # A view of its own, that tells nobody: what is measured was shown to no client.
    view = View(gateway.view().face, gateway.catalog, gateway.calls, gateway.upstreams, insight=gateway.insight)
    total, cursor = counter.count(view.instructions()), None
    while True:
        page = await view.handle("tools/list", {"cursor": cursor} if cursor else {}, NOBODY, "modern")
        total += sum(listed_tokens(tool, counter.count) for tool in page["tools"])
        cursor = page.get("nextCursor")
        if cursor is None:
            return total
