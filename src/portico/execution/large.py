"""What becomes of results that do not fit an answer, in one piece: how they are handed out, read, and let go of."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from portico.config import Results
from portico.execution.handles import Cursors, Handles
from portico.execution.reader import Reader
from portico.execution.results import ResultStore
from portico.storage.result_files import ResultFiles


@dataclass(frozen=True)
class Large:
    """Results that are kept for their callers."""

    handles: Handles
    reader: Reader
    store: ResultStore

    @classmethod
    def kept_in(cls, folder: Path | None, limits: Results, count: Callable[[str], int], cursors: Cursors) -> "Large":
        """Results on disk, or without a folder in memory, within these limits."""
        store = ResultStore(
            ResultFiles(folder),
            ttl_s=limits.ttl_s,
            total_bytes=int(limits.total_bytes),
            result_bytes=int(limits.result_bytes),
        )
        handles = Handles(store, count, cursors, media_bytes=int(limits.media_bytes))
        return cls(handles, Reader(store, count, cursors), store)
