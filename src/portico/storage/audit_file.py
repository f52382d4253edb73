"""The audit log as files, and the chain of MACs that reveals changed, removed or inserted lines.

`audit.jsonl` is written; `audit.jsonl.1` is the file before, `.2` the one before that, and so on. A
line is one write to a file opened for appending, so those of several processes never mix. A process
that finds the file full rotates it under a file lock; the others notice that the name refers to
another file.

A line ends in `chain` (the gateway run that wrote it), `n` (its number there) and `mac`: a keyed
BLAKE2b of the previous MAC in that chain and of the line itself. Gateways that share a log write
separate chains. The first line of a chain has `after`: the MAC of the last line before it.
"""

import contextlib
import json
import os
import stat
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from hmac import compare_digest
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

_BLOCK = 64 * 1024
_OPEN_FLAGS = (
    os.O_RDWR
    | os.O_APPEND
    | os.O_CREAT
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NONBLOCK", 0)
)
"""Readable, to check the last byte; non-blocking, in case it is a pipe without a reader."""


MAX_PROBLEMS = 20
"""Maximum number of problems listed; further ones are counted."""
_MAX_RECENT_MACS = 1_000
"""Lines that other gateways may append between reading the end of the log and a chain's first line.
"""
_MAC_FIELD = b',"mac":"'


class DroppedAuditFile(NamedTuple):
    """The oldest file of a log, deleted by a rotation."""

    first_line: bytes
    last_line: bytes
    size: int


class AuditFile:
    """One log. Appending blocks until the operating system accepts the line."""

    def __init__(self, path: Path, *, max_bytes: int, files: int) -> None:
        """Nothing is opened or created before the first line."""
        self.path = path
        self.files = files
        self._path = os.path.realpath(path)
        self._max_bytes = max_bytes
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
        lines = iter_lines_backwards(Path(self._path), self.files)
        return next((line for line in lines if line.endswith(b'"}')), b"")

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
            oldest = get_rotated_name(self._path, self.files - 1)
            with contextlib.suppress(FileNotFoundError):
                self._dropped = _read_edge_lines(oldest)
            # The current file last: until then no other process can create and fill a new one.
            for number in range(self.files - 1, 0, -1):
                newer = get_rotated_name(self._path, number - 1)
                with contextlib.suppress(FileNotFoundError):
                    os.replace(newer, get_rotated_name(self._path, number))
            if self.files == 1:
                os.unlink(self._path)
        except FileNotFoundError:
            return True
        finally:
            _unlock(handle)
        return True


def get_rotated_name(path: str | Path, number: int) -> str:
    """Return the name of a rotated file; number 0 is the current one."""
    return f"{path}.{number}" if number else str(path)


def iter_lines_backwards(path: Path, files: int) -> Iterator[bytes]:
    for file in _open_files(path, range(files)):
        yield from _read_backwards(file.fileno(), os.fstat(file.fileno()).st_size)


def iter_lines(path: Path, files: int) -> Iterator[bytes]:
    for file in _open_files(path, range(files - 1, -1, -1)):
        yield from (line.rstrip(b"\n") for line in file if line != b"\n")


def _open_files(path: Path, numbers: Iterable[int]) -> Iterator[BinaryIO]:
    real = os.path.realpath(path)
    for number in numbers:
        with contextlib.suppress(FileNotFoundError):
            file = open(get_rotated_name(real, number), "rb")  # noqa: SIM115
            with file:
                yield file


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


