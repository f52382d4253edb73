"""Vectors by the hash of the text they were made from, in one append-only file that is read through
a memory map.

Encoding a tool costs milliseconds; keeping its vector makes that once per text, whatever server,
index or gateway asks. Records have one size and end in a checksum, and an append is one write:
several gateways may share a file, and whatever a crash left half written is passed over. A file
that would grow to more than `limit` records is replaced by one with its newer half.
"""

import contextlib
import logging
import os
import tempfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

logger = logging.getLogger(__name__)

MAX_RECORDS = 400_000
_KEY_CHARS = 16
"""Characters of a key: a 64-bit hash in hexadecimal."""


class VectorFile:
    """One model's vectors. Calls block for milliseconds; the writer is a background thread."""

    def __init__(self, path: Path | None, width: int, limit: int = MAX_RECORDS) -> None:
        """Without a path, nothing is kept."""
        self._path = path
        self._limit = limit
        self._reported: set[str] = set()
        self._record_type = np.dtype(
            [("key", f"S{_KEY_CHARS}"), ("vector", np.int8, (width,)), ("check", "<u4")]
        )

    @property
    def count(self) -> int:
        """How many vectors are kept."""
        return len(self._map_records())

    def find(self, keys: Iterable[str]) -> dict[str, NDArray[np.int8]]:
        """The vectors that are kept under these keys."""
        wanted = {key.encode(): key for key in keys}
        records = self._map_records()
        if not wanted or not len(records):
            return {}
        found: dict[str, NDArray[np.int8]] = {}
        for at in np.flatnonzero(
            np.isin(records["key"], np.array(list(wanted), dtype=f"S{_KEY_CHARS}"))
        ).tolist():
            record = records[at]
            if _compute_checksum(record) == record["check"]:
                found[wanted[bytes(record["key"])]] = np.array(record["vector"])
        return found

    def add(self, vectors: Mapping[str, NDArray[np.int8]]) -> None:
        """Keep these vectors."""
        if self._path is None or not vectors:
            return
        records = np.zeros(len(vectors), dtype=self._record_type)
        for at, (key, vector) in enumerate(vectors.items()):
            records[at]["key"], records[at]["vector"] = key.encode(), vector
            records[at]["check"] = _compute_checksum(records[at])
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            if len(self._map_records()) + len(records) > self._limit:
                self._replace(self._read_newest(self._limit // 2) + records.tobytes())
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
            torn = os.fstat(handle).st_size % size
            left = memoryview(bytes(-torn % size) + body)
            try:
                while left:  # a disk that is nearly full takes a part
                    left = left[os.write(handle, left) :]
            except OSError:
                with contextlib.suppress(OSError):
                    # Whole records stay, also for whoever has mapped them.
                    end = os.fstat(handle).st_size
                    os.ftruncate(handle, end - end % size)
                raise
        finally:
            os.close(handle)

    def _read_newest(self, count: int) -> bytes:
        records = self._map_records()
        return records[max(0, len(records) - count) :].tobytes()

    def _replace(self, body: bytes) -> None:
        assert self._path is not None
        # Beside it and then in its place: whoever has mapped the old file reads on.
        handle, name = tempfile.mkstemp(prefix=f"{self._path.name}.", dir=self._path.parent)
        beside = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(body)
            beside.replace(self._path)
        except OSError:
            with contextlib.suppress(OSError):
                beside.unlink()
            raise

    def _map_records(self) -> NDArray[np.void]:
        try:
            if self._path:
                count = self._path.stat().st_size // self._record_type.itemsize
            else:
                count = 0
            if self._path and count:
                return np.memmap(self._path, dtype=self._record_type, mode="r", shape=(count,))
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            self._warn_once(f"the vectors in {self._path} cannot be read: {error}")
        return np.zeros(0, dtype=self._record_type)

    def _warn_once(self, problem: str) -> None:
        """Once: what is wrong with a disk is wrong for every batch."""
        if problem not in self._reported:
            self._reported.add(problem)
            logger.warning("%s", problem)


def _compute_checksum(record: np.void) -> int:
    return zlib.crc32(bytes(record["vector"]), zlib.crc32(bytes(record["key"])))
