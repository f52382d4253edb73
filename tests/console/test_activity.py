"""Failed and refused calls in Activity, and what their callers were told."""

from collections.abc import Generator
from pathlib import Path

import pytest

from portico.config import Config
from tests.console.browser import Browser, wait_until
from tests.console.pages import open_page
from tests.console.served import GatewayThread, ServedConsole
from tests.console.test_screens import call_tool, make_mail


@pytest.fixture(scope="module")
def served(
    thread: GatewayThread, tmp_path_factory: pytest.TempPathFactory
) -> Generator[ServedConsole]:
    config = Config.model_validate({"rules": [{"tools": "mail.list", "may": "ask"}]})
    folder: Path = tmp_path_factory.mktemp("console")
    with thread.serve({"mail": make_mail()}, config=config, data_dir=folder) as opened:
        yield opened


def test_a_failed_call_shows_what_the_client_was_told(
    window: Browser, served: ServedConsole
) -> None:
    open_page(window, served, "activity?outcome=failed")
    call_tool(window, "mail.fail")
    wait_until(lambda: window.find_all("a.row-link"))
    window.click("a.row-link")
    window.wait_for("h1", "mail.fail")
    window.wait_for("[aria-label='What the client was told']", "it broke")
    window.wait_for(".panel", "Arguments are not kept")


def test_refused_calls_are_shown_and_chosen_by_their_kind(
    window: Browser, served: ServedConsole
) -> None:
    open_page(window, served, "activity")
    # Its first argument is missing, the second asks a person, and the third is no tool.
    call_tool(window, "mail.send")
    call_tool(window, "mail.list")
    call_tool(window, "mail.gone")
    window.wait_for("[role=row]", "refused: wrong arguments")
    window.wait_for("[role=row]", "refused: held for approval")
    window.wait_for("[role=row]", "refused: unknown tool")
    window.choose("select[aria-label=Outcome]", "refused:invalid_arguments")
    wait_until(lambda: "mail.gone" not in window.text(".table"))
    assert "mail.list" not in window.text(".table")
    window.wait_for("[role=row]", "mail.send")
    window.click("a.row-link")
    window.wait_for("h1", "mail.send")
    window.wait_for("[aria-label='What the client was told']", "to")
    window.wait_for(".facts", "refused: wrong arguments")
    # The browser itself notes the 404 of the name that no tool has.
    assert any("404" in line for line in window.read_log())
