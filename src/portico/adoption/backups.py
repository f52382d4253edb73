"""Backups of clients' files and of configuration files, with a record of each change, to undo it.

They are in the data folder, not beside the file, where they might be committed: clients' files hold
secrets. Only this user can read them.
"""

import contextlib
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from portico.adoption.clients import ClientConfigLocation, ConfigScope
from portico.adoption.file_replacement import (
    check_not_writable_by_others,
    create_file,
    read_file,
    remove_file,
    write_file,
)
from portico.errors import ConfigError

_RECORD_FILE = "record.json"
_COPY_FILE = "before"
OWNER_ONLY = 0o600
MAX_CHANGES = 50


@dataclass(frozen=True)
class InstallRecord:
    """The change to one server map of one file."""

    client: str
    scope: ConfigScope
    file: str
    keys: tuple[str, ...]
    format: Literal["json", "toml"]
    wrote: str
    """Digest of the written content."""
    existed: bool
    """Whether the file existed before."""
    entry: Mapping[str, Any]
    """Our entry as it was written."""
    made_keys: int = 0
    """How many of `keys` were created."""
    made_folders: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    """The servers that were removed from the client's file."""

    @property
    def location(self) -> ClientConfigLocation:
        return ClientConfigLocation(self.scope, Path(self.file), self.format, self.keys)


def compute_digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Backups:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, location: ClientConfigLocation) -> InstallRecord | None:
        """Return the record for a location; None if there is none or it is damaged."""
        return _read_record(self._get_folder(location))

    def iter_records(self) -> Iterator[InstallRecord]:
        """Iterate over all installations that were not undone."""
        folders = sorted(self.folder.glob("*/"))
        yield from filter(None, map(_read_record, folders))

    def read_original(self, location: ClientConfigLocation) -> bytes | None:
        """Return the original content of the file."""
        return read_file(self._get_folder(location) / _COPY_FILE)

    def save(self, record: InstallRecord, original: bytes | None) -> Path | None:
        """Store the original of a file before it is changed; return the path of the copy."""
        folder = self._get_folder(record.location)
        copy = None
        if original is not None:
            copy = folder / _COPY_FILE
            self._write(copy, original)
        self._write(folder / _RECORD_FILE, json.dumps(asdict(record), indent=2).encode())
        return copy

    def drop(self, location: ClientConfigLocation) -> None:
        """Delete the record and copy of an undone installation."""
        folder_of_location = self._get_folder(location)
        for name in (_RECORD_FILE, _COPY_FILE):
            with contextlib.suppress(OSError):
                (folder_of_location / name).unlink()
        for folder in (folder_of_location, self.folder):
            with contextlib.suppress(OSError):
                folder.rmdir()

    def get_copy_path(self, location: ClientConfigLocation) -> Path:
        """Return the path of a file's copy."""
        return self._get_folder(location) / _COPY_FILE

    def _get_folder(self, location: ClientConfigLocation) -> Path:
        target = os.path.realpath(location.path)
        name = hashlib.blake2b(
            "\0".join((target, *location.keys)).encode(errors="surrogatepass"), digest_size=6
        )
        return self.folder / f"{location.path.name}-{name.hexdigest()}"

    def _write(self, path: Path, data: bytes) -> None:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"cannot be made: {error.strerror}; without a backup nothing is changed",
                advice="PORTICO_DATA_DIR names another folder.",
                file=str(path.parent),
            ) from None
        write_file(path, data, read_file(path), mode=0o600, follow_links=False)


def _read_record(folder: Path) -> InstallRecord | None:
    data = read_file(folder / _RECORD_FILE)
    if data is None:
        return None
    try:
        found: dict[str, Any] = json.loads(data)
        for name in ("keys", "made_folders", "replaced"):
            found[name] = tuple(found[name])
        return InstallRecord(**found)
    except (ValueError, TypeError, KeyError):
        # Damaged: the file is then treated like one that a person has changed.
        return None


@dataclass(frozen=True)
class FileChange:
    """One file before and after a change; None where it does not exist."""

    path: Path
    before: bytes | None
    after: bytes
    is_secret: bool = False
    """An env file: from now on readable by its owner only, and never written through a link."""


@dataclass(frozen=True)
class RecordedFile:
    path: Path
    copy: Path | None
    """Its content before; None if it did not exist."""
    wrote: str
    """Digest of what was written."""
    is_secret: bool


@dataclass(frozen=True)
class RecordedChange:
    folder: Path
    command: str
    files: tuple[RecordedFile, ...]
    """The configuration last."""

    @property
    def config(self) -> RecordedFile:
        return self.files[-1]


