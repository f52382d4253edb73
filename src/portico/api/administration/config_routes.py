"""Routes that change the configuration's file: shown as a difference first, then written."""

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from portico.api.gateway_services import ConfigEditing, GatewayServices
from portico.api.json_body import describe_json_body, read_json_body
from portico.api.models import ApiModel, optional
from portico.api.params import NoParams
from portico.api.responses import InvalidRequest, make_uncached_response
from portico.api.tool_routes import NOT_FOUND_RESPONSE
from portico.callers import LOCAL_USER, PRINCIPAL_KEY, Caller
from portico.config_file.config_changes import ConfigDifference, RequestedChange
from portico.errors import PorticoError, UnknownName
from portico.observability.audit import AuditEntry

_RESPONSES: dict[int | str, dict[str, Any]] = {
    **NOT_FOUND_RESPONSE,
    413: {"description": "The body is too large."},
    415: {"description": "The body is not said to be JSON."},
}
Seen = Annotated[
    str,
    Field(
        max_length=64,
        description="`seen` of the difference that was looked at: then exactly that is written."
        " Without it, nothing is.",
    ),
]


class ConfigChangeRequest(ApiModel):
    """One change."""

    kind: Literal["set", "reset", "enable", "disable", "add_rule", "remove_rule"]
    key: str = Field(default="", max_length=400, description="Dotted, of `set` and `reset`.")
    value: Any = Field(default=None, description="Of `set`.")
    server: str = Field(default="", max_length=100, description="Of `enable` and `disable`.")
    rule: dict[str, Any] | None = Field(default=None, description="Of `add_rule`.")
    position: int = Field(default=0, ge=0, le=1_000, description="Its place among the rules.")
    seen: Seen = ""


class UndoRequest(ApiModel):
    """Undoing the last change."""

    seen: Seen = ""


class ConfigDifferenceBody(ApiModel):
    """What a change does to the file."""

    file: str
    diff: list[str] = Field(description="Unified, one line each; secrets are masked.")
    changes: bool = Field(description="Whether anything differs.")
    seen: str = Field(description="Stands for exactly this change.")
    written: bool
    undoes: str = optional("", "The change that is undone.")


def config_routes(services: GatewayServices) -> APIRouter:
    """Build the routes `/config/changes` and `/config/undo`."""
    router = APIRouter(tags=["administration"])

    async def run(
        request: Request, method: str, work: Callable[[ConfigEditing], ConfigDifference]
    ) -> Response:
        editing = services.config_editing
        if editing is None:
            raise InvalidRequest(PorticoError("this gateway has no configuration file"))
        try:
            found = await asyncio.to_thread(work, editing)
        except UnknownName:
            raise
        except PorticoError as error:
            raise InvalidRequest(error) from error
        if found.is_written and (log := services.get_audit()) is not None:
            principal = request.scope.get(PRINCIPAL_KEY, LOCAL_USER)
            entry = AuditEntry(found.file, "", None, "ok", Caller(name="rest", principal=principal))
            log.write(entry._replace(method=f"config/{method}", via="rest"))
        return make_uncached_response(
            ConfigDifferenceBody(
                file=found.file,
                diff=list(found.diff),
                changes=found.has_changes,
                seen=found.seen,
                written=found.is_written,
                undoes=found.undoes,
            )
        )

    @router.post(
        "/config/changes",
        response_model=ConfigDifferenceBody,
        summary="Change the configuration",
        responses=_RESPONSES,
        openapi_extra=describe_json_body(ConfigChangeRequest),
    )
    async def change_config(request: Request, _: Annotated[NoParams, Query()]) -> Response:
        """Shows what a change does to the file, and writes it when `seen` names that difference.

        Comments and order of the file stay, the result is checked before it is written, and
        `/config/undo` or `portico undo` undoes it. Commands, secrets, addresses, sign-ins and the
        audit log are not changed from here. For the user of this machine alone.
        """
        wanted = await read_json_body(request, ConfigChangeRequest)
        change = RequestedChange(**wanted.model_dump(exclude={"seen"}))
        return await run(request, wanted.kind, lambda editing: editing.change(change, wanted.seen))

    @router.post(
        "/config/undo",
        response_model=ConfigDifferenceBody,
        summary="Undo the last change",
        responses=_RESPONSES,
        openapi_extra=describe_json_body(UndoRequest),
    )
    async def undo_change(request: Request, _: Annotated[NoParams, Query()]) -> Response:
        """Shows what undoing the last change of a command or of this API does, and does it when
        `seen` names that difference."""
        wanted = await read_json_body(request, UndoRequest)
        return await run(request, "undo", lambda editing: editing.undo(wanted.seen))

    return router
