"""The console over the recorded fleet, with 100,000 calls on record."""

import asyncio
import os
from collections.abc import Generator
from pathlib import Path

import pytest
from benchmarks.console_record import CALLS, write_record

from benchmarks import fleet
from portico.config import Config
from tests.console.browser import Browser, wait_until
from tests.console.pages import list_screens, measure_overflow, open_page, wait_until_loaded
from tests.console.served import GatewayThread, ServedConsole

MOST_ROWS = 90
"""Rows in the page at once, of any list: those that can be seen, and some around them."""
_ROWS = "[role=row][aria-rowindex]"


@pytest.fixture(scope="module")
def served(
    thread: GatewayThread, tmp_path_factory: pytest.TempPathFactory
) -> Generator[ServedConsole]:
    shared = os.environ.get("PORTICO_SHARED")
    try:
        fleet.folder_of(Path(shared) if shared else None)
    except SystemExit as missing:
        pytest.skip(f"the console is not tested with the recorded fleet: {missing}")
    folder = tmp_path_factory.mktemp("large")
    config = Config.model_validate({"servers": fleet.servers(None, folder / "recordings")})
    tools = [
        (recording["slug"], tool["name"])
        for recording in fleet.recordings(None)
        for tool in recording["tools"]
    ]
    asyncio.run(write_record(folder / "data", tools, CALLS))
    with thread.serve({}, config=config, data_dir=folder / "data") as opened:
        yield opened


def scroll_to(window: Browser, part: float) -> None:
    script = (
        "const e = document.querySelector('.table'); e.scrollTop = e.scrollHeight * arguments[0]"
    )
    window.run(script, part)


def test_every_screen_opens_holds_few_rows_and_is_accessible(
    window: Browser, served: ServedConsole, axe: str
) -> None:
    for path in list_screens(window, served):
        for colours in ("light", "dark"):
            window.prefer_colours(colours)
            open_page(window, served, path)
            wait_until_loaded(window)
            assert len(window.find_all(_ROWS)) <= MOST_ROWS, path
            assert measure_overflow(window) <= 0, path
            assert not axe or window.find_axe_violations(axe) == [], (path, colours)


def test_all_tools_can_be_scrolled_through(window: Browser, served: ServedConsole) -> None:
    open_page(window, served, "tools")
    # Six more are for apps only.
    window.wait_for(".note", "4,130")
    for part in (0.3, 0.7, 1.0):
        scroll_to(window, part)
        wait_until_loaded(window)
        assert 0 < len(window.find_all(f"{_ROWS} a.row-link")) <= MOST_ROWS
    wait_until(lambda: window.find_all("[role=row][aria-rowindex='4131'] a.row-link"))


def test_a_search_finds_among_all_tools_and_says_why(
    window: Browser, served: ServedConsole
) -> None:
    open_page(window, served, "tools?q=create%20an%20issue%20on%20github")
    window.wait_for(".results li", "issue")
    window.wait_for(".why")
    window.click(".results a")
    window.wait_for("h2", "Try it")


def test_all_calls_are_counted_and_the_oldest_can_be_reached(
    window: Browser, served: ServedConsole
) -> None:
    open_page(window, served, "activity")
    window.wait_for(_ROWS)
    wait_until_loaded(window)
    for _ in range(4):
        before = window.text(".note")
        scroll_to(window, 1.0)
        wait_until(lambda before=before: window.text(".note") != before)
    assert len(window.find_all(_ROWS)) <= MOST_ROWS
    open_page(window, served, "activity?outcome=failed&person=key%20ana")
    window.wait_for(f"{_ROWS} .state")
    wait_until_loaded(window)
    assert "key ben" not in window.text(".table")
    open_page(window, served, "overview")
    window.wait_for(".figures", "Calls")
