"""Files that say which server is to be started anew: how a command reaches every gateway that
shares a data folder.

A gateway on stdio has no port to be asked at. The file's name is the server's, its time is the
message; it is empty.
"""

import os
import re
from pathlib import Path

FOLDER = "restart"
"""Where they are, in the data folder."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MAX_REQUESTS = 10_000


def request_restart(folder: Path, name: str) -> float:
    """Say that a server is to be started anew; when that was said, in the time of day."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no server's name")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / name
    path.touch(mode=0o600)
    os.utime(path)  # `touch` leaves the time alone on some file systems of others
    return path.stat().st_mtime


def list_restart_requests(folder: Path, after: float) -> dict[str, float]:
    """The servers that are to be started anew, and when that was said, of what was said after
    `when`."""
    found: dict[str, float] = {}
    try:
        with os.scandir(folder) as entries:
            for _, entry in zip(range(_MAX_REQUESTS), entries, strict=False):
                if _NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                    at = entry.stat(follow_symlinks=False).st_mtime
                    if at > after:
                        found[entry.name] = at
    except OSError:  # nobody ever said anything, or the folder is going away
        return found
    return found
