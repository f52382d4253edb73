"""Routes of approvals: calls that wait for a person, and the decision."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from portico.api.approval_models import ApprovalCard, ApprovalDecision, ApprovalList
from portico.api.gateway_services import GatewayServices
from portico.api.json_body import describe_json_body, read_json_body
from portico.api.params import NoParams
from portico.api.responses import make_uncached_response
from portico.api.tool_routes import NOT_FOUND_RESPONSE
from portico.callers import LOCAL_USER, PRINCIPAL_KEY, Principal
from portico.calls.approval_request import APPROVE, to_json
from portico.calls.approvals import Approvals
from portico.errors import PorticoError

ApprovalId = Annotated[str, Path(max_length=40, description="Id of the approval.")]


def approval_routes(services: GatewayServices) -> APIRouter:
    """Build the routes `/approvals`."""
    router = APIRouter(tags=["approvals"])

    def get_approvals() -> Approvals:
        if services.approvals is None:
            raise PorticoError("this gateway keeps no approvals")
        return services.approvals

    @router.get("/approvals", response_model=ApprovalList, summary="Calls that wait for a person")
    async def list_approvals(request: Request, _: Annotated[NoParams, Query()]) -> Response:
        """Requests for approval, and decisions, that have not expired. For those who may approve:
        not for holders of keys that are read-only or for certain profiles."""
        rows = []
        if services.approvals is not None:
            rows = await services.approvals.list_for(_get_principal(request))
        cards = [ApprovalCard.model_validate(to_json(row)) for row in rows]
        return make_uncached_response(ApprovalList(approvals=cards))

    @router.post(
        "/approvals/{id}",
        response_model=ApprovalCard,
        summary="Approve or deny a call",
        responses={
            **NOT_FOUND_RESPONSE,
            409: {"description": "It was decided before."},
            413: {"description": "The body is too large."},
            415: {"description": "The body is not said to be JSON."},
        },
        openapi_extra=describe_json_body(ApprovalDecision),
    )
    async def decide(request: Request, id: ApprovalId, _: Annotated[NoParams, Query()]) -> Response:
        """An approved call runs once, with exactly these arguments, for the caller that asked."""
        wanted = await read_json_body(request, ApprovalDecision)
        row = await get_approvals().decide(
            id,
            approve=wanted.decision == APPROVE,
            principal=_get_principal(request),
            via="rest",
            reason=wanted.reason,
        )
        return make_uncached_response(ApprovalCard.model_validate(to_json(row)))

    return router


def _get_principal(request: Request) -> Principal:
    return request.scope.get(PRINCIPAL_KEY, LOCAL_USER)
