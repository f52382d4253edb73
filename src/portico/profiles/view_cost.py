"""What a client pays before its first request, directly and through Portico: counted here only.

Instructions and listed definitions, as a client gets them from `initialize` and `tools/list`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from portico.calls.pipeline import DEFAULT_CONTEXT
from portico.catalog.snapshot import Snapshot
from portico.profiles.view import ProfileView
from portico.rendering.listing_cost import DefinitionCosts, count_listed_tokens
from portico.rendering.token_budget import TokenCounter


@dataclass(frozen=True)
class ViewCost:
    """The cost of one view in tokens."""

    tools: int
    listing: int
    instructions: int

    @property
    def tokens(self) -> int:
        return self.listing + self.instructions


@dataclass(frozen=True)
class DirectCost:
    """The cost of one server, or several, for a client that is connected without Portico."""

    name: str
    tools: int
    definitions: int
    instructions: int

    @property
    def tokens(self) -> int:
        return self.definitions + self.instructions


def measure_servers(snapshot: Snapshot, counter: TokenCounter) -> list[DirectCost]:
    """Count what the servers that are listed cost without Portico, the dearest first."""
    costs = DefinitionCosts(counter.count)
    found = [
        DirectCost(
            entry.name,
            len(entry.tools),
            costs.measure_all(entry.tools.values()),
            counter.count(entry.initialize_info.instructions) if entry.initialize_info else 0,
        )
        for entry in snapshot.servers.values()
        if entry.is_listed
    ]
    return sorted(found, key=lambda cost: (-cost.tokens, cost.name))


def sum_costs(name: str, costs: Sequence[DirectCost]) -> DirectCost:
    """Return the costs of several servers as one."""
    return DirectCost(
        name,
        sum(cost.tools for cost in costs),
        sum(cost.definitions for cost in costs),
        sum(cost.instructions for cost in costs),
    )


async def measure_view(view: ProfileView, counter: TokenCounter) -> ViewCost:
    """Count what a client of this view lists, and its instructions."""
    number = 0
    listing = 0
    params: dict[str, Any] = {}
    while True:
        page = await view.handle("tools/list", params, DEFAULT_CONTEXT, "modern")
        number += len(page["tools"])
        listing += sum(count_listed_tokens(tool, counter.count) for tool in page["tools"])
        if page.get("nextCursor") is None:
            return ViewCost(number, listing, counter.count(view.render_instructions()))
        params = {"cursor": page["nextCursor"]}
