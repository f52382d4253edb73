"""Reads and writes other people's files: whole or not at all, keeping who may read them.

A new file is made beside the old one and takes its place, so nothing is ever written into what a
link leads to. A client's own file may be a link (dotfiles are often kept elsewhere): then the file
behind it is replaced, provided that links, folders and file are this user's or root's and that
nobody else can write them.
"""

import contextlib
import os
import secrets
import stat
from collections.abc import Generator
from pathlib import Path

from portico.config_file.file_permissions import WritableByOthers, check_file, check_path
from portico.errors import ConfigError

MAX_FILE_BYTES = 256 * 1024 * 1024
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_READ_FLAGS = os.O_RDONLY | getattr(os, "O_BINARY", 0)
_NON_BLOCKING = getattr(os, "O_NONBLOCK", 0)
"""A pipe that nobody writes to is not waited for."""
_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_FOLLOW | getattr(os, "O_BINARY", 0)


def read_file(path: Path) -> bytes | None:
    """What is in a file; None where there is none."""
    try:
        return _read_regular_file(path, str(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        advice = "Name another file with --file, or correct its permissions."
        raise ConfigError(
            f"cannot be read: {error.strerror}", advice=advice, file=str(path)
        ) from None


def write_file(
    path: Path,
    data: bytes,
    expected: bytes | None,
    *,
    mode: int = 0o600,
    keep_mode: bool = True,
    follow_links: bool = True,
) -> tuple[Path, ...]:
    """Replace what is in a file, if it is still what is expected there; the folders that were made
    for it.

    `mode` is that of a new file, and without `keep_mode` of an old one too. Without `links` a link is refused.
    """
    target = _resolve_target(path, expected, follow_links=follow_links)
    try:
        made = _make_folders(target.parent)
        with _open_folder(target.parent) as folder:
            name = _join_name(folder, target, target.name)
            if expected is not None:
                keeps = os.stat(name, dir_fd=folder, follow_symlinks=False)
            else:
                keeps = None
            fresh = _join_name(folder, target, f".{target.name}.{secrets.token_hex(8)}.portico")
            handle = os.open(fresh, _CREATE_FLAGS, 0o600, dir_fd=folder)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                    set_mode(
                        file.fileno(), stat.S_IMODE(keeps.st_mode) if keeps and keep_mode else mode
                    )
                    if keeps is not None and hasattr(os, "fchown"):
                        with contextlib.suppress(PermissionError):
                            os.fchown(file.fileno(), keeps.st_uid, keeps.st_gid)
                if _read_current(path, name, folder) != expected:
                    raise _make_conflict_error(path)
                os.replace(fresh, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(fresh, dir_fd=folder)
                raise
    except OSError as error:
        raise ConfigError(
            f"cannot be written: {error.strerror}; it was left as it is",
            advice="Correct the permissions of the file and its folder, or name another file with --file.",
            file=str(path),
        ) from None
    return made


def create_file(path: Path, data: bytes, mode: int) -> None:
    """Make a file that was not there; FileExistsError where anything is, also a link that leads
    nowhere."""
    # Nobody else may read it, not even for the moment until it has its mode.
    handle = os.open(path, _CREATE_FLAGS, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        set_mode(file.fileno(), mode)


def set_mode(handle: int, mode: int) -> None:
    """Set the mode of an open file, where files have one."""
    if hasattr(os, "fchmod"):
        os.fchmod(handle, mode)


def remove_file(path: Path, expected: bytes, folders: tuple[Path, ...] = ()) -> None:
    """Remove a file that is still as expected, and those of these folders that it leaves empty."""
    target = _resolve_target(path, expected, follow_links=True)
    try:
        target.unlink()
    except OSError as error:
        raise ConfigError(
            f"cannot be removed: {error.strerror}", advice="Remove it by hand.", file=str(path)
        ) from None
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def check_not_writable_by_others(path: Path) -> None:
    """Refuse a place where others could put another file: what is written there would not be read
    as configuration."""
    try:
        check_path(path)
    except WritableByOthers as error:
        raise ConfigError(
            f"is not written: {error.message}", advice=error.advice, file=str(path)
        ) from None


def _resolve_target(path: Path, expected: bytes | None, *, follow_links: bool) -> Path:
    """The file to replace: the one behind the links, where they may be followed."""
    target = Path(os.path.realpath(path))
    if path.is_symlink() and not follow_links:
        raise ConfigError(
            f"is a link to {target}, and what is secret is not written through links; nothing was written",
            advice="Remove the link, or name the file itself (`env_file`; PORTICO_DATA_DIR for backups).",
            file=str(path),
        )
    if expected is not None and read_file(path) != expected:
        raise _make_conflict_error(path)
    if target != Path(os.path.abspath(path)):
        _check_links(path, target)
    if expected is not None and not os.stat(target).st_mode & 0o222:
        # Root could, and replacing a file needs no right to it; but somebody said that it stays.
        raise ConfigError(
            "is read-only; it was left as it is",
            advice=f"If it should change: chmod u+w {target}",
            file=str(path),
        )
    return target


def _check_links(path: Path, target: Path) -> None:
    """Refuse links that somebody else could point elsewhere, and a file behind them that others can
    write."""
    try:
        check_path(path)
        with contextlib.suppress(FileNotFoundError):
            handle = os.open(target, _READ_FLAGS | _NON_BLOCKING | _NO_FOLLOW)
            try:
                check_file(target, handle)
            finally:
                os.close(handle)
    except WritableByOthers as error:
        raise ConfigError(
            f"is reached by a link, which is not followed: {error.message}; nothing was written",
            advice=f"{error.advice}  or name {target} itself with --file",
            file=str(path),
        ) from None
    except OSError as error:
        raise ConfigError(
            f"cannot be read: {error.strerror}", advice="Correct the link.", file=str(path)
        ) from None


@contextlib.contextmanager
def _open_folder(path: Path) -> Generator[int | None]:
    """Hold on to a folder, so that another in its place gets nothing; None where the system cannot."""
    if os.open not in os.supports_dir_fd:
        yield None
        return
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | _NO_FOLLOW)
    try:
        yield handle
    finally:
        os.close(handle)


def _join_name(folder: int | None, target: Path, name: str) -> str:
    if folder is not None:
        return name
    return str(target.with_name(name))


def _read_current(path: Path, name: str, folder: int | None) -> bytes | None:
    """What is in the file now; a link in its place is another's doing."""
    try:
        return _read_regular_file(path, name, folder, _NO_FOLLOW)
    except FileNotFoundError:
        return None


def _read_regular_file(path: Path, name: str, folder: int | None = None, flags: int = 0) -> bytes:
    handle = os.open(name, _READ_FLAGS | _NON_BLOCKING | flags, dir_fd=folder)
    try:
        kind = os.fstat(handle)
        if not stat.S_ISREG(kind.st_mode):
            if stat.S_ISDIR(kind.st_mode):
                what = "a folder"
            else:
                what = "no ordinary file"
            raise ConfigError(f"is {what}", advice="Name another file with --file.", file=str(path))
        if kind.st_size > MAX_FILE_BYTES:
            raise ConfigError(
                f"is larger than {MAX_FILE_BYTES >> 20} MiB",
                advice="This is no settings file.",
                file=str(path),
            )
        with os.fdopen(os.dup(handle), "rb") as file:
            return file.read(MAX_FILE_BYTES + 1)
    finally:
        os.close(handle)


def _make_folders(folder: Path) -> tuple[Path, ...]:
    """Make a folder; those that were made, the innermost first."""
    made: list[Path] = []
    missing = folder
    while not missing.exists():
        made.append(missing)
        missing = missing.parent
    folder.mkdir(parents=True, exist_ok=True)
    return tuple(made)


def _make_conflict_error(path: Path) -> ConfigError:
    return ConfigError(
        "was changed by another program in this moment; nothing was written",
        advice="Run the command again; quit the client first if it keeps happening.",
        file=str(path),
    )
