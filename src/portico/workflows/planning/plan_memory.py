"""Remembers successful plans without user text, and offers them for similar intents.

A plan matches an intent like the one it was made for (by hashed words or by vector), or one that
leads to the same tools. It is offered only while its tools exist and accept its arguments, and only
in the scope that learnt it. Without a reachable store nothing is remembered or offered.
"""

import asyncio
import base64
import hashlib
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np

from portico.calls.cache import is_read_only
from portico.catalog.snapshot import Snapshot
from portico.catalog.tool import Tool
from portico.errors import PorticoError
from portico.search import Vector
from portico.search.lexical.query import MAX_TEXT
from portico.search.usage_patterns import extract_query_terms, hash_terms
from portico.storage.plan_rows import PlanRow
from portico.workflows.planning.clauses import split_clauses
from portico.workflows.planning.literals import generalize_clause
from portico.workflows.planning.omissions import find_omissions
from portico.workflows.planning.planner import PlanSuggestion, list_changing_tools
from portico.workflows.planning.templates import (
    LEAST_STEPS,
    PlanTemplate,
    is_applicable,
    make_template,
    restore_plan,
)

logger = logging.getLogger(__name__)

SAME_MEANING = 0.7
SAME_BOTH = 0.6
SAME_WORDS = 0.7
"""The cosine, its mean with the share of words in common, and that share alone where no meaning is
known, from which two intents want the same plan. Of the intents of `benchmarks.planning`, no two
that want different ones come near."""
_MAX_CHARS = 20_000
"""Of a template: larger plans are not remembered."""


class PlanStore(Protocol):
    """Where plans are kept."""

    async def add_plans(self, rows: Sequence[PlanRow]) -> None:
        """Add these, and drop what is too much."""
        ...

    async def load_plans(self, scope: str) -> list[PlanRow]:
        """Those of a scope, the latest used first."""
        ...


@dataclass(frozen=True)
class PlanMemory:
    """What was planned before."""

    store: PlanStore
    key: Callable[[], bytes]
    """What words are hashed with; may read a file."""
    is_learning: bool = True
    """Whether anything is learnt at all."""
    clock: Callable[[], float] = time.time
    read_only: Callable[[Tool], bool] = is_read_only

    async def remember(
        self,
        scope: str,
        steps: Sequence[Mapping[str, Any]],
        snapshot: Snapshot,
        intent: str = "",
    ) -> bool:
        """Keep a plan that ran to its end; answers whether it was worth it."""
        if not self.is_learning or len(steps) < LEAST_STEPS:
            return False
        try:
            kept = make_template(steps, snapshot)
            if kept is None or len(body := _dump_json(kept.steps)) > _MAX_CHARS:
                return False
            # Of a plan that somebody wrote by hand only its tools tell what it is for.
            words, vector = await self._describe_intent(
                intent or " ".join(step["tool"] for step in kept.steps), snapshot
            )
            row = PlanRow(
                _make_plan_id(scope, body),
                scope,
                _encode_vector(vector),
                " ".join(map(str, sorted(words))),
                body,
                _dump_json(kept.tools),
                1,
                self.clock(),
            )
            await self.store.add_plans([row])
        except PorticoError as error:
            logger.debug("a plan was not remembered: %s", error)
            return False
        return True

    async def find_plan(
        self,
        scope: str,
        intent: str,
        snapshot: Snapshot,
        fresh: PlanSuggestion,
    ) -> PlanSuggestion | None:
        """The plan that worked for such an intent, with what this one says filled in; None where
        there is none."""
        if not self.is_learning:
            return None
        try:
            rows = await self.store.load_plans(scope)
            words, vector = (
                await self._describe_intent(intent, snapshot) if rows else (frozenset[int](), None)
            )
        except PorticoError as error:
            logger.debug("no plan was looked for: %s", error)
            return None
        planned = frozenset(step["tool"] for step in fresh.steps)
        likely = sorted(
            ((_score_similarity(row, words, vector, planned), row) for row in rows),
            key=_make_sort_key,
        )
        for likeness, row in likely:
            if not likeness:
                break
            kept = _parse_template(row)
            if kept is not None and is_applicable(kept, snapshot):
                return await asyncio.to_thread(
                    self._build_suggestion, kept, row.runs, intent[:MAX_TEXT], snapshot, fresh
                )
        return None

    async def _describe_intent(
        self, intent: str, snapshot: Snapshot
    ) -> tuple[frozenset[int], Vector | None]:
        """What an intent is about, whatever it is to be done with: its words, hashed, and its
        meaning."""
        about = generalize_clause(intent[:MAX_TEXT], keep_specifics=False)
        words = hash_terms(extract_query_terms(about), await asyncio.to_thread(self.key))
        return words, await asyncio.to_thread(snapshot.index.encode_query, about)

    def _build_suggestion(
        self, kept: PlanTemplate, runs: int, intent: str, snapshot: Snapshot, fresh: PlanSuggestion
    ) -> PlanSuggestion:
        steps, inputs = restore_plan(kept, intent, snapshot, fresh.steps)
        changing = list_changing_tools(steps, snapshot, self.read_only)
        unused = find_omissions(intent, steps, snapshot.tools, split_clauses(intent))
        if runs == 1:
            times = "once"
        else:
            times = f"{runs} times"
        return PlanSuggestion(
            steps, inputs, (), (f"a plan like this has worked {times}",), changing, runs, unused
        )


