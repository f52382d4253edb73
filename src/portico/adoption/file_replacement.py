"""Atomic reads and writes of files that belong to other programs, preserving their permissions.

A new file is created beside the old one and replaces it, so nothing is written through a link. A
client's own file may be a link (dotfiles are often kept elsewhere): then the file behind it is
replaced, provided that links, folders and file belong to this user or root and nobody else can
write them.
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
"""Opening a pipe without a writer must not block."""
_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_FOLLOW | getattr(os, "O_BINARY", 0)


def read_file(path: Path) -> bytes | None:
    """Read a file; None if it does not exist."""
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
    """Replace a file if it still holds `expected`; return the folders that were created.

    `mode` is that of a new file, and without `keep_mode` of an old one too. Without `follow_links`
    a link is refused. Raises ConfigError.
    """
    target = _resolve_target(path, expected, follow_links=follow_links)
    try:
        made_folders = _make_folders(target.parent)
        with _open_folder(target.parent) as folder:
            name = _join_name(folder, target, target.name)
            old_stat = None
            if expected is not None:
                old_stat = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if keep_mode:
                    mode = stat.S_IMODE(old_stat.st_mode)
            temporary = _join_name(folder, target, f".{target.name}.{secrets.token_hex(8)}.portico")
            handle = os.open(temporary, _CREATE_FLAGS, 0o600, dir_fd=folder)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                    set_mode(file.fileno(), mode)
                    if old_stat is not None and hasattr(os, "fchown"):
                        with contextlib.suppress(PermissionError):
                            os.fchown(file.fileno(), old_stat.st_uid, old_stat.st_gid)
                if _read_current(path, name, folder) != expected:
                    raise _make_conflict_error(path)
                os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=folder)
                raise
    except OSError as error:
        raise ConfigError(
            f"cannot be written: {error.strerror}; it was left as it is",
            advice=(
                "Correct the permissions of the file and its folder, or name another file "
                "with --file."
            ),
            file=str(path),
        ) from None
    return made_folders


def create_file(path: Path, data: bytes, mode: int) -> None:
    """Create a file; raises FileExistsError if anything is there, also a dangling link."""
    # Private until it has its final mode.
    handle = os.open(path, _CREATE_FLAGS, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        set_mode(file.fileno(), mode)


def set_mode(handle: int, mode: int) -> None:
    """Set the mode of an open file, on systems with file modes."""
    if hasattr(os, "fchmod"):
        os.fchmod(handle, mode)


def remove_file(path: Path, expected: bytes, folders: tuple[Path, ...] = ()) -> None:
    """Remove a file that still holds `expected`, and those of these folders that are then empty."""
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
    """Raise ConfigError for a path that others can replace: it would be refused when read."""
    try:
        check_path(path)
    except WritableByOthers as error:
        raise ConfigError(
            f"is not written: {error.message}", advice=error.advice, file=str(path)
        ) from None


def _resolve_target(path: Path, expected: bytes | None, *, follow_links: bool) -> Path:
    """Return the file to replace, following links if allowed."""
    target = Path(os.path.realpath(path))
    if path.is_symlink() and not follow_links:
        raise ConfigError(
            f"is a link to {target}, and what is secret is not written through links; nothing "
            "was written",
            advice=(
                "Remove the link, or name the file itself (`env_file`; PORTICO_DATA_DIR for "
                "backups)."
            ),
            file=str(path),
        )
    if expected is not None and read_file(path) != expected:
        raise _make_conflict_error(path)
    if target != Path(os.path.abspath(path)):
        _check_links(path, target)
    if expected is not None and not os.stat(target).st_mode & 0o222:
        # Replacing a file needs no write permission on it, but a read-only file is meant to stay.
        raise ConfigError(
            "is read-only; it was left as it is",
            advice=f"If it should change: chmod u+w {target}",
            file=str(path),
        )
    return target


def _check_links(path: Path, target: Path) -> None:
    """Refuse links that others could redirect, and targets that others can write."""
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
    """Open a folder, so that replacing it has no effect; None if the system cannot."""
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
    """Return the current content of the file; a link in its place raises OSError."""
    try:
        return _read_regular_file(path, name, folder, _NO_FOLLOW)
    except FileNotFoundError:
        return None


def _read_regular_file(path: Path, name: str, folder: int | None = None, flags: int = 0) -> bytes:
    handle = os.open(name, _READ_FLAGS | _NON_BLOCKING | flags, dir_fd=folder)
    try:
        kind = os.fstat(handle)
        if not stat.S_ISREG(kind.st_mode):
            what = "a folder" if stat.S_ISDIR(kind.st_mode) else "no ordinary file"
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
    """Create a folder; return the folders that were created, innermost first."""
    created: list[Path] = []
    missing = folder
    while not missing.exists():
        created.append(missing)
        missing = missing.parent
    folder.mkdir(parents=True, exist_ok=True)
    return tuple(created)


def _make_conflict_error(path: Path) -> ConfigError:
    return ConfigError(
        "was changed by another program in this moment; nothing was written",
        advice="Run the command again; quit the client first if it keeps happening.",
        file=str(path),
    )
