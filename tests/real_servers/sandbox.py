"""A folder of its own for every run, always with the same content, and a web page for the servers
that fetch one."""

from __future__ import annotations

import base64
import os
import shutil
import sqlite3
import subprocess
import threading
import zipfile
from collections.abc import Generator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

_DOT = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg="
    "="
)
# Plain text: to simplify HTML the fetch server installs npm packages while it runs.
_PAGE = b"Tea is made of leaves and water.\n"
# A fixed moment and author make the same commit, with the same hash, in every sandbox.
_GIT = {
    "GIT_AUTHOR_NAME": "t",
    "GIT_AUTHOR_EMAIL": "t@example.org",
    "GIT_AUTHOR_DATE": "2026-01-02T03:04:05+0000",
    "GIT_COMMITTER_NAME": "t",
    "GIT_COMMITTER_EMAIL": "t@example.org",
    "GIT_COMMITTER_DATE": "2026-01-02T03:04:05+0000",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
}


def make(folder: Path) -> Path:
    """Fill a new folder; returns it without symbolic links in its path, as servers report it."""
    root = folder.resolve()
    for name in ("files/sub", "repo", "home", "tmp"):
        (root / name).mkdir(parents=True)
    (root / "outside.txt").write_text("not for the filesystem server\n", "utf-8")
    (root / "files/a.txt").write_text("hello fleet\nsecond line\n", "utf-8")
    (root / "files/sub/b.json").write_text('{"k":1}\n', "utf-8")
    (root / "files/dot.png").write_bytes(_DOT)
    _workbook(root / "files/book.xlsx")
    with closing(sqlite3.connect(root / "test.db")) as database, database:
        database.execute("create table users(id integer primary key, name text, age int)")
        database.execute("insert into users(name, age) values ('Ann', 31), ('Bo', 44), ('Cy', 27)")
    if shutil.which("git"):
        _repository(root / "repo")
    return root


@contextmanager
def web_page() -> Generator[str]:
    """A page on a loopback port; gives its URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/tea.txt"
        finally:
            server.shutdown()


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(_PAGE)))
        self.end_headers()
        self.wfile.write(_PAGE)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def _repository(folder: Path) -> None:
    def git(*arguments: str) -> None:
        subprocess.run(
            ["git", *arguments],
            cwd=folder,
            env={**os.environ, **_GIT},
            check=True,
            capture_output=True,
        )

    git("init", "-q", "-b", "main", ".")
    (folder / "m.py").write_text("def add(a, b):\n    return a + b\n", "utf-8")
    (folder / "README.md").write_text("# demo\n", "utf-8")
    git("add", ".")
    git("commit", "-qm", "first")
    with (folder / "m.py").open("a", encoding="utf-8") as file:
        file.write("x = 1\n")


def _workbook(path: Path) -> None:
    """The least that spreadsheet programs take for a workbook: one sheet, two cells."""
    spreadsheet = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    relations = "http://schemas.openxmlformats.org/package/2006/relationships"
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    parts = {
        "[Content_Types].xml": '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
        '<Default Extension="rels" '
        'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{kind}.sheet.main+xml"/>'
        '<Override PartName="/xl/worksheets/sheet1.xml" '
        f'ContentType="{kind}.worksheet+xml"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{relations}"><Relationship Id="r1" '
        f'Type="{office}/officeDocument" '
        'Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{spreadsheet}" xmlns:r="{office}"><sheets>'
        '<sheet name="Sheet1" sheetId="1" r:id="r1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{relations}"><Relationship Id="r1" '
        f'Type="{office}/worksheet" Target="worksheets/sheet1.xml"/></Relationships>',
        "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{spreadsheet}"><sheetData><row r="1">'
        '<c r="A1" t="inlineStr"><is><t>tea</t></is></c><c '
        'r="B1"><v>42</v></c></row></sheetData></worksheet>',
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in parts.items():
            archive.writestr(zipfile.ZipInfo(name), '<?xml version="1.0" encoding="UTF-8"?>' + text)
