"""Audit log on disk: lines appended atomically by any number of gateways, with rotation by size.

`audit.jsonl` is written; `audit.jsonl.1` is the file before, `.2` the one before that, and so on. A
line is one write to a file opened for appending, so those of several processes never mix. A process
that finds the file full rotates it under a file lock; the others notice that the name refers to
another file.
"""

import contextlib
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from portico.storage.hash_key import generate_key, read_key, renew_key

_BLOCK = 64 * 1024
_OPEN_FLAGS = (
    os.O_RDWR
    | os.O_APPEND
    | os.O_CREAT
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NONBLOCK", 0)
)
"""Readable, to check the last byte; non-blocking, in case it is a pipe without a reader."""


class DroppedAuditFile(NamedTuple):
    """The oldest file of a log, deleted by a rotation."""

    first_line: bytes
    last_line: bytes
    size: int


class AuditFile:
    """One log. Appending blocks until the operating system accepts the line."""

    def __init__(self, path: Path, *, max_bytes: int, files: int) -> None:
        """Nothing is opened or created before the first line."""
        self._path = os.path.realpath(path)
        self._max_bytes = max_bytes
        self._files = files
        self._handle: int | None = None
        self._open_file_id: tuple[int, int] | None = None
        """Device and inode of the open file."""
        self._has_partial_line = False
        """The last line is incomplete: a disk was full, or a process died."""
        self._dropped: DroppedAuditFile | None = None

    def take_dropped(self) -> DroppedAuditFile | None:
        """Return and clear the file that was deleted since the last call."""
        dropped = self._dropped
        self._dropped = None
        return dropped

    def read_last_line(self) -> bytes:
        """Return the last complete line; empty if there is none, or no regular file."""
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISREG(os.stat(self._path).st_mode):
                return b""
        return next(
            (
                line
                for line in iter_lines_backwards(Path(self._path), self._files)
                if line.endswith(b'"}')
            ),
            b"",
        )

    def append(self, line: bytes) -> None:
        """Append a line that ends in a line break; raises OSError."""
        handle, size = self._ensure_open()
        if size and size + len(line) > self._max_bytes and self._rotate(handle):
            self.close()
            handle, _ = self._ensure_open()
        whole = b"\n" + line if self._has_partial_line else line
        written = os.write(handle, whole)
        self._has_partial_line = written != len(whole)
        if self._has_partial_line:
            raise OSError(f"only {written} of {len(whole)} bytes could be written")

    def sync(self) -> None:
        """Wait until written data is on disk. Blocks. Raises OSError."""
        if self._handle is None:
            return
        # A duplicate, as the original may be closed by another thread.
        handle = os.dup(self._handle)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def close(self) -> None:
        """Close the file; the next line opens it again."""
        handle = self._handle
        self._handle = None
        self._open_file_id = None
        if handle is not None:
            os.close(handle)

    def _ensure_open(self) -> tuple[int, int]:
        """Return the handle of the current file and its size, reopening it after a rotation."""
        if self._handle is not None:
            with contextlib.suppress(FileNotFoundError):
                found = os.stat(self._path)
                if (found.st_dev, found.st_ino) == self._open_file_id:
                    return self._handle, found.st_size if stat.S_ISREG(found.st_mode) else 0
            self.close()
        return self._open()

    def _open(self) -> tuple[int, int]:
        Path(self._path).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(self._path, _OPEN_FLAGS, 0o600)
        try:
            found = os.fstat(handle)
            regular = stat.S_ISREG(found.st_mode)
            self._has_partial_line = (
                regular and found.st_size > 0 and _read_last_byte(handle, found.st_size) != b"\n"
            )
        except BaseException:
            os.close(handle)
            raise
        self._handle = handle
        self._open_file_id = (found.st_dev, found.st_ino)
        return handle, found.st_size if regular else 0

    def _rotate(self, handle: int) -> bool:
        """Rotate a full file; return whether the name is free for a new one."""
        if not _try_lock(handle):
            return False  # another process is rotating; a few more lines do no harm
        try:
            found = os.stat(self._path)
            if (found.st_dev, found.st_ino) != self._open_file_id:
                return True
            oldest = get_rotated_name(self._path, self._files - 1)
            with contextlib.suppress(FileNotFoundError):
                self._dropped = _read_edge_lines(oldest)
            # The current file last: until then no other process can create and fill a new one.
            for number in range(self._files - 1, 0, -1):
                with contextlib.suppress(FileNotFoundError):
                    os.replace(
                        get_rotated_name(self._path, number - 1),
                        get_rotated_name(self._path, number),
                    )
            if self._files == 1:
                os.unlink(self._path)
        except FileNotFoundError:
            return True
        finally:
            _unlock(handle)
        return True


def get_rotated_name(path: str | Path, number: int) -> str:
    """Return the name of a rotated file; number 0 is the current one."""
    if number:
        return f"{path}.{number}"
    return str(path)


def iter_lines_backwards(path: Path, files: int) -> Iterator[bytes]:
    """Yield every line, the last one first."""
    real = os.path.realpath(path)
    for number in range(files):
        with (
            contextlib.suppress(FileNotFoundError),
            open(get_rotated_name(real, number), "rb") as file,
        ):
            yield from _read_backwards(file.fileno(), os.fstat(file.fileno()).st_size)


def iter_lines(path: Path, files: int) -> Iterator[bytes]:
    """Yield every line, the first one first."""
    real = os.path.realpath(path)
    for number in range(files - 1, -1, -1):
        with (
            contextlib.suppress(FileNotFoundError),
            open(get_rotated_name(real, number), "rb") as file,
        ):
            yield from (line.rstrip(b"\n") for line in file if line != b"\n")


def load_or_create_key(path: Path) -> bytes:
    """Return the key for hashing arguments and sessions, created if missing; raises OSError."""
    if (key := read_key(path)) is not None:
        return key
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if path.exists():
        return renew_key(path)  # it is not a valid key
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(generate_key())
        # Of gateways that start together, the first to link its key wins.
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return read_key(path) or renew_key(path)


def _read_backwards(handle: int, end: int) -> Iterator[bytes]:
    partial = b""
    while end > 0:
        begin = max(0, end - _BLOCK)
        os.lseek(handle, begin, os.SEEK_SET)
        block = os.read(handle, end - begin)
        end = begin
        partial, *lines = (block + partial).split(b"\n")
        yield from (line for line in reversed(lines) if line)
    if partial:
        yield partial


def _read_edge_lines(path: str) -> DroppedAuditFile:
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        return DroppedAuditFile(
            file.readline(_BLOCK), next(_read_backwards(file.fileno(), size), b""), size
        )


def _read_last_byte(handle: int, size: int) -> bytes:
    os.lseek(handle, size - 1, os.SEEK_SET)
    return os.read(handle, 1)


if sys.platform == "win32":

    def _try_lock(handle: int) -> bool:
        """Succeeds always: a file that others hold open cannot be renamed on Windows."""
        return True

    def _unlock(handle: int) -> None:
        return

else:
    import fcntl

    def _try_lock(handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _unlock(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_UN)
