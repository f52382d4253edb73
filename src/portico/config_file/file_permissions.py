"""Checks that only this user and root could have written a file. POSIX only.

Like sshd's StrictModes: the file and every folder and link on the way to it must belong to this
user or to root, and nobody else may write there. Three exceptions: a folder like /tmp, whose sticky
bit keeps others from replacing its content; a group with this user as its only member (files made
under umask 002); and a file system that is mounted read-only.
"""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

SKIP_CHECK_VARIABLE = "PORTICO_ALLOW_WRITABLE_CONFIG"
"""Set to 1 to disable the check: file systems without owners and modes show 0777 for every file."""
_MAX_LINKS = 40
_DESCRIPTORS = ("/dev/fd/", "/dev/std", "/proc/self/fd/")
"""Open files by another name: chosen by the starter of this process, without a path to check."""


class WritableByOthers(Exception):
    """Others could have written a file; carries a message and advice."""

    def __init__(self, message: str, advice: str) -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice


def check_file(path: Path, handle: int) -> None:
    """Raise WritableByOthers if others could have written the open file."""
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
    """Raise WritableByOthers if others could replace `path`, which need not exist."""
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
    """Yield each folder and link on the path, in the order in which the system resolves them."""
    folder = Path(path.anchor)
    remaining = list(reversed(path.parts[1:]))
    links = 0
    yield folder, os.lstat(folder)
    while remaining:
        part = remaining.pop()
        if part == "..":
            folder = folder.parent
            continue
        step = folder / part
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
                folder = Path(target.anchor)
            remaining += reversed(target.parts[1:] if target.is_absolute() else target.parts)
            continue
        folder = step
        if stat.S_ISDIR(status.st_mode):
            yield step, status


def _check_owner(path: Path, status: os.stat_result) -> None:
    if status.st_uid not in (0, os.geteuid()):
        raise WritableByOthers(
            f"{path} belongs to another user (uid {status.st_uid}), who could change what is run",
            f"chown {os.geteuid()} {path}  or keep it in a folder of your own;"
            " in a container, mount it read-only",
        )


def _check_mode(path: Path, status: os.stat_result) -> None:
    others = bool(status.st_mode & stat.S_IWOTH)
    group = bool(status.st_mode & stat.S_IWGRP) and not _is_own_group(path, status.st_gid)
    if others or group:
        raise WritableByOthers(
            f"others can write {path} (mode {stat.S_IMODE(status.st_mode):04o}),"
            " and so change what is run",
            f"chmod go-w {path}",
        )


def _is_own_group(path: Path, group: int) -> bool:
    """Return whether a group has no members but this user and root."""
    import grp  # POSIX only, and only needed for group-writable files
    import pwd

    try:
        user = pwd.getpwuid(os.geteuid())
        found = grp.getgrgid(group)
    except KeyError:
        return False
    # A group need not list users whose primary group it is, such as `users` or `staff`, so its name
    # must be the user's.
    is_personal = group == 0 or (group == user.pw_gid and found.gr_name == user.pw_name)
    return (
        is_personal and set(found.gr_mem) <= {user.pw_name, "root"} and not _has_access_list(path)
    )


def _has_access_list(path: Path) -> bool:
    """Return whether an access list may grant rights that the mode shows as the group's."""
    try:
        return "system.posix_acl_access" in os.listxattr(path)
    except (AttributeError, OSError):
        return False
