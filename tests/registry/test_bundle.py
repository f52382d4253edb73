"""Bundles are unpacked into a folder of their hash; hostile ones are refused with the reason."""

import hashlib
import io
import stat
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from portico.registry import bundle
from portico.registry.bundle import unpack_bundle
from portico.registry.bundle_manifest import list_bundle_values, plan_bundle, read_manifest
from portico.registry.server_json import UnusableServer
from tests.registry.bundles import MANIFEST, make_bundle, make_member

VALUES = {"token": ["${TOKEN}"], "word": ["hello"]}


def unpack(folder: Path, data: bytes) -> Path:
    path = folder / "x.mcpb"
    path.write_bytes(data)
    return unpack_bundle(path, folder / "bundles")


def test_a_bundle_lies_in_a_folder_of_its_hash_and_starts_from_there(tmp_path: Path) -> None:
    data = make_bundle()
    folder = unpack(tmp_path, data)
    assert folder.name == hashlib.sha256(data).hexdigest()
    manifest = read_manifest(folder)
    assert [one.name for one in list_bundle_values(manifest) if one.is_secret] == ["token"]
    assert plan_bundle(manifest, folder, VALUES).entry == {
        "command": "python3",
        "args": [f"{folder}/server/main.py", "--word", "hello"],
        "cwd": str(folder),
        "env": {"GREETER_TOKEN": "${TOKEN}"},
    }
    # What somebody changed there since is no longer what the hash says: it is unpacked again.
    (folder / "server" / "main.py").write_text("evil")
    (folder / "added.py").write_text("evil")
    assert unpack(tmp_path, data) == folder
    assert "initialize" in (folder / "server" / "main.py").read_text()
    assert not (folder / "added.py").exists()


def make_lying_size() -> bytes:
    """An archive whose file says that it is small."""
    data = bytearray(make_bundle(files={"server/main.py": b"\0" * 3_000_000}))
    size = struct.pack("<I", 3_000_000)
    while (at := data.find(size)) >= 0:
        data[at : at + 4] = struct.pack("<I", 10)
    return bytes(data)


def make_many_files() -> bytes:
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w") as archive:
        for number in range(bundle.MAX_FILES + 1):
            archive.writestr(f"{number}", b"")
    return body.getvalue()


def make_encrypted() -> bytes:
    data = bytearray(make_bundle())
    at = data.find(b"PK\x01\x02")
    data[at + 8] |= 1
    return bytes(data)


HOSTILE_ARCHIVES: dict[str, tuple[Callable[[], bytes], str]] = {
    "path traversal": (
        lambda: make_bundle(members={make_member("../../evil.py"): "x"}),
        "outside its folder",
    ),
    "path traversal inside": (
        lambda: make_bundle(members={make_member("server/../../evil.py"): "x"}),
        "outside its folder",
    ),
    "an absolute path": (
        lambda: make_bundle(members={make_member("/tmp/evil.py"): "x"}),
        "absolute path",
    ),
    "a path of Windows": (
        lambda: make_bundle(members={make_member("..\\evil.py"): "x"}),
        "unusable name",
    ),
    "a drive": (lambda: make_bundle(members={make_member("C:evil.py"): "x"}), "unusable name"),
    "a link": (
        lambda: make_bundle(members={make_member("server/link", stat.S_IFLNK): "/etc/passwd"}),
        "contains a link",
    ),
    "a device": (
        lambda: make_bundle(members={make_member("server/pipe", stat.S_IFIFO): ""}),
        "no file",
    ),
    "the same file twice": (
        lambda: make_bundle(files={"server/main.py": "x", "SERVER/MAIN.PY": "y"}),
        "twice",
    ),
    "a zip bomb": (
        lambda: make_bundle(files={"server/main.py": b"\0" * (32 * 2**20)}),
        "zip bomb",
    ),
    "too many files": (make_many_files, "more than 20,000 files"),
    "a size that is a lie": (make_lying_size, "no bundle|larger than it says"),
    "an encrypted file": (make_encrypted, "encrypted"),
    "no archive": (lambda: b"MZ" * 500, "not a zip archive"),
    "a cut archive": (lambda: make_bundle()[: len(make_bundle()) // 2], "not a zip archive"),
}


@pytest.mark.parametrize("name", HOSTILE_ARCHIVES)
def test_a_hostile_archive_is_refused_and_leaves_nothing(name: str, tmp_path: Path) -> None:
    make, reason = HOSTILE_ARCHIVES[name]
    with pytest.raises(UnusableServer, match=reason):
        unpack(tmp_path, make())
    assert not list((tmp_path / "bundles").iterdir())
    assert {path.name for path in tmp_path.iterdir()} == {"x.mcpb", "bundles"}


def with_command(**changes: Any) -> dict[str, Any]:
    server = MANIFEST["server"]
    return {
        **MANIFEST,
        "server": {**server, "mcp_config": {**server["mcp_config"], **changes}},
    }


HOSTILE_MANIFESTS: dict[str, tuple[dict[str, Any] | bytes, str]] = {
    "a shell": (with_command(command="sh", args=["-c", "id"]), "neither its runtime"),
    "a program of the machine": (with_command(command="/bin/rm"), "neither its runtime"),
    "a package that is fetched at each start": (
        with_command(command="npx", args=["-y", "evil"]),
        "no hash would cover",
    ),
    "code on the command line": (with_command(args=["-c", "import os"]), "missing in the bundle"),
    "a file outside": (with_command(args=["${__dirname}/../../x.py"]), "not in the bundle"),
    "a command of the configuration": (
        with_command(args=["${__dirname}/server/main.py", "${cmd:id}"]),
        "bundles do not have",
    ),
    "a variable of the machine": (
        with_command(env={"X": "${AWS_SECRET_ACCESS_KEY}"}),
        "bundles do not have",
    ),
    "a nested placeholder": (
        with_command(args=["${__dirname}/server/main.py", "${${HOME}cmd:id}"]),
        "bundles do not have|cannot be read",
    ),
    "a library from elsewhere": (
        with_command(env={"PYTHONPATH": "/tmp/evil"}),
        "changes what is installed or run",
    ),
    "a loader": (with_command(env={"LD_PRELOAD": "/tmp/x.so"}), "changes what is installed"),
    "another platform": (
        {**MANIFEST, "compatibility": {"platforms": ["plan9"]}},
        "runs on plan9",
    ),
    "an unknown type": (
        {**MANIFEST, "server": {**MANIFEST["server"], "type": "perl"}},
        "server.type",
    ),
    "no JSON": (b"{", "is no JSON"),
    "a huge manifest": (b'{"name": "' + b"x" * 300_000 + b'"}', "more than 256 KiB"),
}


@pytest.mark.parametrize("name", HOSTILE_MANIFESTS)
def test_a_hostile_manifest_is_refused_with_the_reason(name: str, tmp_path: Path) -> None:
    manifest, reason = HOSTILE_MANIFESTS[name]
    folder = unpack(tmp_path, make_bundle(manifest))
    with pytest.raises(UnusableServer, match=reason):
        plan_bundle(read_manifest(folder), folder, VALUES)
