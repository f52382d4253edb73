"""State of one's own: handles for clients that have no session, and what they are told of them.

A server with `isolation: session` runs once for each client, scripts store values, and results link to resources. A
client without a session is told a handle with the first answer that something is kept for, to come back to it by: in
`_meta` for programs, in words for models. Its token and its name are no handle: others may have the same. Whoever does
not know a handle cannot guess it, and one that was not issued here is refused. A view has its own handles: another
profile's are unknown to it.
"""

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from portico.access import next_to_drop
from portico.disclosure import answer
from portico.errors import UnknownName
from portico.upstream.backend import Raw

KEY = "portico/session"
"""In `_meta` of a request, the handle to go on with; in that of a result, the one to pass next time."""
ARGUMENT = "session"
TTL_S = 24 * 3_600.0
"""A handle that nobody has used for so long is forgotten."""
MAX_HANDLES = 10_000
_LONGEST = 200


@dataclass(frozen=True)
class Handle:
    """What a client is told, and what we know it by: a digest, so that no log or event holds the handle itself."""

    text: str
    key: str


def new_handle() -> Handle:
    """Make a handle of 128 random bits; it is good for nothing until a view has issued it."""
    text = secrets.token_urlsafe(16)
    return Handle(text, _key(text))


class StateHandles:
    """The handles of one view's clients. One event loop's own."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._used: OrderedDict[str, float] = OrderedDict()
        """When each was last used, by its key; the longest unused first."""
        self._holders: dict[str, str] = {}
        """Whom each is counted for, by its key."""

    def __len__(self) -> int:
        return len(self._used)

    def issue(self, handle: Handle | None = None, holder: str = "") -> Handle:
        """Take a handle, or a new one, for good from now on; too many are dropped from `holder`s that have most."""
        handle = handle or new_handle()
        self._expire()
        if len(self._used) >= MAX_HANDLES:
            self._drop(next_to_drop({key: self._holders[key] for key in self._used}))
        self._used[handle.key] = self._clock()
        self._holders[handle.key] = holder
        return handle

    def redeem(self, text: Any) -> str:
        """The key of a handle that was issued here and is not over its time; raises UnknownName."""
        self._expire()
        key = _key(text) if isinstance(text, str) and len(text) <= _LONGEST else ""
        if key not in self._used:
            raise UnknownName(
                "there is no such session here: it was not issued by this gateway, or nobody has used it for too long",
                advice="Call without a session to begin anew; the answer says the one to pass from then on.",
            )
        self._used[key] = self._clock()
        self._used.move_to_end(key)
        return key

    def _expire(self) -> None:
        now = self._clock()
        while self._used and next(iter(self._used.values())) <= now - TTL_S:
            self._drop(next(iter(self._used)))

    def _drop(self, key: str) -> None:
        del self._used[key], self._holders[key]


def _key(text: str) -> str:
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).hexdigest()


def brought(params: Mapping[str, Any]) -> tuple[Any, Raw]:
    """The handle in a request's `_meta`, None where there is none; and the request without it: no server sees it."""
    meta = params.get("_meta")
    if not isinstance(meta, Mapping) or KEY not in meta:
        return None, dict(params)
    rest = {key: value for key, value in meta.items() if key != KEY}
    return meta[KEY], {**params, "_meta": rest}


def with_handle(params: Mapping[str, Any], handle: str) -> Raw:
    """A request or a result with a handle in its `_meta`."""
    given = params.get("_meta")
    return {**params, "_meta": {**(given if isinstance(given, Mapping) else {}), KEY: handle}}


def told(result: Mapping[str, Any], handle: Handle, *, in_words: bool) -> Raw:
    """An answer with the handle to pass next time; `in_words` also for a model."""
    said = with_handle(result, handle.text)
    content = result.get("content")
    if not in_words or not isinstance(content, list):
        return said
    line = f'A state is kept for you. To go on with it, pass {ARGUMENT}: "{handle.text}" with the next call.'
    return {**said, "content": [*content, answer.block(line)]}