class AuditChain:
    """Signs lines. `advance` moves on after a line is in the file; `sign_line` does not."""

    def __init__(self, key: bytes, last_line: bytes = b"") -> None:
        """Start a chain after `last_line`, the last line of the log, signed or not."""
        self._key = key
        self._id = os.urandom(4).hex()
        self._line_number = 0
        self._previous_mac = str(parse_line(last_line).get("mac", ""))

    @property
    def next_position(self) -> dict[str, Any]:
        """Fields of the next line that give its position in the chain."""
        position: dict[str, Any] = {"chain": self._id, "n": self._line_number + 1}
        if not self._line_number:
            position["after"] = self._previous_mac
        return position

    def sign_line(self, line: bytes) -> tuple[bytes, str]:
        """Add the MAC to a line (a JSON object and a line break); return the line and the MAC."""
        mac = _compute_mac(self._key, self._previous_mac, line.removesuffix(b"\n"))
        return line.removesuffix(b"}\n") + _MAC_FIELD + mac.encode() + b'"}\n', mac

    def advance(self, mac: str) -> None:
        """Continue after a line that was written."""
        self._line_number += 1
        self._previous_mac = mac


@dataclass
class AuditVerification:
    """Result of `verify`."""

    signed_lines: int = 0
    unsigned_lines: int = 0
    """Lines of a version that wrote no MACs; they prove nothing."""
    torn_lines: int = 0
    """Truncated lines, as a crash or a full disk leaves them; no MAC depends on them."""
    problems: list[str] = field(default_factory=list[str])
    unlisted_problems: int = 0

    def add_problem(self, problem: str) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(problem)
        else:
            self.unlisted_problems += 1


def verify(lines: Iterable[bytes], key: bytes) -> AuditVerification:
    """Check every line, oldest first. Memory does not grow with the log."""
    verification = AuditVerification()
    chain_ends: dict[str, tuple[int, str]] = {}
    chains_without_start: dict[str, int] = {}
    recent: deque[str] = deque(maxlen=_MAX_RECENT_MACS)
    dropped: Mapping[str, Any] | None = None
    orphan = ""  # position of the first line, if it claims to follow another
    for raw in lines:
        line = parse_line(raw)
        mac = line.get("mac")
        chain = line.get("chain")
        n = line.get("n")
        if not line:
            verification.torn_lines += 1
        elif not (isinstance(mac, str) and isinstance(chain, str) and isinstance(n, int)):
            if verification.signed_lines:
                verification.add_problem(
                    f"a line without a MAC stands after sealed ones: {line.get('at')}"
                )
            verification.unsigned_lines += 1
        else:
            verification.signed_lines += 1
            position = f"line {n} of chain {chain} ({line.get('at')})"
            previous_n, previous_mac = chain_ends.get(chain, (0, str(line.get("after", ""))))
            if n != previous_n + 1:
                if chain in chain_ends:
                    verification.add_problem(
                        f"{position} follows line {previous_n}: "
                        "lines were taken out, or put in another order"
                    )
                else:
                    chains_without_start[chain] = n
            elif not compare_digest(mac, _compute_mac(key, previous_mac, _strip_mac(raw))):
                verification.add_problem(f"{position} was changed")
            elif n == 1 and previous_mac and verification.signed_lines == 1:
                orphan = position
            elif n == 1 and recent and previous_mac not in recent:
                verification.add_problem(f"{position} was written after a line that is missing")
            chain_ends[chain] = n, mac
            recent.append(mac)
            if isinstance(dropped_file := line.get("dropped"), dict):
                dropped = cast("dict[str, Any]", dropped_file)
    if orphan and dropped is None:
        verification.add_problem(
            f"{orphan} was written after a line that is missing, and no full log was dropped"
        )
    for chain, n in chains_without_start.items():
        if dropped is None or (dropped.get("chain") == chain and dropped.get("n") != n - 1):
            verification.add_problem(
                f"lines before line {n} of chain {chain} are missing, and no full log was dropped"
            )
    return verification


def _compute_mac(key: bytes, previous_mac: str, line: bytes) -> str:
    return blake2b(previous_mac.encode() + b"\n" + line, key=key, digest_size=16).hexdigest()


def _strip_mac(raw: bytes) -> bytes:
    return raw[: raw.rfind(_MAC_FIELD)] + b"}"


def parse_line(raw: bytes) -> dict[str, Any]:
    """Parse a line; empty if it is not a JSON object."""
    try:
        line: Any = json.loads(raw)
    except ValueError:
        return {}
    return cast("dict[str, Any]", line) if isinstance(line, dict) else {}
