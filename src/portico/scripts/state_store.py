"""What scripts keep for the caller's next ones: `store(key, value)` and `load(key)`, bounded and
for a while."""

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
"""Of one caller."""


@dataclass
class _CallerState:
    expires_at: float
    owner: str
    values: dict[str, bytes] = field(default_factory=dict[str, bytes])
    size: int = 0
    """Kept as values come and go: a script may store a hundred thousand."""

    def put(self, key: str, value: bytes | None) -> None:
        """Let go of what is there, and keep this instead."""
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
    """Each caller's own values, as JSON text: nobody changes what the next script reads by keeping
    hold of it.

    A caller is its session, or the handle that it was told: never its token or its name, which
    others may have too.
    """

    def __init__(
        self,
        *,
        ttl_s: float = 3_600.0,
        max_bytes: int = 1024**2,
        max_owners: int = MAX_OWNERS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`ttl_s` counts from the last script that stored something; `max_bytes` are for each caller."""
        self._ttl_s = ttl_s
        self._max_bytes = max_bytes
        self._max_owners = max_owners
        self._clock = clock
        self._states: OrderedDict[str, _CallerState] = OrderedDict()

    def __len__(self) -> int:
        return len(self._states)

    def has_state(self, caller: Caller) -> bool:
        """Whether anything is kept for a caller."""
        return bool(caller.state_key) and _make_key(caller) in self._states

    def load(self, caller: Caller) -> dict[str, Any]:
        """Everything a caller has."""
        self.expire()
        if caller.state_key:
            shelf = self._states.get(_make_key(caller))
        else:
            shelf = None
        if shelf:
            return {key: orjson.loads(value) for key, value in shelf.values.items()}
        return {}

    def store(self, caller: Caller, values: Mapping[str, Any]) -> str:
        """Keep values, null letting go of one; what cannot be kept is said, the rest is."""
        if not values or self._max_bytes <= 0:
            if values:
                return "Nothing is kept between scripts here."
            return ""
        if not caller.state_key:
            return "Nothing is kept between scripts of a caller that has neither a session nor a handle."
        self.expire()
        owner = _make_key(caller)
        shelf = self._states.pop(owner, None) or _CallerState(0.0, get_owner_key(caller))
        shelf.expires_at = self._clock() + self._ttl_s
        refused = list[str]()
        for key, value in values.items():
            before = shelf.values.get(key)
            shelf.put(key, None if value is None else orjson.dumps(value))
            if value is not None and (
                shelf.size > self._max_bytes or len(shelf.values) > MAX_VALUES
            ):
                shelf.put(key, before)
                refused.append(key)
        if shelf.values:
            self._states[owner] = shelf
        while len(self._states) > self._max_owners:
            del self._states[
                choose_entry_to_drop({key: shelf.owner for key, shelf in self._states.items()})
            ]
        if not refused:
            return ""
        names = ", ".join(repr(key[:40]) for key in refused[:5])
        return f"Not stored, because a caller may keep {MAX_VALUES:,} values of {self._max_bytes:,} bytes in all: {names}."

    def expire(self) -> None:
        """Let go of what is over its time."""
        now = self._clock()
        for owner in [owner for owner, shelf in self._states.items() if shelf.expires_at <= now]:
            del self._states[owner]
