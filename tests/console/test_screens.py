"""The console in a real browser: each screen and what can be done there."""

from collections.abc import Generator
from pathlib import Path

import pytest

from portico.config import Config
from portico.errors import BackendUnavailable
from portico.testing import FakeBackend
from tests.console.browser import Browser, wait_until
from tests.console.pages import list_screens, measure_overflow, open_page, wait_until_loaded
from tests.console.served import GatewayThread, ServedConsole
from tests.interaction.fake_servers import text, tool

SCREENS = (
    *("overview", "servers", "tools", "activity", "approvals", "changes"),
    *("rules", "people", "settings", "connect"),
)

PAGES = (*SCREENS, "servers/mail", "tools/mail.send", "tools?q=send%20a%20message", "nowhere")


def make_mail() -> FakeBackend:
    send = tool("send", "Send a message to somebody.", to="string", count="integer")
    send["inputSchema"]["required"] = ["to"]
    send["inputSchema"]["properties"]["urgent"] = {"type": "boolean"}
    send["inputSchema"]["properties"]["kind"] = {"enum": ["note", "letter"]}
    backend = FakeBackend([send, tool("fail", "Fail always."), tool("list", "List messages.")])
    backend.on_call("send", lambda arguments: text(f"sent {sorted(arguments.items())}"))
    backend.on_call("fail", lambda _: {**text("it broke"), "isError": True})
    backend.on_call("list", lambda _: text("none"))
    return backend


@pytest.fixture(scope="module")
def served(
    thread: GatewayThread, tmp_path_factory: pytest.TempPathFactory
) -> Generator[ServedConsole]:
    broken = FakeBackend([tool("gone")])
    broken.refuses = BackendUnavailable("exited with code 3", advice="Install it.")
    servers = {"mail": make_mail(), "broken": broken}
    folder: Path = tmp_path_factory.mktemp("console")
    with thread.serve(servers, config=Config(), data_dir=folder) as opened:
        yield opened


def test_the_first_address_leads_to_the_overview(window: Browser, served: ServedConsole) -> None:
    window.open(served.root)
    window.wait_for("h1", "Overview")
    window.wait_for(".figures", "Tools")
    window.wait_for(".attention", "exited with code 3")
    window.click(".attention a", "broken")
    window.wait_for("h1", "broken")
    assert window.url.endswith("/console/servers/broken")


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("look", ["light", "dark", "phone"])
def test_a_screen_is_readable_and_its_console_silent(
    window: Browser, served: ServedConsole, axe: str, path: str, look: str
) -> None:
    window.prefer_colours("dark" if look == "dark" else "light")
    window.resize(390 if look == "phone" else 1_280, 800)
    open_page(window, served, path)
    wait_until_loaded(window)
    assert measure_overflow(window) <= 0, "nothing is wider than the page"
    if axe:
        assert window.find_axe_violations(axe) == []


def test_every_screen_of_the_navigation_is_tested(window: Browser, served: ServedConsole) -> None:
    assert {path or "overview" for path in list_screens(window, served)} <= set(SCREENS)


def test_failures_are_reached_from_the_overview(window: Browser, served: ServedConsole) -> None:
    open_page(window, served, "overview")
    call_tool(window, "mail.fail")
    window.click(".figures a", "failed")
    window.wait_for("h1", "Activity")
    window.wait_for("[role=row]", "mail.fail")


def test_a_server_shows_its_state_and_is_restarted(window: Browser, served: ServedConsole) -> None:
    open_page(window, served, "servers")
    window.wait_for("[role=row]", "exited with code 3")
    window.fill("input[aria-label='Filter servers']", "mai")
    wait_until(lambda: "broken" not in window.text(".table"))
    window.click("a.row-link", "mail")
    window.wait_for("h1", "mail")
    window.wait_for(".log", "ready")
    window.wait_for(".list-box", "mail.send")
    window.click("button", "Restart")
    window.wait_for("[role=status]", "Restarted.")


def test_a_failed_restart_says_why_and_what_to_do(window: Browser, served: ServedConsole) -> None:
    open_page(window, served, "servers/broken")
    window.click("button", "Restart")
    window.wait_for(".action .problem", "exited with code 3")
    window.wait_for(".action .problem", "Install it.")
    # The browser itself notes the 503.
    assert any("503" in line for line in window.read_log())


def test_search_shows_what_an_agent_sees_and_why(window: Browser, served: ServedConsole) -> None:
    open_page(window, served, "overview")
    window.press("/")
    window.press(*"send a message", "Enter")
    window.wait_for(".results li", "mail.send")
    window.wait_for(".fit .state", "best matches")
    window.wait_for(".warning", "Not searched, because not listed yet: broken")
    window.wait_for(".why", "words")
    window.wait_for("#expect-names")
    wait_until(lambda: window.find_all("#expect-names option[value='mail.list']"))
    window.fill("#expect", "mail.list")
    window.click("button", "Say why")
    window.wait_for(".expected .why", "mail.list")
    window.click(".results a", "mail.send")
    window.wait_for("h1", "mail.send")


