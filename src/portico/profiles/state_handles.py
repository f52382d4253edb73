"""State handles: identifiers by which clients without a session find their own state again.

A server with `isolation: session` runs once per client, scripts store values, and results link to
resources. A client without a session receives a handle with the first response that stores state:
in `_meta` for programs, in words for models. Its token and its client name cannot serve as a
handle, because others may share them. Handles cannot be guessed, and one that was not issued here,
or to another principal, is refused. Each view has its own handles; another profile's are unknown to
it.
"""

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from portico.callers import LOCAL_USER, choose_entry_to_drop
from portico.errors import UnknownName
from portico.rendering import tool_result
from portico.upstream.backend import Raw

META_KEY = "portico/session"
"""Key in `_meta`: in a request the handle to continue with, in a result the one to pass next time.
"""
SESSION_ARGUMENT = "session"
TTL_S = 24 * 3_600.0
"""Unused lifetime of a handle, in seconds."""
MAX_HANDLES = 10_000
_MAX_CHARS = 200


@dataclass(frozen=True)
class StateHandle:
    """A handle as the client sees it, and its digest: logs and events hold only the digest."""

    text: str
    key: str


def create_handle(principal: str = LOCAL_USER.id) -> StateHandle:
    """Create a handle of 128 random bits for a principal, by its id; it is invalid until a view has
    issued it."""
    text = secrets.token_urlsafe(16)
    return StateHandle(text, _hash_handle(text, principal))


class StateHandles:
    """The handles of one view's clients. Used from one event loop only."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last_used: OrderedDict[str, float] = OrderedDict()
        """Time of last use by key, least recently used first."""
        self._owners: dict[str, str] = {}
        """Owner of each handle by key, for the fair choice of what to drop."""

    def __len__(self) -> int:
        return len(self._last_used)

    def issue(self, handle: StateHandle | None = None, owner: str = "") -> StateHandle:
        """Register a handle, or a new one; above MAX_HANDLES the largest owner loses one."""
        handle = handle or create_handle()
        self._expire()
        if len(self._last_used) >= MAX_HANDLES:
            self._drop(choose_entry_to_drop({key: self._owners[key] for key in self._last_used}))
        self._last_used[handle.key] = self._clock()
        self._owners[handle.key] = owner
        return handle

    def redeem(self, text: Any, principal: str = LOCAL_USER.id) -> str:
        """Return the key of a handle that was issued to this principal and has not expired; raises
        UnknownName."""
        self._expire()
        key = ""
        if isinstance(text, str) and len(text) <= _MAX_CHARS:
            key = _hash_handle(text, principal)
        if key not in self._last_used:
            raise UnknownName(
                "there is no such session here: it was not issued by this gateway, "
                "or nobody has used it for too long",
                advice="Call without a session to begin again; "
                "the answer says the one to pass from then on.",
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


def _hash_handle(text: str, principal: str) -> str:
    body = f"{principal}\n{text}".encode(errors="surrogatepass")
    return hashlib.blake2b(body, digest_size=16).hexdigest()


def take_handle(params: Mapping[str, Any]) -> tuple[Any, Raw]:
    """Split the handle (or None) off a request's `_meta`; return it and the request without it.

    Servers must not see the handle.
    """
    meta = params.get("_meta")
    if not isinstance(meta, Mapping) or META_KEY not in meta:
        return None, dict(params)
    rest = {key: value for key, value in meta.items() if key != META_KEY}
    return meta[META_KEY], {**params, "_meta": rest}


def add_handle(params: Mapping[str, Any], handle: str) -> Raw:
    """Return a request or a result with a handle in its `_meta`."""
    meta = params.get("_meta")
    if not isinstance(meta, Mapping):
        meta = {}
    return {**params, "_meta": {**meta, META_KEY: handle}}


def add_handle_to_result(result: Mapping[str, Any], handle: StateHandle, *, with_text: bool) -> Raw:
    """Return a result with the handle to pass next time; `with_text` also tells the model."""
    marked = add_handle(result, handle.text)
    content = result.get("content")
    if not with_text or not isinstance(content, list):
        return marked
    line = (
        f'A state is kept for you. To go on with it, pass {SESSION_ARGUMENT}: "{handle.text}" '
        "with the next call."
    )
    return {**marked, "content": [*content, tool_result.make_text_block(line)]}
