"""Selection of the upstream tools that best fit a task, to be listed beside the meta-tools.

The task is the `intent` of a profile (exposure `semantic`), or a `query` in the params of
`tools/list`. The selection for an intent changes only with the catalog, never with use, because
clients cache prompts on the list.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from portico.catalog.snapshot import Snapshot
from portico.catalog.tool import Tool
from portico.errors import INVALID_PARAMS, RemoteError
from portico.json_text import json_codec
from portico.profiles.profile_state import ProfileSettings, ProfileState
from portico.rendering.strict_definitions import to_strict_tool
from portico.rendering.token_budget import count_tokens
from portico.search import EncoderUnavailable, Index
from portico.search.lexical.tokens import MAX_TEXT
from portico.upstream.backend import Raw

META_KEY = "portico/relevant"
"""Key in `_meta` of a selected list: how many of how many, and which were too long."""


@dataclass(frozen=True)
class RelevantTools:
    """Tools that fit a task, best first, by the names they are listed under."""

    tools: Mapping[str, Tool] = field(default_factory=dict)
    candidate_count: int = 0
    """Number of tools that were considered."""
    left_out: tuple[str, ...] = ()
    """Names of tools that matched but exceeded the token budget."""
    nothing_fits: bool = False
    """No tool matched the task."""

    def render(self, render_tool: Callable[[Tool, str], Raw]) -> list[Raw]:
        return [render_tool(tool, name) for name, tool in self.tools.items()]

    @property
    def meta(self) -> Raw:
        """The `_meta` entry that describes the selection to the client."""
        summary: Raw = {"listed": len(self.tools), "of": self.candidate_count}
        if self.left_out:
            summary["left_out"] = list(self.left_out)
            summary["why"] = "their definitions would take the list over budgets.listing"
        if self.nothing_fits:
            summary["why"] = "no tool here seems to serve this"
        return {META_KEY: summary}


def select_relevant_tools(
    snapshot: Snapshot,
    tools_by_name: Mapping[str, Tool],
    query: str,
    limit: int,
    budget: int,
    *,
    require_match: bool = False,
) -> RelevantTools:
    """Return the visible tools that best match a query; keys of `tools_by_name` are the listed
    names.

    A tool whose definition exceeds the rest of the budget is skipped. With `require_match`, a weak
    ranking selects nothing.
    """
    visible = snapshot.tools.__contains__ if snapshot.is_restricted else None
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
    """Return the query in the params of a listing, or an empty string.

    Raises RemoteError where it is not text.
    """
    query = params.get("query")
    if query is not None and not isinstance(query, str):
        raise RemoteError(
            INVALID_PARAMS,
            "the query of tools/list is text: what you want to do, in your own words",
        )
    return (query or "").strip()


class IntentTools:
    """Tools selected for the intent of a profile, recomputed only when the catalog changes.

    Until every tool has its embedding, ranking is lexical only: a list that changed with each
    embedding would never be cached.
    """

    def __init__(self, profile_state: ProfileState) -> None:
        self._profile_state = profile_state
        self._selected: RelevantTools | None = None
        self._selected_for: tuple[str, bool, ProfileSettings] | None = None
        self._index: Index | None = None
        self._is_encoded = False

    async def load_encoder(self) -> None:
        """Wait for the embedding model to load (0.5 s, once), so that the first list is final."""
        encoder = self._profile_state.snapshot.index.encoder
        if encoder is not None and not encoder.is_loaded and not encoder.problem:
            with suppress(EncoderUnavailable):
                await asyncio.to_thread(encoder.load)

    def select_tools(self) -> RelevantTools:
        snapshot = self._profile_state.snapshot
        settings = self._profile_state.settings
        by_meaning = self._can_rank_by_meaning(snapshot)
        key = snapshot.version, by_meaning, settings
        if self._selected is None or self._selected_for != key:
            searched = snapshot
            if not by_meaning:
                searched = snapshot.with_index(replace(snapshot.index, encoder=None))
            self._selected = select_relevant_tools(
                searched,
                snapshot.tools_by_flat_name,
                settings.intent,
                settings.top_k,
                settings.listing_budget,
            )
            self._selected_for = key
        return self._selected

    def has_changed(self) -> bool:
        """Return whether the selection differs from the last one; False if none was listed."""
        previous = self._selected
        return previous is not None and [*self.select_tools().tools.items()] != [
            *previous.tools.items()
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
