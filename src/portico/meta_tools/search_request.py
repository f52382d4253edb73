"""What is looked for, in which part of the catalog, and with what is known of its use. Pure."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict

from portico.catalog.address import find_nearest_names, fold
from portico.catalog.categories import resolve_category
from portico.catalog.snapshot import Snapshot
from portico.catalog.visible_text import quote_text, sanitize_text
from portico.errors import UnknownName
from portico.rendering.prose import collapse_whitespace
from portico.search import Boost, Placement, Ranking, SearchFilters, UsageFacts
from portico.search.lexical.query import MAX_TEXT

DEFAULT_LIMIT = 8
_MAX_NAMED_TAGS = 40


@dataclass(frozen=True)
class SearchRequest:
    """One search, as it was asked."""

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
        # Here, where every query enters: whatever remembers it remembers no more than is read.
        object.__setattr__(self, "query", self.query[:MAX_TEXT])

    @classmethod
    def from_arguments(cls, arguments: Mapping[str, Any]) -> "SearchRequest":
        """The question that the checked arguments of a search ask."""
        given: dict[str, Any] = dict(arguments)
        given["tags"] = tuple(given.get("tags", ()))
        return cls(**given)

    def build_filters(self, snapshot: Snapshot) -> SearchFilters:
        """Who may be found; raises UnknownName for a server, a category or a tag that is not there."""
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


@dataclass(frozen=True)
class PreparedSearch:
    """A question to one snapshot, with what use has taught: asked again, it is answered the same."""

    snapshot: Snapshot
    request: SearchRequest
    filters: SearchFilters = field(default_factory=SearchFilters)
    boosts: Mapping[str, Boost] = field(default_factory=dict)
    facts: Mapping[str, UsageFacts] = field(default_factory=dict)
    standings_version: str = ""
    """When everybody's use was last weighed: its lifts are others after that."""

    @property
    def version(self) -> str:
        """Changes when the order may; only what this very caller has taught since is not in it."""
        return f"{self.snapshot.version}-{self.standings_version}"

    def rank(self, limit: int, offset: int = 0) -> Ranking:
        """The addresses that match best among those the snapshot's scope sees."""
        return self.snapshot.index.search(
            self.request.query, limit, offset=offset, **self._ranking_options
        )

    def find_placement(self, address: str) -> Placement | None:
        """Where one tool stands, whether it is shown or hidden; None where nothing is known of it."""
        return self.snapshot.index.find_placement(
            self.request.query, address, **self._ranking_options
        )

    @property
    def _ranking_options(self) -> "_RankingOptions":
        if self.snapshot.scope.is_unrestricted:
            visible = None
        else:
            visible = self.snapshot.tools.__contains__
        return {
            "filters": self.filters,
            "allow": visible,
            "boosts": self.boosts,
            "facts": self.facts,
        }

    @property
    def scope_text(self) -> str:
        """The part of the catalog that is searched, in words; empty where it is all."""
        return ", ".join(_render_filters(self.filters))

    @property
    def is_unmeasured(self) -> bool:
        """Whether tools were to be left out by how their calls went, and no call is known."""
        asked = self.filters.max_latency_ms is not None or self.filters.min_success_rate is not None
        return asked and not self.facts


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
    """Every tag of the servers that are seen."""
    return sorted(
        {tag for entry in snapshot.servers.values() for tag in entry.tags}, key=str.casefold
    )


def _resolve_tag(tag: str, snapshot: Snapshot) -> str:
    known = list_tags(snapshot)
    meant = fold(tag)
    alike = [one for one in known if one == tag or (meant and fold(one) == meant)]
    if alike:
        if tag in alike:
            return tag
        return alike[0]
    if not known:
        raise UnknownName(
            f"there is no tag {quote_text(tag)}: no server here has tags",
            advice="Leave the tags out.",
        )
    near = find_nearest_names(tag, known)
    named = [*near, *(one for one in known if one not in near)]
    if len(named) > _MAX_NAMED_TAGS:
        rest = f" and {len(named) - _MAX_NAMED_TAGS} more"
    else:
        rest = ""
    raise UnknownName(
        f"there is no tag {quote_text(tag)} here",
        nearest=tuple(near),
        advice=f"Tags here: {', '.join(map(sanitize_text, named[:_MAX_NAMED_TAGS]))}{rest}.",
    )
