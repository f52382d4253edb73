"""What listings cost a client in tokens, and whether the tiers keep their budgets. Pure.

A client gives its model a tool's name, description and input schema, and nothing else of the
definition: titles, annotations, icons, output schemas and `_meta` stay with the client. So these
three, as compact JSON, are what a listed tool costs, whoever lists it. The figures are lower than
the bytes on the wire, and what is saved is not overstated.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from portico.catalog.tool import Tool
from portico.json_text import json_codec
from portico.rendering.strict_definitions import to_strict_tool
from portico.rendering.token_count import count_tokens as estimated

CountTokens = Callable[[str], int]
TierName = Literal["T0", "T1", "T2", "T3"]
TIER_BUDGETS: Mapping[TierName, int] = {"T0": 2_000, "T1": 4_000, "T2": 8_000, "T3": 12_000}
"""What a tier may cost together with those before it."""
_MODEL_FIELDS = ("name", "description", "inputSchema")


def count_listed_tokens(definition: Mapping[str, Any], count: CountTokens = estimated) -> int:
    """What one definition of a `tools/list` answer costs."""
    told = {key: definition[key] for key in _MODEL_FIELDS if key in definition}
    return count(json_codec.dumps(told).decode("utf-8", "replace"))


def count_definition_tokens(tool: Tool, count: CountTokens = estimated) -> int:
    """What a tool costs a client that its own server lists it to, made fit for strict clients."""
    return count_listed_tokens(to_strict_tool(tool.definition, tool.upstream_name), count)


class DefinitionCosts:
    """What definitions cost, each counted once; may be filled by a thread while another reads."""

    def __init__(self, count: CountTokens = estimated) -> None:
        self._count = count
        self._tokens_by_hash: dict[str, int] = {}

    def measure(self, tool: Tool) -> int:
        """What one tool costs; counted now if it was not before."""
        found = self._tokens_by_hash.get(tool.hash)
        if found is None:
            found = self._tokens_by_hash[tool.hash] = count_definition_tokens(tool, self._count)
        return found

    def measure_all(self, tools: Iterable[Tool]) -> int:
        """What these cost together; counts those that were not before."""
        return sum(map(self.measure, tools))

    def get_known_total(self, tools: Iterable[Tool]) -> int:
        """The same, but 0 until every one of them was counted: quick."""
        costs = [self._tokens_by_hash.get(tool.hash, 0) for tool in tools]
        if all(costs):
            return sum(costs)
        return 0

    def find_uncounted(self, tools: Iterable[Tool]) -> list[Tool]:
        """Those of them that were not counted yet."""
        return [tool for tool in tools if tool.hash not in self._tokens_by_hash]

    def keep_only(self, tools: Iterable[Tool]) -> None:
        """Forget all others: a gateway that runs for months meets many versions of its tools."""
        current = {tool.hash for tool in tools}
        self._tokens_by_hash = {
            hash_: cost for hash_, cost in self._tokens_by_hash.items() if hash_ in current
        }


@dataclass(frozen=True, slots=True)
class TierResponse:
    """One answer that serves a tier."""

    tier: TierName
    request: str
    """What a client asks for it, in words."""
    tokens: int


@dataclass(frozen=True, slots=True)
class TierSize:
    """A tier as it was served, after the tiers before it."""

    response: TierResponse
    cumulative_tokens: int

    @property
    def budget(self) -> int:
        """What it may cost, together with those before it."""
        return TIER_BUDGETS[self.response.tier]

    @property
    def is_over_budget(self) -> bool:
        """Whether it costs more than it may."""
        return self.cumulative_tokens > self.budget


def compute_tier_sizes(responses: Sequence[TierResponse]) -> tuple[TierSize, ...]:
    """Answers in the order of their tiers, added up."""
    together = 0
    sizes = list[TierSize]()
    for one in sorted(responses, key=lambda one: one.tier):
        together += one.tokens
        sizes.append(TierSize(one, together))
    return tuple(sizes)


def compute_saved_share(direct_tokens: int, paid_tokens: int) -> float:
    """How much of the direct cost is not paid; less than nothing where more is."""
    if direct_tokens:
        return 1 - paid_tokens / direct_tokens
    return 0.0
