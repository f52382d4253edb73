"""Cache of rendered answers with ETags, and conditional responses."""

import hashlib
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from portico.json_text import json_codec

HOUR_S = 3_600
NO_STORE = "no-store"
REVALIDATE = "private, max-age=0, must-revalidate"
MAX_BODIES = 512
MAX_BYTES = 32 * 2**20
_ETAG_PATTERN = re.compile(r'(?:W/)?("[^"]*")')

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class RenderedBody:
    """An answer as bytes, and its ETag."""

    content: bytes
    etag: str

    @classmethod
    def from_value(cls, value: Any) -> "RenderedBody":
        """Render a value as JSON."""
        content = json_codec.dumps(value)
        return cls(content, f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"')


@dataclass(frozen=True, slots=True)
class _CachedBody:
    body: RenderedBody
    expires_at: float


class ResponseCache:
    """Caches answers until they expire; the least recently used are dropped above the limits."""

    def __init__(
        self,
        clock: Clock = time.monotonic,
        max_entries: int = MAX_BODIES,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._clock = clock
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._entries: OrderedDict[Hashable, _CachedBody] = OrderedDict()
        self._bytes = 0

    def get_or_render(self, key: Hashable, ttl_s: float, render: Callable[[], Any]) -> RenderedBody:
        """Return the cached answer of `key`, or render one and cache it for `ttl_s` seconds."""
        now = self._clock()
        cached = self._entries.get(key)
        if cached is not None and now < cached.expires_at:
            self._entries.move_to_end(key)
            return cached.body
        body = RenderedBody.from_value(render())
        self._remove(key)
        self._entries[key] = _CachedBody(body, now + ttl_s)
        self._bytes += len(body.content)
        while len(self._entries) > self._max_entries or self._bytes > self._max_bytes:
            self._remove(next(iter(self._entries)))
        return body

    def _remove(self, key: Hashable) -> None:
        if (cached := self._entries.pop(key, None)) is not None:
            self._bytes -= len(cached.body.content)

    def __len__(self) -> int:
        return len(self._entries)


def make_response(request: Request, body: RenderedBody, cache_control: str) -> Response:
    """Build the response of a body; 304 without it if the client's ETag matches."""
    headers = {"Cache-Control": cache_control, "ETag": body.etag}
    if has_matching_etag(request.headers.getlist("if-none-match"), body.etag):
        return Response(status_code=304, headers=headers)
    return Response(body.content, headers=headers, media_type="application/json")


def make_uncached_response(value: Any) -> Response:
    """Build a JSON response that must not be cached."""
    return Response(
        json_codec.dumps(value), headers={"Cache-Control": NO_STORE}, media_type="application/json"
    )


def has_matching_etag(if_none_match: list[str], etag: str) -> bool:
    """Return whether `If-None-Match` contains this ETag; weak tags match too (RFC 9110 §13.1.2)."""
    listed = ", ".join(if_none_match).strip()
    return listed == "*" or etag in _ETAG_PATTERN.findall(listed)
