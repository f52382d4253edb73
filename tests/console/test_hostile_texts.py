"""Texts of servers, clients and callers that try to become more than text, on every screen."""

import re
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from portico.config import Config
from portico.errors import BackendUnavailable
from portico.testing import FakeBackend
from tests.console.browser import Browser, wait_until
from tests.console.pages import list_screens, measure_overflow, open_page, wait_until_loaded
from tests.console.served import GatewayThread, ServedConsole

BIDI = "\u202egnp.exe\u202c\u2066\u2069\u200f\u061c"
CONTROL = "\x00\x07\x1b[2J\x1b]8;;http://evil.example\x07\x9b31m\u0085\ufeff\u2028"
MARKUP = (
    "<b id=evil>bold</b><script>window.evil=1</script><img src=x onerror='window.evil=2'>"
    '"><svg onload="window.evil=3"></svg><iframe srcdoc="<script>parent.evil=4</script>"></iframe>'
    "<style>*{display:none}</style></textarea></title><a id=evil href='javascript:window.evil=5'>"
    "${window.evil=6}{{evil}}&lt;script&gt;<!--]]>"
)
LONG = "W" * 1_000_000
TEXT = f"{MARKUP}{BIDI}{CONTROL}\r\n\t"
NAMES = [f"act{MARKUP}"[:300], f"turn{BIDI}", f"bell{CONTROL}", "long" + "w" * 900, "javascript:x"]
RAW = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
HARMED = (
    "return [window.evil ?? 0, document.querySelectorAll('[id=evil], main script, main iframe,"
    " main style, main object').length, [...document.querySelectorAll('[href], [src], [action]')]"
    ".filter(e => /^(javascript|data:text)/i.test(e.getAttribute('href') ??"
    " e.getAttribute('src') ?? '')).length]"
)


def make_tool(name: str, **more: Any) -> dict[str, Any]:
    field = {"type": "string", "description": TEXT, "enum": [TEXT, "b"], "title": TEXT}
    schema = {"type": "object", "properties": {TEXT: field, "free": {"type": "string"}}}
    return {
        "name": name,
        "title": TEXT,
        "description": TEXT,
        "inputSchema": schema,
        "annotations": {"title": TEXT},
        **more,
    }


def make_hostile_server() -> FakeBackend:
    tools = [make_tool(name) for name in NAMES]
    tools += [make_tool("say"), make_tool("fail"), make_tool("shout", description=LONG)]
    backend = FakeBackend(tools, instructions=TEXT * 3)
    blocks = [
        {"type": "text", "text": TEXT},
        {"type": "text", "text": LONG},
        {"type": "image", "data": "PHN2Zz4=", "mimeType": 'image/svg+xml" onerror="window.evil=7'},
        {"type": "resource_link", "uri": "javascript:window.evil=8", "name": TEXT},
        {"type": TEXT, "text": TEXT},
    ]
    backend.on_call("say", lambda _: {"content": blocks, "structuredContent": {TEXT: TEXT}})
    failure = {"content": [{"type": "text", "text": f"{TEXT} {LONG}"}], "isError": True}
    backend.on_call("fail", lambda _: failure)
    return backend


@pytest.fixture(scope="module")
def served(
    thread: GatewayThread, tmp_path_factory: pytest.TempPathFactory
) -> Generator[ServedConsole]:
    broken = FakeBackend([make_tool("gone")])
    broken.refuses = BackendUnavailable(f"{TEXT}{LONG}", advice=TEXT)
    described = {"command": "x", "description": TEXT, "tags": [MARKUP]}
    config = Config.model_validate({"servers": {"hostile": described}})
    servers = {"hostile": make_hostile_server(), "broken": broken}
    folder: Path = tmp_path_factory.mktemp("hostile")
    with thread.serve(servers, config=config, data_dir=folder) as opened:
        yield opened


def assert_harmless(window: Browser) -> None:
    wait_until_loaded(window)
    for width in (1_280, 390):
        window.resize(width, 860)
        assert window.run(HARMED) == [0, 0, 0], window.url[:200]
        assert measure_overflow(window) <= 0, (window.url[:200], width)
    found = RAW.search(window.run("return document.documentElement.textContent"))
    assert found is None, found
    assert len(window.run("return document.title")) < 200


def test_every_screen_shows_hostile_texts_as_texts(window: Browser, served: ServedConsole) -> None:
    screens = list_screens(window, served)
    assert {"servers", "tools", "activity"} <= set(screens)
    for path in (*screens, "servers/hostile", "servers/broken", "tools?server=hostile"):
        open_page(window, served, path)
        assert_harmless(window)


def test_every_hostile_tool_has_its_page(window: Browser, served: ServedConsole) -> None:
    open_page(window, served, "tools?server=hostile")
    wait_until_loaded(window)
    window.wait_for("a.row-link", "hostile.say")
    links = "return [...document.querySelectorAll('a.row-link')].map(a => a.getAttribute('href'))"
    found: list[str] = window.run(links)
    assert len(found) >= 6
    for href in found:
        open_page(window, served, href.removeprefix("/console/"))
        assert_harmless(window)
    # A name with control characters is shown without them, and is not found by that.
    said = window.read_log()
    assert [line for line in said if "404" not in line] == []
    assert len(said) <= 2


@pytest.mark.parametrize("tool", ["say", "fail"])
def test_what_a_hostile_tool_answers_is_only_shown(
    window: Browser, served: ServedConsole, tool: str
) -> None:
    open_page(window, served, f"tools/hostile.{tool}")
    window.fill("#try-free", MARKUP)
    window.click("button", "Call it")
    window.wait_for(".answer", "<script>")
    assert_harmless(window)
    window.resize(1_280, 860)
    open_page(window, served, "activity?server=hostile")
    window.wait_for("[role=row]", f"hostile.{tool}")
    assert_harmless(window)
    window.resize(1_280, 860)
    window.click("a.row-link")  # the latest
    window.wait_for(".waterfall", "the tool")
    assert_harmless(window)


def test_hostile_addresses_and_searches_are_only_text(
    window: Browser, served: ServedConsole
) -> None:
    encode = "return arguments.length && encodeURIComponent(arguments[0])"
    hostile = window.run(encode, MARKUP + "\u202eabc\x07")
    for path in (
        f"tools?q={hostile}",
        f"tools?q=send&expect={hostile}",
        f"tools?category={hostile}&server={hostile}",
        f"tools/{hostile}",
        f"servers/{hostile}",
        f"activity/{hostile}",
        f"activity?person={hostile}&tool={hostile}&client={hostile}&outcome={hostile}",
        f"{hostile}/%ff%00",
        "tools?q=javascript:window.evil=9",
    ):
        window.open(f"{served.root}/console/{path}#{hostile}")
        window.wait_for("h1")
        assert_harmless(window)
        window.read_log()  # the browser notes each 404 and 422


def test_a_tool_is_tried_with_a_line_of_a_megabyte(window: Browser, served: ServedConsole) -> None:
    open_page(window, served, "tools/hostile.say")
    window.click("button", "As JSON")
    fill = (
        "const e = document.querySelector('#try-json'); e.value = JSON.stringify({free:"
        " 'W'.repeat(900000)}); e.dispatchEvent(new Event('input', {bubbles: true}))"
    )
    window.wait_for("#try-json")
    window.run(fill)
    window.click("button", "Call it")
    window.wait_for(".answer, .try .problem")
    assert_harmless(window)
    wait_until(lambda: not window.find_all("button:disabled"))
    window.read_log()  # a body that is too large is refused, which the browser notes
