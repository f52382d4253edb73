"""The meta-tools that do more than one call: scripts and workflows, from checked arguments to an answer that fits."""

import asyncio
import importlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from portico.catalog.tool import Tool, make_tool
from portico.disclosure import metatools, scripts
from portico.disclosure.inside import Inside
from portico.disclosure.question import Question
from portico.disclosure.render import schema
from portico.disclosure.searching import Searching
from portico.disclosure.sight import Sight
from portico.errors import InvalidArguments
from portico.execution.call import Origin
from portico.execution.large import Large
from portico.execution.means import Means
from portico.execution.scripting.scripts import Around
from portico.upstream.backend import Raw

if TYPE_CHECKING:
    from portico.execution.workflow.planning.choosing import Found
    from portico.execution.workflow.planning.suggesting import Find

_WORKFLOWS = "portico.disclosure.workflows"
_CODE, _FLOW = (make_tool("portico", {"name": name}) for name in (metatools.CODE, metatools.FLOW))


class Doing:
    """One view's scripts and workflows."""

    def __init__(self, sight: Sight, searching: Searching, means: Means | None, large: Large | None = None) -> None:
        self._sight = sight
        self._searching = searching
        self._means = means
        self._large = large

    async def code(self, arguments: Raw, origin: Origin) -> Raw:
        """Run a script."""
        face, code = self._sight.face, arguments["code"]
        language: Any = arguments.get("language", face.languages[0])
        if self._means is None or language not in face.languages:
            raise InvalidArguments(f"{language} is not run here", advice=f"Languages: {', '.join(face.languages)}.")
        inside = Inside(self._sight, self._searching, origin.caller)
        around = Around(self._sight.snapshot, inside.functions(), lambda tool: f"It takes: {schema(tool)}")
        ran = await self._means.run_script(code, language, around, origin, arguments.get("timeout_s"))
        return await self._fitted(_CODE, scripts.answered(ran, code), origin)

    async def flow(self, arguments: Raw, origin: Origin) -> Raw:
        """Run a workflow, go on with one, or plan one."""
        if self._means is None:
            raise InvalidArguments("no workflows are run here")
        # Imported for the first who needs it, in a thread: it takes longer than the event loop may stand still.
        if _WORKFLOWS not in sys.modules:
            await asyncio.to_thread(importlib.import_module, _WORKFLOWS)
        from portico.disclosure import workflows as telling
        from portico.execution.workflow.workflows import Request

        steps, intent, inputs = arguments.get("steps"), arguments.get("intent", ""), arguments.get("inputs") or {}
        snapshot, budget = self._sight.snapshot, self._sight.face.result_budget
        if steps is None and not arguments.get("resume"):
            if not intent.strip():
                raise InvalidArguments(
                    "there is nothing to run", advice="Pass steps, or an intent for a plan, or resume for a run."
                )
            plan = await self._means.plan(intent, snapshot, self._found_by(origin), origin.caller, inputs)
            if not (asked := bool(arguments.get("run"))) or not plan.ready:
                return telling.suggested(plan, budget, asked_to_run=asked)
            steps = [dict(step) for step in plan.steps]
        request = Request(steps, inputs, arguments.get("resume") or "", intent)
        report = await self._means.run_workflow(request, snapshot, origin)
        self._means.remember(report, snapshot)
        # What waits for approval is written out, and may be megabytes.
        told = await asyncio.to_thread(telling.told, report, budget)
        return await self._fitted(_FLOW, told, origin)

    def _found_by(self, origin: Origin) -> "Find":
        """How a plan finds its tools: as its caller's own searches do."""
        from portico.execution.workflow.planning.suggesting import found_in

        async def find(words: str, limit: int) -> "Sequence[Found]":
            question = Question(words, limit=limit)
            _, search = await self._searching.prepared(self._sight.snapshot, question, origin.caller)
            return found_in(search.ranking(limit))[: 2 * limit]

        return find

    async def _fitted(self, tool: Tool, result: Raw, origin: Origin) -> Raw:
        if self._large is None:
            return result
        face = self._sight.face
        by_tool = metatools.READ in face.enabled
        return await self._large.handles.fit(tool, result, origin.caller, budget=face.result_budget, by_tool=by_tool)
