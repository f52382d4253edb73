"""The meta-tool `read_result`: a part of a result that was too large to show."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from portico.calls.pipeline import CallContext
from portico.calls.task_tickets import is_ticket
from portico.errors import UnknownName
from portico.rendering.tool_result import make_text_result
from portico.results.store import RESULT_URI_PREFIX
from portico.upstream.backend import Raw

if TYPE_CHECKING:
    from portico.profiles.profile_state import ProfileState


async def read_result(
    profile_state: "ProfileState",
    read_task: Callable[[str, CallContext], Awaitable[Raw]],
    arguments: Raw,
    context: CallContext,
) -> Raw:
    """Return a part of a stored result, or the result of a call that goes on as a task; raises
    UnknownName for one that is not stored."""
    ticket = arguments["result_id"].strip().removeprefix(RESULT_URI_PREFIX)
    if is_ticket(ticket):
        return await read_task(ticket, context)
    if profile_state.result_services is None:
        raise UnknownName("there is no such result")
    text = await profile_state.result_services.reader.read(
        context.caller, **arguments, budget=profile_state.settings.result_budget
    )
    return make_text_result(text)
