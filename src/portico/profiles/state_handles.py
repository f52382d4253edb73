"""State of one's own: handles for clients that have no session, and what they are told of them.

A server with `isolation: session` runs once for each client, scripts store values, and results link
to resources. A client without a session is told a handle with the first answer that something is
kept for, to come back to it by: in
`_meta` for programs, in words for models. Its token and its name are no handle: others may have the same. Whoever does
not know a handle cannot guess it, and one that was not issued here is refused. A view has its own
handles: another profile's are unknown to it.
"""

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from portico.access import choose_entry_to_drop
from portico.errors import UnknownName
from portico.rendering import tool_result
from portico.upstream.backend import Raw

META_KEY = "portico/session"
"""In `_meta` of a request, the handle to go on with; in that of a result, the one to pass next
time."""
SESSION_ARGUMENT = "session"
TTL_S = 24 * 3_600.0
"""A handle that nobody has used for so long is forgotten."""
MAX_HANDLES = 10_000
_MAX_CHARS = 200


@dataclass(frozen=True)
class StateHandle:
    """What a client is told, and what we know it by: a digest, so that no log or event holds the
    handle itself."""

    text: str
    key: str


def create_handle() -> StateHandle:
    """Make a handle of 128 random bits; it is good for nothing until a view has issued it."""
    text = secrets.token_urlsafe(16)
    return StateHandle(text, _hash_handle(text))


class StateHandles:
    """The handles of one view's clients. One event loop's own."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last_used: OrderedDict[str, float] = OrderedDict()
        """When each was last used, by its key; the longest unused first."""
        self._owners: dict[str, str] = {}
        """Whom each is counted for, by its key."""

    def __len__(self) -> int:
        return len(self._last_used)

    def issue(self, handle: StateHandle | None = None, owner: str = "") -> StateHandle:
        """Take a handle, or a new one, for good from now on; too many are dropped from `holder`s
        that have most."""
        handle = handle or create_handle()
        self._expire()
        if len(self._last_used) >= MAX_HANDLES:
            self._drop(choose_entry_to_drop({key: self._owners[key] for key in self._last_used}))
        self._last_used[handle.key] = self._clock()
        self._owners[handle.key] = owner
        return handle

    def redeem(self, text: Any) -> str:
        """The key of a handle that was issued here and is not over its time; raises UnknownName."""
        self._expire()
        if isinstance(text, str) and len(text) <= _MAX_CHARS:
            key = _hash_handle(text)
        else:
            key = ""
        if key not in self._last_used:
            raise UnknownName(
                "there is no such session here: it was not issued by this gateway, or nobody has used it for too long",
                advice="Call without a session to begin anew; the answer says the one to pass from then on.",
            )
        self._last_used[key] = self._clock()
        self._last_used.move_to_end(key)
        return key

    def _expire(self) -> None:
        now = self._clock()
        while self._last_used and next(iter(self._last_used.values())) <= now - TTL_S:
            self._drop(next(iter(self._last_used)))

    def _drop(self, key: str) -> None:
        del self._last_used[key], self._owners[key]


def _hash_handle(text: str) -> str:
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).hexdigest()


def take_handle(params: Mapping[str, Any]) -> tuple[Any, Raw]:
    """The handle in a request's `_meta`, None where there is none; and the request without it: no
    server sees it."""
    meta = params.get("_meta")
    if not isinstance(meta, Mapping) or META_KEY not in meta:
        return None, dict(params)
    rest = {key: value for key, value in meta.items() if key != META_KEY}
    return meta[META_KEY], {**params, "_meta": rest}


def add_handle(params: Mapping[str, Any], handle: str) -> Raw:
    """A request or a result with a handle in its `_meta`."""
    given = params.get("_meta")
    return {**params, "_meta": {**(given if isinstance(given, Mapping) else {}), META_KEY: handle}}


def add_handle_to_result(result: Mapping[str, Any], handle: StateHandle, *, with_text: bool) -> Raw:
    """An answer with the handle to pass next time; `in_words` also for a model."""
    said = add_handle(result, handle.text)
    content = result.get("content")
    if not with_text or not isinstance(content, list):
        return said
    line = f'A state is kept for you. To go on with it, pass {SESSION_ARGUMENT}: "{handle.text}" with the next call.'
    return {**said, "content": [*content, tool_result.make_text_block(line)]}
