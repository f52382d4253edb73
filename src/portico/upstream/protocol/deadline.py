"""How long one request is waited for: so long without a sign of life, so long in all.

While the server asks the client that made the request, both clocks stand still: a person may take
longer to answer than a server may. Whoever asks the client has a bound of its own.
"""

import asyncio
import contextlib

from portico.upstream.backend import RequestOptions


class Deadline:
    """One request's. Enter `clock` around the wait."""

    __slots__ = ("_pause_count", "_paused_at", "_started_at", "options", "timeout")

    def __init__(self, options: RequestOptions) -> None:
        self.options = options
        self._started_at = now = asyncio.get_running_loop().time()
        self._pause_count = 0
        self._paused_at = 0.0
        self.timeout = asyncio.timeout_at(options.compute_deadline(now, now))

    @property
    def elapsed_s(self) -> float:
        """Seconds since it began, without those its client was being asked."""
        now = asyncio.get_running_loop().time()
        return (self._paused_at if self._pause_count else now) - self._started_at

    def extend(self) -> None:
        """A server that reports progress is given its time anew, up to the longest a call may take."""
        if not self._pause_count:
            self._reschedule(asyncio.get_running_loop().time())

    def pause(self) -> None:
        """Its client is being asked; every `hold` has its `release`."""
        if not self._pause_count:
            self._paused_at = asyncio.get_running_loop().time()
            self._reschedule(None)
        self._pause_count += 1

    def resume(self) -> None:
        """Its client has answered, or was not to be asked."""
        self._pause_count -= 1
        if not self._pause_count:
            now = asyncio.get_running_loop().time()
            self._started_at += now - self._paused_at
            self._reschedule(now)

    def _reschedule(self, now: float | None) -> None:
        # It cannot be set any more when the wait is over.
        with contextlib.suppress(RuntimeError):
            if not self.timeout.expired():
                self.timeout.reschedule(
                    None if now is None else self.options.compute_deadline(self._started_at, now)
                )
