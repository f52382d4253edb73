"""Routes of signing in to remote servers, for who may administer the gateway."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from portico.api.gateway_services import GatewayServices
from portico.api.json_body import describe_json_body, read_json_body
from portico.api.models import ApiModel, optional
from portico.api.params import NameInPath, NoParams
from portico.api.responses import InvalidRequest, make_uncached_response
from portico.api.tool_routes import NOT_FOUND_RESPONSE
from portico.callers import LOCAL_USER, PRINCIPAL_KEY, Principal
from portico.catalog.tool import sanitize_text
from portico.errors import PorticoError
from portico.profiles.json_objects import to_iso_time
from portico.profiles.profile_state import ProfileState
from portico.rendering.tool_result import mask_secrets
from portico.upstream.oauth.sign_in_service import SignInStatus

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class NoBody(ApiModel):
    """An empty object."""


class ServerSignIn(ApiModel):
    """How far the sign-in to a server is that was begun here."""

    server: str
    state: Literal["none", "waiting", "done", "failed"]
    url: str = optional("", "Where to sign in, within ten minutes.")
    problem: str = optional("", "Why it failed.")
    advice: str = optional("", "What to do about it.")
    at: str = optional("", "When it came to this.")


def sign_in_routes(profile_state: ProfileState, services: GatewayServices) -> APIRouter:
    """Build the routes `/servers/{name}/sign-in`."""
    router = APIRouter(tags=["administration"])

    def get_person(request: Request) -> str:
        principal: Principal = request.scope.get(PRINCIPAL_KEY, LOCAL_USER)
        return principal.id

    @router.get(
        "/servers/{name}/sign-in",
        response_model=ServerSignIn,
        summary="How far a sign-in is",
        responses=NOT_FOUND_RESPONSE,
    )
    async def get_sign_in(
        request: Request, name: NameInPath, _: Annotated[NoParams, Query()]
    ) -> Response:
        """Of the sign-in that the caller began last; `sign_in` events say when to look."""
        server = profile_state.snapshot.resolve_server(name).name
        status = SignInStatus(server)
        if services.sign_ins is not None:
            status = services.sign_ins.get_status(server, get_person(request))
        return make_uncached_response(_to_body(status))

    @router.post(
        "/servers/{name}/sign-in",
        response_model=ServerSignIn,
        summary="Sign in to a server",
        responses={
            **NOT_FOUND_RESPONSE,
            415: {"description": "The body is not said to be JSON."},
            503: {"description": "The server or its authorization server cannot be asked."},
        },
        openapi_extra=describe_json_body(NoBody),
    )
    async def begin_sign_in(
        request: Request, name: NameInPath, _: Annotated[NoParams, Query()]
    ) -> Response:
        """Returns the address to open in a browser on the gateway's machine: what it brings back
        arrives there. Elsewhere `portico login NAME --paste` does it. The body is `{}`."""
        await read_json_body(request, NoBody)
        server = profile_state.snapshot.resolve_server(name).name
        person = get_person(request)
        target = services.find_sign_in_target(server, person)
        problem = None
        if services.sign_ins is None or target is None:
            problem = f"{server} is not signed in to with OAuth"
        elif target.is_machine:
            problem = f"{server} is signed in to by Portico itself"
        elif request.url.hostname not in _LOOPBACK:
            problem = "a browser elsewhere cannot bring the sign-in back to this machine"
        if problem is not None or services.sign_ins is None or target is None:
            advice = f"On the gateway's machine: portico login {server}"
            raise InvalidRequest(PorticoError(problem or "", advice=advice))
        return make_uncached_response(_to_body(await services.sign_ins.begin(target, person)))

    return router


def _to_body(status: SignInStatus) -> ServerSignIn:
    return ServerSignIn(
        server=status.server,
        state=status.state,
        url=status.url,
        problem=sanitize_text(mask_secrets(status.problem)),
        advice=sanitize_text(mask_secrets(status.advice)),
        at=to_iso_time(status.at) if status.at else "",
    )
