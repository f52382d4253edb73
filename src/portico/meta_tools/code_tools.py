"""The meta-tools `run_code` and `run_workflow`: from checked arguments to a fitted result."""

import asyncio
import importlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from portico.calls.pipeline import CallContext
from portico.catalog.tool import Tool, make_tool
from portico.errors import InvalidArguments
from portico.meta_tools import tool_definitions
from portico.meta_tools.runtimes import Runtimes
from portico.meta_tools.script_builtins import ScriptBuiltins
from portico.meta_tools.search_request import SearchRequest
from portico.meta_tools.search_tools import SearchService
from portico.rendering import script_report
from portico.rendering.tool import render_schema
from portico.results.services import ResultServices
from portico.scripts.runner import ScriptContext
from portico.upstream.backend import Raw

if TYPE_CHECKING:
    from portico.profiles.profile_state import ProfileState
    from portico.workflows.planning.planner import FindTools
    from portico.workflows.planning.tool_choice import PlanCandidate

_REPORT_MODULE = "portico.rendering.workflow_report"
_RUN_CODE_TOOL, _RUN_WORKFLOW_TOOL = (
    make_tool("portico", {"name": name})
    for name in (tool_definitions.RUN_CODE, tool_definitions.RUN_WORKFLOW)
)


class CodeTools:
    """Scripts and workflows of one view."""

    def __init__(
        self,
        profile_state: "ProfileState",
        search_service: SearchService,
        runtimes: Runtimes | None,
        result_services: ResultServices | None = None,
    ) -> None:
        self._profile_state = profile_state
        self._search_service = search_service
        self._runtimes = runtimes
        self._result_services = result_services

    async def run_code(self, arguments: Raw, context: CallContext) -> Raw:
        """Run a script; raises InvalidArguments for a language that is not enabled."""
        settings = self._profile_state.settings
        code = arguments["code"]
        language: Any = arguments.get("language", settings.languages[0])
        if self._runtimes is None or language not in settings.languages:
            raise InvalidArguments(
                f"{language} is not run here", advice=f"Languages: {', '.join(settings.languages)}."
            )
        builtins = ScriptBuiltins(self._profile_state, self._search_service, context.caller)
        script_context = ScriptContext(
            self._profile_state.snapshot,
            builtins.list_functions(),
            lambda tool: f"It takes: {render_schema(tool)}",
        )
        script_result = await self._runtimes.run_script(
            code, language, script_context, context, arguments.get("timeout_s")
        )
        return await self._fit_result(
            _RUN_CODE_TOOL, script_report.make_script_result(script_result, code), context
        )

    async def run_workflow(self, arguments: Raw, context: CallContext) -> Raw:
        """Run, resume or plan a workflow."""
        if self._runtimes is None:
            raise InvalidArguments("no workflows are run here")
        # The import takes too long for the event loop, so the first use does it in a thread.
        if _REPORT_MODULE not in sys.modules:
            await asyncio.to_thread(importlib.import_module, _REPORT_MODULE)
        from portico.rendering import workflow_report
        from portico.workflows.runner import WorkflowRequest

        steps = arguments.get("steps")
        intent = arguments.get("intent", "")
        inputs = arguments.get("inputs") or {}
        snapshot = self._profile_state.snapshot
        budget = self._profile_state.settings.result_budget
        if steps is None and not arguments.get("resume"):
            if not intent.strip():
                raise InvalidArguments(
                    "there is nothing to run",
                    advice="Pass steps, or an intent for a plan, or resume for a run.",
                )
            plan = await self._runtimes.plan_workflow(
                intent, snapshot, self._make_tool_finder(context), context.caller, inputs
            )
            if not (run_requested := bool(arguments.get("run"))) or not plan.is_ready:
                return workflow_report.make_plan_result(plan, budget, run_requested=run_requested)
            steps = [dict(step) for step in plan.steps]
        request = WorkflowRequest(steps, inputs, arguments.get("resume") or "", intent)
        report = await self._runtimes.run_workflow(request, snapshot, context)
        self._runtimes.remember_plan(report, snapshot)
        # Arguments that await approval are written out, and may be megabytes.
        result = await asyncio.to_thread(workflow_report.make_report_result, report, budget)
        return await self._fit_result(_RUN_WORKFLOW_TOOL, result, context)

    def _make_tool_finder(self, context: CallContext) -> "FindTools":
        """Return a search function for plans that ranks as the caller's own searches do."""
        from portico.workflows.planning.planner import to_candidates

        async def find_tools(query: str, limit: int) -> "Sequence[PlanCandidate]":
            request = SearchRequest(query, limit=limit)
            _, search = await self._search_service.prepare_search(
                self._profile_state.snapshot, request, context.caller
            )
            return to_candidates(search.rank(limit))[: 2 * limit]

        return find_tools

    async def _fit_result(self, tool: Tool, result: Raw, context: CallContext) -> Raw:
        if self._result_services is None:
            return result
        settings = self._profile_state.settings
        has_read_result = tool_definitions.READ_RESULT in settings.enabled_meta_tools
        return await self._result_services.handles.fit_to_budget(
            tool,
            result,
            context.caller,
            budget=settings.result_budget,
            has_read_result=has_read_result,
        )
