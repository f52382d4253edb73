"""The files of search, both read through a memory map: its index, and vectors by their text.

The index is one file, replaced atomically: a cache of the manifests, so an unreadable one counts as
missing. Vectors are in one append-only file, by the hash of their text.

Encoding a tool costs milliseconds; storing its vector makes that once per text, whatever server,
index or gateway needs it. Records have a fixed size and end in a checksum, and an append is one
write: several gateways may share a file, and partial records of a crash are skipped. A file that
would exceed `limit` records is replaced by one with its newer half.
"""

import contextlib
import logging
import mmap
import os
import sys
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from portico.storage.data_files import replace_file

logger = logging.getLogger(__name__)

MAX_RECORDS = 400_000
_KEY_CHARS = 16
"""Characters of a key: a 64-bit hash in hexadecimal."""


class VectorFile:
    """Vectors of one model. Calls block for milliseconds; the writer is a background thread."""

    def __init__(self, path: Path | None, width: int, limit: int = MAX_RECORDS) -> None:
        self._path = path
        self._limit = limit
        self._reported: set[str] = set()
        self._record_type = np.dtype(
            [("key", f"S{_KEY_CHARS}"), ("vector", np.int8, (width,)), ("check", "<u4")]
        )

    @property
    def count(self) -> int:
        return len(self._map_records())

    def find(self, keys: Iterable[str]) -> dict[str, NDArray[np.int8]]:
        wanted = {key.encode(): key for key in keys}
        records = self._map_records()
        if not wanted or not len(records):
            return {}
        found: dict[str, NDArray[np.int8]] = {}
        is_wanted = np.isin(records["key"], np.array(list(wanted), dtype=f"S{_KEY_CHARS}"))
        for position in np.flatnonzero(is_wanted).tolist():
            record = records[position]
            if _compute_checksum(record) == record["check"]:
                found[wanted[bytes(record["key"])]] = np.array(record["vector"])
        return found

    def add(self, vectors: Mapping[str, NDArray[np.int8]]) -> None:
        if self._path is None or not vectors:
            return
        records = np.zeros(len(vectors), dtype=self._record_type)
        for position, (key, vector) in enumerate(vectors.items()):
            records[position]["key"] = key.encode()
            records[position]["vector"] = vector
            records[position]["check"] = _compute_checksum(records[position])
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            if len(self._map_records()) + len(records) > self._limit:
                replace_file(self._path, self._read_newest(self._limit // 2) + records.tobytes())
            else:
                self._append(records.tobytes())
        except OSError as error:
            self._warn_once(f"vectors cannot be kept in {self._path}: {error}")

    def _append(self, body: bytes) -> None:
        assert self._path is not None
        size = self._record_type.itemsize
        handle = os.open(
            self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o600
        )
        try:
            excess = os.fstat(handle).st_size % size
            remaining = memoryview(bytes(-excess % size) + body)
            try:
                while remaining:  # a nearly full disk accepts only a part
                    remaining = remaining[os.write(handle, remaining) :]
            except OSError:
                with contextlib.suppress(OSError):
                    # Complete records stay, also for readers that have mapped them.
                    end = os.fstat(handle).st_size
                    os.ftruncate(handle, end - end % size)
                raise
        finally:
            os.close(handle)

    def _read_newest(self, count: int) -> bytes:
        records = self._map_records()
        return records[max(0, len(records) - count) :].tobytes()

    def _map_records(self) -> NDArray[np.void]:
        nothing = np.zeros(0, dtype=self._record_type)
        if self._path is None:
            return nothing
        try:
            count = self._path.stat().st_size // self._record_type.itemsize
            if count:
                return np.memmap(self._path, dtype=self._record_type, mode="r", shape=(count,))
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            self._warn_once(f"the vectors in {self._path} cannot be read: {error}")
        return nothing

    def _warn_once(self, problem: str) -> None:
        """Log a problem once; a disk error repeats with every batch."""
        if problem not in self._reported:
            self._reported.add(problem)
            logger.warning("%s", problem)


def _compute_checksum(record: np.void) -> int:
    return zlib.crc32(bytes(record["vector"]), zlib.crc32(bytes(record["key"])))


logger = logging.getLogger(__name__)


def release_memory(view: memoryview) -> None:
    """Release the memory of a mapped view; pages are mapped again on use."""
    mapped = view.obj
    if isinstance(mapped, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):  # not on Windows
        mapped.madvise(mmap.MADV_DONTNEED)


class IndexFile:
    """File of the search index. Without a path, nothing is stored."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    @property
    def path(self) -> Path | None:
        return self._path

    def load(self) -> memoryview | None:
        """Return the saved index as a view that stays valid when the file is replaced."""
        if self._path is None:
            return None
        try:
            with self._path.open("rb") as file:
                if sys.platform == "win32":  # a mapped file cannot be replaced there
                    return memoryview(file.read())
                return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:  # an empty file cannot be mapped
            logger.warning("the search index %s cannot be read: %s", self._path, error)
            return None

    def save(self, body: bytes) -> None:
        if self._path is None:
            return
        try:
            replace_file(self._path, body)
        except OSError as error:
            logger.warning("the search index %s cannot be written: %s", self._path, error)
