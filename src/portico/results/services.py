"""What becomes of results that do not fit an answer, in one piece: how they are handed out, read,
and let go of."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from portico.config import ResultsConfig
from portico.results.handles import CursorCodec, ResultHandles
from portico.results.reader import ResultReader
from portico.results.store import ResultStore
from portico.storage.result_files import ResultFiles


@dataclass(frozen=True)
class ResultServices:
    """Results that are kept for their callers."""

    handles: ResultHandles
    reader: ResultReader
    store: ResultStore

    @classmethod
    def create(
        cls,
        folder: Path | None,
        limits: ResultsConfig,
        count: Callable[[str], int],
        cursors: CursorCodec,
    ) -> "ResultServices":
        """Results on disk, or without a folder in memory, within these limits."""
        store = ResultStore(
            ResultFiles(folder),
            ttl_s=limits.ttl_s,
            total_bytes=int(limits.total_bytes),
            result_bytes=int(limits.result_bytes),
        )
        handles = ResultHandles(store, count, cursors, media_bytes=int(limits.media_bytes))
        return cls(handles, ResultReader(store, count, cursors), store)
