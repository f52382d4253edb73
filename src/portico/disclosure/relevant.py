"""The few upstream tools that serve a purpose best, to be listed beside the meta-tools.

The purpose is the `intent` of a profile (exposure `semantic`), or a `query` in the params of `tools/list`. What an
intent brings changes only with the catalog, never with use: clients cache prompts on the list.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from portico.catalog.snapshot import Snapshot
from portico.catalog.tool import Tool
from portico.disclosure.listable import listable
from portico.disclosure.sight import Face, Sight
from portico.disclosure.tokens import count
from portico.errors import INVALID_PARAMS, RemoteError
from portico.search import EncoderUnavailable, Index
from portico.search.lexical.query import MAX_TEXT
from portico.upstream import jsontext
from portico.upstream.backend import Raw

KEY = "portico/relevant"
"""In `_meta` of a list that was chosen: how many of how many, and which were too long."""


@dataclass(frozen=True)
class Relevant:
    """Tools that serve a purpose, best first, by the names they are listed under."""

    tools: Mapping[str, Tool] = field(default_factory=dict)
    of: int = 0
    """How many they were chosen from."""
    left_out: tuple[str, ...] = ()
    """What would have been among them, but for the tokens."""
    unserved: bool = False
    """Nothing seems to serve the purpose."""

    @property
    def definitions(self) -> list[Raw]:
        """As they are listed."""
        return [listable(tool.definition, name) for name, tool in self.tools.items()]

    @property
    def meta(self) -> Raw:
        """What a client is told of the choice."""
        said: Raw = {"listed": len(self.tools), "of": self.of}
        if self.left_out:
            said["left_out"] = list(self.left_out)
            said["why"] = "their definitions would take the list over budgets.listing"
        if self.unserved:
            said["why"] = "no tool here seems to serve this"
        return {KEY: said}


def relevant(
    snapshot: Snapshot, names: Mapping[str, Tool], query: str, most: int, budget: int, *, fitting: bool = False
) -> Relevant:
    """The tools that serve a query best, of those that are visible: `names` is what each is listed under.

    One too long for what is left of the budget is left out for the next. `fitting`: none where nothing seems to fit.
    """
    visible = None if snapshot.scope.everything else snapshot.tools.__contains__
    by_address = {tool.address: name for name, tool in names.items()}
    ranking = snapshot.index.search(query[:MAX_TEXT], most, allow=visible)
    if fitting and ranking.weak:
        return Relevant(of=len(by_address), unserved=True)
    chosen: dict[str, Tool] = {}
    left_out: list[str] = []
    for name in (by_address[hit.id] for hit in ranking.hits if hit.id in by_address):
        tool = names[name]
        cost = count(jsontext.dumps(listable(tool.definition, name)).decode())
        if cost <= budget:
            chosen[name] = tool
            budget -= cost
        else:
            left_out.append(name)
    return Relevant(chosen, len(by_address), tuple(left_out))


def asked(params: Mapping[str, Any]) -> str:
    """The query in the params of a listing; empty where there is none."""
    query = params.get("query")
    if query is not None and not isinstance(query, str):
        raise RemoteError(INVALID_PARAMS, "the query of tools/list is text: what you want to do, in your own words")
    return (query or "").strip()


class Intended:
    """What the intent of a profile brings into its list: worked out anew only when the catalog is another.

    Until every tool has its vector, words alone choose: a list that changed with each vector would never be cached.
    """

    def __init__(self, sight: Sight) -> None:
        self._sight = sight
        self._chosen: Relevant | None = None
        self._chosen_for: tuple[str, bool, Face] | None = None
        self._index: Index | None = None
        self._encoded = False

    async def ready(self) -> None:
        """Wait until the model has been read, which takes half a second, once: the first list is then the last."""
        encoder = self._sight.snapshot.index.encoder
        if encoder is not None and not encoder.loaded and not encoder.problem:
            with suppress(EncoderUnavailable):
                await asyncio.to_thread(encoder.load)

    def now(self) -> Relevant:
        """The tools it brings now."""
        snapshot, face = self._sight.snapshot, self._sight.face
        by_meaning = self._by_meaning(snapshot)
        key = snapshot.version, by_meaning, face
        if self._chosen is None or self._chosen_for != key:
            searched = snapshot if by_meaning else snapshot.with_index(replace(snapshot.index, encoder=None))
            self._chosen = relevant(searched, snapshot.flat, face.intent, face.top_k, face.listing_budget)
            self._chosen_for = key
        return self._chosen

    def differs(self) -> bool:
        """Whether it brings others than those that were listed last; who has listed none, misses none."""
        before = self._chosen
        return before is not None and [*self.now().tools.items()] != [*before.tools.items()]

    def _by_meaning(self, snapshot: Snapshot) -> bool:
        encoder = snapshot.index.encoder
        if encoder is None or not encoder.loaded or encoder.problem:
            return False
        if self._index is not snapshot.index:
            self._index = snapshot.index
            self._encoded = not any(snapshot.index.unencoded(name) for name in snapshot.servers)
        return self._encoded
