"""Apps of published servers, rendered by the reference library in a browser: the same through the
gateway as directly.

The host lists tools, calls one, reads its app and shows it in a sandbox; then the app's own buttons
are clicked, and what they ask of the server and get from it is compared.
"""

import os
import re
import socket
import subprocess
import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from portico.config import Config
from portico.server.http.app import make_server
from tests.apps.pages import make_pages
from tests.conformance.suite import SuiteMissing, find_app_package
from tests.console.browser import ELEMENT, Browser, wait_until
from tests.console.served import GatewayThread
from tests.gateways import TIMEOUT_S

pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]

_PACKAGE = "@modelcontextprotocol/server-{}"
_LISTENING = "listening on"
_VARIABLE = re.compile(r"\d+([.:,]\d+)*|[AP]M")
"""Times and measurements, which differ from call to call."""


@dataclass(frozen=True)
class App:
    """A published server, its tool with an app, and what its buttons ask for."""

    server: str
    tool: str
    buttons: tuple[str, ...]
    """Ids of the buttons, in the order in which they are clicked."""
    asks: frozenset[str]
    """Tools that the app calls by its server's own names."""
    app_only: frozenset[str] = frozenset()


APPS = (
    App(
        "basic-vanillajs",
        "get-time",
        ("get-time-btn", "send-message-btn", "send-log-btn", "open-link-btn"),
        frozenset({"get-time"}),
    ),
    App(
        "debug",
        "debug-tool",
        ("call-debug-tool-btn", "call-debug-refresh-btn"),
        frozenset({"debug-tool", "debug-refresh"}),
        frozenset({"debug-refresh", "debug-log"}),
    ),
)


def get_command(server: str) -> tuple[str, str]:
    node, package = find_app_package(_PACKAGE.format(server))
    return str(node), str(package / "dist" / "index.js")


@contextmanager
def listen_directly(server: str, folder: Path) -> Generator[str]:
    """Run a published server over HTTP; yields its URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        get_command(server),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        env={**os.environ, "PORT": str(port)},
    )
    try:
        assert process.stdout is not None
        said: list[str] = []
        for line in process.stdout:
            said.append(line)
            if _LISTENING in line:
                break
        else:
            pytest.fail(f"{server} ended: {said}")
        # What it says from now on must not fill the pipe.
        reader = threading.Thread(target=process.stdout.read, daemon=True)
        reader.start()
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait(TIMEOUT_S)


@pytest.fixture(scope="module")
def pages(thread: GatewayThread, tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """Address of the host's pages; the gateway has all the servers, and each is there directly."""
    folder = tmp_path_factory.mktemp("apps")
    try:
        _, library = find_app_package("@modelcontextprotocol/ext-apps")
        servers = {app.server: get_command(app.server) for app in APPS}
    except SuiteMissing as missing:
        pytest.skip(f"no app is rendered: {missing}")
    commands = {
        name: {"command": node, "args": [script, "--stdio"], "cwd": str(folder)}
        for name, (node, script) in servers.items()
    }
    with ExitStack() as stack:
        config = Config.model_validate({"servers": commands})
        served = stack.enter_context(thread.serve(None, config=config))
        endpoints = {"gateway": f"{served.root}/mcp"}
        for name in servers:
            endpoints[name] = stack.enter_context(listen_directly(name, folder))
        node_modules = library.parents[1].resolve()
        app = thread.call(lambda: make_pages(node_modules, endpoints))
        server = make_server(app, "127.0.0.1", 0)
        stopped = threading.Thread(target=server.run, daemon=True)
        stopped.start()
        wait_until(lambda: server.started, TIMEOUT_S)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        server.should_exit = True
        stopped.join(TIMEOUT_S)


@dataclass(frozen=True)
class Rendered:
    """What a host saw of one app."""

    report: dict[str, Any]
    text: str
    """What the app shows, with times and measurements masked."""


def render(window: Browser, pages: str, app: App, endpoint: str, tool: str) -> Rendered:
    """Open an app in the host, click its buttons, and return what happened."""
    sandbox = pages.replace("127.0.0.1", "localhost") + "/sandbox"
    options = {"mcp": f"/mcp/{endpoint}", "tool": tool, "sandbox": sandbox}
    window.open(f"{pages}/host?{urlencode(options)}")
    window.wait_for("#state", "ready", TIMEOUT_S)

    def read_report() -> dict[str, Any]:
        window.command("POST", "frame", {"id": None})
        return window.run("return window.report")

    def enter_app() -> None:
        window.command("POST", "frame", {"id": None})
        for _ in range(2):
            window.wait_for("iframe")
            (frame, *_) = window.find_all("iframe")
            window.command("POST", "frame", {"id": {ELEMENT: frame}})

    for button in app.buttons:
        enter_app()
        before = len(read_report()["answered"]) + len(read_report()["heard"])
        enter_app()
        window.wait_for(f"#{button}")
        window.run("document.getElementById(arguments[0]).click()", button)

        def has_answer(before: int = before) -> bool:
            report = read_report()
            return len(report["answered"]) + len(report["heard"]) > before

        wait_until(has_answer, TIMEOUT_S)

    def has_asked_all() -> bool:
        report = read_report()
        names = {one["name"] for one in report["asked"]}
        return app.asks <= names and len(report["answered"]) == len(report["asked"])

    wait_until(has_asked_all, TIMEOUT_S)
    enter_app()
    text = window.text("body")
    return Rendered(read_report(), _VARIABLE.sub("#", text))


def to_shape(value: Any) -> Any:
    """Return a value with its leaves replaced by their types."""
    if isinstance(value, dict):
        return {key: to_shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [to_shape(item) for item in value[:1]]
    return type(value).__name__


def select_answers(rendered: Rendered, tool: str) -> list[Any]:
    """Return the forms of what a tool answered to the app."""
    report = rendered.report
    pairs = zip(report["asked"], report["answered"], strict=True)
    return [to_shape(answer) for asked, answer in pairs if asked["name"] == tool][:1]


@pytest.mark.parametrize("app", APPS, ids=lambda app: app.server)
def test_an_app_is_rendered_and_its_buttons_work_as_directly(
    shared_window: Browser,
    pages: str,
    app: App,
) -> None:
    direct = render(shared_window, pages, app, app.server, app.tool)
    through = render(shared_window, pages, app, "gateway", f"{app.server}__{app.tool}")
    same: tuple[Callable[[Rendered], Any], ...] = (
        lambda one: one.report["uri"],
        lambda one: one.report["html"],
        lambda one: one.report["meta"],
        lambda one: to_shape(one.report["result"]),
        lambda one: one.report["heard"],
        lambda one: {name: select_answers(one, name) for name in app.asks},
        lambda one: [call for call in one.report["asked"] if call["name"] in app.asks][:3],
    )
    for pick in same:
        assert pick(through) == pick(direct)
    assert f"{app.server}__{app.tool}" in through.report["listed"]
    for name in app.app_only:
        assert name in direct.report["hidden"]
        assert f"{app.server}__{name}" in through.report["hidden"]
    assert through.text.split()[:40] == direct.text.split()[:40]
    assert not [one for one in through.report["answered"] if one.get("isError") or "code" in one]
