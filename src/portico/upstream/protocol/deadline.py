"""Timeouts of one request: one since the last progress, and one in total.

Both pause while the server waits for an answer of the client, because a person may take longer than
a server may. Requests to the client have their own timeout.
"""

import asyncio
import contextlib

from portico.upstream.backend import RequestOptions


class Deadline:
    """Deadline of one request. Enter `timeout` around the wait."""

    __slots__ = ("_pause_count", "_paused_at", "_started_at", "options", "timeout")

    def __init__(self, options: RequestOptions) -> None:
        self.options = options
        self._started_at = now = asyncio.get_running_loop().time()
        self._pause_count = 0
        self._paused_at = 0.0
        self.timeout = asyncio.timeout_at(options.compute_deadline(now, now))

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start, without pauses."""
        now = asyncio.get_running_loop().time()
        return (self._paused_at if self._pause_count else now) - self._started_at

    def extend(self) -> None:
        """Restart the progress timeout; the total timeout stays."""
        if not self._pause_count:
            self._reschedule(asyncio.get_running_loop().time())

    def pause(self) -> None:
        """Stop both timeouts; every `pause` needs a `resume`."""
        if not self._pause_count:
            self._paused_at = asyncio.get_running_loop().time()
            self._reschedule(None)
        self._pause_count += 1

    def resume(self) -> None:
        """Continue the timeouts after the client has answered or could not be asked."""
        self._pause_count -= 1
        if not self._pause_count:
            now = asyncio.get_running_loop().time()
            self._started_at += now - self._paused_at
            self._reschedule(now)

    def _reschedule(self, now: float | None) -> None:
        if now is None:
            when = None
        else:
            when = self.options.compute_deadline(self._started_at, now)
        # A timeout cannot be rescheduled after its block has been left.
        with contextlib.suppress(RuntimeError):
            if not self.timeout.expired():
                self.timeout.reschedule(when)
