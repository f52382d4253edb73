"""A search request, its filters, and the search prepared for one snapshot. Pure."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict

from portico.catalog.address import find_nearest_names, fold
from portico.catalog.categories import resolve_category
from portico.catalog.snapshot import Snapshot
from portico.catalog.tool import quote_text, sanitize_text
from portico.errors import UnknownName
from portico.rendering.prose import collapse_whitespace
from portico.rendering.token_budget import format_count
from portico.search import Boost, Placement, Ranking, SearchFilters, UsageFacts
from portico.search.lexical.tokens import MAX_TEXT

DEFAULT_LIMIT = 8
DEFAULT_TYPED_LIMIT = 5
"""Tools shown where the first ones have their parameters: few who need these look further."""
_MAX_NAMED_TAGS = 40


@dataclass(frozen=True)
class SearchRequest:
    query: str
    server: str | None = None
    tags: tuple[str, ...] = ()
    max_latency_ms: float | None = None
    min_success_rate: float | None = None
    limit: int = DEFAULT_LIMIT
    detail: str = "brief"
    cursor: str | None = None
    category: str | None = None

    def __post_init__(self) -> None:
        # Truncated at construction, so that nothing that stores queries holds more than is read.
        object.__setattr__(self, "query", self.query[:MAX_TEXT])

    @classmethod
    def from_arguments(cls, arguments: Mapping[str, Any]) -> "SearchRequest":
        """Build a request from the checked arguments of `search_tools`."""
        fields: dict[str, Any] = dict(arguments)
        if fields.get("detail") == "schema":
            fields.setdefault("limit", DEFAULT_TYPED_LIMIT)
        fields["tags"] = tuple(fields.get("tags", ()))
        return cls(**fields)

    def build_filters(self, snapshot: Snapshot) -> SearchFilters:
        """Return the filters; raises UnknownName for an unknown server, category or tag."""
        return SearchFilters(
            groups={snapshot.resolve_server(self.server).name} if self.server else None,
            categories={resolve_category(self.category, snapshot.categories)}
            if self.category
            else (),
            tags=tuple(_resolve_tag(tag, snapshot) for tag in self.tags),
            max_latency_ms=self.max_latency_ms,
            min_success_rate=self.min_success_rate,
        )


class _RankingOptions(TypedDict):
    filters: SearchFilters
    allow: Callable[[str], bool] | None
    boosts: Mapping[str, Boost]
    facts: Mapping[str, UsageFacts]
    preferred_groups: Collection[str]


@dataclass(frozen=True)
class PreparedSearch:
    """A search on one snapshot with fixed boosts: repeating it gives the same ranking."""

    snapshot: Snapshot
    request: SearchRequest
    filters: SearchFilters = field(default_factory=SearchFilters)
    boosts: Mapping[str, Boost] = field(default_factory=dict)
    facts: Mapping[str, UsageFacts] = field(default_factory=dict)
    standings_version: str = ""
    """Time at which the standings were last computed; boosts differ after that."""
    used_servers: frozenset[str] = frozenset()
    """Servers that the caller used before; their tools come first among equals."""

    @property
    def version(self) -> str:
        """Changes when the order may; boosts learned from this caller are not covered."""
        return f"{self.snapshot.version}-{self.standings_version}"

    def rank(self, limit: int, offset: int = 0) -> Ranking:
        """Return the best matching tools within the snapshot's scope."""
        return self.snapshot.index.search(
            self.request.query, limit, offset=offset, **self._ranking_options
        )

    def find_placement(self, address: str) -> Placement | None:
        """Return the rank of one tool, shown or hidden; None if it is not indexed."""
        return self.snapshot.index.find_placement(
            self.request.query, address, **self._ranking_options
        )

    @property
    def visible(self) -> Callable[[str], bool] | None:
        """Whether a tool exists for the searcher; None: all of the index do."""
        return self.snapshot.tools.__contains__ if self.snapshot.is_restricted else None

    @property
    def _ranking_options(self) -> "_RankingOptions":
        return {
            "filters": self.filters,
            "allow": self.visible,
            "boosts": self.boosts,
            "facts": self.facts,
            "preferred_groups": self.used_servers,
        }

    @property
    def scope_text(self) -> str:
        """The active filters in words; empty if there are none."""
        return ", ".join(_render_filters(self.filters))

    def add_figures(self, text: str, address: str) -> str:
        """Add latency and success of a tool to its first line, if the search filters by them."""
        if not self.filters.has_usage_limits:
            return text
        use = self.facts[address]
        latency = f"{use.latency_ms:,.0f} ms, " if use.successes else ""
        first, line_break, rest = text.partition("\n")
        figures = f"{latency}{use.success_rate:.1%} of {format_count(use.calls, 'call')} succeeded"
        return f"{first} [{figures}]{line_break}{rest}"


def _render_filters(filters: SearchFilters) -> Iterator[str]:
    if filters.groups:
        yield f"on {', '.join(filters.groups)}"
    if filters.categories:
        yield f"in {', '.join(filters.categories)}"
    if filters.tags:
        yield f"tagged {collapse_whitespace(sanitize_text(' or '.join(filters.tags)))}"
    if filters.max_latency_ms is not None:
        yield f"within {filters.max_latency_ms:g} ms"
    if filters.min_success_rate is not None:
        yield f"succeeding {filters.min_success_rate:.0%} of the time or more"


def list_tags(snapshot: Snapshot) -> list[str]:
    """Return every tag of the visible servers."""
    return sorted(
        {tag for entry in snapshot.servers.values() for tag in entry.tags}, key=str.casefold
    )


def _resolve_tag(tag: str, snapshot: Snapshot) -> str:
    known = list_tags(snapshot)
    folded = fold(tag)
    matches = [other for other in known if other == tag or (folded and fold(other) == folded)]
    if matches:
        return tag if tag in matches else matches[0]
    if not known:
        raise UnknownName(
            f"there is no tag {quote_text(tag)}: no server here has tags",
            advice="Leave the tags out.",
        )
    nearest = find_nearest_names(tag, known)
    listed = [*nearest, *(other for other in known if other not in nearest)]
    rest = ""
    if len(listed) > _MAX_NAMED_TAGS:
        rest = f" and {len(listed) - _MAX_NAMED_TAGS} more"
    raise UnknownName(
        f"there is no tag {quote_text(tag)} here",
        nearest=tuple(nearest),
        advice=f"Tags here: {', '.join(map(sanitize_text, listed[:_MAX_NAMED_TAGS]))}{rest}.",
    )
