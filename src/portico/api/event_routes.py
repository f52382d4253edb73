"""The route of the event stream."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from starlette.responses import StreamingResponse

from portico.api.event_feed import EventListener
from portico.api.gateway_services import GatewayServices
from portico.api.params import NoParams
from portico.api.responses import NO_STORE
from portico.auth.permissions import can_administer
from portico.callers import LOCAL_USER, PRINCIPAL_KEY, Principal
from portico.profiles.profile_state import ProfileState

IS_HEAD_KEY = "portico.is_head"
"""Key in the ASGI scope: the request is a HEAD, answered as a GET without its body."""
MEDIA_TYPE = "text/event-stream"


def event_routes(profile_state: ProfileState, services: GatewayServices) -> APIRouter:
    """Build the route `/events`."""
    router = APIRouter(tags=["events"])

    @router.get(
        "/events",
        summary="What happens, as it happens",
        response_class=StreamingResponse,
        responses={
            200: {
                "content": {MEDIA_TYPE: {"schema": {"type": "string"}}},
                "description": "Server-sent events.",
            }
        },
    )
    async def stream_events(request: Request, _: Annotated[NoParams, Query()]) -> Response:
        """Server-sent events: `call_started`, `call_ended`, `call_refused`, `approval_requested`,
        `approval_decided`, `server` (its state), `sign_in`, `catalog`, `ledger` and `config`. The
        first one is `hello`: with `missed`, what was shown before has to be read again.

        With `Last-Event-ID` the stream goes on after that event, if it is one of the latest
        2,048. On a busy gateway `skipped` says how many events of calls were left out. A listener
        that does not read gets `lagged` and the stream ends. A key of certain profiles sees its
        own calls, and the servers of its profile.
        """
        headers = {"Cache-Control": NO_STORE, "X-Accel-Buffering": "no"}
        if request.scope.get(IS_HEAD_KEY):
            return Response(headers=headers, media_type=MEDIA_TYPE)
        principal: Principal = request.scope.get(PRINCIPAL_KEY, LOCAL_USER)
        listener = EventListener(
            principal,
            partial(is_server_visible, profile_state, principal),
            partial(services.accepts, request.scope),
            partial(services.is_behind, request.scope),
            _hides_nothing if can_administer(principal) else profile_state.hides_tool,
        )
        services.feed.reserve(principal.id)
        body = services.feed.stream(
            principal.id, listener, request.headers.get("last-event-id", "")[:64]
        )
        return StreamingResponse(body, headers=headers, media_type=MEDIA_TYPE)

    return router


def _hides_nothing(tool: str) -> bool:
    return False


def is_server_visible(profile_state: ProfileState, principal: Principal, server: str) -> bool:
    """Return whether a principal may know of a server: a key of certain profiles of theirs only."""
    if principal.profiles:
        return server in profile_state.snapshot.servers
    return not profile_state.hides_server(server)
