"""The meta-tool `run_workflow`: plans, runs and resumes workflows."""

import asyncio
import importlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from portico.calls.pipeline import CallContext
from portico.catalog.tool import make_tool
from portico.errors import InvalidArguments
from portico.meta_tools.runtimes import Runtimes
from portico.meta_tools.search_request import SearchRequest
from portico.meta_tools.search_tools import SearchService, run_search
from portico.meta_tools.tool_definitions import RUN_WORKFLOW
from portico.upstream.backend import Raw

if TYPE_CHECKING:
    from portico.profiles.profile_state import ProfileState
    from portico.workflows.planning.clause_search import FindTools
    from portico.workflows.planning.tool_choice import PlanCandidate

_REPORT_MODULE = "portico.rendering.workflow_report"
_TOOL = make_tool("portico", {"name": RUN_WORKFLOW})


async def run_workflow(
    profile_state: "ProfileState",
    search_service: SearchService,
    runtimes: Runtimes | None,
    arguments: Raw,
    context: CallContext,
) -> Raw:
    """Run, resume or plan a workflow."""
    if runtimes is None:
        raise InvalidArguments("no workflows are run here")
    # The import takes too long for the event loop, so the first use does it in a thread.
    if _REPORT_MODULE not in sys.modules:
        await asyncio.to_thread(importlib.import_module, _REPORT_MODULE)
    from portico.rendering import workflow_report
    from portico.workflows.runner import WorkflowRequest

    steps = arguments.get("steps")
    intent = arguments.get("intent", "")
    inputs = arguments.get("inputs") or {}
    resumed = arguments.get("resume") or ""
    snapshot = profile_state.snapshot
    budget = profile_state.settings.result_budget
    is_planned = False
    if steps is None and not resumed:
        if not intent.strip():
            raise InvalidArguments(
                "there is nothing to run",
                advice="Pass steps, or an intent for a plan, or resume for a run.",
            )
        find_tools = _make_tool_finder(profile_state, search_service, context)
        plan = await runtimes.plan_workflow(intent, snapshot, find_tools, context.caller, inputs)
        run_requested = bool(arguments.get("run"))
        if not run_requested or not plan.is_complete:
            return workflow_report.make_plan_result(plan, budget, run_requested=run_requested)
        steps = [dict(step) for step in plan.steps]
        is_planned = True
    request = WorkflowRequest(steps, inputs, resumed, intent, is_planned)
    report = await runtimes.run_workflow(request, snapshot, context)
    runtimes.remember_plan(report, snapshot)
    # Arguments that await approval are written out, and may be megabytes.
    result = await asyncio.to_thread(workflow_report.make_report_result, report, budget)
    return await profile_state.fit_result(_TOOL, result, context.caller)


def _make_tool_finder(
    profile_state: "ProfileState", search_service: SearchService, context: CallContext
) -> "FindTools":
    """Return a search function for plans that ranks as the caller's own searches do."""
    from portico.workflows.planning.planner import to_candidates

    async def find_tools(query: str, limit: int) -> "Sequence[PlanCandidate]":
        request = SearchRequest(query, limit=limit)
        _, search = await search_service.prepare_search(
            profile_state.snapshot, request, context.caller
        )
        return to_candidates(await run_search(search, search.rank, limit))[: 2 * limit]

    return find_tools