class ConfigHistory:
    """The folder of changes, the newest fifty."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, command: str, files: Sequence[FileChange], now: datetime) -> RecordedChange:
        """Write files, secrets before the configuration, and record how they were before.

        Raises ConfigError if a file changed meanwhile or others could write it.
        """
        for file in files:
            check_not_writable_by_others(file.path)
        change = self._save(command, files, now)
        try:
            for file in files:
                write_file(
                    file.path,
                    file.after,
                    file.before,
                    mode=OWNER_ONLY,
                    keep_mode=not file.is_secret,
                    follow_links=not file.is_secret,
                )
        except ConfigError as error:
            self.drop(change)
            advice = error.advice.replace("--file", "--config")
            raise ConfigError(error.message, advice=advice, file=error.file) from None
        self._drop_oldest()
        return change

    def find_last(self, paths: Sequence[Path]) -> RecordedChange | None:
        """Return the last change of one of these configurations."""
        wanted = {os.path.realpath(path) for path in paths}
        for folder in sorted(self.folder.glob("*/"), reverse=True):
            change = _read_change(folder)
            if change is not None and os.path.realpath(change.config.path) in wanted:
                return change
        return None

    def undo(self, change: RecordedChange) -> tuple[Path, ...]:
        """Give every file its content back; return those that were changed since and stay.

        Raises ConfigError if the configuration itself was changed since.
        """
        current = {file.path: read_file(file.path) for file in change.files}
        changed = [file for file in change.files if _get_digest(current[file.path]) != file.wrote]
        if change.config in changed:
            raise ConfigError(
                f"was changed after {change.command}, which cannot be undone now",
                advice=f"The files as they were before are in {change.folder}.",
                file=str(change.config.path),
            )
        # The configuration first: what still refers to a variable must not lose it.
        for file in reversed(change.files):
            now = current[file.path]
            if file in changed or now is None:
                continue
            if file.copy is None:
                remove_file(file.path, now)
            else:
                before = read_file(file.copy) or b""
                write_file(file.path, before, now, follow_links=not file.is_secret)
        self.drop(change)
        return tuple(file.path for file in changed)

    def drop(self, change: RecordedChange) -> None:
        """Delete the record and the copies of a change."""
        shutil.rmtree(change.folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def _save(self, command: str, files: Sequence[FileChange], now: datetime) -> RecordedChange:
        folder = self.folder / f"{now:%Y%m%d-%H%M%S-%f}-{secrets.token_hex(3)}"
        recorded: list[RecordedFile] = []
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.mkdir(mode=0o700)
            for file in files:
                copy = None
                if file.before is not None:
                    copy = folder / file.path.name
                    create_file(copy, file.before, OWNER_ONLY)
                recorded.append(
                    RecordedFile(file.path, copy, compute_digest(file.after), file.is_secret)
                )
            change = RecordedChange(folder, command, tuple(recorded))
            create_file(folder / _RECORD_FILE, _dump_record(change), OWNER_ONLY)
        except OSError as error:
            raise ConfigError(
                f"cannot be made: {error.strerror}; without a backup nothing is changed",
                advice="PORTICO_DATA_DIR names another folder.",
                file=str(folder),
            ) from None
        return change

    def _drop_oldest(self) -> None:
        for folder in sorted(self.folder.glob("*/"))[:-MAX_CHANGES]:
            shutil.rmtree(folder, ignore_errors=True)


def _get_digest(data: bytes | None) -> str:
    if data is None:
        return ""
    return compute_digest(data)


def _dump_record(change: RecordedChange) -> bytes:
    files = [
        {
            "path": str(file.path.absolute()),
            "copy": file.copy.name if file.copy else None,
            "wrote": file.wrote,
            "is_secret": file.is_secret,
        }
        for file in change.files
    ]
    return json.dumps({"command": change.command, "files": files}, indent=2).encode()


def _read_change(folder: Path) -> RecordedChange | None:
    """Return a record; None if it is damaged."""
    try:
        found: dict[str, Any] = json.loads((folder / _RECORD_FILE).read_bytes())
        files = tuple(
            RecordedFile(
                Path(file["path"]),
                folder / file["copy"] if file["copy"] else None,
                file["wrote"],
                file["is_secret"],
            )
            for file in found["files"]
        )
        return RecordedChange(folder, found["command"], files) if files else None
    except (OSError, ValueError, TypeError, KeyError):
        return None
