"""What clients' files were before Portico came: a copy of each, and a record of what was written,
in the data folder.

Not beside the file: there it might be committed, and clients' files hold secrets. Only this person
may read it.
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
    """What was done to one server map of one file."""

    client: str
    scope: str
    file: str
    keys: tuple[str, ...]
    format: str
    wrote: str
    """The digest of what was written."""
    existed: bool
    """Whether there was a file before."""
    entry: Mapping[str, Any]
    """Our entry as it was written."""
    made_keys: int = 0
    """How many of the keys were not there before."""
    made_folders: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    """The servers that were taken out."""

    @property
    def location(self) -> ClientConfigLocation:
        return ClientConfigLocation(self.scope, Path(self.file), self.format, self.keys)  # pyright: ignore[reportArgumentType]


def compute_digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Backups:
    """The folder that they are kept in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, location: ClientConfigLocation) -> InstallRecord | None:
        """What was done there; None where nothing was, or its record is gone."""
        return _read_record(self._get_folder(location))

    def iter_records(self) -> Iterator[InstallRecord]:
        """Everything that was done and not undone."""
        if self.folder.is_dir():
            homes = sorted(home for home in self.folder.iterdir() if home.is_dir())
        else:
            homes = []
        yield from filter(None, map(_read_record, homes))

    def read_original(self, location: ClientConfigLocation) -> bytes | None:
        """What the file was."""
        return read_file(self._get_folder(location) / _COPY_FILE)

    def save(self, record: InstallRecord, original: bytes | None) -> Path | None:
        """Keep what a file was, before it is changed; where the copy is."""
        home = self._get_folder(record.location)
        copy = None
        if original is not None:
            copy = home / _COPY_FILE
            self._write(copy, original)
        self._write(home / _RECORD_FILE, json.dumps(asdict(record), indent=2).encode())
        return copy

    def drop(self, location: ClientConfigLocation) -> None:
        """Forget what was undone."""
        home = self._get_folder(location)
        for name in (_RECORD_FILE, _COPY_FILE):
            with contextlib.suppress(OSError):
                (home / name).unlink()
        for folder in (home, self.folder):
            with contextlib.suppress(OSError):
                folder.rmdir()

    def get_copy_path(self, location: ClientConfigLocation) -> Path:
        """Where the copy of a file is."""
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
        # Damaged: then the file is treated as one that a person has changed.
        return None
