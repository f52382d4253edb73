"""What does more than one call: scripts and workflows, each imported and made when it is first needed."""

import asyncio
import time
from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING, Any

from portico.access import Caller
from portico.catalog.snapshot import Snapshot
from portico.catalog.tool import Tool
from portico.config import Config
from portico.errors import PorticoError
from portico.events import Bus, ScriptRan, WorkflowRan
from portico.execution.call import Calls, Origin
from portico.execution.learned import Shapes
from portico.execution.retrying import ONCE_MORE, RetryRule
from portico.execution.sandbox.script import Language
from portico.execution.scripting.scripts import Around, Ran, Scripts
from portico.execution.workflow.limits import Limits
from portico.learning import Learner
from portico.storage.record import Record

if TYPE_CHECKING:
    from portico.execution.workflow.planning.remembered import Plans
    from portico.execution.workflow.planning.suggesting import Find, Suggestion
    from portico.execution.workflow.report import Report
    from portico.execution.workflow.workflows import Request, Workflows

_PATIENCE_S = 2.0
"""How long the end waits for a plan to be written."""
MAX_REMEMBERING = 32
"""Plans that wait to be written. Where more come than the record takes, the next run of one of them tells it too."""


class Means:
    """A gateway's scripts and workflows."""

    def __init__(
        self, calls: Calls, shapes: Shapes, config: Config, learner: Learner, record: Record, bus: Bus | None = None
    ) -> None:
        """Whoever listens to `bus` hears how each script and workflow went."""
        self._bus = bus or Bus()
        self._calls = calls
        self._shapes = shapes
        self._learner = learner
        self._record = record
        self._remembering: set[asyncio.Task[bool]] = set()
        self._limits = config.workflow
        self._asked_about = {name: server.tools.destructive for name, server in config.servers.items()}
        # A step that is to be tried again was written so: how often calls are made again unasked does not matter.
        self._twice = {name: RetryRule(tools=server.retry.tools) for name, server in config.servers.items()}
        self.scripts = Scripts.within(calls, config.code)

    @cached_property
    def workflows(self) -> "Workflows":
        """Made, and its room entered, by the first workflow: no gateway starts slower for it."""
        from portico.execution.workflow.workflows import Workflows

        limits = Limits(**self._limits.model_dump())
        return Workflows(self._calls, self._shapes, limits=limits, policy=self._destructive, twice=self._may_run_twice)

    @cached_property
    def _plans(self) -> "Plans":
        from portico.execution.workflow.planning.remembered import Plans

        return Plans(self._record, self._learner.key, self._learner.listening)

    async def run_script(
        self, code: str, language: Language, around: Around, origin: Origin, timeout_s: float | None = None
    ) -> Ran:
        """Run a script; see `Scripts.run`."""
        started, outcome = time.perf_counter(), "crash"
        try:
            ran = await self.scripts.run(code, language, around, origin, timeout_s)
            outcome = ran.outcome.fault.kind if ran.outcome.fault is not None else "ok"
            return ran
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        except PorticoError:
            outcome = "refused"
            raise
        finally:
            self._bus.publish(ScriptRan(language, time.perf_counter() - started, outcome))

    async def run_workflow(self, request: "Request", snapshot: Snapshot, origin: Origin) -> "Report":
        """Run a workflow, or go on with one; see `Workflows.run`."""
        started, outcome = time.perf_counter(), "failed"
        try:
            report = await self.workflows.run(request, snapshot, origin)
            outcome = report.state
            return report
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        except PorticoError:
            outcome = "refused"
            raise
        finally:
            self._bus.publish(WorkflowRan(time.perf_counter() - started, outcome))

    async def plan(
        self, intent: str, snapshot: Snapshot, find: "Find", caller: Caller, inputs: Mapping[str, Any]
    ) -> "Suggestion":
        """A plan for an intent and its inputs: one that worked for such an intent before, else a new one."""
        from portico.execution.workflow.planning.choosing import used_together
        from portico.execution.workflow.planning.suggesting import given, suggest

        together = used_together(await self._learner.together(caller))
        fresh = await suggest(intent, snapshot, find, shapes=self._shapes.of, together=together)
        known = await self._plans.offered(self._learner.scope(caller), intent, snapshot, fresh)
        return given(known or fresh, inputs, snapshot)

    def remember(self, report: "Report", snapshot: Snapshot) -> None:
        """Keep the plan of a workflow that went well, while its caller already reads the answer."""
        if not report.worked or len(self._remembering) >= MAX_REMEMBERING:
            return
        scope, steps = self._learner.scope(report.caller), [dict(planned.step.given) for planned in report.plan]
        keeping = asyncio.create_task(self._plans.remember(scope, steps, snapshot, report.intent), name="keep a plan")
        self._remembering.add(keeping)
        keeping.add_done_callback(self._remembering.discard)

    def expire(self) -> None:
        """Let go of what is over its time; for housekeeping."""
        self.scripts.memory.expire()
        if "workflows" in self.__dict__:
            self.workflows.expire()

    async def close(self) -> None:
        """End every process, and finish what is being written."""
        await self.scripts.close()
        if self._remembering:
            await asyncio.wait(self._remembering, timeout=_PATIENCE_S)

    def _may_run_twice(self, tool: Tool) -> bool:
        return self._twice.get(tool.server, ONCE_MORE).allows(tool)

    def _destructive(self, tool: Tool) -> bool:
        globs: Collection[str] = self._asked_about.get(tool.server, ())
        return any(fnmatchcase(tool.name, glob) for glob in globs)
