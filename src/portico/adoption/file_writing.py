"""Reads and writes other people's files: whole or not at all, through links, keeping who may read them."""

import contextlib
import os
import stat
import tempfile
from pathlib import Path

from portico.errors import ConfigError

LARGEST = 256 * 1024 * 1024


def read_file(path: Path) -> bytes | None:
    """What is in a file; None where there is none."""
    try:
        kind = os.stat(path)
        if not stat.S_ISREG(kind.st_mode):
            what = "a folder" if stat.S_ISDIR(kind.st_mode) else "no ordinary file"
            raise ConfigError(f"is {what}", advice="Name another file with --file.", file=str(path))
        if kind.st_size > LARGEST:
            raise ConfigError(f"is larger than {LARGEST >> 20} MiB", advice="This is no settings file.", file=str(path))
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        advice = "Name another file with --file, or correct its permissions."
        raise ConfigError(f"cannot be read: {error.strerror}", advice=advice, file=str(path)) from None


def write_file(path: Path, data: bytes, expected: bytes | None, *, mode: int = 0o600) -> tuple[Path, ...]:
    """Replace what is in a file, if it is still what is expected there; the folders that were made for it."""
    target = _target(path, expected)
    try:
        made = _folders(target.parent)
        keeps = os.stat(target) if expected is not None else None
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".portico", dir=target.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(name, stat.S_IMODE(keeps.st_mode) if keeps else mode)
            if keeps is not None and hasattr(os, "chown"):
                with contextlib.suppress(PermissionError):
                    os.chown(name, keeps.st_uid, keeps.st_gid)
            if read_file(path) != expected:
                raise _changed_meanwhile(path)
            os.replace(name, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
    except OSError as error:
        raise ConfigError(
            f"cannot be written: {error.strerror}; it was left as it is",
            advice="Correct the permissions of the file and its folder, or name another file with --file.",
            file=str(path),
        ) from None
    return made


def remove_file(path: Path, expected: bytes, folders: tuple[Path, ...] = ()) -> None:
    """Remove a file that is still as expected, and those of these folders that it leaves empty."""
    target = _target(path, expected)
    try:
        target.unlink()
    except OSError as error:
        raise ConfigError(f"cannot be removed: {error.strerror}", advice="Remove it by hand.", file=str(path)) from None
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _target(path: Path, expected: bytes | None) -> Path:
    """The file behind the links; settings are often kept elsewhere and linked to."""
    target = Path(os.path.realpath(path))
    if expected is not None and read_file(path) != expected:
        raise _changed_meanwhile(path)
    if expected is not None and not os.stat(target).st_mode & 0o222:
        # Root could, and replacing a file needs no right to it; but somebody said that it stays.
        raise ConfigError(
            "is read-only; it was left as it is",
            advice=f"If it should change: chmod u+w {target}",
            file=str(path),
        )
    return target


def _folders(folder: Path) -> tuple[Path, ...]:
    """Make a folder; those that were made, the innermost first."""
    made: list[Path] = []
    missing = folder
    while not missing.exists():
        made.append(missing)
        missing = missing.parent
    folder.mkdir(parents=True, exist_ok=True)
    return tuple(made)


def _changed_meanwhile(path: Path) -> ConfigError:
    return ConfigError(
        "was changed by another program in this moment; nothing was written",
        advice="Run the command again; quit the client first if it keeps happening.",
        file=str(path),
    )
