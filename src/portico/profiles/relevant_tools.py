"""The few upstream tools that serve a purpose best, to be listed beside the meta-tools.

The purpose is the `intent` of a profile (exposure `semantic`), or a `query` in the params of
`tools/list`. What an intent brings changes only with the catalog, never with use: clients cache
prompts on the list.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from portico.catalog.snapshot import Snapshot
from portico.catalog.tool import Tool
from portico.errors import INVALID_PARAMS, RemoteError
from portico.json_text import json_codec
from portico.profiles.profile_state import ProfileSettings, ProfileState
from portico.rendering.strict_definitions import to_strict_tool
from portico.rendering.token_count import count_tokens
from portico.search import EncoderUnavailable, Index
from portico.search.lexical.query import MAX_TEXT
from portico.upstream.backend import Raw

META_KEY = "portico/relevant"
"""In `_meta` of a list that was chosen: how many of how many, and which were too long."""


@dataclass(frozen=True)
class RelevantTools:
    """Tools that serve a purpose, best first, by the names they are listed under."""

    tools: Mapping[str, Tool] = field(default_factory=dict)
    candidate_count: int = 0
    """How many they were chosen from."""
    left_out: tuple[str, ...] = ()
    """What would have been among them, but for the tokens."""
    nothing_fits: bool = False
    """Nothing seems to serve the purpose."""

    @property
    def definitions(self) -> list[Raw]:
        """As they are listed."""
        return [to_strict_tool(tool.definition, name) for name, tool in self.tools.items()]

    @property
    def meta(self) -> Raw:
        """What a client is told of the choice."""
        said: Raw = {"listed": len(self.tools), "of": self.candidate_count}
        if self.left_out:
            said["left_out"] = list(self.left_out)
            said["why"] = "their definitions would take the list over budgets.listing"
        if self.nothing_fits:
            said["why"] = "no tool here seems to serve this"
        return {META_KEY: said}


def select_relevant_tools(
    snapshot: Snapshot,
    tools_by_name: Mapping[str, Tool],
    query: str,
    limit: int,
    budget: int,
    *,
    require_match: bool = False,
) -> RelevantTools:
    """The tools that serve a query best, of those that are visible: `names` is what each is listed
    under.

    One too long for what is left of the budget is left out for the next. `fitting`: none where
    nothing seems to fit.
    """
    if snapshot.scope.is_unrestricted:
        visible = None
    else:
        visible = snapshot.tools.__contains__
    by_address = {tool.address: name for name, tool in tools_by_name.items()}
    ranking = snapshot.index.search(query[:MAX_TEXT], limit, allow=visible)
    if require_match and ranking.is_weak:
        return RelevantTools(candidate_count=len(by_address), nothing_fits=True)
    chosen: dict[str, Tool] = {}
    left_out: list[str] = []
    for name in (by_address[hit.id] for hit in ranking.hits if hit.id in by_address):
        tool = tools_by_name[name]
        cost = count_tokens(json_codec.dumps(to_strict_tool(tool.definition, name)).decode())
        if cost <= budget:
            chosen[name] = tool
            budget -= cost
        else:
            left_out.append(name)
    return RelevantTools(chosen, len(by_address), tuple(left_out))


def parse_query(params: Mapping[str, Any]) -> str:
    """The query in the params of a listing; empty where there is none."""
    query = params.get("query")
    if query is not None and not isinstance(query, str):
        raise RemoteError(
            INVALID_PARAMS,
            "the query of tools/list is text: what you want to do, in your own words",
        )
    return (query or "").strip()


class IntentTools:
    """What the intent of a profile brings into its list: worked out anew only when the catalog is
    another.

    Until every tool has its vector, words alone choose: a list that changed with each vector would
    never be cached.
    """

    def __init__(self, profile_state: ProfileState) -> None:
        self._profile_state = profile_state
        self._selected: RelevantTools | None = None
        self._selected_for: tuple[str, bool, ProfileSettings] | None = None
        self._index: Index | None = None
        self._is_encoded = False

    async def load_encoder(self) -> None:
        """Wait until the model has been read, which takes half a second, once: the first list is
        then the last."""
        encoder = self._profile_state.snapshot.index.encoder
        if encoder is not None and not encoder.is_loaded and not encoder.problem:
            with suppress(EncoderUnavailable):
                await asyncio.to_thread(encoder.load)

    def select_tools(self) -> RelevantTools:
        """The tools it brings now."""
        snapshot = self._profile_state.snapshot
        face = self._profile_state.settings
        by_meaning = self._can_rank_by_meaning(snapshot)
        key = snapshot.version, by_meaning, face
        if self._selected is None or self._selected_for != key:
            if by_meaning:
                searched = snapshot
            else:
                searched = snapshot.with_index(replace(snapshot.index, encoder=None))
            self._selected = select_relevant_tools(
                searched, snapshot.tools_by_flat_name, face.intent, face.top_k, face.listing_budget
            )
            self._selected_for = key
        return self._selected

    def has_changed(self) -> bool:
        """Whether it brings others than those that were listed last; who has listed none, misses
        none."""
        before = self._selected
        return before is not None and [*self.select_tools().tools.items()] != [
            *before.tools.items()
        ]

    def _can_rank_by_meaning(self, snapshot: Snapshot) -> bool:
        encoder = snapshot.index.encoder
        if encoder is None or not encoder.is_loaded or encoder.problem:
            return False
        if self._index is not snapshot.index:
            self._index = snapshot.index
            self._is_encoded = not any(
                snapshot.index.list_unencoded(name) for name in snapshot.servers
            )
        return self._is_encoded
