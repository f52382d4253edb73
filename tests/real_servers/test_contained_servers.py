"""Servers written by third parties answer the same from inside a containment that fits them."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.real_servers import catalogue, installation, run_checks, runs
from tests.real_servers.catalogue import Raw
from tests.real_servers.installation import NotInstalled
from tests.real_servers.runs import Place

pytestmark = [pytest.mark.slow, pytest.mark.network, pytest.mark.timeout(240)]

CATALOGUE = catalogue.load()
NAMES = sorted(name for name, server in CATALOGUE.servers.items() if server.transport == "stdio")
FITTING: dict[str, Raw] = {"fetch": {"network": "loopback"}}
"""What servers need beside their sandbox; the others have no network."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Generator[Place]:
    if sys.platform != "linux":
        pytest.skip("containment needs Linux")
    try:
        found = installation.find(CATALOGUE)
    except NotInstalled as missing:
        pytest.skip(str(missing))
    folder = tmp_path_factory.mktemp("contained")
    with serve_page(folder / "page") as page:
        yield Place(found, folder, page)


@contextmanager
def serve_page(folder: Path) -> Generator[str]:
    """A page of another process: no contained server reaches the ports of the gateway's own."""
    folder.mkdir()
    (folder / "tea.txt").write_text("Tea is made of leaves and water.\n", "utf-8")
    words = [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1"]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, stderr=quiet, text=True)
    try:
        assert process.stdout is not None
        port = re.search(r" port (\d+) ", process.stdout.readline())
        assert port is not None
        yield f"http://127.0.0.1:{port[1]}/tea.txt"
    finally:
        process.kill()
        process.wait(30)


@pytest.mark.parametrize("name", NAMES)
async def test_a_contained_server_offers_and_answers_the_same(name: str, place: Place) -> None:
    server = CATALOGUE.servers[name]
    if server.needs and not shutil.which(server.needs):
        pytest.skip(f"{name} needs {server.needs} on the PATH")
    inside = Place(place.installation, place.folder / name, place.page)
    contain = FITTING.get(name, {"network": "none"})
    direct, contained = await asyncio.gather(
        runs.directly(server, inside), runs.in_full(server, inside, contain)
    )
    assert run_checks.of_direct(server, direct) == []
    assert run_checks.of_full(server, direct, contained) == []
