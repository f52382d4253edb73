"""The only route that changes something: it restarts a server at once, whatever its state."""

import time
from collections.abc import Callable, Mapping
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from portico.api import models
from portico.api.params import NameInPath, NoParams
from portico.api.problems import make_problem_response
from portico.api.response_cache import make_uncached_response
from portico.api.tool_routes import NOT_FOUND_RESPONSE
from portico.errors import BackendUnavailable, UnknownName
from portico.observability.audit import AuditEntry, AuditLog
from portico.profiles.cards import Card, to_iso_time
from portico.profiles.profile_state import ProfileState
from portico.rendering.tool_result import mask_secrets
from portico.upstream.lifecycle.supervisor import Upstream


def restart_routes(
    profile_state: ProfileState,
    upstreams: Mapping[str, Upstream],
    audit: Callable[[], AuditLog | None],
) -> APIRouter:
    """Build the route `POST /servers/{name}/restart`."""
    router = APIRouter()

    @router.post(
        "/servers/{name}/restart",
        response_model=models.ServerRestart,
        summary="Start a server anew",
        tags=["servers"],
        responses={
            **NOT_FOUND_RESPONSE,
            415: {"description": "Neither a token nor `Content-Type: application/json` was sent."},
            503: {"description": "It could not be started: why, and what it wrote last."},
        },
    )
    async def restart_server(
        request: Request, name: NameInPath, _: Annotated[NoParams, Query()]
    ) -> Response:
        """Ends a quarantine too. Calls under way end on the old one; new ones go to the new one.
        Takes no body.

        Without a token, send `Content-Type: application/json`: no page of another origin can.
        """
        if _is_possible_form_post(request):
            advice = "Send Content-Type: application/json."
            return make_problem_response(
                415, "the request does not say that it is JSON", advice=advice
            )
        entry = profile_state.snapshot.resolve_server(name)
        upstream = upstreams.get(entry.name)
        if upstream is None:
            raise UnknownName(f"there is no server {entry.name} that could be started anew here")
        outcome = "ok"
        started = time.perf_counter()
        try:
            await upstream.restart()
        except BackendUnavailable as error:
            outcome = error.kind
            status = upstream.get_status()
            return make_problem_response(
                503,
                mask_secrets(error.message),
                kind=error.kind,
                advice=mask_secrets(error.advice),
                stderr=[mask_secrets(line) for line in status.stderr],
            )
        finally:
            if (log := audit()) is not None:
                seconds = time.perf_counter() - started
                restarted = AuditEntry("", "", None, outcome, via="rest", seconds=seconds)
                log.write(restarted._replace(method="restart", server=entry.name))
        status = upstream.get_status()
        body: Card = {
            "server": entry.name,
            "state": status.state,
            "since": to_iso_time(status.state_since),
            "restarts": status.restarts,
        }
        return make_uncached_response(body)

    return router


def _is_possible_form_post(request: Request) -> bool:
    """Return whether a page of another origin could send this request without a CORS preflight."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    has_token = request.headers.get("authorization", "").lower().startswith("bearer ")
    return media_type != "application/json" and not has_token
