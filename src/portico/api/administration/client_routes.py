"""Routes of the clients of this machine: what their files would have, written or taken out."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from portico.api.administration.config_routes import Seen
from portico.api.gateway_services import ClientCard, GatewayServices
from portico.api.json_body import describe_json_body, read_json_body
from portico.api.models import ApiModel, optional
from portico.api.params import NameInPath, NoParams
from portico.api.responses import InvalidRequest, make_uncached_response
from portico.api.tool_routes import NOT_FOUND_RESPONSE
from portico.callers import LOCAL_USER, PRINCIPAL_KEY, Caller
from portico.errors import PorticoError, UnknownName
from portico.observability.audit import AuditEntry


class ClientDescription(ApiModel):
    """A client, and how it is pointed at the gateway."""

    name: str
    title: str
    file: str
    here: bool = Field(description="Whether its file or folder exists.")
    installed: bool
    entry: dict[str, Any] = Field(description="In its file, where it starts Portico itself.")
    url_entry: dict[str, Any] = optional({}, "In its file, where it connects over HTTP.")
    url_advice: str = ""
    reload_advice: str = ""
    problem: str = optional("", "Why nothing can be written.")


class ClientList(ApiModel):
    """The clients that are known."""

    url: str = Field(description="Of this gateway, as the request reached it.")
    clients: list[ClientDescription]


class ClientChangeRequest(ApiModel):
    """What to do with a client's file."""

    remove: bool = Field(default=False, description="Take the gateway out again.")
    seen: Seen = ""


class ClientDifferenceBody(ApiModel):
    """What a change does to a client's file."""

    file: str
    diff: list[str] = Field(description="Unified, one line each; secrets are masked.")
    changes: bool
    seen: str = Field(description="Stands for exactly this change.")
    written: bool
    remarks: list[str] = optional([], "What the person should know.")
    advice: str = optional("", "How the client reads its file again.")
    backup: str = optional("", "Where the file is kept as it was; left out where it was new.")


def client_routes(services: GatewayServices) -> APIRouter:
    """Build the routes `/clients`."""
    router = APIRouter(tags=["administration"])

    @router.get("/clients", response_model=ClientList, summary="Clients of this machine")
    async def list_clients(request: Request, _: Annotated[NoParams, Query()]) -> Response:
        """What each client's file would have, and whether it has. For the user of this machine
        alone."""
        url = f"{str(request.base_url).rstrip('/')}/mcp"
        found: list[ClientCard] = []
        if services.clients is not None:
            found = await asyncio.to_thread(services.clients.list_clients, url)
        cards = [_to_description(card) for card in found]
        return make_uncached_response(ClientList(url=url, clients=cards))

    @router.post(
        "/clients/{name}",
        response_model=ClientDifferenceBody,
        summary="Connect a client",
        responses={
            **NOT_FOUND_RESPONSE,
            413: {"description": "The body is too large."},
            415: {"description": "The body is not said to be JSON."},
        },
        openapi_extra=describe_json_body(ClientChangeRequest),
    )
    async def change_client(
        request: Request, name: NameInPath, _: Annotated[NoParams, Query()]
    ) -> Response:
        """Shows what `portico install` would write into a client's file, or `uninstall` take out,
        and does it when `seen` names that difference. A backup is kept."""
        wanted = await read_json_body(request, ClientChangeRequest)
        if services.clients is None:
            raise InvalidRequest(PorticoError("this gateway installs itself in no client"))
        try:
            found = await asyncio.to_thread(
                services.clients.change, name, remove=wanted.remove, seen=wanted.seen
            )
        except UnknownName:
            raise
        except PorticoError as error:
            raise InvalidRequest(error) from error
        if found.is_written and (log := services.get_audit()) is not None:
            principal = request.scope.get(PRINCIPAL_KEY, LOCAL_USER)
            entry = AuditEntry(found.file, "", None, "ok", Caller(name="rest", principal=principal))
            method = "clients/uninstall" if wanted.remove else "clients/install"
            log.write(entry._replace(method=method, via="rest"))
        return make_uncached_response(
            ClientDifferenceBody(
                file=found.file,
                diff=list(found.diff),
                changes=found.has_changes,
                seen=found.seen,
                written=found.is_written,
                remarks=list(found.remarks),
                advice=found.advice,
                backup=found.backup,
            )
        )

    return router


def _to_description(card: ClientCard) -> ClientDescription:
    return ClientDescription(
        name=card.name,
        title=card.title,
        file=card.file,
        here=card.is_here,
        installed=card.is_installed,
        entry=dict(card.entry),
        url_entry=dict(card.url_entry),
        url_advice=card.url_advice,
        reload_advice=card.reload_advice,
        problem=card.problem,
    )
