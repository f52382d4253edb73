"""Bundles of MCP servers (`.mcpb`): a zip with a manifest, unpacked into a folder of its hash.

An archive says about itself what it likes: its table, its number of files and their sizes are
checked before anything is read, and counted again while it is unpacked. Names that lead out of the
folder, links, and anything that is no plain file are refused. What is unpacked is started by
`node`, `python3`, `uv` or as its own program, from its folder.
"""

import hashlib
import os
import re
import shutil
import stat
import struct
import tempfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from portico.registry.server_json import UnusableServer

BUNDLES_FOLDER = "bundles"
MAX_FILES = 20_000
MAX_TABLE_BYTES = 8 * 2**20
MAX_UNPACKED_BYTES = 1024 * 2**20
MAX_RATIO = 200
_RATIO_FREE_BYTES = 8 * 2**20
"""Unpacked bytes from which the ratio counts: small texts shrink a great deal."""
MAX_NAME = 400
_CHUNK = 256 * 1024
_END_MARK = b"PK\x05\x06"
_END_SIZE = 22
_MAX_COMMENT = 65_535
_BAD_NAME = re.compile(r"[\x00-\x1f\x7f\\:]")
_ENCRYPTED = 0x1


def compute_file_hash(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def unpack_bundle(path: Path, folder: Path) -> Path:
    """Unpack a bundle below `folder`, under its hash, and return where; raises UnusableServer.

    What was unpacked before is unpacked again, so that it is what the bundle says.
    """
    target = folder / compute_file_hash(path)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = Path(tempfile.mkdtemp(prefix="unpack.", dir=folder))
    try:
        with path.open("rb") as file:
            _check_table(file)
            with zipfile.ZipFile(file) as archive:
                members = _check_members(archive)
                _unpack(archive, members, temporary)
        if target.exists():
            shutil.rmtree(target)
        temporary.rename(target)
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, struct.error) as error:
        raise UnusableServer(f"{path.name} is no bundle: {error}") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def _check_table(file: BinaryIO) -> None:
    """Check the size of an archive's table before it is read: it becomes objects in memory."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _END_SIZE - _MAX_COMMENT))
    tail = file.read()
    at = tail.rfind(_END_MARK)
    if at < 0 or len(tail) - at < _END_SIZE:
        raise UnusableServer("it is no bundle: not a zip archive")
    count, table_size = struct.unpack("<HI", tail[at + 10 : at + 16])
    if count > MAX_FILES:
        raise UnusableServer(f"it has more than {MAX_FILES:,} files")
    if table_size > MAX_TABLE_BYTES:
        raise UnusableServer(f"its table has more than {MAX_TABLE_BYTES // 2**20} MiB")
    file.seek(0)


def _check_members(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    members = archive.infolist()
    if len(members) > MAX_FILES:
        raise UnusableServer(f"it has more than {MAX_FILES:,} files")
    unpacked = sum(member.file_size for member in members)
    packed = sum(member.compress_size for member in members)
    if unpacked > MAX_UNPACKED_BYTES:
        raise UnusableServer(f"unpacked it has more than {MAX_UNPACKED_BYTES // 2**20} MiB")
    if unpacked > _RATIO_FREE_BYTES and unpacked > MAX_RATIO * max(packed, 1):
        raise UnusableServer(f"unpacked it is more than {MAX_RATIO} times as large: a zip bomb")
    names: set[str] = set()
    for member in members:
        _check_member(member)
        folded = member.filename.rstrip("/").casefold()
        if folded in names:
            raise UnusableServer(f"it contains {member.filename[:100]!r} twice")
        names.add(folded)
    return members


def _check_member(member: zipfile.ZipInfo) -> None:
    name = member.filename
    # As it stands in the archive: `ZipInfo` cuts a name at a NUL.
    written = member.orig_filename
    shown = repr(written[:100])
    parts = PurePosixPath(name).parts
    if not name or len(name) > MAX_NAME or _BAD_NAME.search(written):
        raise UnusableServer(f"it contains a file with an unusable name: {shown}")
    if name.startswith("/"):
        raise UnusableServer(f"it contains a file with an absolute path: {shown}")
    if ".." in parts:
        raise UnusableServer(f"it contains a file that would lie outside its folder: {shown}")
    kind = stat.S_IFMT(member.external_attr >> 16)
    if kind == stat.S_IFLNK:
        raise UnusableServer(f"it contains a link: {shown}")
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise UnusableServer(f"it contains something that is no file: {shown}")
    if member.flag_bits & _ENCRYPTED:
        raise UnusableServer(f"it contains an encrypted file: {shown}")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise UnusableServer(f"it contains a file packed in an unusual way: {shown}")


def _unpack(archive: zipfile.ZipFile, members: list[zipfile.ZipInfo], folder: Path) -> None:
    total = 0
    for member in members:
        target = folder.joinpath(*PurePosixPath(member.filename).parts)
        if member.is_dir():
            target.mkdir(parents=True, exist_ok=True)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        size = 0
        with archive.open(member) as packed, target.open("xb") as file:
            while part := packed.read(_CHUNK):
                size += len(part)
                total += len(part)
                if size > member.file_size or total > MAX_UNPACKED_BYTES:
                    raise UnusableServer(f"{member.filename[:100]!r} is larger than it says")
                file.write(part)
        is_program = bool((member.external_attr >> 16) & 0o111)
        target.chmod(0o700 if is_program else 0o600)
