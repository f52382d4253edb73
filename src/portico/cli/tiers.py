"""`portico tiers`: which tools matter here, by their use, and with --recompute what has moved.

--json: `{"computed_at" (ISO time or null), "hot_list": {"grounds", "tools": [address]}, "counts": {tier: number},
"total", "tools": [{"tool", "pinned", "calls", "success_rate", "p50_ms", "p95_ms", "last_used", "calls_7d",
"calls_30d", "tier", "tier_score"}], "uncounted": [address] (used since, and not counted yet)}`, the hottest first and
at most --limit. A tool that was never called has only `tool`, `pinned` and `calls`. --recompute adds `"moved":
[{"tool", "from", "to"}]`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from portico.catalog.visible import shown
from portico.cli.columns import Column, show_rows
from portico.cli.ending import DONE, note
from portico.cli.opening import PATIENCE_S, Setup, none, opened, recalled, unlisted
from portico.cli.screen import Screen
from portico.cli.wording import ago, milliseconds, share
from portico.disclosure.cards import iso, use_card
from portico.disclosure.lines import counted
from portico.disclosure.shelves import HOT, HotList, Shelves
from portico.disclosure.tiers import COLD, TIERS, Standing, Tier
from portico.observability.statistics import Statistics

_GROUNDS: Mapping[str, str] = {
    "use": "by use",
    "pins": "the pins of the configuration: no use is known yet",
    "one of each server": "one of each server, because no use is known yet and nothing is pinned",
}


@dataclass(frozen=True)
class Move:
    """A tool whose tier is another than before."""

    tool: str
    before: Tier
    after: Tier


@dataclass(frozen=True)
class _Answer:
    shelves: Shelves
    used: Mapping[str, Statistics]
    hot: HotList
    moved: tuple[Move, ...] | None

    @property
    def ranked(self) -> list[str]:
        """Every tool that was used or is pinned, the hottest first."""
        seen = {*self.shelves.standings, *self.used, *self.shelves.pins} & self.shelves.snapshot.tools.keys()

        def coldness(address: str) -> tuple[int, float, int, str]:
            standing = self.shelves.standing(address)
            calls = self.used[address].calls if address in self.used else 0
            return TIERS.index(standing.tier), -standing.score, -calls, address

        return sorted(seen, key=coldness)

    @property
    def uncounted(self) -> list[str]:
        """Tools that were used since the tiers were computed."""
        return [name for name in self.ranked if name in self.used and name not in self.shelves.standings]


async def tiers(setup: Setup, screen: Screen, *, recompute: bool, limit: int, offline: bool) -> int:
    """Every tool that was used, with its tier."""
    async with opened(setup, screen, none if offline else unlisted, PATIENCE_S) as gateway:
        # What is computed without a record is of no use to anybody.
        await (recalled(gateway) if recompute else gateway.recall())
        view, moved = gateway.view(setup.profile), None
        if recompute:
            before = view.shelves.standings
            await gateway.insight.standings.recompute()
            moved = tuple(one for one in moves(before, view.shelves.standings) if one.tool in view.snapshot.tools)
        there = view.snapshot.tools
        used = {name: use for name, use in gateway.insight.usage.used.items() if name in there}
        answer = _Answer(view.shelves, used, view.shelves.hot, moved)
        if problem := gateway.record.problem:
            note(f"Without what use has shown, because the record of calls cannot be read: {problem}")
    if screen.as_json:
        screen.data(_data(answer, limit))
    else:
        _show(screen, answer, limit)
    return DONE


def moves(before: Mapping[str, Standing], after: Mapping[str, Standing]) -> Iterable[Move]:
    """The tools whose tier changed, those that are hottest now first."""
    found = [
        Move(tool, before.get(tool, COLD).tier, after.get(tool, COLD).tier)
        for tool in sorted({*before, *after})
        if before.get(tool, COLD).tier != after.get(tool, COLD).tier
    ]
    return sorted(found, key=lambda move: TIERS.index(move.after))


def _data(answer: _Answer, limit: int) -> dict[str, Any]:
    shelves = answer.shelves
    data: dict[str, Any] = {
        "computed_at": iso(shelves.computed_at) if shelves.computed_at else None,
        "hot_list": {"grounds": answer.hot.grounds, "tools": [tool.address for tool in answer.hot.tools]},
        "counts": _counts(shelves),
        "total": len(answer.ranked),
        "tools": [
            {
                "tool": name,
                "pinned": name in shelves.pins,
                **use_card(answer.used.get(name, Statistics()), shelves.standing(name)),
            }
            for name in answer.ranked[:limit]
        ],
        "uncounted": answer.uncounted,
    }
    if answer.moved is not None:
        data["moved"] = [{"tool": one.tool, "from": one.before, "to": one.after} for one in answer.moved]
    return data


def _counts(shelves: Shelves) -> dict[str, int]:
    counts = Counter(shelves.standing(name).tier for name in shelves.snapshot.tools)
    return {tier: counts[tier] for tier in TIERS}


def _show(screen: Screen, answer: _Answer, limit: int) -> None:
    shelves, ranked = answer.shelves, answer.ranked
    computed = f"computed {ago(shelves.computed_at)}" if shelves.computed_at else "not computed yet"
    counts = ", ".join(f"{number:,} {tier}" for tier, number in _counts(shelves).items())
    screen.text(f"{counted(len(shelves.snapshot.tools), 'tool')}: {counts} ({computed}).")
    screen.text(*_moved_lines(answer.moved))
    if ranked:
        show_rows(screen, _COLUMNS, [_row(answer, name) for name in ranked[:limit]])
    if len(ranked) > limit:
        screen.text(Text(f"{len(ranked) - limit:,} more: --limit {len(ranked)}", style="dim"))
    if not answer.used:
        screen.text("No use is known yet: tools get their tiers when they are called.")
    elif answer.uncounted:
        since = counted(len(answer.uncounted), "tool")
        screen.text(Text(f"{since} used since then: portico tiers --recompute counts that, too.", style="dim"))
    hot = ", ".join(shown(tool.address) for tool in answer.hot.tools[:HOT])
    uncomputed = answer.used and answer.hot.grounds != "use"
    grounds = "tiers were not computed since the first call: --recompute does" if uncomputed else None
    screen.text(f"Hot list ({grounds or _GROUNDS[answer.hot.grounds]}): {hot or 'empty'}")
    if away := [name for name in shelves.pins if name not in shelves.snapshot.tools]:
        screen.text(f"Pinned, but no tool here: {', '.join(away)}")


_COLUMNS: Sequence[Column] = (
    Column("tool", style="cyan", whole=True),
    Column("tier"),
    *(Column(name, right=True) for name in ("score", "calls", "success", "p50", "p95", "7 d", "30 d")),
    Column("last used"),
)


def _row(answer: _Answer, name: str) -> Sequence[str]:
    use, standing = answer.used.get(name, Statistics()), answer.shelves.standing(name)
    pinned = " (pinned)" if name in answer.shelves.pins else ""
    return (
        shown(name) + pinned,
        standing.tier,
        f"{standing.score:.2f}",
        f"{use.calls:,}",
        share(use),
        milliseconds(use.p50_ms, use),
        milliseconds(use.p95_ms, use),
        f"{use.week:,}",
        f"{use.month:,}",
        ago(use.last_used) if use.calls else "never",
    )


def _moved_lines(moved: Sequence[Move] | None) -> list[str]:
    if moved is None:
        return []
    if not moved:
        return ["Computed anew: nothing moved."]
    lines = [f"  {shown(one.tool)}: {one.before} → {one.after}" for one in moved[:_MOST_MOVED]]
    rest = [f"  … and {len(moved) - _MOST_MOVED:,} more"] if len(moved) > _MOST_MOVED else []
    return [f"Computed anew: {counted(len(moved), 'tool')} moved.", *lines, *rest]


_MOST_MOVED = 20
