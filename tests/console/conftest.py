"""One browser and one window for all tests of the console that a worker runs."""

from collections.abc import Generator
from pathlib import Path

import httpx2
import pytest

from tests.conformance.suite import SuiteMissing, find_console_package
from tests.console.browser import Browser, BrowserMissing, open_window, start_driver
from tests.console.served import GatewayThread, open_thread


@pytest.fixture(scope="session")
def driver() -> Generator[httpx2.Client]:
    try:
        with start_driver() as http:
            yield http
    except BrowserMissing as missing:
        pytest.skip(f"the console is not tested in a browser: {missing}")


@pytest.fixture(scope="session")
def shared_window(driver: httpx2.Client) -> Generator[Browser]:
    with open_window(driver) as window:
        yield window


@pytest.fixture
def window(shared_window: Browser) -> Generator[Browser]:
    """The window; what its console says must be nothing."""
    shared_window.close_other_windows()
    # The page of the test before asks for its gateway still, which has ended.
    shared_window.open("about:blank")
    # It is used, whatever window the browser takes for the one in front.
    shared_window.cdp("Emulation.setFocusEmulationEnabled", enabled=True)
    shared_window.resize(1_280, 860)
    shared_window.prefer_colours("light")
    shared_window.read_log()
    yield shared_window
    said = [line for line in shared_window.read_log() if not line.startswith("INFO")]
    assert said == []


@pytest.fixture(scope="session")
def thread() -> Generator[GatewayThread]:
    with open_thread() as running:
        yield running


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core; empty where it is not installed."""
    try:
        _, package = find_console_package("axe-core")
    except SuiteMissing:
        return ""
    return Path(package / "axe.min.js").read_text("utf-8")
