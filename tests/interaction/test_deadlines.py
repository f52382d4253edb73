"""The deadline of a call is what is left of its script, its workflow and its time in the queue."""

import asyncio
from typing import Any

import pytest

from portico.config import CodeConfig, Config, WorkflowConfig
from portico.config.limits import LimitsConfig
from portico.server.admission import AdmissionControl
from portico.testing import FakeBackend, gateway_over
from portico.upstream.backend import Raw, RequestOptions
from tests.interaction.fake_servers import fake, text
from tests.interaction.raw_clients import call, raw_lines
from tests.upstream.loopback_server import advance_clock

TIMEOUT_S = 240.0


class Server:
    """One that never answers `wait`, and knows what became of it."""

    def __init__(self) -> None:
        self.backend: FakeBackend = fake("wait", "quick")
        self.begun, self.cancelled = asyncio.Event(), asyncio.Event()
        self.asked: list[RequestOptions] = []
        self.free = asyncio.Event()
        self.backend.on("tools/call", self._called)

    async def _called(self, params: Raw, ask: RequestOptions) -> Raw:
        self.asked.append(ask)
        self.begun.set()
        try:
            if params["name"] == "wait":
                await self.free.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return text("done")


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("run_code", {"code": "await s.wait()"}),
        ("run_code", {"code": "await s.wait()", "timeout_s": 10}),
        ("run_workflow", {"steps": [{"id": "one", "tool": "s.wait", "arguments": {}}]}),
    ],
    ids=["a script's", "a script's own", "a workflow's"],
)
async def test_when_its_time_is_over_the_call_is_cancelled_at_its_server(
    tool: str, arguments: dict[str, Any]
) -> None:
    server = Server()
    short = 30 if "timeout_s" in arguments else 10
    config = Config(code=CodeConfig(wall_s=short), workflow=WorkflowConfig(wall_s=short))
    async with (
        gateway_over({"s": server.backend}, config) as gateway,
        raw_lines(gateway.get_endpoint(), "legacy") as client,
    ):
        async with asyncio.timeout(TIMEOUT_S):
            calling = asyncio.create_task(call(client, tool, **arguments))
            await server.begun.wait()
            advance_clock(10)
            assert "result" in await calling
            await server.cancelled.wait()


async def test_time_in_the_queue_counts_towards_the_deadline_of_the_call() -> None:
    server, now = Server(), [0.0]
    async with gateway_over(
        {"s": server.backend}, Config(limits=LimitsConfig(call_s=100))
    ) as gateway:
        admission = AdmissionControl(
            LimitsConfig(requests=1, wait_s=TIMEOUT_S), clock=lambda: now[0]
        )
        gateway.admission = admission
        await gateway.wait_until_listed()
        async with (
            raw_lines(gateway.get_endpoint(), "legacy") as client,
            asyncio.timeout(TIMEOUT_S),
        ):
            first = await client.ask(
                "tools/call", {"name": "call_tool", "arguments": {"name": "s.wait"}}
            )
            await server.begun.wait()
            second = await client.ask(
                "tools/call", {"name": "call_tool", "arguments": {"name": "s.quick"}}
            )
            while not admission.limiter.waiting:  # noqa: ASYNC110  (nobody tells)
                await asyncio.sleep(0.005)
            now[0] += 30
            server.free.set()
            for request in (first, second):
                await client.wait_for(lambda message, request=request: message.get("id") == request)
        assert [ask.total_timeout for ask in server.asked] == [100, pytest.approx(70)]
