"""A client that gives up a call, a script or a workflow, or is gone: the server learns of it, and
nothing is left."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio

from portico.config import BackendConfig, CodeConfig, Config
from portico.gateway import GatewayRuntime
from portico.testing import connect, gateway_over, serve_http
from portico.upstream.backend import Era
from tests.fixtures import everything_command
from tests.interaction.raw_clients import RawClient, call, raw_http, raw_lines
from tests.interaction.upstreams import listening

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("line_transport")]

TIMEOUT_S = 240.0
SLOW = {"seconds": 600, "steps": 10}
SCRIPTS = {
    "python": "await {server}.slow(seconds=600, steps=10)",
    "lua": "result({server}.slow({{seconds = 600, steps = 10}}):await())",
    "javascript": "await {server}.slow({{seconds: 600, steps: 10}})",
    "typescript": (
        "const answer: unknown = await {server}.slow({{seconds: 600, steps: 10}});\nanswer"
    ),
}
QUICK = {
    "python": "1 + 1",
    "lua": "result(1 + 1)",
    "javascript": "1 + 1",
    "typescript": "const n: number = 2;\nn",
}
WORKS = ("call_tool", *SCRIPTS, "run_workflow")
OURS = ("a script's call", "step ", "call ", "keep a result", "let go of")
"""How the tasks begin that a call, a script or a workflow may have."""


def make_request(work: str, server: str) -> tuple[str, dict[str, Any]]:
    """The meta-tool and its arguments: all of them end up waiting for `slow`."""
    if work == "call_tool":
        return work, {"name": f"{server}.slow", "arguments": SLOW}
    if work == "run_workflow":
        steps = [
            {"id": name, "tool": f"{server}.slow", "arguments": SLOW} for name in ("one", "two")
        ]
        return work, {"steps": steps}
    return "run_code", {"code": SCRIPTS[work].format(server=server), "language": work}


class CancellingGateway:
    """A gateway over real servers, with one worker for each language: one that is left busy is
    missed at once."""

    def __init__(self, runtime: GatewayRuntime, url: str) -> None:
        self.runtime = runtime
        self.url = url

    async def counted(self, server: str) -> dict[str, int]:
        tool = self.runtime.get_view().snapshot.resolve_tool(f"{server}.cancellations")
        return (await self.runtime.calls.call(tool, {}))["structuredContent"]

    async def until(self, server: str, wanted: Callable[[dict[str, int]], bool]) -> dict[str, int]:
        async with asyncio.timeout(TIMEOUT_S):
            while not wanted(counted := await self.counted(server)):
                pass
        return counted

    async def cancelled_early(self, work: str, server: str, leave: Callable[[], Any]) -> None:
        """Once it is at work, leave; then nothing is at work any more, and the same can be done
        again."""
        calls = 2 if work == "run_workflow" else 1
        before = await self.counted(server)
        await self.until(server, lambda now: now["started"] == before["started"] + calls)
        await leave()
        after = await self.until(server, lambda now: now["running"] == 0)
        assert after["cancelled"] == before["cancelled"] + calls
        assert after["finished"] == before["finished"]
        async with asyncio.timeout(TIMEOUT_S):
            while left := [
                task for task in asyncio.all_tasks() if task.get_name().startswith(OURS)
            ]:
                await asyncio.wait(left)
            async with connect(self.runtime) as client:
                if work in QUICK:
                    again = await client.call_tool(
                        "run_code", {"code": QUICK[work], "language": work}
                    )
                else:
                    again = await client.call_tool("call_tool", {"name": f"{server}.whoami"})
        assert not again.is_error, again.content


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway() -> AsyncGenerator[CancellingGateway]:
    command, *arguments = everything_command("--stdio")
    async with AsyncExitStack() as stack:
        config = Config(
            servers={
                "pipe": BackendConfig(command=command, args=tuple(arguments)),
                "web": BackendConfig(
                    url=await stack.enter_async_context(
                        listening(*everything_command("--port", "0"))
                    )
                ),
            },
            code=CodeConfig(workers=1),
        )
        gateway = await stack.enter_async_context(gateway_over(config=config))
        yield CancellingGateway(gateway, await stack.enter_async_context(serve_http(gateway)))


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("work", WORKS)
async def test_what_a_client_cancels_is_cancelled_at_the_server(
    gateway: CancellingGateway, work: str, era: Era
) -> None:
    tool, arguments = make_request(work, "pipe")
    async with connect(gateway.runtime, "memory", era) as client:
        asking = asyncio.create_task(client.call_tool(tool, arguments))

        async def cancel() -> None:
            asking.cancel()
            await asyncio.wait({asking}, timeout=TIMEOUT_S)

        await gateway.cancelled_early(work, "pipe", cancel)
        assert asking.cancelled()


@pytest.mark.parametrize("work", WORKS)
async def test_a_client_that_hangs_up_is_gone_for_the_server_too(
    gateway: CancellingGateway, work: str
) -> None:
    async with raw_http(gateway.url, "modern") as client:
        await gateway.cancelled_early(work, "pipe", hanging_up(client, *make_request(work, "pipe")))


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("work", WORKS)
async def test_a_client_that_closes_its_pipe_is_gone_for_the_server_too(
    gateway: CancellingGateway, work: str, era: Era
) -> None:
    tool, arguments = make_request(work, "pipe")
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(raw_lines(gateway.runtime.get_endpoint(), era))
        await client.ask("tools/call", {"name": tool, "arguments": arguments})
        await gateway.cancelled_early(work, "pipe", stack.aclose)


@pytest.mark.parametrize("work", ["call_tool", "python", "run_workflow"])
async def test_a_server_behind_http_sees_it_too(gateway: CancellingGateway, work: str) -> None:
    async with raw_http(gateway.url, "modern") as client:
        await gateway.cancelled_early(work, "web", hanging_up(client, *make_request(work, "web")))


def hanging_up(client: RawClient, tool: str, arguments: dict[str, Any]) -> Callable[[], Any]:
    """Ask; the returned function closes the connection in the middle, and says nothing."""
    asking = asyncio.create_task(call(client, tool, **arguments))

    async def hang_up() -> None:
        asking.cancel()
        await asyncio.wait({asking}, timeout=TIMEOUT_S)
        assert asking.cancelled(), asking.result()

    return hang_up
