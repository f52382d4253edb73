"""The console's files: whole, small, of known origin, and nothing that the policy would stop."""

import hashlib
import json
import re
from pathlib import Path, PurePosixPath

import httpx2
import pytest

from portico.console.files import (
    FOLDER,
    SECURITY_HEADERS,
    ConsoleFiles,
    read_files,
    resolve_named_imports,
)
from tests.conformance.suite import CONSOLE_PACKAGES, SuiteMissing, find_console_package

ROOT = "http://127.0.0.1:8420"
MAX_WIRE_BYTES = 250_000
THIRD_PARTY = FOLDER / "third_party"
MANIFEST = json.loads((THIRD_PARTY / "manifest.json").read_text("utf-8"))["files"]
SOURCES = sorted(path for path in FOLDER.rglob("*.js"))
_IMPORT = re.compile(r"""(?:from|import)\s*\(?["']([^"']+)["']""")
FORBIDDEN = (
    "innerHTML",
    "outerHTML",
    "insertAdjacentHTML",
    "dangerouslySetInnerHTML",
    "document.write",
    "eval(",
    "new Function",
    "DOMParser",
    'setAttribute("style"',
    "http://",
    "https://",
    "javascript:",
)


@pytest.fixture(scope="module")
def files() -> ConsoleFiles:
    return ConsoleFiles()


def open_http(files: ConsoleFiles) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=files), base_url=ROOT)


def test_every_file_of_third_parties_is_as_it_was_published() -> None:
    listed = {one["file"] for one in MANIFEST}
    assert listed == {path.name for path in THIRD_PARTY.glob("*.mjs")}
    for one in MANIFEST:
        content = (THIRD_PARTY / one["file"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == one["sha256"], one["file"]
        assert (THIRD_PARTY / one["licence_file"]).stat().st_size > 500
        assert CONSOLE_PACKAGES[one["package"]] == one["version"]


@pytest.mark.node
@pytest.mark.parametrize("one", MANIFEST, ids=[one["file"] for one in MANIFEST])
def test_a_file_of_third_parties_is_the_one_in_its_package(one: dict[str, str]) -> None:
    try:
        _, package = find_console_package(one["package"])
    except SuiteMissing as missing:
        pytest.skip(str(missing))
    assert (package / one["path"]).read_bytes() == (THIRD_PARTY / one["file"]).read_bytes()


def test_every_import_leads_to_a_file() -> None:
    contents = read_files(FOLDER)
    for name, content in contents.items():
        if not name.endswith((".js", ".mjs")):
            continue
        for target in _IMPORT.findall(content.decode()):
            assert target.startswith("."), (name, target)
            parts: list[str] = []
            for part in (PurePosixPath(name).parent / target).parts:
                if part == "..":
                    parts.pop()
                else:
                    parts.append(part)
            assert "/".join(parts) in contents, (name, target)


def test_an_unknown_name_in_a_module_is_not_passed_over() -> None:
    assert resolve_named_imports(b'from"preact"') == b'from"./preact.mjs"'
    with pytest.raises(KeyError):
        resolve_named_imports(b'import a from "left-pad"')


@pytest.mark.parametrize("path", SOURCES, ids=[path.name for path in SOURCES])
def test_no_source_makes_markup_of_text_or_names_another_host(path: Path) -> None:
    text = path.read_text("utf-8")
    assert [word for word in FORBIDDEN if word in text] == []
    assert not re.search(r"""\bstyle="|\bon[a-z]+="[^$]""", text)
    assert len(text.splitlines()) < 400


async def test_the_page_is_at_every_address_and_says_what_it_may_load(files: ConsoleFiles) -> None:
    async with open_http(files) as http:
        for path in ("/console", "/console/", "/console/tools/a.b", "/console/no/such/screen"):
            reply = await http.get(path)
            assert reply.status_code == 200
            assert reply.headers["content-type"] == "text/html; charset=utf-8"
            assert reply.headers["cache-control"] == "no-cache"
            for name, value in SECURITY_HEADERS.items():
                assert reply.headers[name] == value
            assert "<script>" not in reply.text
            assert "style=" not in reply.text
        policy = reply.headers["content-security-policy"]
        assert "unsafe" not in policy
        for part in ("default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"):
            assert part in policy
        again = await http.get("/console", headers={"if-none-match": reply.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert (await http.post("/console")).status_code == 405


async def test_files_are_kept_for_good_and_only_those_of_this_version_are_there(
    files: ConsoleFiles,
) -> None:
    async with open_http(files) as http:
        page = (await http.get("/console")).text
        paths = re.findall(r'(?:href|src)="(/console/static/[^"]+)"', page)
        assert len(paths) > 20
        for path in paths:
            reply = await http.get(path)
            assert reply.status_code == 200, path
            assert "immutable" in reply.headers["cache-control"]
            assert reply.headers["x-content-type-options"] == "nosniff"
        for path in (
            "/console/static/0000000000000000/main.js",
            f"/console/static/{files.version}/index.html",
            f"/console/static/{files.version}/third_party/manifest.json",
            f"/console/static/{files.version}/../files.py",
            f"/console/static/{files.version}/%2e%2e/files.py",
        ):
            assert (await http.get(path)).status_code in (200, 404)
            assert "import" not in (await http.get(path)).text


async def test_all_of_it_is_small_on_the_wire(files: ConsoleFiles) -> None:
    async with open_http(files) as http:
        page = await http.get("/console")
        total = int(page.headers["content-length"])
        for path in set(re.findall(r'"(/console/static/[^"]+)"', page.text)):
            reply = await http.get(path, headers={"accept-encoding": "gzip"})
            assert reply.headers["content-encoding"] == "gzip"
            total += int(reply.headers["content-length"])
        assert total <= MAX_WIRE_BYTES, total
