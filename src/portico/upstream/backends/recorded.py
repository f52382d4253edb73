"""A recorded server: its listing is on disk, so it can be searched and read, never called."""

import asyncio
import gzip
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from portico.errors import METHOD_NOT_FOUND, BackendUnavailable, RecordedOnly, RemoteError
from portico.json_text import json_codec
from portico.upstream.backend import (
    NO_OPTIONS,
    Connection,
    Era,
    InitializeInfo,
    Listener,
    Raw,
    RequestOptions,
)
from portico.upstream.protocol.handshake import parse_initialize_result

_LISTS = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}


@dataclass(frozen=True)
class RecordedBackend:
    """A listing in a `.json` file, or one line of a `.jsonl[.gz]` file chosen by its slug."""

    name: str
    path: Path
    slug: str | None = None

    kind = "recorded"

    async def connect(self, listener: Listener, era: Era | None = None) -> Connection:
        """Read the recording; raise BackendUnavailable if it is missing or invalid."""
        try:
            records = await asyncio.to_thread(
                _load_records, self.path, self.path.stat().st_mtime_ns
            )
        except (OSError, EOFError, zlib.error, ValueError) as error:
            raise BackendUnavailable(
                f"the recording {self.path} cannot be read: {error}",
                advice="A recording is a .json file, or one line of a .jsonl or .jsonl.gz file.",
            ) from error
        if self.slug is not None:
            record = records.get(self.slug)
        else:
            record = next(iter(records.values()), None)
        if record is None:
            raise BackendUnavailable(
                f"the recording {self.path} has no entry {self.slug or ''!r}",
                advice=f"It has {', '.join(sorted(records)[:10]) or 'none at all'}.",
            )
        return RecordedConnection(self.name, _parse_recording(record))

    def diagnostics(self) -> Mapping[str, Any]:
        """Return the path of the recording."""
        return {"recorded": str(self.path)}


class RecordedConnection:
    """Connection to a recording."""

    def __init__(self, name: str, recording: Raw) -> None:
        self._name = name
        self._recording = recording
        initialize = recording.get("initialize")
        self._initialize_info = parse_initialize_result(
            initialize if isinstance(initialize, dict) else {}
        )

    @property
    def initialize_info(self) -> InitializeInfo:
        return self._initialize_info

    async def request(
        self, method: str, params: Raw | None = None, options: RequestOptions = NO_OPTIONS
    ) -> Raw:
        """Return recorded lists; raise RecordedOnly or RemoteError for everything else."""
        if key := _LISTS.get(method):
            return {key: self._recording.get(key) or []}
        if method in ("tools/call", "resources/read", "prompts/get", "completion/complete"):
            raise RecordedOnly(
                f"{self._name} is a recording: its tools can be searched and described, not called",
                advice="Configure the real server (command or url) to call it.",
            )
        raise RemoteError(METHOD_NOT_FOUND, f"{method} is not part of a recording")

    async def notify(self, method: str, params: Raw | None = None) -> None:
        """Ignore the notification."""

    async def close(self) -> None:
        """Do nothing: no resources are held."""


@lru_cache(maxsize=1)
def _load_records(path: Path, modified: int) -> Mapping[str, bytes]:
    """Return recordings by slug. The last file is cached: one file often serves many servers."""
    if path.suffix == ".json":
        _parse_recording(text := path.read_bytes())
        return {"": text}
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as lines:
        return {
            str(_parse_recording(line).get("slug", number)): line
            for number, line in enumerate(lines)
            if line.strip()
        }


def _parse_recording(text: bytes) -> Raw:
    recording = json_codec.loads(text)
    if not isinstance(recording, dict):
        raise ValueError("a recording is a JSON object")
    return cast(Raw, recording)
