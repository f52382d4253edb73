"""Routes of what servers say differently than when they were trusted, for who may administer."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from portico.api.gateway_services import GatewayServices
from portico.api.json_body import describe_json_body, read_json_body
from portico.api.models import ApiModel, optional
from portico.api.params import NameInPath, NoParams
from portico.api.responses import InvalidRequest, make_uncached_response
from portico.api.tool_routes import NOT_FOUND_RESPONSE
from portico.callers import LOCAL_USER, PRINCIPAL_KEY, Caller
from portico.catalog.scan_findings import list_open_points
from portico.errors import PorticoError
from portico.observability.audit import AuditEntry
from portico.profiles.json_objects import to_iso_time
from portico.profiles.profile_state import ProfileState
from portico.rendering.definition_changes import make_change_object

MAX_SERVERS = 1_000


class FieldDifference(ApiModel):
    """A field that differs, as text; a field that is new or gone is empty on one side."""

    path: str
    before: str = ""
    after: str = ""
    harmless: bool = False


class SuspiciousText(ApiModel):
    """What the scan has found in a definition."""

    meaning: str = Field(description="What the text seems to do, such as `claims consent`.")
    path: str = optional("", "Where it stands.")
    excerpt: str = optional("", "The words.")


class OpenPoint(ApiModel):
    """A tool, prompt, template or server that says something else than what was trusted, or
    something that the scan finds suspicious."""

    kind: str = Field(description="`tool`, `prompt`, `template` or `server`.")
    name: str = Field(description="The server's own name of it; empty for the server itself.")
    digest: str = Field(description="Stands for what is said now; trusting it names this.")
    held: bool = Field(description="Whether it is held back until somebody has looked.")
    notes: list[str] = optional([], "What differs, in short.")
    renamed_from: str = optional("", "The tool that it was, where its name is new.")
    findings: list[SuspiciousText] = optional([], "What the scan has found in it.")
    fields: list[FieldDifference] = optional([], "Every field that differs.")


class ChangedServer(ApiModel):
    """A server with changes that nobody has looked at."""

    server: str
    changes: list[OpenPoint]


class CheckedServer(ApiModel):
    """A server, and when what it says was last compared."""

    server: str
    listed: str | None = optional(None, "When it was last listed; left out while it never was.")


class ChangeList(ApiModel):
    """Servers that say something else than what was trusted."""

    servers: list[ChangedServer]
    checked: list[CheckedServer] = optional([], "All servers, and when each was last listed.")


class TrustRequest(ApiModel):
    """What was looked at."""

    digests: list[Annotated[str, Field(max_length=128)]] = Field(min_length=1, max_length=20_000)


class TrustedChanges(ApiModel):
    """What is trusted from now on."""

    trusted: list[str]


def change_routes(profile_state: ProfileState, services: GatewayServices) -> APIRouter:
    """Build the routes `/changes` and `/changes/{name}`."""
    router = APIRouter(tags=["administration"])

    @router.get("/changes", response_model=ChangeList, summary="What servers say differently")
    async def list_changes(_: Annotated[NoParams, Query()]) -> Response:
        """Definitions, instructions, prompts and templates that changed since they were trusted,
        field by field, and those with suspicious texts. What is held back cannot be used."""

        def build() -> ChangeList:
            servers = [
                ChangedServer(
                    server=name,
                    changes=[OpenPoint(**make_change_object(one)) for one in points],
                )
                for name, entry in sorted(snapshot.servers.items())
                if (points := list_open_points(snapshot, entry))
            ]
            checked = [
                CheckedServer(
                    server=name, listed=to_iso_time(entry.listed_at) if entry.is_listed else None
                )
                for name, entry in sorted(snapshot.servers.items())
            ]
            return ChangeList(servers=servers[:MAX_SERVERS], checked=checked[:MAX_SERVERS])

        snapshot = profile_state.snapshot
        return make_uncached_response(await asyncio.to_thread(build))

    @router.post(
        "/changes/{name}",
        response_model=TrustedChanges,
        summary="Trust what was looked at",
        responses={
            **NOT_FOUND_RESPONSE,
            413: {"description": "The body is too large."},
            415: {"description": "The body is not said to be JSON."},
        },
        openapi_extra=describe_json_body(TrustRequest),
    )
    async def trust_changes(
        request: Request, name: NameInPath, _: Annotated[NoParams, Query()]
    ) -> Response:
        """Names the changes by their digests, so that nothing is trusted which came after the
        look."""
        wanted = await read_json_body(request, TrustRequest)
        snapshot = profile_state.snapshot
        entry = snapshot.resolve_server(name)
        points = await asyncio.to_thread(list_open_points, snapshot, entry)
        digests = set(wanted.digests)
        chosen = [change for change in points if change.digest in digests]
        if len({change.digest for change in chosen}) < len(digests):
            problem = PorticoError(
                f"{entry.name} says something else by now, or was not asked about that",
                advice="GET /api/v1/changes shows what it says now.",
            )
            raise InvalidRequest(problem)
        principal = request.scope.get(PRINCIPAL_KEY, LOCAL_USER)
        await services.trust(entry.name, chosen, principal.id)
        if (log := services.get_audit()) is not None:
            written = AuditEntry("", "", None, "ok", Caller(name="rest", principal=principal))
            log.write(written._replace(method="trust", server=entry.name, via="rest"))
        return make_uncached_response(TrustedChanges(trusted=[change.digest for change in chosen]))

    return router
