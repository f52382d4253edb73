"""The one route that does something: it starts a server anew, at once and whatever it did before."""

import time
from collections.abc import Callable, Mapping
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from portico.api import models
from portico.api.bodies import fresh
from portico.api.params import Name, Nothing
from portico.api.problems import problem
from portico.api.tools import MISSING
from portico.disclosure.answer import unsecret
from portico.disclosure.cards import Card, iso
from portico.disclosure.sight import Sight
from portico.errors import BackendUnavailable, UnknownName
from portico.observability.audit import Audit, Called
from portico.upstream.supervisor import Upstream


def restart_routes(sight: Sight, upstreams: Mapping[str, Upstream], audit: Callable[[], Audit | None]) -> APIRouter:
    """`POST /servers/{name}/restart`."""
    router = APIRouter()

    @router.post(
        "/servers/{name}/restart",
        response_model=models.Restarted,
        summary="Start a server anew",
        tags=["servers"],
        responses={
            **MISSING,
            415: {"description": "Neither a token nor `Content-Type: application/json` was sent."},
            503: {"description": "It could not be started: why, and what it wrote last."},
        },
    )
    async def restart(request: Request, name: Name, _: Annotated[Nothing, Query()]) -> Response:
        """Ends a quarantine too. Calls under way end on the old one; new ones go to the new one. Takes no body.

        Without a token, send `Content-Type: application/json`: no page of another origin can.
        """
        if _could_be_a_form(request):
            advice = "Send Content-Type: application/json."
            return problem(415, "the request does not say that it is JSON", advice=advice)
        entry = sight.snapshot.server(name)
        upstream = upstreams.get(entry.name)
        if upstream is None:
            raise UnknownName(f"there is no server {entry.name} that could be started anew here")
        outcome = "ok"
        started = time.perf_counter()
        try:
            await upstream.restart()
        except BackendUnavailable as error:
            outcome = error.kind
            status = upstream.status()
            return problem(
                503,
                unsecret(error.message),
                kind=error.kind,
                advice=unsecret(error.advice),
                stderr=[unsecret(line) for line in status.stderr],
            )
        finally:
            if (log := audit()) is not None:
                seconds = time.perf_counter() - started
                restarted = Called("", "", None, outcome, way="rest", seconds=seconds)
                log.write(restarted._replace(method="restart", server=entry.name))
        status = upstream.status()
        body: Card = {
            "server": entry.name,
            "state": status.state,
            "since": iso(status.since),
            "restarts": status.restarts,
        }
        return fresh(body)

    return router


def _could_be_a_form(request: Request) -> bool:
    """Whether a page of another origin could send this request without asking for leave."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    has_token = request.headers.get("authorization", "").lower().startswith("bearer ")
    return kind != "application/json" and not has_token
