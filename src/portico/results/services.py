"""Construction of the services that store large results and read them in parts."""

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
    """Result handles, their reader and their store."""

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
        """Build the services; results are stored in `folder`, or in memory without one."""
        store = ResultStore(
            ResultFiles(folder),
            ttl_s=limits.ttl_s,
            total_bytes=int(limits.total_bytes),
            result_bytes=int(limits.result_bytes),
        )
        handles = ResultHandles(store, count, cursors, media_bytes=int(limits.media_bytes))
        return cls(handles, ResultReader(store, count, cursors), store)