def test_a_tool_is_tried_with_a_form_made_from_its_schema(
    window: Browser, served: ServedConsole
) -> None:
    open_page(window, served, "tools/mail.send")
    window.fill("#try-to", "ana <ana@example.org>")
    window.fill("#try-count", "3")
    window.choose("#try-urgent", "true")
    window.choose("#try-kind", '"letter"')
    window.click("button", "Call it")
    window.wait_for(".answer", "('count', 3)")
    window.wait_for(".answer", "('urgent', True)")
    window.wait_for(".answer", "ana <ana@example.org>")
    window.click("button", "As JSON")
    window.fill("#try-json", '{"to": 5}')
    window.click("button", "Call it")
    window.wait_for(".try .problem, .answer", "to")


def test_activity_shows_calls_as_they_happen_and_one_in_full(
    window: Browser, served: ServedConsole
) -> None:
    open_page(window, served, "activity?outcome=failed")
    call_tool(window, "mail.fail")
    window.wait_for("[role=row]", "mail.fail")
    window.wait_for("[role=row] .state", "tool_error")
    window.click("button", "Export")
    wait_until(lambda: window.find_all("a.row-link"))
    window.click("a.row-link")
    window.wait_for("h1", "mail.fail")
    window.wait_for(".waterfall", "the tool")
    window.wait_for(".facts", "console")


def call_tool(window: Browser, name: str) -> None:
    """Call a tool as the page does."""
    window.run_async(
        "const done = arguments[1];"
        "fetch('/api/v1/calls', {method: 'POST', body: JSON.stringify({tool: arguments[0]}),"
        " headers: {'Content-Type': 'application/json', 'X-Portico-Proof': 'none'}})"
        ".then(r => r.json()).then(done)",
        name,
    )


def test_everything_is_reached_by_keys_alone(window: Browser, served: ServedConsole) -> None:
    open_page(window, served, "overview")
    for letter, title in (("s", "Servers"), ("t", "Tools"), ("a", "Activity"), ("o", "Overview")):
        window.press("g", letter)
        window.wait_for("h1", title)
    window.press("?")
    window.wait_for("dialog[open]", "search for tools")
    window.press("Escape")
    wait_until(lambda: not window.find_all("dialog"))
    window.press("g", "s")
    window.wait_for("a.row-link", "mail")
    window.run("document.querySelector('.table').focus()")
    for _ in range(10):
        window.press("Down")
        if window.get_active_text() == "mail":
            break
    window.press("Enter")
    window.wait_for("h1", "mail")
    for _ in range(40):
        if window.get_active_text() == "Restart":
            break
        window.press("Tab")
    window.press("Enter")
    window.wait_for("[role=status]", "Restarted.")


def test_a_search_that_nothing_serves_does_not_say_that_all_is_well(
    window: Browser, served: ServedConsole
) -> None:
    open_page(window, served, "tools?q=translate%20a%20poem%20into%20latin")
    window.wait_for(".fit .state")
    assert not window.find_all(".fit [data-tone=ok]")
    window.fill("#expect", "broken.gone")
    window.click("button", "Say why")
    window.wait_for(".expected", "Its server broken is")
    window.fill("#search", "send a message")
    window.click("form[role=search] button", "Search")
    window.wait_for("h1 + .note", "send a message")


def test_changes_names_each_server_with_when_it_was_checked(
    window: Browser, served: ServedConsole
) -> None:
    open_page(window, served, "changes")
    window.wait_for(".facts div", "no changes")
    window.wait_for(".facts div", "never listed")


def test_colours_are_chosen_and_kept(window: Browser, served: ServedConsole) -> None:
    open_page(window, served, "overview")
    window.click("button[aria-label='Colours: system']")
    window.click("button[aria-label='Colours: light']")
    window.wait_for("button[aria-label='Colours: dark']")
    background = "return getComputedStyle(document.body).backgroundColor"
    dark = window.run(background)
    open_page(window, served, "servers")
    assert window.run(background) == dark
    window.click("button[aria-label='Colours: dark']")
    assert window.run(background) != dark


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_a_button_is_readable_under_the_pointer(
    window: Browser, served: ServedConsole, colours: str
) -> None:
    window.prefer_colours(colours)
    open_page(window, served, "tools/mail.send")
    window.wait_for("button.primary", "Call it")
    window.hover("button.primary")
    wait_until(lambda: window.find_all("button.primary:hover"))
    assert measure_contrast(window, "button.primary") >= 4.5


def measure_contrast(window: Browser, selector: str) -> float:
    """Return the contrast of an element's text on its background, as WCAG defines it."""
    ratio: float = window.run(
        "const style = getComputedStyle(document.querySelector(arguments[0]));"
        "const shine = colour => colour.match(/[\\d.]+/g).slice(0, 3).map(Number)"
        ".map(one => one / 255)"
        ".map(one => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)"
        ".reduce((sum, one, at) => sum + one * [0.2126, 0.7152, 0.0722][at], 0);"
        "const both = [shine(style.color), shine(style.backgroundColor)].sort((a, b) => b - a);"
        "return (both[0] + 0.05) / (both[1] + 0.05);",
        selector,
    )
    return ratio


def test_no_request_leaves_for_another_host(window: Browser, served: ServedConsole) -> None:
    for path in PAGES:
        open_page(window, served, path)
        hosts = window.run(
            "return [...new Set(performance.getEntriesByType('resource')"
            ".map(e => new URL(e.name).host))]"
        )
        assert hosts == [f"127.0.0.1:{served.port}"], path
