"""Symbolic links in a server's own home to what it may use in the user's.

The server can change its home, so each folder on the way is opened without following links: one
that was replaced by a link would have the launcher, which is not contained, write elsewhere.
"""

import contextlib
import os
from collections.abc import Iterable

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)


def link_into_home(home: str, links: Iterable[tuple[str, str]]) -> None:
    """Make each link (path below the home, target) unless something else is there."""
    root = os.open(home, _FOLDER)
    try:
        for path, target in links:
            try:
                _make_link(root, path, target)
            except OSError:
                continue  # the server put something else there
    finally:
        os.close(root)


def _make_link(root: int, path: str, target: str) -> None:
    *folders, name = path.split("/")
    current = os.dup(root)
    try:
        for folder in folders:
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder, 0o700, dir_fd=current)
            inner = os.open(folder, _FOLDER | _NO_FOLLOW, dir_fd=current)
            os.close(current)
            current = inner
        try:
            if os.readlink(name, dir_fd=current) == target:
                return
            os.unlink(name, dir_fd=current)
        except FileNotFoundError:
            pass
        os.symlink(target, name, dir_fd=current)
    finally:
        os.close(current)
