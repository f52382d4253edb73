"""A running gateway takes over a changed configuration, and refuses a broken one."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from portico.cli.config_watcher import watch_changes
from portico.cli.setup import compute_signature, read_setup
from portico.gateway import GatewayRuntime
from tests.cli.commands.test_serve import _announced as announced  # pyright: ignore[reportPrivateUsage]
from tests.cli.conftest import TIMEOUT_S, Home, Start


def demo(*names: str, **more: Any) -> dict[str, Any]:
    return {
        "servers": {name: {"functions": f"portico.demo.{name}:TOOLS"} for name in names},
        **more,
    }


async def browsed(client: Client) -> str:
    result: Any = await client.call_tool("browse_tools", {})
    return result.content[0].text


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not await holds():  # noqa: ASYNC110 - another process does it
            await asyncio.sleep(0.1)


async def test_servers_and_profiles_come_and_go_while_it_serves(home: Home, start: Start) -> None:
    home.write(demo("text"))
    url, _ = announced(start("serve", "--port", "0"))
    async with Client(url) as client:
        assert "units" not in await browsed(client)
        home.write(demo("units", profiles={"measures": {"exposure": "full"}}))

        async def there() -> bool:
            found = await browsed(client)
            return "units" in found and "text (" not in found

        await until(there)
    async with Client(f"{url}/p/measures") as client:
        assert (await client.list_tools()).tools[0].name.startswith("units__")


async def test_a_broken_file_is_refused_with_its_error_and_a_corrected_one_applied(
    home: Home, start: Start
) -> None:
    file = home.write(demo("text"))
    process = start("serve", "--port", "0")
    url, _ = announced(process)
    assert process.stderr is not None
    file.write_text("servers:\n  text: {comand: x}\n")
    output = ""
    while "refused" not in output or "comand" not in output:
        line = await asyncio.wait_for(asyncio.to_thread(process.stderr.readline), TIMEOUT_S)
        assert line, output
        output += line.decode()
    async with Client(url) as client:
        assert "text" in await browsed(client)
        home.write(demo("text", "units"))

        async def there() -> bool:
            return "units" in await browsed(client)

        await until(there)


@pytest.mark.parametrize(
    "spoil", [Path.unlink, lambda file: file.write_text(" \n")], ids=["gone", "empty"]
)
async def test_a_file_that_is_gone_or_empty_is_refused_and_still_followed(
    spoil: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("portico.cli.config_watcher.POLL_S", 0.05)
    monkeypatch.setenv("PORTICO_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "portico.yaml"
    before = json.dumps(demo("text"))
    file.write_text(before)
    setup = read_setup()  # found in the folder, as by a user who named none
    async with GatewayRuntime(setup.config) as gateway, watch_changes(gateway, setup):
        spoil(file)

        async def refused() -> bool:
            return bool(gateway.config_problem)

        await until(refused)
        assert set(gateway.upstreams) == {"text"}
        file.write_text(before)

        async def as_before() -> bool:
            return not gateway.config_problem

        await until(as_before)
        file.write_text(json.dumps(demo("text", "units")))

        async def more() -> bool:
            return set(gateway.upstreams) == {"text", "units"}

        await until(more)


async def test_watch_false_leaves_the_running_configuration_alone(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setenv("PORTICO_DATA_DIR", str(tmp_path))
    for watch in (False, True):
        (tmp_path / "portico.yaml").write_text(json.dumps(demo("text", watch=watch)))
        setup = read_setup([str(tmp_path / "portico.yaml")])
        async with GatewayRuntime(setup.config) as gateway, watch_changes(gateway, setup):
            names = {task.get_name() for task in asyncio.all_tasks()}
            assert ("follow the configuration" in names) is watch


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
def test_a_link_that_points_elsewhere_is_a_change(tmp_path: Path) -> None:
    (tmp_path / "one").write_text(json.dumps({}))
    (tmp_path / "two").write_text(json.dumps({}))
    link = tmp_path / "portico.yaml"
    link.symlink_to(tmp_path / "one")
    before = compute_signature([link])
    link.unlink()
    link.symlink_to(tmp_path / "two")
    assert compute_signature([link]) != before


def test_a_file_that_is_gone_is_a_change(tmp_path: Path) -> None:
    file = tmp_path / "portico.yaml"
    file.write_text("")
    before = compute_signature([file])
    file.unlink()
    assert compute_signature([file]) != before
