"""Settings, rules and servers that are changed in their file from the console."""

from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import pytest

from portico.adoption.backups import ConfigHistory
from portico.adoption.config_editor import ConfigEditor
from portico.config_file import load
from tests.console.browser import Browser, wait_until
from tests.console.served import GatewayThread, ServedConsole
from tests.console.test_people import TOKEN, ignore_refusals, sign_in
from tests.console.test_screens import make_mail, open_page

TEXT = """\
# Ours.
servers:
  mail: {url: "http://127.0.0.1:9/mcp", description: Mail.}
limits: {drain_s: 60}
"""


@dataclass
class Configured:
    served: ServedConsole
    file: Path


@pytest.fixture
def configured(thread: GatewayThread, tmp_path: Path) -> Generator[Configured]:
    file = tmp_path / "portico.yaml"
    file.write_text(TEXT)
    file.chmod(0o600)
    editor = ConfigEditor([file], ConfigHistory(tmp_path / "changes"))
    config = load(file).config
    with thread.serve(
        {},
        config=config,
        data_dir=tmp_path / "data",
        config_editing=editor,
        sources={"servers.mail": "portico.yaml:3", "servers.mail.url": "portico.yaml:3"},
    ) as served:
        yield Configured(served, file)


def confirm(window: Browser, shown: str, button: str = "Write it") -> None:
    window.wait_for(".diff", shown)
    window.click("dialog button", button)
    window.wait_for(".done", "Written")
    window.click("dialog button", "Close")


def test_a_rule_is_added_as_a_difference_and_undone(
    window: Browser, configured: Configured
) -> None:
    open_page(window, configured.served, "rules")
    window.click("button", "Add a rule")
    window.click("dialog button", "Show the change")
    assert window.find_all("#rule-for:invalid"), "whom it is for has to be chosen"
    window.fill("#rule-for", "key:ana")
    window.fill("#rule-tools", "mail.delete_*")
    window.click("dialog button", "Show the change")
    window.wait_for(".diff", "mail.delete_*")
    window.wait_for(".review", "tools to key:ana, not you.")
    assert configured.file.read_text() == TEXT
    confirm(window, "key:ana")
    assert load(configured.file).config.rules[0].tools == ("mail.delete_*",)
    open_page(window, configured.served, "settings")
    window.click("button", "Undo the last change")
    confirm(window, "mail.delete_*", "Undo it")
    assert configured.file.read_text() == TEXT
    window.open("about:blank")


def test_a_setting_and_a_switch_are_written_to_the_file(
    window: Browser, configured: Configured
) -> None:
    open_page(window, configured.served, "settings")
    window.wait_for(".settings", "servers.mail.url")
    assert "servers.mail.timeouts" not in window.text(".settings"), "the file does not say it"
    open_page(window, configured.served, "settings?filter=limits.drain_s")
    window.click(".settings button", "Change")
    window.fill("#setting", "ninety")
    window.click("dialog button", "Show the change")
    window.wait_for(".problem", "not JSON")
    window.fill("#setting", "90")
    window.click("dialog button", "Show the change")
    confirm(window, "drain_s: 90")
    assert load(configured.file).config.limits.drain_s == 90
    open_page(window, configured.served, "servers/mail")
    window.click("button", "Disable")
    window.wait_for(".diff", "disabled: true")
    window.click("dialog button", "Write it")
    window.wait_for("h1", "Servers")
    wait_until(lambda: load(configured.file).config.servers["mail"].disabled)
    window.open("about:blank")


def test_only_the_user_of_the_machine_changes_files(
    window: Browser, thread: GatewayThread, tmp_path: Path
) -> None:
    with thread.serve({"mail": make_mail()}, token=TOKEN, data_dir=tmp_path) as served:
        sign_in(window, served.root, TOKEN)
        open_page(window, served, "settings")
        window.wait_for("main", "The user of the gateway's machine changes settings")
        assert not window.find_all(".settings button")
        status = window.run_async(
            "const done = arguments[0];"
            "fetch('/api/v1/config/changes', {method: 'POST', body: '{}',"
            " headers: {'Content-Type': 'application/json',"
            " 'X-Portico-Proof': localStorage.getItem('portico.proof')}})"
            ".then(reply => done(reply.status))"
        )
        assert status == 403
        window.open("about:blank")
        ignore_refusals(window)
