"""Routes of calls: the latest, one in full, and a call of a tool."""

import asyncio
import re
import time
from collections.abc import Mapping
from itertools import islice
from pathlib import Path as FilePath
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response

from portico.api import activity_models as models
from portico.api.gateway_services import GatewayServices
from portico.api.json_body import describe_json_body, read_json_body
from portico.api.params import CallFilters, NoParams, PagedList
from portico.api.responses import make_uncached_response
from portico.api.tiers import V1
from portico.api.tool_routes import NOT_FOUND_RESPONSE
from portico.auth.permissions import can_administer
from portico.callers import LOCAL_USER, PRINCIPAL_KEY, Caller, Principal
from portico.calls.call import make_call_id
from portico.calls.failed_calls import FailedCall
from portico.catalog.tool import sanitize_text
from portico.errors import PorticoError, UnknownName
from portico.events import CallStages
from portico.profiles.json_objects import to_iso_time
from portico.profiles.profile_state import ProfileState
from portico.storage.audit_file import iter_lines_backwards, parse_line
from portico.storage.gateway_store import GatewayStore
from portico.storage.rows import CallQuery, CallRow

_CONSOLE_HEADER = "x-portico-proof"
"""Sent by the console's pages (`server/http/console_sign_in.py`)."""
_RUN = re.compile(r"([0-9a-f]{16})\.[0-9a-f]{8}")
"""The id of a call of a script or workflow."""
MAX_RUN_CALLS = 200
_RUN_S = 3_600.0
"""Seconds around a call in which the other calls of its run are looked for."""
MAX_AUDIT_LINES = 200_000
"""Lines of the audit log that are searched for one call, the latest ones."""
_AUDIT_FIELDS = (
    *("arguments", "attempts", "repaired", "destructive", "approval", "decided", "trace"),
    *("credential", "mac", "rule"),
)


def call_routes(
    profile_state: ProfileState, store: GatewayStore, services: GatewayServices
) -> APIRouter:
    """Build the routes `/calls`."""
    router = APIRouter(tags=["use"])

    async def load_run(row: CallRow, principal: Principal) -> list[models.RunCall]:
        """Return the calls of the script or workflow that a call belongs to, in their order."""
        found = _RUN.fullmatch(row.call_id)
        if found is None:
            return []
        query = CallQuery(
            limit=MAX_RUN_CALLS, run=found[1], since=row.at - _RUN_S, until=row.at + _RUN_S
        )
        rows = [one for one in await store.load_calls(query) if is_shown(one, principal)]
        rows.sort(key=_get_start)
        return [
            models.RunCall(
                **_to_call_entry(one).model_dump(),
                start_ms=round((_get_start(one) - _get_start(rows[0])) * 1_000, 1),
            )
            for one in rows
        ]

    def is_shown(row: CallRow, principal: Principal) -> bool:
        """Return whether somebody may know of a call: who administers of each, whatever the rules
        say now; others of their own that were allowed, and of those of tools that they see."""
        if can_administer(principal) or (row.ok and row.person == principal.id):
            return True
        return not profile_state.hides_tool(f"{row.server}.{row.tool}")

    @router.get("/calls", response_model=models.CallList, summary="The latest calls")
    async def list_calls(request: Request, params: Annotated[CallFilters, Query()]) -> Response:
        """Which tool, by whom, when, how long and with which outcome. Arguments and results are
        not stored. Who administers the gateway sees every call, others no calls of tools that are
        hidden from them now, but for their own successful ones."""
        principal = get_principal(request)
        server, tool = _split_tool_address(params.server, params.tool)
        limit = params.limit
        rows = await store.load_calls(
            CallQuery(
                limit=limit + 1,
                before=params.before,
                server=server,
                tool=tool,
                ok=params.ok,
                client=params.client,
                person=params.person,
                since=params.since,
                until=params.until,
            )
        )
        shown = [row for row in rows[:limit] if is_shown(row, principal)]
        body = models.CallList(calls=list(map(_to_call_entry, shown)))
        if len(rows) > limit:
            query = params.model_dump(exclude={"before"})
            if params.ok is not None:
                query["ok"] = str(params.ok).lower()
            query["before"] = rows[limit - 1].id
            body.next = PagedList(f"{V1}/calls", "", query).url
        return make_uncached_response(body)

    @router.get(
        "/calls/refused", response_model=models.RefusedCallList, summary="Calls that were refused"
    )
    async def list_refused_calls(request: Request, _: Annotated[NoParams, Query()]) -> Response:
        """The latest calls that were refused before their tool was run: unknown names, arguments
        that do not fit, servers that cannot be used, calls that wait for approval or that a rule
        denies. Kept in memory, until the gateway restarts."""
        principal = request.scope.get(PRINCIPAL_KEY, LOCAL_USER)
        shown = [
            one
            for one in services.failed_calls.list_refused()
            if not profile_state.hides_tool(one.tool)
            # A key of certain profiles sees its own calls.
            and (not principal.profiles or one.caller.principal.id == principal.id)
        ]
        return make_uncached_response(
            models.RefusedCallList(calls=[_to_refused_call(one) for one in shown])
        )

    @router.get(
        "/calls/{call_id}",
        response_model=models.CallDetails,
        summary="A call in full",
        responses=NOT_FOUND_RESPONSE,
    )
    async def get_call(
        request: Request,
        call_id: Annotated[int, Path(ge=1, le=2**62, description="Its `id` in the list.")],
        _: Annotated[NoParams, Query()],
    ) -> Response:
        """Where its time went, and its line of the audit log: the arguments as
        `audit.arguments` keeps them, a keyed hash or redacted. Results are kept nowhere."""
        principal = get_principal(request)
        rows = await store.load_calls(CallQuery(limit=1, before=call_id + 1))
        if not rows or rows[0].id != call_id or not is_shown(rows[0], principal):
            raise UnknownName(
                f"there is no call {call_id} on record", advice=f"GET {V1}/calls lists them."
            )
        row = rows[0]
        audit: Mapping[str, Any] = {}
        place = services.audit_file
        if row.call_id and place is not None:
            audit = await asyncio.to_thread(_find_audit_line, *place, row.call_id)
        entry = _to_call_entry(row).model_dump()
        details = models.CallDetails(**entry, hash=row.tool_hash, stages=_parse_stages(row.stages))
        failed = services.failed_calls.find(row.call_id) if row.call_id else None
        if failed is not None:
            details.message = sanitize_text(failed.render_message())
        details.run = await load_run(row, principal)
        details.audit = {key: audit[key] for key in _AUDIT_FIELDS if key in audit}
        return make_uncached_response(details)

    @router.post(
        "/calls",
        response_model=models.CallAnswer,
        summary="Call a tool",
        responses={
            **NOT_FOUND_RESPONSE,
            413: {"description": "The body is too large."},
            415: {"description": "The body is not said to be JSON."},
        },
        openapi_extra=describe_json_body(models.CallRequest),
    )
    async def call_tool(request: Request, _: Annotated[NoParams, Query()]) -> Response:
        """Runs a tool as over MCP: with the caller's rights, the same checks, limits and records.

        A failure of the tool is an answer with `ok: false`, whose result says why.
        """
        wanted = await read_json_body(request, models.CallRequest)
        if services.run_tool is None:
            raise PorticoError("no tool can be called here")
        caller = Caller(
            name="console" if _CONSOLE_HEADER in request.headers else "rest",
            principal=get_principal(request),
        )
        call_id = make_call_id()
        started = time.perf_counter()
        result = await services.run_tool(wanted.tool, wanted.arguments, caller, call_id)
        ms = round((time.perf_counter() - started) * 1_000, 1)
        is_ok = not result.get("isError")
        return make_uncached_response({"call": call_id, "ok": is_ok, "ms": ms, "result": result})

    return router


