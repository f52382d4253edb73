"""The embedded gateway: search, descriptions, calls and errors."""

import asyncio
import logging
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from portico import (
    BackendUnavailable,
    ConfigError,
    Gateway,
    InvalidArguments,
    PorticoError,
    RemoteError,
    UnknownName,
)
from portico.testing import FakeBackend
from tests.fixtures.counter import counter


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def shout(words: str) -> str:
    """Say words in capital letters."""
    await asyncio.sleep(0)
    return words.upper()


def many_rows() -> list[dict[str, int]]:
    """List thousands of rows."""
    return [{"row": number} for number in range(20_000)]


def broken() -> str:
    """Fail every time."""
    raise ValueError("it is broken")


MINE = {"mine": [add, shout, many_rows, broken]}


def gateway(**options: Any) -> Gateway:
    given: dict[str, Any] = {"servers": MINE, "in_memory": True, **options}
    return Gateway(**given)


async def test_a_search_gives_typed_results_best_first_and_the_text_an_agent_would_read():
    async with gateway() as mine:
        found = await mine.search("sum of two numbers", limit=2)
    assert (found[0].name, found[0].server, found[0].summary) == (
        "mine.add",
        "mine",
        "Add two numbers.",
    )
    assert found[0].input_schema["required"] == ["a", "b"]
    assert [match.score for match in found] == sorted(
        (match.score for match in found), reverse=True
    )
    assert len(found) <= 2
    assert found.fit == "good"
    assert found.text.startswith("Best matches")
    assert "mine.add(a: integer, b: integer)" in found.text


async def test_a_search_reports_a_missing_match_and_refuses_unknown_filters():
    async with gateway() as mine:
        assert (await mine.search("book a flight to Lisbon")).fit == "none"
        with pytest.raises(UnknownName, match="nowhere"):
            await mine.search("add", server="nowhere")


async def test_a_tool_is_described_as_an_agent_reads_it_and_as_facts():
    async with gateway() as mine:
        assert "a: integer" in await mine.describe("mine.add")
        both = await mine.describe("add", "mine__shout", detail="brief")
        assert "mine.add" in both
        assert "mine.shout" in both
        shown = await mine.tool("mine.add")
        assert shown.description == "Add two numbers."
        with pytest.raises(UnknownName) as wrong:
            await mine.describe("mine.ad")
        assert "mine.add" in wrong.value.nearest
        assert "4 tools" in await mine.browse()


async def test_a_call_gives_text_and_data_and_repairs_what_is_certain():
    async with gateway() as mine:
        result = await mine.call("mine.add", {"a": "1", "b": 2})
        assert result.structured == {"result": 3}
        assert result.text.endswith("3")
        assert "portico/repaired" in result.meta
        assert not result.is_error
        assert (await mine.call("mine.shout", {"words": "hey"})).text == "HEY"


async def test_a_tool_error_is_a_result_and_a_gateway_error_is_raised_with_advice():
    async with gateway() as mine:
        failed = await mine.call("mine.broken")
        assert failed.is_error
        assert "it is broken" in failed.text
        with pytest.raises(UnknownName) as unknown:
            await mine.call("mine.ad", {})
        assert "mine.add" in unknown.value.advice
        with pytest.raises(InvalidArguments) as invalid:
            await mine.call("mine.add", {"a": "x"})
        assert len(invalid.value.problems) == 2
        assert "a: integer" in invalid.value.advice


async def test_a_server_that_is_down_is_known_but_unavailable_and_its_own_errors_keep_their_code():
    backend = FakeBackend([{"name": "go", "inputSchema": {"type": "object"}}])

    def refuse(_: dict[str, Any]) -> dict[str, Any]:
        raise RemoteError(-4, "not today", {"why": "rain"})

    backend.on_call("go", refuse)
    async with gateway(servers={"fake": backend}) as mine:
        for whole in (False, True):
            with pytest.raises(RemoteError) as remote:
                await mine.call("fake.go", whole=whole)
            assert (remote.value.code, remote.value.message, remote.value.data) == (
                -4,
                "not today",
                {"why": "rain"},
            )
        backend.refuses = BackendUnavailable("out for lunch")
        backend.die()
        with pytest.raises(BackendUnavailable, match="lunch"):
            await mine.call("fake.go")
        (server,) = mine.servers()
        assert (server.name, server.state, server.tools) == ("fake", "down", 1)


