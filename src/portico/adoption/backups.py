"""Backups of clients' files: a copy of each, and a record of what was written.

They are in the data folder, not beside the file, where they might be committed: clients' files hold
secrets. Only this user can read them.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from portico.adoption.atomic_files import read_file, write_file
from portico.adoption.config_locations import ClientConfigLocation
from portico.errors import ConfigError

_RECORD_FILE = "record.json"
_COPY_FILE = "before"


@dataclass(frozen=True)
class InstallRecord:
    """The change to one server map of one file."""

    client: str
    scope: str
    file: str
    keys: tuple[str, ...]
    format: str
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
        return ClientConfigLocation(self.scope, Path(self.file), self.format, self.keys)  # pyright: ignore[reportArgumentType]


def compute_digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Backups:
    """The folder of backups."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, location: ClientConfigLocation) -> InstallRecord | None:
        """Return the record for a location; None if there is none or it is damaged."""
        return _read_record(self._get_folder(location))

    def iter_records(self) -> Iterator[InstallRecord]:
        """Iterate over all installations that were not undone."""
        if self.folder.is_dir():
            folders = sorted(folder for folder in self.folder.iterdir() if folder.is_dir())
        else:
            folders = []
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
