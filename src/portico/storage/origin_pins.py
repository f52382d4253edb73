"""The origin that each API's credentials went to first, on disk, for every gateway that shares a
data folder.

One small file for each server and description. The first to write it wins; nobody changes it
afterwards.
"""

import hashlib
import os
import tempfile
from pathlib import Path

FOLDER = "origins"
"""Where they are, in the data folder."""
_MAX_ORIGIN_CHARS = 4_096


def find_origin(folder: Path, server: str, description_location: str) -> str | None:
    """The origin that is remembered for a server and its description; OSError where that cannot be
    told."""
    try:
        with (folder / _get_file_name(server, description_location)).open(encoding="utf-8") as file:
            return file.read(_MAX_ORIGIN_CHARS).strip()
    except FileNotFoundError:
        return None


def pin_origin(folder: Path, server: str, description_location: str, origin: str) -> str:
    """Remember an origin unless another is remembered already; the one that holds."""
    known = find_origin(folder, server, description_location)
    if known is not None:
        return known
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, fresh = tempfile.mkstemp(prefix=".", dir=folder)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(f"{origin}\n")
        _link_new_file(Path(fresh), folder / _get_file_name(server, description_location))
    finally:
        Path(fresh).unlink(missing_ok=True)
    return find_origin(folder, server, description_location) or origin


def _link_new_file(fresh: Path, path: Path) -> None:
    """Give a file its name, whole, and never in the place of another gateway's."""
    try:
        os.link(fresh, path)
    except FileExistsError:
        return
    except OSError:  # a file system without links
        if not path.exists():
            os.replace(fresh, path)


def _get_file_name(server: str, description_location: str) -> str:
    # Not its configuration's fingerprint: that changes with the description's file and with every
    # renewed header.
    return hashlib.blake2b(
        f"{server}\0{description_location}".encode(errors="surrogatepass"), digest_size=16
    ).hexdigest()
