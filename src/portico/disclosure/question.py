"""What is looked for, in which part of the catalog, and with what is known of its use. Pure."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict

from portico.catalog.address import fold, nearest
from portico.catalog.categories import resolve
from portico.catalog.snapshot import Snapshot
from portico.catalog.visible import quoted, shown
from portico.disclosure.prose import flat
from portico.errors import UnknownName
from portico.search import Facts, Filters, Lift, Placement, Ranking
from portico.search.lexical.query import MAX_TEXT

PAGE = 8
_NAMED_TAGS = 40


@dataclass(frozen=True)
class Question:
    """One search, as it was asked."""

    query: str
    server: str | None = None
    tags: tuple[str, ...] = ()
    max_latency_ms: float | None = None
    min_success_rate: float | None = None
    limit: int = PAGE
    detail: str = "brief"
    cursor: str | None = None
    category: str | None = None

    def __post_init__(self) -> None:
        # Here, where every query enters: whatever remembers it remembers no more than is read.
        object.__setattr__(self, "query", self.query[:MAX_TEXT])

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> "Question":
        """The question that the checked arguments of a search ask."""
        given: dict[str, Any] = dict(arguments)
        given["tags"] = tuple(given.get("tags", ()))
        return cls(**given)

    def filters(self, snapshot: Snapshot) -> Filters:
        """Who may be found; raises UnknownName for a server, a category or a tag that is not there."""
        return Filters(
            groups={snapshot.server(self.server).name} if self.server else None,
            categories={resolve(self.category, snapshot.categories)} if self.category else (),
            tags=tuple(_tag(tag, snapshot) for tag in self.tags),
            max_latency_ms=self.max_latency_ms,
            min_success_rate=self.min_success_rate,
        )


class _Known(TypedDict):
    filters: Filters
    allow: Callable[[str], bool] | None
    lifts: Mapping[str, Lift]
    facts: Mapping[str, Facts]


@dataclass(frozen=True)
class Search:
    """A question to one snapshot, with what use has taught: asked again, it is answered the same."""

    snapshot: Snapshot
    question: Question
    filters: Filters = field(default_factory=Filters)
    lifts: Mapping[str, Lift] = field(default_factory=dict)
    facts: Mapping[str, Facts] = field(default_factory=dict)
    computed: str = ""
    """When everybody's use was last weighed: its lifts are others after that."""

    @property
    def version(self) -> str:
        """Changes when the order may; only what this very caller has taught since is not in it."""
        return f"{self.snapshot.version}-{self.computed}"

    def ranking(self, limit: int, offset: int = 0) -> Ranking:
        """The addresses that match best among those the snapshot's scope sees."""
        return self.snapshot.index.search(self.question.query, limit, offset=offset, **self._known)

    def placement(self, address: str) -> Placement | None:
        """Where one tool stands, whether it is shown or hidden; None where nothing is known of it."""
        return self.snapshot.index.place(self.question.query, address, **self._known)

    @property
    def _known(self) -> "_Known":
        visible = None if self.snapshot.scope.everything else self.snapshot.tools.__contains__
        return {"filters": self.filters, "allow": visible, "lifts": self.lifts, "facts": self.facts}

    @property
    def where(self) -> str:
        """The part of the catalog that is searched, in words; empty where it is all."""
        return ", ".join(_limits(self.filters))

    @property
    def unmeasured(self) -> bool:
        """Whether tools were to be left out by how their calls went, and no call is known."""
        asked = self.filters.max_latency_ms is not None or self.filters.min_success_rate is not None
        return asked and not self.facts


def _limits(filters: Filters) -> Iterator[str]:
    if filters.groups:
        yield f"on {', '.join(filters.groups)}"
    if filters.categories:
        yield f"in {', '.join(filters.categories)}"
    if filters.tags:
        yield f"tagged {flat(shown(' or '.join(filters.tags)))}"
    if filters.max_latency_ms is not None:
        yield f"within {filters.max_latency_ms:g} ms"
    if filters.min_success_rate is not None:
        yield f"succeeding {filters.min_success_rate:.0%} of the time or more"


def known_tags(snapshot: Snapshot) -> list[str]:
    """Every tag of the servers that are seen."""
    return sorted({tag for entry in snapshot.servers.values() for tag in entry.tags}, key=str.casefold)


def _tag(tag: str, snapshot: Snapshot) -> str:
    known, meant = known_tags(snapshot), fold(tag)
    alike = [one for one in known if one == tag or (meant and fold(one) == meant)]
    if alike:
        return tag if tag in alike else alike[0]
    if not known:
        raise UnknownName(f"there is no tag {quoted(tag)}: no server here has tags", advice="Leave the tags out.")
    near = nearest(tag, known)
    named = [*near, *(one for one in known if one not in near)]
    rest = f" and {len(named) - _NAMED_TAGS} more" if len(named) > _NAMED_TAGS else ""
    raise UnknownName(
        f"there is no tag {quoted(tag)} here",
        nearest=tuple(near),
        advice=f"Tags here: {', '.join(map(shown, named[:_NAMED_TAGS]))}{rest}.",
    )
