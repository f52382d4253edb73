"""The calls of a workflow as a graph, on the screen of each of them."""

import asyncio
from collections.abc import Generator
from typing import Any

import pytest

from portico.gateway import GatewayRuntime
from portico.testing import connect
from tests.console.browser import Browser
from tests.console.pages import measure_overflow, open_page
from tests.console.served import GatewayThread, ServedConsole
from tests.console.test_screens import make_mail
from tests.gateways import TIMEOUT_S

STEPS = [
    {"id": "first", "tool": "mail.list", "arguments": {}},
    {"id": "note", "tool": "mail.send", "arguments": {"to": "ana"}, "depends_on": ["first"]},
    {"id": "letter", "tool": "mail.send", "arguments": {"to": "ben"}, "depends_on": ["first"]},
    {"id": "last", "tool": "mail.fail", "arguments": {}, "depends_on": ["note", "letter"]},
]
PLACE = """
const [module, calls, done] = arguments;
import(module).then(({placeCalls}) => done(placeCalls(calls).map(
  node => [node.call.id, node.column, node.row, node.after])), error => done(String(error)));
"""
FIND_MODULE = """
const names = performance.getEntriesByType('resource').map(entry => entry.name);
return names.find(name => name.endsWith('/call_graph.js'));
"""


@pytest.fixture(scope="module")
def served(
    thread: GatewayThread, tmp_path_factory: pytest.TempPathFactory
) -> Generator[ServedConsole]:
    folder = tmp_path_factory.mktemp("graph")
    with thread.serve({"mail": make_mail()}, data_dir=folder) as opened:
        yield opened


async def run_workflow(gateway: GatewayRuntime) -> None:
    async with connect(gateway) as client, asyncio.timeout(TIMEOUT_S):
        await client.call_tool("run_workflow", {"steps": STEPS})


def place(window: Browser, *spans: tuple[float, float]) -> Any:
    """Return the number, column, row and predecessors of calls with these starts and lengths."""
    calls = [
        {"id": at, "start_ms": start, "ms": ms, "tool": "a.b", "ok": True}
        for at, (start, ms) in enumerate(spans)
    ]
    return window.run_async(PLACE, window.run(FIND_MODULE), calls)


def test_calls_that_ran_at_once_stand_below_each_other(
    window: Browser, served: ServedConsole
) -> None:
    open_page(window, served, "overview")
    assert place(window, (0, 10), (11, 20), (11, 30), (42, 5)) == [
        [0, 0, 0, []],
        [1, 1, 0, [0]],
        [2, 1, 1, [0]],
        [3, 2, 0, [1, 2]],
    ]
    assert place(window, (0, 10), (9.5, 10), (19, 10)) == [
        [0, 0, 0, []],
        [1, 1, 0, [0]],
        [2, 2, 0, [1]],
    ], "starts are known to about a millisecond"
    assert place(window, (0, 10), (0, 10)) == [[0, 0, 0, []], [1, 0, 1, []]]


def test_a_call_of_a_workflow_shows_all_its_calls_as_a_graph(
    window: Browser, thread: GatewayThread, served: ServedConsole
) -> None:
    thread.run(run_workflow(served.gateway))
    open_page(window, served, "activity?tool=mail.list")
    window.click("a.row-link")
    window.wait_for(".call-graph .call-note")
    assert len(window.find_all(".call-graph a")) == len(STEPS)
    assert window.find_all(".call-graph .edge")
    assert len(window.find_all(".call-graph [data-failed=true]")) == 1
    window.run("document.querySelector('.call-graph [data-failed=true]').focus()")
    window.press("Enter")
    window.wait_for("h1", "mail.fail")
    window.resize(390, 800)
    window.wait_for(".call-graph [aria-current]")
    assert measure_overflow(window) <= 0
