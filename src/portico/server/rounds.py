"""Requests of the modern era that may take several rounds: a server's questions out, the client's answers in.

A server of the same era has its questions passed on, and its own state sealed in what the client carries, with the
handle of the instance that asked where one was issued. For a server of the handshake era, and for what a script or
workflow calls, the work waits here until the client comes back.
"""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from mcp.server.context import ServerRequestContext

from portico.access import Caller
from portico.disclosure.own_state import brought, with_handle
from portico.execution.questions import readable
from portico.server.handling import Handling
from portico.server.parked import Parking
from portico.server.questions import asked, lacking, undeclared
from portico.server.relay import ClientRelay
from portico.server.seal import binding
from portico.upstream.backend import Raw
from portico.upstream.envelope import INPUT_RESPONSES, REQUEST_STATE

Work = Callable[[Raw], Coroutine[Any, Any, Mapping[str, Any]]]


async def in_rounds(
    parking: Parking, ctx: ServerRequestContext[Any, Any], params: Raw, caller: Caller, relay: ClientRelay, work: Work
) -> Mapping[str, Any]:
    """Answer one request: with what `work` on its params comes to, or with what its client has to be asked first.

    Raises RemoteError where its `requestState` is not one that was given to this caller for this request.
    """

    def bound() -> bytes:
        return binding(caller, ctx.method, params)

    handle = ""

    async def sealed(given: Raw) -> Mapping[str, Any]:
        result = await work(given)
        if result.get("resultType") != "input_required":
            return result
        for question in asked(result):
            if missing := lacking(relay.capabilities, *question):
                raise undeclared(missing)
        readable(result)
        if (state := result.get(REQUEST_STATE)) is None:
            return result
        issued = brought(result)[0] or handle
        return {**result, REQUEST_STATE: parking.seal.close("wrapped", f"{issued}\n{state}", bound())}

    given = params
    if (state := params.get(REQUEST_STATE)) is not None:
        opened = parking.seal.open(state, bound())
        if opened.kind == "parked":
            return await parking.go_on(opened.value, params.get(INPUT_RESPONSES), ctx, bound)
        handle, _, state = opened.value.partition("\n")
        given = {**params, REQUEST_STATE: state}
        if handle:
            given = with_handle(given, handle)
    if not relay.capabilities:
        return await sealed(given)  # it cannot be asked anything, so nothing has to outlive this request
    return await parking.see_through(Handling(relay, sealed(given), parking.question_s), caller.owner, bound)
