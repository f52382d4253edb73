"""Connecting a client from the console: the difference, writing it, and undoing it."""

import json
from pathlib import Path

import pytest

from portico.adoption.backups import Backups
from portico.cli.client_installer import ClientInstaller
from portico.errors import PorticoError
from tests.console.browser import Browser
from tests.console.served import GatewayThread
from tests.console.test_screens import make_mail, open_page

BEFORE = '{"mcpServers": {"git": {"command": "uvx"}}}\n'


@pytest.fixture
def installer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClientInstaller:
    """Clients of a home of their own, in which Cursor is."""
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for name in ("XDG_CONFIG_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR", "GEMINI_CLI_HOME"):
        monkeypatch.delenv(name, raising=False)
    cursor = tmp_path / ".cursor" / "mcp.json"
    cursor.parent.mkdir()
    cursor.write_text(BEFORE)
    config = tmp_path / "portico.yaml"
    config.write_text("servers: {}\n")
    config.chmod(0o600)
    return ClientInstaller([config], Backups(tmp_path / "backups"))


def test_a_client_is_connected_and_its_file_put_back(
    window: Browser, thread: GatewayThread, installer: ClientInstaller, tmp_path: Path
) -> None:
    cursor = tmp_path / ".cursor" / "mcp.json"
    data = tmp_path / "data"
    with thread.serve({"mail": make_mail()}, data_dir=data, clients=installer) as served:
        open_page(window, served, "connect")
        window.wait_for(".empty", "No client was here yet")
        window.click("button[aria-label='Connect Cursor']")
        window.wait_for(".diff", "stdio")
        assert cursor.read_text() == BEFORE
        assert "xposure" not in window.text("dialog")
        window.click("dialog button", "Write it")
        window.wait_for(".done", str(tmp_path / "backups"))
        assert "portico" in json.loads(cursor.read_text())["mcpServers"]
        window.click("dialog button", "Close")
        window.click("button[aria-label='Undo Cursor']")
        window.wait_for(".diff", "stdio")
        window.click("dialog button", "Take it out")
        window.wait_for(".done")
        assert cursor.read_text() == BEFORE
        window.open("about:blank")


def test_only_the_difference_that_was_looked_at_is_written(
    installer: ClientInstaller, tmp_path: Path
) -> None:
    cursor = tmp_path / ".cursor" / "mcp.json"
    seen = installer.change("cursor", remove=False, seen="").seen
    cursor.write_text(BEFORE.replace("uvx", "npx"))
    with pytest.raises(PorticoError, match="changed since you looked"):
        installer.change("cursor", remove=False, seen=seen)
    assert "portico" not in cursor.read_text()
    cards = {card.name: card for card in installer.list_clients("http://127.0.0.1:1/mcp")}
    assert cards["cursor"].is_here
    assert not cards["cursor"].is_installed
    assert cards["cursor"].url_entry["mcpServers"]["portico"]["url"] == "http://127.0.0.1:1/mcp"
    assert not cards["claude-desktop"].url_entry
