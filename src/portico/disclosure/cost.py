"""What listings cost a client in tokens, and whether the tiers keep their budgets. Pure.

A client gives its model a tool's name, description and input schema, and nothing else of the definition: titles,
annotations, icons, output schemas and `_meta` stay with the client. So these three, as compact JSON, are what a listed
tool costs, whoever lists it. The figures are lower than the bytes on the wire, and what is saved is not overstated.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from portico.catalog.tool import Tool
from portico.disclosure.listable import listable
from portico.disclosure.tokens import count as estimated
from portico.upstream import jsontext

Count = Callable[[str], int]
TierName = Literal["T0", "T1", "T2", "T3"]
BUDGETS: Mapping[TierName, int] = {"T0": 2_000, "T1": 4_000, "T2": 8_000, "T3": 12_000}
"""What a tier may cost together with those before it."""
_FOR_THE_MODEL = ("name", "description", "inputSchema")


def listed_tokens(definition: Mapping[str, Any], count: Count = estimated) -> int:
    """What one definition of a `tools/list` answer costs."""
    told = {key: definition[key] for key in _FOR_THE_MODEL if key in definition}
    return count(jsontext.dumps(told).decode("utf-8", "replace"))


def definition_tokens(tool: Tool, count: Count = estimated) -> int:
    """What a tool costs a client that its own server lists it to, made fit for strict clients."""
    return listed_tokens(listable(tool.definition, tool.upstream_name), count)


class Costs:
    """What definitions cost, each counted once; may be filled by a thread while another reads."""

    def __init__(self, count: Count = estimated) -> None:
        self._count = count
        self._of: dict[str, int] = {}

    def of(self, tool: Tool) -> int:
        """What one tool costs; counted now if it was not before."""
        found = self._of.get(tool.hash)
        if found is None:
            found = self._of[tool.hash] = definition_tokens(tool, self._count)
        return found

    def total(self, tools: Iterable[Tool]) -> int:
        """What these cost together; counts those that were not before."""
        return sum(map(self.of, tools))

    def known(self, tools: Iterable[Tool]) -> int:
        """The same, but 0 until every one of them was counted: quick."""
        costs = [self._of.get(tool.hash, 0) for tool in tools]
        return sum(costs) if all(costs) else 0

    def uncounted(self, tools: Iterable[Tool]) -> list[Tool]:
        """Those of them that were not counted yet."""
        return [tool for tool in tools if tool.hash not in self._of]

    def keep(self, tools: Iterable[Tool]) -> None:
        """Forget all others: a gateway that runs for months meets many versions of its tools."""
        current = {tool.hash for tool in tools}
        self._of = {hash_: cost for hash_, cost in self._of.items() if hash_ in current}


@dataclass(frozen=True, slots=True)
class Served:
    """One answer that serves a tier."""

    tier: TierName
    asked: str
    """What a client asks for it, in words."""
    tokens: int


@dataclass(frozen=True, slots=True)
class TierSize:
    """A tier as it was served, after the tiers before it."""

    served: Served
    together: int

    @property
    def budget(self) -> int:
        """What it may cost, together with those before it."""
        return BUDGETS[self.served.tier]

    @property
    def over(self) -> bool:
        """Whether it costs more than it may."""
        return self.together > self.budget


def tier_sizes(served: Sequence[Served]) -> tuple[TierSize, ...]:
    """Answers in the order of their tiers, added up."""
    together, sizes = 0, list[TierSize]()
    for one in sorted(served, key=lambda one: one.tier):
        together += one.tokens
        sizes.append(TierSize(one, together))
    return tuple(sizes)


def saved_share(direct: int, paid: int) -> float:
    """How much of the direct cost is not paid; less than nothing where more is."""
    return 1 - paid / direct if direct else 0.0
