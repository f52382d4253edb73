"""The file SQLite keeps the record in: made for its owner alone, and set aside when it is damaged."""

import contextlib
import logging
import os
from pathlib import Path

logger = logging.getLogger(__name__)


def prepare_file(path: Path) -> int:
    """Make the file where there is none; answers which file it is. An OSError says that it cannot
    be written."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # One that is there is not opened: to close it again would drop SQLite's locks on it in this
    # whole process.
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    with contextlib.suppress(OSError):
        path.chmod(0o600)
    return path.stat().st_ino


def set_aside(path: Path, inode: int, reason: str) -> None:
    """Move a damaged file out of the way, unless another gateway has done so."""
    with contextlib.suppress(FileNotFoundError):
        if os.stat(path).st_ino != inode:
            return
        aside = path.with_name(f"{path.name}.unreadable")
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                path.with_name(path.name + suffix).replace(aside.with_name(aside.name + suffix))
        logger.warning("%s It is now %s, and begun anew.", reason, aside.name)
