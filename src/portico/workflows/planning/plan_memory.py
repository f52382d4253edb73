"""Remembers which tools did an intent together, without user text.

What is kept is the order of the tools, hashed words and a vector of the intent, in the scope that
learnt it. A remembered plan is a candidate beside a fresh choice of tools, never more; arguments
are always those of the new words. Without a reachable store nothing is remembered or offered.
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

from portico.catalog.snapshot import Snapshot
from portico.errors import PorticoError
from portico.search import Vector
from portico.search.lexical.tokens import MAX_TEXT
from portico.search.usage_patterns import extract_query_terms, hash_terms
from portico.storage.rows import PlanRow
from portico.workflows.planning.name_matching import compute_cosine

logger = logging.getLogger(__name__)

LEAST_STEPS = 2
SAME_MEANING = 0.7
"""The cosine from which two intents may want the same tools."""
SAME_WORDS = 0.6
"""The share of words in common that is enough where no meaning is known."""
_MAX_STEPS = 20


class PlanStore(Protocol):
    """Storage of plans."""

    async def add_plans(self, rows: Sequence[PlanRow]) -> None:
        """Add plans, and drop those beyond the limit."""
        ...

    async def load_plans(self, scope: str) -> list[PlanRow]:
        """Return the plans of a scope, the latest used first."""
        ...


@dataclass(frozen=True)
class PlanMemory:
    """Plans that worked."""

    store: PlanStore
    key: Callable[[], bytes]
    """Key that words are hashed with; may read a file."""
    is_learning: bool = True
    """Whether anything is learnt."""
    clock: Callable[[], float] = time.time

    async def remember(
        self, scope: str, steps: Sequence[Mapping[str, Any]], snapshot: Snapshot, intent: str
    ) -> bool:
        """Keep the tools of a plan that ran to its end; return whether they were kept."""
        tools = [step["tool"] for step in steps]
        if not self.is_learning or not intent or not LEAST_STEPS <= len(tools) <= _MAX_STEPS:
            return False
        if any(tool not in snapshot.tools for tool in tools):
            return False
        try:
            words, vector = await self._describe_intent(intent, snapshot)
            body = json.dumps(tools)
            row = PlanRow(
                _make_plan_id(scope, body),
                scope,
                base64.b64encode(vector.tobytes() if vector is not None else b"").decode(),
                " ".join(map(str, sorted(words))),
                body,
                json.dumps({tool: snapshot.tools[tool].hash for tool in tools}),
                1,
                self.clock(),
            )
            await self.store.add_plans([row])
        except PorticoError as error:
            logger.debug("a plan was not remembered: %s", error)
            return False
        return True

    async def recall(self, scope: str, intent: str, snapshot: Snapshot) -> tuple[str, ...]:
        """Return the tools of the plan that worked for the most similar intent; empty if none."""
        if not self.is_learning:
            return ()
        try:
            rows = await self.store.load_plans(scope)
            if not rows:
                return ()
            words, vector = await self._describe_intent(intent, snapshot)
        except PorticoError as error:
            logger.debug("no plan was looked for: %s", error)
            return ()
        scored = [(_score_similarity(row, words, vector), row) for row in rows]
        scored.sort(key=lambda item: (-round(item[0], 2), -item[1].runs, -item[1].used_at))
        for similarity, row in scored:
            tools = _parse_tools(row)
            if similarity and tools and all(tool in snapshot.tools for tool in tools):
                return tools
        return ()

    async def _describe_intent(
        self, intent: str, snapshot: Snapshot
    ) -> tuple[frozenset[int], Vector | None]:
        """Return the hashed words and the vector of an intent."""
        about = intent[:MAX_TEXT]
        terms = [term for term in extract_query_terms(about) if term.isalpha()]
        words = hash_terms(terms, await asyncio.to_thread(self.key))
        return words, await asyncio.to_thread(snapshot.index.encode_query, about)


def _score_similarity(row: PlanRow, words: frozenset[int], vector: Vector | None) -> float:
    """Return how similar an intent is to the one of a plan; 0 if it is not."""
    near = compute_cosine(_decode_vector(row.intent), vector)
    if near is not None:
        return near if near >= SAME_MEANING else 0.0
    known = frozenset(int(word) for word in row.words.split() if word.isdigit())
    shared = len(known & words) / max(1, len(known | words))
    return shared if shared >= SAME_WORDS else 0.0


def _parse_tools(row: PlanRow) -> tuple[str, ...]:
    """Return the tools of a row; empty if the row was not written by this module."""
    try:
        found = json.loads(row.steps)
    except (ValueError, RecursionError):
        return ()
    if not isinstance(found, list):
        return ()
    tools = cast("list[Any]", found)
    return tuple(tool for tool in tools if isinstance(tool, str))


def _make_plan_id(scope: str, body: str) -> str:
    key = f"{scope}\0{body}\0".encode(errors="surrogatepass")
    return hashlib.blake2b(key, digest_size=16).hexdigest()


def _decode_vector(text: str) -> Vector | None:
    try:
        return np.frombuffer(base64.b64decode(text, validate=True), dtype=np.int8)
    except ValueError:
        return None
