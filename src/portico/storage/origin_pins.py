"""Pins the origin that each API's credentials were first sent to, per data directory.

One small file for each server and API description. The first writer wins; the file never changes.
"""

import hashlib
import os
import tempfile
from pathlib import Path

FOLDER = "origins"
"""Folder name in the data directory."""
_MAX_ORIGIN_CHARS = 4_096


def find_origin(folder: Path, server: str, description_location: str) -> str | None:
    """Return the pinned origin of a server and its description, or None; raises OSError."""
    try:
        with (folder / _get_file_name(server, description_location)).open(encoding="utf-8") as file:
            return file.read(_MAX_ORIGIN_CHARS).strip()
    except FileNotFoundError:
        return None


def pin_origin(folder: Path, server: str, description_location: str, origin: str) -> str:
    """Pin an origin unless one is pinned already; return the pinned one."""
    known = find_origin(folder, server, description_location)
    if known is not None:
        return known
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, temporary = tempfile.mkstemp(prefix=".", dir=folder)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(f"{origin}\n")
        _link_new_file(Path(temporary), folder / _get_file_name(server, description_location))
    finally:
        Path(temporary).unlink(missing_ok=True)
    return find_origin(folder, server, description_location) or origin


def _link_new_file(fresh: Path, path: Path) -> None:
    """Link a complete file to its name, without replacing another gateway's."""
    try:
        os.link(fresh, path)
    except FileExistsError:
        return
    except OSError:  # a file system without hard links
        if not path.exists():
            os.replace(fresh, path)


def _get_file_name(server: str, description_location: str) -> str:
    # Not the configuration's fingerprint, which changes with the description's file and every
    # renewed header.
    return hashlib.blake2b(
        f"{server}\0{description_location}".encode(errors="surrogatepass"), digest_size=16
    ).hexdigest()
