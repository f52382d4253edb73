"""Files of the data folder: written whole, pinned origins, restart requests, large results.

Readable only by their owner. All functions raise OSError.

The origin that an API's credentials were first sent to has a file that never changes. A restart
request is an empty file named after its server, whose modification time counts: a gateway on stdio
has no port.

The modification time of a result's file is its expiry: any gateway that sweeps a shared folder
knows which files are no longer needed. Files left by a crash are swept at the next start.
"""

import contextlib
import hashlib
import logging
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Generator, Iterable
from itertools import islice
from pathlib import Path

ORIGINS_FOLDER = "origins"
"""Folder name in the data directory."""
_MAX_ORIGIN_CHARS = 4_096
RESTARTS_FOLDER = "restart"
"""Folder name in the data directory."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MAX_REQUESTS = 10_000
logger = logging.getLogger(__name__)

GRACE_S = 600.0
"""Seconds after expiry before a file is swept: clocks differ, and a file being written has no
expiry yet."""
_BATCH = 256 * 1024
_SUFFIX = ".result"


def replace_file(path: Path, body: bytes) -> None:
    """Replace a file; readers that have mapped the old one keep it."""
    with _write_temporary(path, body) as temporary:
        temporary.replace(path)


def create_file(path: Path, body: bytes) -> None:
    """Create a file unless it exists: of several writers, the first one wins."""
    with _write_temporary(path, body) as temporary:
        try:
            os.link(temporary, path)
        except FileExistsError:
            return
        except OSError:  # a file system without hard links
            if not path.exists():
                temporary.replace(path)


@contextlib.contextmanager
def _write_temporary(path: Path, body: bytes) -> Generator[Path]:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # mkstemp makes it readable by its owner only.
    handle, name = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


_SIZE = 32


def generate_key() -> bytes:
    return secrets.token_bytes(_SIZE)


def read_key(path: Path) -> bytes | None:
    """Return the stored key; None if there is none or it is invalid. Raises OSError."""
    try:
        key = path.read_bytes()
    except FileNotFoundError:
        return None
    return key if len(key) == _SIZE else None


def renew_key(path: Path) -> bytes:
    """Replace the key. Raises OSError."""
    key = generate_key()
    replace_file(path, key)
    return key


def load_or_create_key(path: Path) -> bytes:
    """Return the key, created if missing or invalid. Raises OSError."""
    if (key := read_key(path)) is not None:
        return key
    if not path.exists():
        create_file(path, generate_key())
    return read_key(path) or renew_key(path)


def find_origin(folder: Path, server: str, description_location: str) -> str | None:
    """Return the pinned origin of a server and its description, or None; raises OSError."""
    try:
        with (folder / _get_file_name(server, description_location)).open(encoding="utf-8") as file:
            return file.read(_MAX_ORIGIN_CHARS).strip()
    except FileNotFoundError:
        return None


def pin_origin(folder: Path, server: str, description_location: str, origin: str) -> str:
    """Pin an origin unless one is pinned already; return the pinned one."""
    known = find_origin(folder, server, description_location)
    if known is not None:
        return known
    path = folder / _get_file_name(server, description_location)
    create_file(path, f"{origin}\n".encode())
    return find_origin(folder, server, description_location) or origin


def _get_file_name(server: str, description_location: str) -> str:
    # Not the configuration's fingerprint, which changes with the description's file and every
    # renewed header.
    return hashlib.blake2b(
        f"{server}\0{description_location}".encode(errors="surrogatepass"), digest_size=16
    ).hexdigest()


def request_restart(folder: Path, name: str) -> float:
    """Request a restart of a server; return its Unix time. Raises ValueError for a bad name."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no server's name")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / name
    path.touch(mode=0o600)
    os.utime(path)  # `touch` does not update the time on some network file systems
    return path.stat().st_mtime


def list_restart_requests(folder: Path, after: float) -> dict[str, float]:
    """Return servers with a restart request later than `after`, with its Unix time."""
    found: dict[str, float] = {}
    # The folder may not exist, or may be in removal.
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in islice(entries, _MAX_REQUESTS):
            if _NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                found[entry.name] = entry.stat(follow_symlinks=False).st_mtime
    return {name: at for name, at in found.items() if at > after}


class ResultBodyTooLarge(Exception):
    """A body exceeds the size limit."""


class ResultFiles:
    """A folder of result bodies. Calls block on the disk; use a thread."""

    def __init__(self, folder: Path | None, clock: Callable[[], float] = time.time) -> None:
        """Without a folder, a temporary one is used until `close`."""
        self._folder = folder
        self._temporary: Path | None = None
        self._clock = clock

    def write(self, name: str, texts: Iterable[str], expires: float, limit: int) -> int:
        """Write a body and return its size; on any error nothing remains.

        Raises ResultBodyTooLarge, OSError, and whatever `texts` raises.
        """
        path = self._get_path(name)
        size = 0
        try:
            handle = os.open(
                path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600
            )
            with os.fdopen(handle, "wb", buffering=_BATCH) as file:
                for text in texts:
                    body = text.encode(errors="replace")
                    size += len(body)
                    if size > limit:
                        raise ResultBodyTooLarge(f"it has more than {limit} bytes")
                    file.write(body)
            os.utime(path, (expires, expires))
        except BaseException:
            self.delete(name)
            raise
        return size

    def read(self, name: str, start: int = 0, size: int = -1) -> bytes:
        """Return a part of a body; raises FileNotFoundError if it is gone."""
        with self._get_path(name).open("rb") as file:
            file.seek(start)
            return file.read(size)

    def delete(self, name: str) -> None:
        # One that is being read on Windows is deleted by the next sweep.
        with contextlib.suppress(OSError):
            self._get_path(name).unlink(missing_ok=True)

    def sweep(self) -> int:
        """Delete expired bodies of any gateway; return their number."""
        if self._folder is None or not self._folder.is_dir():
            return 0
        swept = 0
        try:
            for path in self._folder.glob(f"*{_SUFFIX}"):
                with contextlib.suppress(OSError):
                    if path.stat().st_mtime + GRACE_S < self._clock():
                        path.unlink()
                        swept += 1
        except OSError as error:
            logger.warning("old results in %s cannot be swept: %s", self._folder, error)
        return swept

    def close(self) -> None:
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None

    def _get_path(self, name: str) -> Path:
        folder = self._folder or self._temporary
        if folder is None:
            folder = self._temporary = Path(tempfile.mkdtemp(prefix="portico-results-"))
        elif not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return folder / f"{name}{_SUFFIX}"
