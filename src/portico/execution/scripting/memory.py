"""What scripts keep for the caller's next ones: `store(key, value)` and `load(key)`, bounded and for a while."""

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from portico.access import Caller, next_to_drop
from portico.execution.results import owner_of

MAX_OWNERS = 1_000
MAX_VALUES = 2_000
"""Of one caller."""


@dataclass
class _Shelf:
    until: float
    counted_for: str
    values: dict[str, bytes] = field(default_factory=dict[str, bytes])
    size: int = 0
    """Kept as values come and go: a script may store a hundred thousand."""

    def put(self, key: str, value: bytes | None) -> None:
        """Let go of what is there, and keep this instead."""
        before = self.values.pop(key, None)
        self.size -= _size(key, before)
        if value is not None:
            self.values[key] = value
            self.size += _size(key, value)


def _size(key: str, value: bytes | None) -> int:
    return 0 if value is None else len(key.encode("utf-8", "replace")) + len(value)


def _key(caller: Caller) -> str:
    return f"{caller.profile}\n{caller.state}"


class Memory:
    """Each caller's own values, as JSON text: nobody changes what the next script reads by keeping hold of it.

    A caller is its session, or the handle that it was told: never its token or its name, which others may have too.
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
        self._ttl = ttl_s
        self._max_bytes = max_bytes
        self._max_owners = max_owners
        self._clock = clock
        self._shelves: OrderedDict[str, _Shelf] = OrderedDict()

    def __len__(self) -> int:
        return len(self._shelves)

    def has(self, caller: Caller) -> bool:
        """Whether anything is kept for a caller."""
        return bool(caller.state) and _key(caller) in self._shelves

    def load(self, caller: Caller) -> dict[str, Any]:
        """Everything a caller has."""
        self.expire()
        shelf = self._shelves.get(_key(caller)) if caller.state else None
        return {key: orjson.loads(value) for key, value in shelf.values.items()} if shelf else {}

    def store(self, caller: Caller, values: Mapping[str, Any]) -> str:
        """Keep values, null letting go of one; what cannot be kept is said, the rest is."""
        if not values or self._max_bytes <= 0:
            return "Nothing is kept between scripts here." if values else ""
        if not caller.state:
            return "Nothing is kept between scripts of a caller that has neither a session nor a handle."
        self.expire()
        owner = _key(caller)
        shelf = self._shelves.pop(owner, None) or _Shelf(0.0, owner_of(caller))
        shelf.until = self._clock() + self._ttl
        refused = list[str]()
        for key, value in values.items():
            before = shelf.values.get(key)
            shelf.put(key, None if value is None else orjson.dumps(value))
            if value is not None and (shelf.size > self._max_bytes or len(shelf.values) > MAX_VALUES):
                shelf.put(key, before)
                refused.append(key)
        if shelf.values:
            self._shelves[owner] = shelf
        while len(self._shelves) > self._max_owners:
            del self._shelves[next_to_drop({key: shelf.counted_for for key, shelf in self._shelves.items()})]
        if not refused:
            return ""
        names = ", ".join(repr(key[:40]) for key in refused[:5])
        return (
            f"Not stored, because a caller may keep {MAX_VALUES:,} values of {self._max_bytes:,} bytes in all: {names}."
        )

    def expire(self) -> None:
        """Let go of what is over its time."""
        now = self._clock()
        for owner in [owner for owner, shelf in self._shelves.items() if shelf.until <= now]:
            del self._shelves[owner]
