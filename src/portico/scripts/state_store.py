"""Values that scripts keep between runs with `store(key, value)` and `load(key)`, within limits."""

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from portico.access import Caller, choose_entry_to_drop
from portico.results.store import get_owner_key

MAX_OWNERS = 1_000
MAX_VALUES = 2_000
"""Maximum number of values of one caller."""


@dataclass
class _CallerState:
    expires_at: float
    owner: str
    values: dict[str, bytes] = field(default_factory=dict[str, bytes])
    size: int = 0
    """Updated incrementally, because a script may store a hundred thousand values."""

    def put(self, key: str, value: bytes | None) -> None:
        """Replace the value of a key; None removes it."""
        before = self.values.pop(key, None)
        self.size -= _measure(key, before)
        if value is not None:
            self.values[key] = value
            self.size += _measure(key, value)


def _measure(key: str, value: bytes | None) -> int:
    if value is None:
        return 0
    return len(key.encode("utf-8", "replace")) + len(value)


def _make_key(caller: Caller) -> str:
    return f"{caller.profile}\n{caller.state_key}"


class ScriptStateStore:
    """Values by caller, stored as JSON text so that they cannot be modified after storing.

    A caller is identified by its session or state handle, never by token or name, which others may
    share.
    """

    def __init__(
        self,
        *,
        ttl_s: float = 3_600.0,
        max_bytes: int = 1024**2,
        max_owners: int = MAX_OWNERS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create a store; `ttl_s` runs from the last write, `max_bytes` applies to each caller."""
        self._ttl_s = ttl_s
        self._max_bytes = max_bytes
        self._max_owners = max_owners
        self._clock = clock
        self._states: OrderedDict[str, _CallerState] = OrderedDict()

    def __len__(self) -> int:
        return len(self._states)

    def has_state(self, caller: Caller) -> bool:
        """Return whether a caller has stored values."""
        return bool(caller.state_key) and _make_key(caller) in self._states

    def load(self, caller: Caller) -> dict[str, Any]:
        """Return all values of a caller."""
        self.expire()
        if caller.state_key:
            state = self._states.get(_make_key(caller))
        else:
            state = None
        if state:
            return {key: orjson.loads(value) for key, value in state.values.items()}
        return {}

    def store(self, caller: Caller, values: Mapping[str, Any]) -> str:
        """Store values, null removing one; return a message about those that were refused."""
        if not values or self._max_bytes <= 0:
            if values:
                return "Nothing is kept between scripts here."
            return ""
        if not caller.state_key:
            return (
                "Nothing is kept between scripts of a caller that has neither a session "
                "nor a handle."
            )
        self.expire()
        owner = _make_key(caller)
        state = self._states.pop(owner, None) or _CallerState(0.0, get_owner_key(caller))
        state.expires_at = self._clock() + self._ttl_s
        refused = list[str]()
        for key, value in values.items():
            before = state.values.get(key)
            state.put(key, None if value is None else orjson.dumps(value))
            if value is not None and (
                state.size > self._max_bytes or len(state.values) > MAX_VALUES
            ):
                state.put(key, before)
                refused.append(key)
        if state.values:
            self._states[owner] = state
        while len(self._states) > self._max_owners:
            owners = {key: state.owner for key, state in self._states.items()}
            del self._states[choose_entry_to_drop(owners)]
        if not refused:
            return ""
        names = ", ".join(repr(key[:40]) for key in refused[:5])
        return (
            f"Not stored, because a caller may keep {MAX_VALUES:,} values of "
            f"{self._max_bytes:,} bytes in all: {names}."
        )

    def expire(self) -> None:
        """Remove expired values."""
        now = self._clock()
        for owner in [owner for owner, state in self._states.items() if state.expires_at <= now]:
            del self._states[owner]