def _make_sort_key(one: tuple[float, PlanRow]) -> tuple[float, int, float]:
    likeness, row = one
    return -round(likeness, 2), -row.runs, -row.used_at


def _score_similarity(
    row: PlanRow, words: frozenset[int], vector: Vector | None, planned: frozenset[str]
) -> float:
    """How much a plan is for these words; 0 where it is not."""
    if len(planned) >= LEAST_STEPS and planned == _parse_tools(row).keys():
        return 1.0
    known = frozenset(int(word) for word in row.words.split() if word.isdigit())
    shared = len(known & words) / max(1, len(known | words))
    if (near := _compute_cosine(_decode_vector(row.intent), vector)) is None:
        if shared >= SAME_WORDS:
            return shared
        return 0.0
    if near >= SAME_MEANING or (near + shared) / 2 >= SAME_BOTH:
        return near
    return 0.0


def _parse_template(row: PlanRow) -> PlanTemplate | None:
    """A row as a plan; None for one that says something else than we wrote."""
    try:
        steps = json.loads(row.steps)
    except ValueError:
        return None
    if not isinstance(steps, list):
        return None
    known = [
        step
        for step in cast("list[Any]", steps)
        if isinstance(step, dict) and {"id", "tool", "arguments"} <= step.keys()
    ]
    whole = len(known) == len(cast("list[Any]", steps)) and all(
        isinstance(step["arguments"], dict) for step in known
    )
    if whole:
        return PlanTemplate(tuple(known), _parse_tools(row))
    return None


def _parse_tools(row: PlanRow) -> dict[str, str]:
    try:
        found = json.loads(row.tools)
    except ValueError:
        return {}
    if isinstance(found, dict):
        return cast("dict[str, str]", found)
    return {}


def _dump_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _make_plan_id(scope: str, body: str) -> str:
    made = hashlib.blake2b(digest_size=16)
    for part in (scope, body):
        made.update(part.encode(errors="surrogatepass"))
        made.update(b"\0")
    return made.hexdigest()


def _encode_vector(vector: Vector | None) -> str:
    if vector is None:
        return ""
    return base64.b64encode(vector.tobytes()).decode()


def _decode_vector(text: str) -> Vector | None:
    try:
        if text:
            return np.frombuffer(base64.b64decode(text, validate=True), dtype=np.int8)
        return None
    except ValueError:
        return None


def _compute_cosine(one: Vector | None, other: Vector | None) -> float | None:
    """How near two meanings are; None where they cannot be compared."""
    if one is None or other is None or one.shape != other.shape:
        return None
    left = one.astype(np.float32)
    right = other.astype(np.float32)
    size = float(np.linalg.norm(left) * np.linalg.norm(right))
    if size:
        return float(np.sum(left * right)) / size
    return 0.0
