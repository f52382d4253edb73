"""Timer for clients that do not read what is sent to them. Pure: the clock is a parameter."""


class ReadStallTimer:
    """Measures how long a client has read nothing of its pending bytes.

    Only a drop of at least `min_bytes`, or an empty buffer, counts as progress.
    """

    __slots__ = ("_least", "_left", "_since")

    def __init__(self, waiting: int, now: float, min_bytes: int = 1) -> None:
        self._left = waiting
        self._since = now
        self._least = min_bytes

    def measure(self, waiting: int, now: float) -> float:
        """Return the seconds since the last progress; `waiting` is the number of unread bytes."""
        if waiting <= self._left - self._least or waiting == 0:
            self._left = waiting
            self._since = now
        elif waiting > self._left:
            # The buffer grew, which does not show that the client read anything.
            self._left = waiting
        return now - self._since