async def test_a_large_result_is_summarised_and_read_in_parts_or_returned_complete():
    async with gateway() as mine:
        result = await mine.call("mine.many_rows")
        assert result.structured is None
        assert len(result.text) < 10_000
        assert result.result_id
        assert await mine.read_result(result.result_id, path="result[7].row") == "7"
        whole = await mine.call("mine.many_rows", whole=True)
        assert whole.structured is not None
        assert len(whole.structured["result"]) == 20_000
        assert whole.result_id is None


async def test_a_script_and_a_workflow_run_through_the_same_tools():
    async with gateway() as mine:
        ran = await mine.run_code("total = await mine.add(a=1, b=2)\ntotal['result'] * 2")
        assert ran.text.startswith("6")
        assert (await mine.run_code("1 / 0", "python")).is_error
        with pytest.raises(InvalidArguments):
            await mine.run_code("1", "cobol")  # pyright: ignore[reportArgumentType]
        flow = await mine.run_workflow(
            [{"id": "sum", "tool": "mine.add", "arguments": {"a": 2, "b": 3}}]
        )
        assert "5" in flow.text
        assert not flow.is_error


async def test_a_real_server_is_started_remembered_and_leaves_no_process(tmp_path: Path):
    command, *arguments = counter()
    config = {"mcpServers": {"counter": {"command": command, "args": arguments}}}
    async with Gateway(config, data_dir=tmp_path) as first:
        assert await first.ready(60)
        assert (await first.call("counter.count")).text
        alive = _children()
        assert alive
    assert not alive & _children()
    async with Gateway(config, data_dir=tmp_path) as second:
        assert [server.state for server in second.servers()] == ["known"]
        assert (await second.search("count further"))[0].name == "counter.count"
        assert [server.state for server in second.servers()] == ["known"], (
            "to find a tool, nothing is started"
        )


def _children() -> set[str]:
    if sys.platform != "linux":
        return {"unknown on this platform"}
    found = subprocess.run(
        ["ps", "-eww", "-o", "pid,args"], capture_output=True, text=True, timeout=240, check=True
    ).stdout
    return {line.split()[0] for line in found.splitlines() if str(Path(counter()[-1])) in line}


async def test_a_profile_bounds_what_is_found_and_called():
    profiles = {"quiet": {"tools": ["mine.add"], "metatools": {"run_code": False}}}
    async with gateway(config={"profiles": profiles}, profile="quiet") as mine:
        assert [match.name for match in await mine.search("say words in capital letters")] in (
            [],
            ["mine.add"],
        )
        with pytest.raises(UnknownName):
            await mine.call("mine.shout", {"words": "hey"})
        with pytest.raises(UnknownName, match="switched off"):
            await mine.run_code("1")
    with pytest.raises(UnknownName, match="loud"):
        gateway(profile="loud")


async def test_calls_are_counted_and_audited_like_a_clients(tmp_path: Path):
    log = tmp_path / "audit.jsonl"
    async with gateway(config={"audit": {"file": str(log)}}, name="my-agent") as mine:
        await mine.call("mine.add", {"a": 1, "b": 2})
        assert "calls" in await mine.describe("mine.add", detail="full")
    assert '"mine.add"' in log.read_text() or '"add"' in log.read_text()
    assert "my-agent" in log.read_text()


async def test_two_gateways_in_one_process_know_nothing_of_each_other():
    async with gateway() as one, gateway(servers={"other": [add]}) as other:
        assert (await one.call("mine.add", {"a": 1, "b": 1})).text == "2"
        assert (await other.call("other.add", {"a": 2, "b": 2})).text == "4"
        with pytest.raises(UnknownName):
            await other.call("mine.add", {"a": 1, "b": 1})


