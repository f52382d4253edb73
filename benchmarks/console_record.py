"""A gateway with a full record, for what the console is measured and tested with."""

import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from portico.gateway.data_folder import RECORD_FILE
from portico.storage.gateway_store import GatewayStore
from portico.storage.rows import CallRow, DailyRow, LedgerRow

CALLS = 100_000
EACH = 50
"""Calls in a session."""
_DAY_S = 86_400
_BUCKET = 12
_DAYS = 30
_CLIENTS = ("claude-code", "cursor", "opencode", "own-agent")
_PEOPLE = ("local user", "key ana", "key ben")
_ERRORS = ("tool_error", "timeout", "unavailable", "rate_limited")
_AT_ONCE = 10_000


@dataclass(frozen=True)
class SessionTokens:
    """What the sessions of a record are said to have cost, about."""

    listing: int = 1_200_000
    shown: int = 6_000


async def write_record(
    data_dir: Path,
    tools: Sequence[tuple[str, str]],
    calls: int,
    tokens: SessionTokens = SessionTokens(),  # noqa: B008 - it is immutable
) -> None:
    """Write calls of 30 days to these tools, of which the first are called most, their counts, and
    a session for every 50 calls. The same each time, but for the day it ends on."""
    data_dir.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240
    chosen = random.Random(20)
    times = _choose_times(chosen, calls)
    rows = [_make_call(chosen, number, at, tools) for number, at in enumerate(times)]
    sessions = [_make_session(chosen, number, times, tokens) for number in range(calls // EACH)]
    store = GatewayStore(None, data_dir / RECORD_FILE)
    try:
        for first in range(0, calls, _AT_ONCE):
            await store.add_usage(rows[first : first + _AT_ONCE], (), ())
        await store.add_usage((), _count_by_day(rows), sessions)
    finally:
        await store.close()


def _choose_times(chosen: random.Random, calls: int) -> list[float]:
    """Return times of the last 30 days; some days are busier than others, the last ends now."""
    weights = [chosen.uniform(0.3, 1) for _ in range(_DAYS)]
    days = chosen.choices(range(_DAYS), weights, k=calls)
    now = time.time()
    return sorted(now - (day + chosen.random()) * _DAY_S for day in days)


def _make_call(
    chosen: random.Random, number: int, at: float, tools: Sequence[tuple[str, str]]
) -> CallRow:
    server, tool = tools[int(len(tools) * chosen.random() ** 2)]
    is_ok = chosen.random() > 0.03
    return CallRow(
        at,
        server,
        tool,
        "0" * 16,
        round(chosen.lognormvariate(4, 1), 1),
        is_ok,
        client=chosen.choice(_CLIENTS),
        session=f"session-{number // EACH}",
        person=chosen.choice(_PEOPLE),
        call_id=f"{number:032x}",
        via="call_tool",
        error="" if is_ok else chosen.choice(_ERRORS),
        stages="0.1 0.2 0.1 20.0 0.3",
    )


def _make_session(
    chosen: random.Random, number: int, times: Sequence[float], tokens: SessionTokens
) -> LedgerRow:
    return LedgerRow(
        f"session-{number}",
        chosen.choices(_CLIENTS, (5, 3, 1, 2))[0],
        "",
        times[number * EACH],
        times[number * EACH + EACH - 1],
        listing=round(tokens.listing * chosen.uniform(0.9, 1.1)),
        shown=round(tokens.shown * chosen.uniform(0.3, 1.7)),
        answers=EACH,
    )


def _count_by_day(rows: Sequence[CallRow]) -> list[DailyRow]:
    calls = Counter[tuple[int, str, str]]()
    successes = Counter[tuple[int, str, str]]()
    latest: dict[tuple[int, str, str], float] = {}
    for row in rows:
        key = (int(row.at // _DAY_S), row.server, row.tool)
        calls[key] += 1
        successes[key] += row.ok
        latest[key] = row.at
    return [DailyRow(*key, _BUCKET, calls[key], successes[key], at) for key, at in latest.items()]
