"""Takes the pictures of the console in the documentation: the demo servers, after a month of use.

    python -m benchmarks.screenshots docs/pictures

The record is made up and the same each time; a few calls are made while the pictures are taken.
Needs Chromium and its driver (Debian: `apt-get install chromium chromium-driver`).
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import httpx2
from tests.console.browser import Browser, BrowserMissing, open_browser, wait_until

from benchmarks import processes
from benchmarks.console_record import SessionTokens, write_record
from portico.demo import make_demo_servers

CALLS = 6_000
WIDTH, HEIGHT = 1_120, 700
MOST_BYTES = 900_000
TOOLS = (
    ("notes", "search_notes"), ("units", "convert_units"), ("text", "count_text"),
    ("clock", "now"), ("notes", "create_note"), ("clock", "date_difference"),
)  # fmt: skip
TOKENS = SessionTokens(listing=3_400, shown=900)
PICTURES = (
    # name, colours, path, what is there when it is complete
    ("console-overview", "light", "overview", ".plot"),
    ("console-overview-dark", "dark", "overview", ".plot"),
    ("console-search", "light", "tools?q=how%20far%20is%20a%20marathon%20in%20km", ".why"),
    ("console-tool", "dark", "tools/units.convert_units", ".answer"),
    ("console-activity", "light", "activity", "[role=row] a"),
)
ARGUMENTS = {"value": 26.2, "from_unit": "miles", "to_unit": "km"}
CALL = {"tool": "units.convert_units", "arguments": ARGUMENTS}
BROKEN = {"command": "tickets-server", "description": "Tickets of the support desk."}
"""A server that is not installed, so that something needs a person."""


def take_pictures(folder: Path) -> int:
    """Write all pictures there; returns their bytes in all."""
    total = 0
    with processes.scratch() as scratch:
        servers = {
            name: settings.model_dump(mode="json", exclude_unset=True)
            for name, settings in make_demo_servers().items()
        }
        asyncio.run(write_record(scratch / "data", TOOLS, CALLS, TOKENS))
        port = processes.free_port()
        settings = {"servers": {**servers, "tickets": BROKEN}, "gateway": {"port": port}}
        config = processes.write_config(scratch, settings)
        serve = [*processes.portico(), "serve", "--config", str(config)]
        with processes.listening(port, serve, scratch), open_browser(WIDTH, HEIGHT) as browser:
            root = f"http://127.0.0.1:{port}"
            wait_until(lambda: _count_tools(root))
            for _ in range(3):
                httpx2.post(f"{root}/api/v1/calls", json=CALL, timeout=60).raise_for_status()
            for name, colours, path, complete in PICTURES:
                browser.prefer_colours(colours)
                browser.open(f"{root}/console/{path}")
                browser.wait_for(".connection", "live")
                if complete == ".answer":
                    _try_tool(browser)
                browser.wait_for(complete)
                wait_until(lambda: not browser.find_all(".waiting"))
                picture = browser.take_screenshot()
                (folder / f"{name}.png").write_bytes(picture)
                print(f"{name}.png: {len(picture):,} bytes")
                total += len(picture)
    return total


def _try_tool(browser: Browser) -> None:
    for name in ARGUMENTS:
        browser.fill(f"#try-{name}", str(ARGUMENTS[name]))
    browser.click("button", "Call it")


def _count_tools(root: str) -> int:
    return int(httpx2.get(f"{root}/api/v1/stats", timeout=60).json()["tools"])


def run(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args(argv)
    try:
        total = take_pictures(options.folder)
    except BrowserMissing as missing:
        print(f"SKIPPED: {missing}")
        return 0
    if total > MOST_BYTES:
        print(f"{total:,} bytes are more than {MOST_BYTES:,}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(run())