async def test_functions_are_listed_again_despite_a_stored_listing(
    tmp_path: Path,
):
    async with Gateway(servers={"mine": [broken]}, data_dir=tmp_path):
        pass
    async with Gateway(servers={"mine": [add]}, data_dir=tmp_path) as mine:
        assert [server.tools for server in mine.servers()] == [1]
        assert (await mine.call("mine.add", {"a": 1, "b": 1})).text == "2"


async def test_it_can_only_be_used_while_it_is_open_and_in_its_own_loop():
    mine = gateway()
    with pytest.raises(PorticoError, match="not open"):
        await mine.search("add")
    async with mine:
        with pytest.raises(PorticoError, match="open already"):
            await mine.open()
        with pytest.raises(PorticoError, match="another event loop"):
            await asyncio.to_thread(lambda: asyncio.run(mine.call("mine.add", {"a": 1, "b": 2})))
    await mine.close()
    async with mine:
        assert (await mine.call("mine.add", {"a": 1, "b": 2})).text == "3", "it can be opened again"


async def test_cancelling_a_call_cancels_it_at_the_tool():
    begun, ended = asyncio.Event(), asyncio.Event()

    async def forever() -> str:
        """Never end."""
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    async with gateway(servers={"slow": [forever]}) as mine:
        call = asyncio.create_task(mine.call("slow.forever"))
        await asyncio.wait_for(begun.wait(), 240)
        call.cancel()
        await asyncio.wait({call}, timeout=240)
        await asyncio.wait_for(ended.wait(), 240)
        assert call.cancelled()


async def test_it_leaves_logging_and_signals_alone():
    before = (logging.root.handlers[:], logging.root.level, signal.getsignal(signal.SIGINT))
    async with gateway() as mine:
        await mine.call("mine.add", {"a": 1, "b": 2})
        assert (
            logging.root.handlers[:],
            logging.root.level,
            signal.getsignal(signal.SIGINT),
        ) == before


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"config": {"servers": {"x": {"comand": "y"}}}}, "comand"),
        ({"config": {"exposur": "meta"}}, "exposure"),
        ({"servers": {"no.dots": [add]}}, "no server name"),
        ({"servers": {"mine": 7}}, "int is no server"),
        ({"servers": {"mine": [7]}}, "cannot be made a tool"),
        (
            {"config": {"servers": {"mine": {"command": "x"}}}, "servers": {"mine": [add]}},
            "of this name too",
        ),
        ({"config": "no/such/portico.yaml"}, "portico.yaml"),
        ({"exposure": "semantic"}, "intent"),
    ],
)
def test_a_wrong_configuration_is_refused_with_advice_before_anything_starts(
    options: dict[str, Any], said: str
):
    with pytest.raises(ConfigError) as error:
        Gateway(**options) if "config" in options or "servers" in options else gateway(**options)
    assert said in str(error.value)


def test_without_a_configuration_the_error_says_what_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PORTICO_CONFIG", raising=False)
    if sys.platform != "linux":
        pytest.skip("elsewhere the user's own folder cannot be set aside by variables")
    with pytest.raises(ConfigError, match="no configuration was found"):
        Gateway()
    (tmp_path / "portico.yaml").write_text(
        "servers: {a: {command: x, env: {KEY: '${NOT_SET_ANYWHERE}'}}}\n"
    )
    assert "NOT_SET_ANYWHERE" in Gateway().warnings[0]


def test_a_dict_is_read_as_a_file_is(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WORD", "hello")
    from portico.library.settings import load_mapping

    config, warnings = load_mapping(
        {
            "servers": {"a": {"command": "x", "args": ["${WORD}", 7], "env": {"DEBUG": True}}},
            "budgets": {"result": 3000},
        }
    )
    assert config.servers["a"].args == ("hello", "7")
    assert {name: str(value) for name, value in config.servers["a"].env.items()}.keys() == {"DEBUG"}
    assert config.budgets.result == 3000
    assert warnings == ()
