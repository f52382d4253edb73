"""Restart requests as files: how a command reaches every gateway that shares a data directory.

A gateway on stdio has no port. The file's name is the server's, its modification time is the
request; it is empty.
"""

import os
import re
from pathlib import Path

FOLDER = "restart"
"""Folder name in the data directory."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MAX_REQUESTS = 10_000


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
    try:
        with os.scandir(folder) as entries:
            for _, entry in zip(range(_MAX_REQUESTS), entries, strict=False):
                if _NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                    at = entry.stat(follow_symlinks=False).st_mtime
                    if at > after:
                        found[entry.name] = at
    except OSError:  # the folder does not exist, or is being removed
        return found
    return found
