"""Measures what servers cost a client in tokens, directly and through Portico.

Servers without a stored listing are started through the gateway, with its concurrency limit; their
listings are stored, so that the gateway need not list them again.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from portico.config import Config
from portico.gateway import GatewayRuntime
from portico.profiles.profile_state import ProfileState
from portico.profiles.view import ProfileView
from portico.profiles.view_cost import DirectCost, measure_servers, measure_view
from portico.rendering.token_budget import TokenCounter, get_best_counter

LISTING_TIMEOUT_S = 60.0
"""Silence of all servers after which the count goes on: npx may have to download them."""

OnServerListed = Callable[[str], None]


@dataclass(frozen=True)
class AdoptionCosts:
    """The measured costs."""

    counter: str
    servers: Mapping[str, DirectCost]
    """By name; without servers that could not be listed."""
    gateway_tokens: int
    """The cost of all of them for a client of the gateway, before its first request."""
    failures: Mapping[str, str]
    """Name → why it could not be started or listed."""
    sign_ins_needed: frozenset[str] = frozenset()
    """Those of the failures that only want a person to sign in."""

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
    servers = {cost.name: cost for cost in measure_servers(gateway.catalog.snapshot, counter)}
    failures = {
        name: gateway.upstreams[name].get_status().reason or "it did not answer in time"
        for name in started
        if name not in servers
    }
    sign_ins_needed = frozenset(
        name for name in failures if gateway.upstreams[name].state == "needs sign-in"
    )
    gateway_tokens = await _count_gateway_tokens(gateway, counter)
    return AdoptionCosts(counter.name, servers, gateway_tokens, failures, sign_ins_needed)


async def _count_gateway_tokens(gateway: GatewayRuntime, counter: TokenCounter) -> int:
    # A separate view without an event bus: the measured listing is shown to no client.
    settings = gateway.get_view().settings
    state = ProfileState(settings, gateway.catalog, gateway.upstreams, gateway.usage_data)
    return (await measure_view(ProfileView(state, gateway.calls), counter)).tokens
