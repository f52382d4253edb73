"""Measures what servers cost a client in tokens, directly and through Portico.

Servers without a stored listing are started through the gateway, with its concurrency limit; their
listings are stored, so that the gateway need not list them again.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from portico.app import GatewayRuntime
from portico.calls.pipeline import DEFAULT_CONTEXT
from portico.config import Config
from portico.profiles.view import ProfileView
from portico.rendering.listing_cost import DefinitionCosts, count_listed_tokens
from portico.rendering.token_count import TokenCounter, get_best_counter

LISTING_TIMEOUT_S = 60.0
"""How long all servers may be silent before the count goes on without them: npx may have to
download them.
"""

OnServerListed = Callable[[str], None]


@dataclass(frozen=True)
class DirectServerCost:
    """The cost of one server for a client that is connected to it directly."""

    tools: int
    tokens: int
    """Definitions and instructions."""


@dataclass(frozen=True)
class AdoptionCosts:
    """The measured costs."""

    counter: str
    servers: Mapping[str, DirectServerCost]
    """By name; without servers that could not be listed."""
    gateway_tokens: int
    """The cost of all of them for a client of the gateway, before its first request."""
    failures: Mapping[str, str]
    """Name → why it could not be started or listed."""

    def sum_direct_tokens(self, names: Collection[str]) -> int:
        """Sum the direct costs of these servers."""
        return sum(cost.tokens for name, cost in self.servers.items() if name in names)


async def measure_costs(
    config: Config, start: Collection[str], on_listed: OnServerListed = lambda name: None
) -> AdoptionCosts:
    """Count what a configuration's servers list; those in `start` are started if never listed."""
    gateway = GatewayRuntime(config)
    try:
        known = gateway.catalog.snapshot.servers
        unknown = [
            name for name in gateway.upstreams if name in start and not known[name].is_listed
        ]
        for name in start:
            if name not in unknown:
                on_listed(name)
        await _list_servers(gateway, unknown, on_listed)
        return await _count_costs(gateway, get_best_counter(), unknown)
    finally:
        await gateway.close()


async def _list_servers(
    gateway: GatewayRuntime, names: Collection[str], on_listed: OnServerListed
) -> None:
    if not names:
        return
    try:
        async with asyncio.timeout(LISTING_TIMEOUT_S) as waited:

            def on_progress(name: str) -> None:
                on_listed(name)
                if not waited.expired():
                    waited.reschedule(asyncio.get_running_loop().time() + LISTING_TIMEOUT_S)

            await gateway.refresh(names, on_progress)
    except TimeoutError:
        return  # Servers that have not answered are among the failures.


async def _count_costs(
    gateway: GatewayRuntime, counter: TokenCounter, started: Collection[str]
) -> AdoptionCosts:
    costs = DefinitionCosts(counter.count)
    servers: dict[str, DirectServerCost] = {}
    for entry in gateway.catalog.snapshot.servers.values():
        if entry.is_listed:
            if entry.initialize_info:
                instruction_tokens = counter.count(entry.initialize_info.instructions)
            else:
                instruction_tokens = 0
            servers[entry.name] = DirectServerCost(
                len(entry.tools), costs.measure_all(entry.tools.values()) + instruction_tokens
            )
    failures = {
        name: gateway.upstreams[name].get_status().reason or "it did not answer in time"
        for name in started
        if name not in servers
    }
    return AdoptionCosts(
        counter.name, servers, await _count_gateway_tokens(gateway, counter), failures
    )


async def _count_gateway_tokens(gateway: GatewayRuntime, counter: TokenCounter) -> int:
    # A separate view without an event bus: the measured listing is shown to no client.
    view = ProfileView(
        gateway.get_view().settings,
        gateway.catalog,
        gateway.calls,
        gateway.upstreams,
        usage_data=gateway.usage_data,
    )
    total = counter.count(view.render_instructions())
    cursor = None
    while True:
        page = await view.handle(
            "tools/list", {"cursor": cursor} if cursor else {}, DEFAULT_CONTEXT, "modern"
        )
        total += sum(count_listed_tokens(tool, counter.count) for tool in page["tools"])
        cursor = page.get("nextCursor")
        if cursor is None:
            return total
