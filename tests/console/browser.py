"""Chromium driven over WebDriver, for tests and screenshots of the console.

    with open_browser() as browser:
        browser.open(f"{url}/console")
        browser.wait_for("h1", text="Overview")

Needs `chromium` and `chromedriver` (Debian: `apt-get install chromium chromium-driver`).
"""

import base64
import json
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx2

T = TypeVar("T")
TIMEOUT_S = 240.0
POLL_S = 0.05
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--force-color-profile=srgb",
    # A page behind another one is not slowed down.
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
    "--disable-background-timer-throttling",
)
_STARTED = re.compile(r"started successfully on port (\d+)")
KEYS = {"Tab": "\ue004", "Enter": "\ue007", "Escape": "\ue00c", "Down": "\ue015", "Up": "\ue013"}


class BrowserMissing(Exception):
    """There is no browser here; the message says how to get it."""


def find_programs() -> tuple[str, str]:
    """Paths of Chromium and its driver; raises BrowserMissing."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        raise BrowserMissing("no browser: apt-get install chromium chromium-driver")
    return chromium, driver


class DriverError(Exception):
    """The driver refused a command."""


@dataclass
class Browser:
    """One window, with everything that its console said."""

    http: httpx2.Client
    session: str

    def command(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        reply = self.http.request(method, f"/session/{self.session}/{path}", json=body)
        value = reply.json()["value"]
        if reply.status_code >= 400:
            raise DriverError(f"{value['error']}: {value['message'][:500]}")
        return value

    def cdp(self, name: str, **parameters: Any) -> Any:
        """Send a command of the DevTools protocol."""
        return self.command("POST", "goog/cdp/execute", {"cmd": name, "params": parameters})

    def close_other_windows(self) -> None:
        """Close what pages have opened: in front of this window, it would count as hidden."""
        own = self.command("GET", "window")
        for handle in self.command("GET", "window/handles"):
            if handle != own:
                self.command("POST", "window", {"handle": handle})
                self.command("DELETE", "window")
        self.command("POST", "window", {"handle": own})

    def open(self, url: str) -> None:
        self.command("POST", "url", {"url": url})

    @property
    def url(self) -> str:
        return str(self.command("GET", "url"))

    def run(self, script: str, *arguments: Any) -> Any:
        """Run a function body in the page and return what it returns."""
        return self.command("POST", "execute/sync", {"script": script, "args": list(arguments)})

    def run_async(self, script: str, *arguments: Any) -> Any:
        """The same for one that calls its last argument with the answer."""
        return self.command("POST", "execute/async", {"script": script, "args": list(arguments)})

    def find_all(self, selector: str) -> list[str]:
        found = self.command("POST", "elements", {"using": "css selector", "value": selector})
        return [element[ELEMENT] for element in found]

    def text(self, selector: str = "body") -> str:
        return str(
            self.run(
                "return [...document.querySelectorAll(arguments[0])]"
                ".map(e => e.innerText).join('\\n')",
                selector,
            )
        )

    def wait_for(self, selector: str, text: str = "", timeout: float = TIMEOUT_S) -> None:
        """Wait until an element is there whose text contains this."""

        def is_there() -> bool:
            return bool(
                self.run(
                    "return [...document.querySelectorAll(arguments[0])]"
                    ".some(e => (e.innerText ?? '').includes(arguments[1]))",
                    selector,
                    text,
                )
            )

        try:
            wait_until(is_there, timeout)
        except TimeoutError:
            raise TimeoutError(
                f"no {selector!r} with {text!r} at {self.url}:\n{self.text()[:3_000]}\n"
                f"{self.read_log()}"
            ) from None

    def click(self, selector: str, text: str = "") -> None:
        """Click the first element that matches and contains the text, once it is there."""
        self.wait_for(selector, text)
        element = self.run(
            "return [...document.querySelectorAll(arguments[0])]"
            ".find(e => (e.innerText ?? '').includes(arguments[1]))",
            selector,
            text,
        )
        self.run("arguments[0].scrollIntoView({block: 'center'})", element)
        self.command("POST", f"element/{element[ELEMENT]}/click", {})

    def hover(self, selector: str) -> None:
        """Move the pointer to the middle of an element."""
        self.wait_for(selector)
        element = {ELEMENT: self.find_all(selector)[0]}
        self.run("arguments[0].scrollIntoView({block: 'center'})", element)
        move = {"type": "pointerMove", "duration": 0, "origin": element, "x": 0, "y": 0}
        source = {"type": "pointer", "id": "mouse", "actions": [move]}
        self.command("POST", "actions", {"actions": [source]})

    def fill(self, selector: str, text: str) -> None:
        """Replace what is in a field by typing."""
        self.wait_for(selector)
        element = self.find_all(selector)[0]
        self.command("POST", f"element/{element}/clear", {})
        self.command("POST", f"element/{element}/value", {"text": text})

    def choose(self, selector: str, value: str) -> None:
        """Choose an option of a list by its value."""
        self.wait_for(selector)
        self.run(
            "const e = document.querySelector(arguments[0]); e.value = arguments[1];"
            "e.dispatchEvent(new Event('input', {bubbles: true}));"
            "e.dispatchEvent(new Event('change', {bubbles: true}));",
            selector,
            value,
        )

    def press(self, *keys: str) -> None:
        """Press keys one after the other, on whatever has the focus."""
        steps = [
            {"type": kind, "value": KEYS.get(key, key)}
            for key in keys
            for kind in ("keyDown", "keyUp")
        ]
        source = {"type": "key", "id": "keyboard", "actions": steps}
        self.command("POST", "actions", {"actions": [source]})

    def get_active_text(self) -> str:
        """What has the focus: its text or label."""
        return str(
            self.run(
                "const e = document.activeElement;"
                "return e.getAttribute('aria-label') || e.innerText || e.id || e.tagName"
            )
        )

    def read_log(self) -> list[str]:
        """What the page's console said since the last look: errors, violations of the policy."""
        found: Sequence[Mapping[str, Any]] = self.command("POST", "se/log", {"type": "browser"})
        return [f"{entry['level']} {entry['message']}" for entry in found]

    def take_screenshot(self) -> bytes:
        return base64.b64decode(self.command("GET", "screenshot"))

    def resize(self, width: int, height: int) -> None:
        """Set the size of the page, as a phone has it if it is narrow."""
        self.cdp(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 720,
        )

    def prefer_colours(self, scheme: str) -> None:
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.cdp("Emulation.setEmulatedMedia", features=[feature])

    def find_axe_violations(self, source: str) -> list[str]:
        """Serious findings of axe-core, whose source this is, on what is shown."""
        findings = self.run_async(
            f"{source};\nconst done = arguments[arguments.length - 1];"
            "axe.run(document, {resultTypes: ['violations']}).then("
            "r => done(r.violations), e => done([{id: String(e), impact: 'critical', nodes: []}]))"
        )
        return [
            f"{one['id']}: {json.dumps([node['html'][:200] for node in one['nodes'][:3]])}"
            for one in findings
            if one["impact"] in ("serious", "critical")
        ]


