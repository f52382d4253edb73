"""Decide whether anybody but this user and root could have written a file. POSIX only; Windows is
not checked.

As sshd's StrictModes: the file and every folder and link on the way to it belong to this user or to
root, and nobody else may write there. Three exceptions: a folder like /tmp, whose sticky bit keeps
others from replacing what is in it; a group that this user is alone in (files made under umask
002); and a file system that is mounted read-only.
"""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

SKIP_CHECK_VARIABLE = "PORTICO_ALLOW_WRITABLE_CONFIG"
"""Variable that switches the check off when it is 1: file systems without owners and modes show
0777 for every file."""
_MAX_LINKS = 40
_DESCRIPTORS = ("/dev/fd/", "/dev/std", "/proc/self/fd/")
"""Open files by another name: whoever started this process chose them, and no folder leads there.
"""


class WritableByOthers(Exception):
    """Says who could have written a file, and what to do."""

    def __init__(self, message: str, advice: str) -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice


def check_file(path: Path, handle: int) -> None:
    """Raise WritableByOthers unless the open file at `path` and the way to it are this user's or
    root's alone."""
    if _is_check_disabled():
        return
    status = os.fstat(handle)
    read_only = bool(os.fstatvfs(handle).f_flag & os.ST_RDONLY)
    if not read_only and not stat.S_ISCHR(status.st_mode):
        _check_owner(path, status)
        _check_mode(path, status)
    if not str(path).startswith(_DESCRIPTORS):
        check_path(path)


def check_path(path: Path) -> None:
    """Raise WritableByOthers if others could put another file in the place of `path`, which need
    not exist."""
    if _is_check_disabled():
        return
    for step, status in _walk_path(Path.cwd() / path):
        if os.statvfs(step if stat.S_ISDIR(status.st_mode) else step.parent).f_flag & os.ST_RDONLY:
            continue
        _check_owner(step, status)
        if stat.S_ISDIR(status.st_mode) and not status.st_mode & stat.S_ISVTX:
            _check_mode(step, status)


def _is_check_disabled() -> bool:
    return os.name != "posix" or os.environ.get(SKIP_CHECK_VARIABLE) == "1"


def _walk_path(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Each folder and link on the way to a file, in the order in which the system passes them."""
    here = Path(path.anchor)
    waiting = list(reversed(path.parts[1:]))
    links = 0
    yield here, os.lstat(here)
    while waiting:
        part = waiting.pop()
        if part == "..":
            here = here.parent
            continue
        step = here / part
        try:
            status = os.lstat(step)
        except FileNotFoundError:
            return
        if stat.S_ISLNK(status.st_mode):
            links += 1
            if links > _MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            yield step, status
            target = Path(os.readlink(step))
            if target.is_absolute():
                here = Path(target.anchor)
            waiting += reversed(target.parts[1:] if target.is_absolute() else target.parts)
            continue
        here = step
        if stat.S_ISDIR(status.st_mode):
            yield step, status


def _check_owner(path: Path, status: os.stat_result) -> None:
    if status.st_uid not in (0, os.geteuid()):
        raise WritableByOthers(
            f"{path} belongs to another user (uid {status.st_uid}), who could change what is run",
            f"chown {os.geteuid()} {path}  or keep it in a folder of your own; in a container, mount it read-only",
        )


def _check_mode(path: Path, status: os.stat_result) -> None:
    others = bool(status.st_mode & stat.S_IWOTH)
    group = bool(status.st_mode & stat.S_IWGRP) and not _is_own_group(path, status.st_gid)
    if others or group:
        raise WritableByOthers(
            f"others can write {path} (mode {stat.S_IMODE(status.st_mode):04o}), and so change what is run",
            f"chmod go-w {path}",
        )


def _is_own_group(path: Path, group: int) -> bool:
    """Whether nobody but this user and root is in the group of a file."""
    import grp  # POSIX has them, and only files under umask 002 need them
    import pwd

    try:
        user = pwd.getpwuid(os.geteuid())
        found = grp.getgrgid(group)
    except KeyError:
        return False
    # A group need not list those whose first group it is, as `users` or `staff` is everybody's: its
    # name has to tell.
    named = group == 0 or (group == user.pw_gid and found.gr_name == user.pw_name)
    return named and set(found.gr_mem) <= {user.pw_name, "root"} and not _has_access_list(path)


def _has_access_list(path: Path) -> bool:
    """Whether single users may have rights that the mode shows as the group's."""
    try:
        return "system.posix_acl_access" in os.listxattr(path)
    except (AttributeError, OSError):
        return False
