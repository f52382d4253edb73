"""Workflows over a fake server, for their tests: tools that answer, fail, wait and destroy."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

from portico.callers import Caller
from portico.calls.call_recorder import CallRecorder
from portico.calls.pipeline import CallContext, CallPipeline, CallSettings
from portico.catalog.snapshot import Snapshot
from portico.events import EventBus
from portico.testing import FakeBackend, gateway_over
from portico.upstream.backend import Raw
from portico.upstream.lifecycle.supervisor import Upstream
from portico.workflows.runner import WorkflowRequest, WorkflowRunner
from portico.workflows.runs import WorkflowReport
from tests.meta_tools.search_catalog import by_words, entry

CALLER = Caller(session="me")
LONG_S = 30


def tool(
    name: str, properties: Raw | None = None, required: list[str] | None = None, **more: Any
) -> Raw:
    schema = {"type": "object", "properties": properties or {}, "required": required or []}
    return {"name": name, "description": f"Does {name}.", "inputSchema": schema, **more}


READ_ONLY: Raw = {"annotations": {"readOnlyHint": True}}
DESTRUCTIVE: Raw = {"annotations": {"destructiveHint": True}}
ANY: Raw = {}
TOOLS = [
    tool("say", {"value": ANY}),
    tool("add", {"a": {"type": "number"}, "b": {"type": "number"}}, ["a", "b"], **READ_ONLY),
    tool("strict", {"text": {"type": "string"}}, ["text"]),
    tool("fail", {"why": ANY}),
    tool("look", {"at": ANY}, **READ_ONLY),
    tool("wipe", {"path": {"type": "string"}}, ["path"], **DESTRUCTIVE),
    tool("hold", {"value": ANY}),
]
TOOLS[2]["inputSchema"]["additionalProperties"] = False


def structured(value: Any) -> Raw:
    return {"content": [], "structuredContent": value}


def text(body: str, *, failed: bool = False) -> Raw:
    return {"content": [{"type": "text", "text": body}], "isError": failed}


class WorkflowFixture:
    """Workflows over one fake server, with what it was asked."""

    def __init__(
        self, calls: CallPipeline, snapshot: Snapshot, fake: FakeBackend, **options: Any
    ) -> None:
        self.fake = fake
        self.snapshot = snapshot
        self.workflows = WorkflowRunner(calls, **options)
        self.gates: dict[str, asyncio.Event] = {}
        self.held: asyncio.Queue[Any] = asyncio.Queue()
        """The values that calls of `hold` wait with."""
        self.dropped: list[Any] = []
        fake.on_call("say", lambda arguments: structured({"value": arguments.get("value")}))
        fake.on_call("add", lambda arguments: structured({"sum": arguments["a"] + arguments["b"]}))
        fake.on_call("strict", lambda arguments: structured({"text": arguments["text"]}))
        fake.on_call("fail", lambda arguments: text(f"no: {arguments.get('why')}", failed=True))
        fake.on_call("look", lambda arguments: structured({"seen": arguments.get("at")}))
        fake.on_call("wipe", lambda arguments: structured({"gone": arguments["path"]}))
        fake.on_call("hold", self._hold)

    @property
    def called(self) -> list[tuple[str, Raw]]:
        """Every call the server got: tool and arguments."""
        asked = [params for method, params in self.fake.requests if method == "tools/call"]
        return [(params["name"], params["arguments"]) for params in asked]

    def answers(self, name: str, handler: Callable[[Raw], Any]) -> None:
        self.fake.on_call(name, handler)

    async def run(
        self,
        *steps: Raw,
        caller: Caller = CALLER,
        origin: CallContext | None = None,
        **request: Any,
    ) -> WorkflowReport:
        asked = WorkflowRequest(steps=list(steps) or None, **request)
        async with asyncio.timeout(LONG_S):
            return await self.workflows.run(asked, self.snapshot, origin or CallContext(caller))

    async def resume(self, report: WorkflowReport, *steps: Raw, **request: Any) -> WorkflowReport:
        return await self.run(*steps, resume=report.run_id, **request)

    async def _hold(self, arguments: Raw) -> Raw:
        value = arguments.get("value")
        await self.held.put(value)
        try:
            async with asyncio.timeout(LONG_S):
                await self.gates.setdefault(str(value), asyncio.Event()).wait()
        except asyncio.CancelledError:
            self.dropped.append(value)
            raise
        return structured({"value": value})

    async def next_held(self) -> Any:
        return await asyncio.wait_for(self.held.get(), LONG_S)

    def release(self, value: Any) -> None:
        self.gates.setdefault(str(value), asyncio.Event()).set()


@asynccontextmanager
async def workflow_fixture(
    tools: list[Raw] | None = None, **options: Any
) -> AsyncGenerator[WorkflowFixture]:
    """Over the pipeline alone: a gateway takes longer to start than most tests to run."""
    listed = tools if tools is not None else TOOLS
    fake, bus = FakeBackend(listed), EventBus()
    upstream = Upstream("f", fake, bus)
    try:
        yield WorkflowFixture(
            CallPipeline({"f": upstream}, CallSettings(), CallRecorder(bus)),
            by_words(entry("f", *listed)),
            fake,
            **options,
        )
    finally:
        await upstream.stop()


@asynccontextmanager
async def gateway_workflows(**options: Any) -> AsyncGenerator[WorkflowFixture]:
    """Over a gateway."""
    fake = FakeBackend(TOOLS)
    async with gateway_over({"f": fake}) as gateway:
        yield WorkflowFixture(gateway.calls, gateway.catalog.snapshot, fake, **options)


def states(report: WorkflowReport) -> dict[str, str]:
    return {step_report.id: step_report.state for step_report in report.steps}


def values(report: WorkflowReport) -> dict[str, Any]:
    return {
        step_report.id: step_report.value
        for step_report in report.steps
        if step_report.state == "done"
    }


def step(id_: str, tool_: str, arguments: Any = None, **more: Any) -> Raw:
    found: Raw = {"id": id_, "tool": tool_, "arguments": {} if arguments is None else arguments}
    return {**found, **{{"if_": "if"}.get(key, key): value for key, value in more.items()}}
