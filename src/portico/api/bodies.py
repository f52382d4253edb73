"""Answers as bytes, rendered once for as long as they are good, and what makes a client's copy of one still good."""

import hashlib
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from portico.upstream import jsontext

HOUR = 3_600
NO_STORE = "no-store"
REVALIDATE = "private, max-age=0, must-revalidate"
MAX_BODIES = 512
MAX_BYTES = 32 * 2**20
_TAG = re.compile(r'(?:W/)?("[^"]*")')

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Body:
    """An answer, and the tag that changes whenever a byte of it does."""

    content: bytes
    etag: str

    @classmethod
    def of(cls, value: Any) -> "Body":
        """A value as JSON."""
        content = jsontext.dumps(value)
        return cls(content, f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"')


@dataclass(frozen=True, slots=True)
class _Kept:
    body: Body
    until: float


class Bodies:
    """Keeps answers until their time is up; the ones asked for longest ago go first when there are too many."""

    def __init__(self, clock: Clock = time.monotonic, most: int = MAX_BODIES, most_bytes: int = MAX_BYTES) -> None:
        self._clock, self._most, self._most_bytes = clock, most, most_bytes
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()
        self._bytes = 0

    def get(self, key: Hashable, seconds: float, render: Callable[[], Any]) -> Body:
        """The answer kept under `key`, or a new one that is then kept for so long."""
        now = self._clock()
        kept = self._kept.get(key)
        if kept is not None and now < kept.until:
            self._kept.move_to_end(key)
            return kept.body
        body = Body.of(render())
        self._forget(key)
        self._kept[key] = _Kept(body, now + seconds)
        self._bytes += len(body.content)
        while len(self._kept) > self._most or self._bytes > self._most_bytes:
            self._forget(next(iter(self._kept)))
        return body

    def _forget(self, key: Hashable) -> None:
        if (kept := self._kept.pop(key, None)) is not None:
            self._bytes -= len(kept.body.content)

    def __len__(self) -> int:
        return len(self._kept)


def answer(request: Request, body: Body, cache_control: str) -> Response:
    """A body on the wire; 304 without it where the client has it already."""
    headers = {"Cache-Control": cache_control, "ETag": body.etag}
    if has_it(request.headers.getlist("if-none-match"), body.etag):
        return Response(status_code=304, headers=headers)
    return Response(body.content, headers=headers, media_type="application/json")


def fresh(value: Any) -> Response:
    """An answer that is true only now."""
    return Response(jsontext.dumps(value), headers={"Cache-Control": NO_STORE}, media_type="application/json")


def has_it(given: list[str], etag: str) -> bool:
    """Whether an `If-None-Match` names this tag; weak tags count as well (RFC 9110 §13.1.2)."""
    listed = ", ".join(given).strip()
    return listed == "*" or etag in _TAG.findall(listed)