def wait_until(condition: Callable[[], object], timeout: float = TIMEOUT_S) -> None:
    """Wait for a condition; raises TimeoutError if it does not hold in time."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(POLL_S)


@contextmanager
def start_driver() -> Generator[httpx2.Client]:
    """Start the driver on a free port, and yield a client of it."""
    _, driver = find_programs()
    process = subprocess.Popen(
        [driver, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert process.stdout is not None
        port = ""
        for line in process.stdout:
            if found := _STARTED.search(line):
                port = found[1]
                break
        if not port:
            raise DriverError("the driver ended before it listened")
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=TIMEOUT_S) as http:
            yield http
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)


@contextmanager
def open_window(driver: httpx2.Client, width: int = 1_280, height: int = 860) -> Generator[Browser]:
    """Open a browser with a profile of its own."""
    chromium, _ = find_programs()
    with tempfile.TemporaryDirectory(prefix="portico-browser-") as folder:
        options = {
            "binary": chromium,
            "args": [*_FLAGS, f"--user-data-dir={folder}", f"--window-size={width},{height}"],
        }
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        reply = driver.post("/session", json={"capabilities": {"alwaysMatch": wanted}})
        value = reply.json()["value"]
        if reply.status_code >= 400:
            raise DriverError(value["message"])
        browser = Browser(driver, value["sessionId"])
        try:
            browser.resize(width, height)
            yield browser
        finally:
            driver.delete(f"/session/{browser.session}")


@contextmanager
def open_browser(width: int = 1_280, height: int = 860) -> Generator[Browser]:
    """Start the driver and open one window."""
    with start_driver() as driver, open_window(driver, width, height) as browser:
        yield browser
