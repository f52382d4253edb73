"""A server that is a recording: its listing is on disk, so it can be searched and read, never called."""

import gzip
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from portico.errors import METHOD_NOT_FOUND, BackendUnavailable, RecordedOnly, RemoteError
from portico.upstream.backend import Ask, Connection, Era, Hello, Listener, Raw
from portico.upstream.handshake import hello_from_handshake
from portico.upstream.peer import NO_OPTIONS

_LISTS = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}


@dataclass(frozen=True)
class RecordedBackend:
    """A listing in a `.json` file, or one line of a `.jsonl` or `.jsonl.gz` file chosen by its slug."""

    name: str
    path: Path
    slug: str | None = None

    kind = "recorded"

    async def connect(self, listener: Listener, era: Era | None = None) -> Connection:
        """Read the recording."""
        try:
            for recording in _records(self.path):
                if self.slug is None or recording.get("slug") == self.slug:
                    return RecordedConnection(self.name, recording)
        except (OSError, ValueError) as error:
            raise BackendUnavailable(f"the recording {self.path} cannot be read: {error}") from error
        raise BackendUnavailable(f"the recording {self.path} has no entry {self.slug!r}")

    def diagnostics(self) -> Mapping[str, Any]:
        """Where the recording lies."""
        return {"recorded": str(self.path)}


class RecordedConnection:
    """A conversation with a recording."""

    def __init__(self, name: str, recording: Raw) -> None:
        self._name = name
        self._recording = recording
        initialize = recording.get("initialize")
        self._hello = hello_from_handshake(initialize if isinstance(initialize, dict) else {})

    @property
    def hello(self) -> Hello:
        return self._hello

    async def request(self, method: str, params: Raw | None = None, ask: Ask = NO_OPTIONS) -> Raw:
        """Lists answer from the recording; everything else says what this is."""
        if key := _LISTS.get(method):
            return {key: self._recording.get(key) or []}
        if method in ("tools/call", "resources/read", "prompts/get", "completion/complete"):
            raise RecordedOnly(
                f"{self._name} is a recording: its tools can be searched and described, not called",
                advice="Configure the real server (command or url) to call it.",
            )
        raise RemoteError(METHOD_NOT_FOUND, f"{method} is not part of a recording")

    async def notify(self, method: str, params: Raw | None = None) -> None:
        """Nobody listens."""

    async def close(self) -> None:
        """Nothing is held."""


def _records(path: Path) -> Iterator[Raw]:
    if path.suffix == ".json":
        yield orjson.loads(path.read_bytes())
        return
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as lines:
        for line in lines:
            if line.strip():
                yield orjson.loads(line)
