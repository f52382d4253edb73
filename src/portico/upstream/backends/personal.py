"""A server at which each person uses an own account: a backend for each."""

from collections.abc import Callable, Mapping
from typing import Any

from portico.upstream.backend import Backend, Connection, Era, Listener


class PersonalBackend:
    """Makes the backend of one person, with that person's credentials and nobody else's."""

    def __init__(self, kind: str, make: Callable[[str], Backend]) -> None:
        self.kind = kind
        self._make = make
        self._own: Backend | None = None

    def for_person(self, person: str) -> Backend:
        """Return the backend of a person, by principal; empty: the local user's."""
        if person:
            return self._make(person)
        if self._own is None:
            self._own = self._make("")
        return self._own

    async def connect(self, listener: Listener, era: Era | None = None) -> Connection:
        return await self.for_person("").connect(listener, era)

    def diagnostics(self) -> Mapping[str, Any]:
        return {} if self._own is None else self._own.diagnostics()
