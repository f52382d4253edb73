"""What tests do with any page of the console."""

from tests.console.browser import Browser, wait_until
from tests.console.served import ServedConsole

SCREEN_LINKS = "nav.side a[href^='/console/']"


def open_page(window: Browser, served: ServedConsole, path: str) -> None:
    """Open a screen, and wait until it has its heading and the events arrive."""
    window.open(f"{served.root}/console/{path}")
    window.wait_for("h1")
    window.wait_for(".connection", "live")


def wait_until_loaded(window: Browser) -> None:
    """Wait until nothing of the screen is still to come."""
    wait_until(lambda: not window.find_all(".waiting, [aria-busy=true]"))


def list_screens(window: Browser, served: ServedConsole) -> list[str]:
    """Return the paths of all screens that this person is offered."""
    open_page(window, served, "overview")
    script = "return [...document.querySelectorAll(arguments[0])].map(a => a.pathname)"
    paths: list[str] = window.run(script, SCREEN_LINKS)
    return [path.removeprefix("/console/") for path in paths]


def measure_overflow(window: Browser) -> int:
    """Return by how many pixels the page is wider than the window."""
    return int(window.run("return document.documentElement.scrollWidth - innerWidth"))
