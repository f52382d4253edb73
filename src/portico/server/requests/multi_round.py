"""Multi-round requests of the modern era: elicitations of a server out, the client's answers in.

The elicitations of a modern server are passed on, and its own state is signed into the
`requestState` that the client carries, with the handle of the instance if one was issued. For a
legacy server, and for what a script or workflow calls, the task waits here until the client comes
back.
"""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from mcp.server.context import ServerRequestContext

from portico.access import Caller
from portico.calls.elicitation import parse_input_requests
from portico.profiles.state_handles import add_handle, take_handle
from portico.server.requests.client_relay import ClientRelay
from portico.server.requests.elicitation import (
    find_missing_capability,
    list_input_requests,
    make_missing_capability_error,
)
from portico.server.requests.pending_requests import PendingRequests
from portico.server.requests.request_task import RequestTask
from portico.server.requests.state_signer import compute_binding
from portico.upstream.backend import Raw
from portico.upstream.protocol.envelope import INPUT_RESPONSES, REQUEST_STATE

Work = Callable[[Raw], Coroutine[Any, Any, Mapping[str, Any]]]


async def handle_multi_round(
    pending_requests: PendingRequests,
    ctx: ServerRequestContext[Any, Any],
    params: Raw,
    caller: Caller,
    relay: ClientRelay,
    work: Work,
) -> Mapping[str, Any]:
    """Answer one request with the result of `work` on its params, or with an elicitation.

    Raises RemoteError if its `requestState` was not issued to this caller for this request.
    """

    def make_binding() -> bytes:
        return compute_binding(caller, ctx.method, params)

    handle = ""

    async def run_and_sign(work_params: Raw) -> Mapping[str, Any]:
        result = await work(work_params)
        if result.get("resultType") != "input_required":
            return result
        for method, request_params in list_input_requests(result):
            if missing := find_missing_capability(relay.capabilities, method, request_params):
                raise make_missing_capability_error(missing)
        parse_input_requests(result)
        if (state := result.get(REQUEST_STATE)) is None:
            return result
        value = f"{take_handle(result)[0] or handle}\n{state}"
        signed = pending_requests.signer.sign("wrapped", value, make_binding())
        return {**result, REQUEST_STATE: signed}

    unwrapped = params
    if (state := params.get(REQUEST_STATE)) is not None:
        verified = pending_requests.signer.verify(state, make_binding())
        if verified.kind == "parked":
            return await pending_requests.resume(
                verified.value, params.get(INPUT_RESPONSES), ctx, make_binding
            )
        handle, _, state = verified.value.partition("\n")
        unwrapped = {**params, REQUEST_STATE: state}
        if handle:
            unwrapped = add_handle(unwrapped, handle)
    if not relay.capabilities:
        # Without elicitation nothing has to outlive this request.
        return await run_and_sign(unwrapped)
    return await pending_requests.run(
        RequestTask(relay, run_and_sign(unwrapped), pending_requests.elicitation_timeout_s),
        caller.owner,
        make_binding,
    )
