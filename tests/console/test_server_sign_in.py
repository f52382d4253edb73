"""Signing in to a remote server from its screen."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from portico.config import Config
from tests.api.test_sign_in_routes import open_in_browser
from tests.console.browser import Browser
from tests.console.pages import open_page
from tests.console.served import GatewayThread
from tests.gateways import ContextHolder
from tests.upstream.oauth.authorization_server import (
    ProtectedServer,
    run_authorization_server,
    run_protected_server,
)


@asynccontextmanager
async def run_server() -> AsyncGenerator[ProtectedServer]:
    async with run_authorization_server() as issuer, run_protected_server(issuer) as server:
        yield server


def test_a_person_signs_in_and_the_server_is_ready(
    window: Browser, thread: GatewayThread, tmp_path: Path
) -> None:
    holder = ContextHolder()
    server = thread.run(holder.hold(run_server()))
    try:
        config = Config.model_validate({"servers": {"notes": {"url": server.url}}})
        with thread.serve({}, config=config, data_dir=tmp_path) as served:
            open_page(window, served, "overview")
            window.wait_for(".attention", "needs sign-in")
            window.click(".attention a", "notes")
            window.click("button.primary", "Sign in")
            window.wait_for("a.primary", "Open 127.0.0.1")
            url = window.run("return document.querySelector('a.primary').href")
            thread.run(open_in_browser(url))
            window.wait_for(".state", "ready")
            window.wait_for("a.row-link", "notes.whoami")
            assert "Sign in" not in window.text("main")
            window.open("about:blank")
    finally:
        thread.run(holder.close())