def get_principal(request: Request) -> Principal:
    return request.scope.get(PRINCIPAL_KEY, LOCAL_USER)


def _get_start(row: CallRow) -> float:
    """Return when a call began; it is recorded when it ends."""
    return row.at - row.ms / 1_000


def _split_tool_address(server: str | None, tool: str | None) -> tuple[str | None, str | None]:
    """Split a tool's address as stored calls have it.

    Nothing is looked up, because the calls of removed tools are stored too.
    """
    if tool is not None and server is None and "." in tool:
        server, _, tool = tool.partition(".")
    elif tool is not None and server is not None:
        tool = tool.removeprefix(f"{server}.")
    return server, tool


def _to_call_entry(row: CallRow) -> models.CallEntry:
    return models.CallEntry(
        id=row.id,
        at=to_iso_time(row.at),
        tool=sanitize_text(f"{row.server}.{row.tool}"),
        ok=row.ok,
        ms=round(row.ms, 1),
        cancelled=row.cancelled or None,
        client=sanitize_text(row.client),
        profile=row.profile,
        person=sanitize_text(row.person),
        via=row.via,
        error=row.error,
        call=row.call_id,
    )


def _to_refused_call(failed: FailedCall) -> models.RefusedCall:
    return models.RefusedCall(
        call=failed.call_id,
        at=to_iso_time(failed.at),
        tool=sanitize_text(failed.tool),
        error=failed.error,
        message=sanitize_text(failed.render_message()),
        client=sanitize_text(failed.caller.name),
        profile=failed.caller.profile,
        person=sanitize_text(failed.caller.principal.id),
        via=failed.via,
    )


def _parse_stages(text: str) -> list[models.StageTime]:
    milliseconds = [float(part) for part in text.split()]
    return [
        models.StageTime(stage=stage, ms=ms)
        for stage, ms in zip(CallStages._fields, milliseconds, strict=False)
    ]


def _find_audit_line(path: FilePath, files: int, call_id: str) -> Mapping[str, Any]:
    """Return the line of a call; empty if it is not among the latest. Blocks."""
    wanted = f'"id":"{call_id}"'.encode()
    try:
        for line in islice(iter_lines_backwards(path, files), MAX_AUDIT_LINES):
            if wanted in line:
                found = parse_line(line)
                if found.get("id") == call_id:
                    return found
    except OSError:
        return {}
    return {}
