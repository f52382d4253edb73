"""Requests of the modern era that may take several rounds: a server's questions out, the client's
answers in.

A server of the same era has its questions passed on, and its own state sealed in what the client
carries, with the handle of the instance that asked where one was issued. For a server of the
handshake era, and for what a script or workflow calls, the work waits here until the client comes
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
    """Answer one request: with what `work` on its params comes to, or with what its client has to
    be asked first.

    Raises RemoteError where its `requestState` is not one that was given to this caller for this
    request.
    """

    def make_binding() -> bytes:
        return compute_binding(caller, ctx.method, params)

    handle = ""

    async def run_and_sign(given: Raw) -> Mapping[str, Any]:
        result = await work(given)
        if result.get("resultType") != "input_required":
            return result
        for question in list_input_requests(result):
            if missing := find_missing_capability(relay.capabilities, *question):
                raise make_missing_capability_error(missing)
        parse_input_requests(result)
        if (state := result.get(REQUEST_STATE)) is None:
            return result
        issued = take_handle(result)[0] or handle
        return {
            **result,
            REQUEST_STATE: pending_requests.signer.sign(
                "wrapped", f"{issued}\n{state}", make_binding()
            ),
        }

    given = params
    if (state := params.get(REQUEST_STATE)) is not None:
        opened = pending_requests.signer.verify(state, make_binding())
        if opened.kind == "parked":
            return await pending_requests.resume(
                opened.value, params.get(INPUT_RESPONSES), ctx, make_binding
            )
        handle, _, state = opened.value.partition("\n")
        given = {**params, REQUEST_STATE: state}
        if handle:
            given = add_handle(given, handle)
    if not relay.capabilities:
        return await run_and_sign(
            given
        )  # it cannot be asked anything, so nothing has to outlive this request
    return await pending_requests.run(
        RequestTask(relay, run_and_sign(given), pending_requests.elicitation_timeout_s),
        caller.owner,
        make_binding,
    )
