"""A client that does not read what it is sent. Pure."""


class ReadStallTimer:
    """Since when a client has taken nothing of what waits for it."""

    __slots__ = ("_least", "_left", "_since")

    def __init__(self, waiting: int, now: float, min_bytes: int = 1) -> None:
        self._left = waiting
        self._since = now
        self._least = min_bytes

    def measure(self, waiting: int, now: float) -> float:
        """How long it has been; `waiting` are the bytes that it has yet to take."""
        if waiting <= self._left - self._least or waiting == 0:
            self._left = waiting
            self._since = now
        elif waiting > self._left:
            self._left = waiting  # there is more to take, which is no sign that anything was
        return now - self._since
