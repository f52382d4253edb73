"""The meta-tool `call_tool`, and the call of any tool for a client: from a name to a result."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from portico.calls.cache import is_read_only
from portico.calls.definition_tracker import CHANGED_PHRASE
from portico.calls.pipeline import DEFAULT_CONTEXT, CallContext, CallPipeline
from portico.calls.server_task import TASK, declares_tasks, get_message, to_client_state
from portico.calls.task_tickets import HeldTask, TaskTicket
from portico.catalog.tool import Tool, sanitize_text
from portico.errors import (
    INVALID_PARAMS,
    ApprovalDenied,
    ApprovalRequired,
    BackendUnavailable,
    DefinitionChanged,
    InvalidArguments,
    PorticoError,
    RemoteError,
    UnknownName,
)
from portico.json_text.part_stream import decode_parts, estimate_size, release_later, to_parts
from portico.meta_tools.browse_tools import explain_unknown_name, render_schema_hint
from portico.meta_tools.result_links import MANY_BLOCKS, ResultLinks, confine_links
from portico.meta_tools.tool_definitions import CALL_TOOL, name_call_tool
from portico.rendering.token_budget import count_tokens
from portico.rendering.tool_result import (
    CLIENT_ERROR_CODES,
    SERVER_TEXT_NOTICE,
    add_call_notes,
    make_error_result,
)
from portico.results.handles import build_text_block
from portico.results.learned_shapes import MAX_LEARNED_CHARS, extract_value, get_texts
from portico.results.result_meta import add_gateway_meta, get_gateway_meta, without_mismatch
from portico.results.shape import infer_shape, render_samples, render_shape, sample_value
from portico.results.store import RESULT_URI_PREFIX
from portico.results.summary import format_size, to_one_line
from portico.storage.rows import TaskRow
from portico.upstream.backend import Raw

if TYPE_CHECKING:
    from portico.profiles.apps import Apps
    from portico.profiles.profile_state import ProfileState

TASK_META_KEY = "portico/task"
"""Key in a result's `_meta`: the ticket of a call that goes on."""
_MAX_STATUS_CHARS = 200


class CallTool:
    """Calls of upstream tools by the clients of one view."""

    def __init__(
        self,
        profile_state: "ProfileState",
        call_pipeline: CallPipeline,
        links: ResultLinks,
        apps: "Apps",
    ) -> None:
        self._apps = apps
        self._profile_state = profile_state
        self._call_pipeline = call_pipeline
        self._links = links

    async def run(self, arguments: Raw, context: CallContext, *, called_as: str = CALL_TOOL) -> Raw:
        """Answer `call_tool` with checked arguments; raises PorticoError for an unknown name, and
        InvalidArguments for a tool that is not for the meta-tool it is called by."""
        name: str = arguments["name"]
        tool_arguments: Raw = arguments.get("arguments") or {}
        context = replace(context, via="call_tool")
        snapshot = self._profile_state.snapshot
        try:
            tool = snapshot.tools.get(name) or await snapshot.find_tool(name)
        except UnknownName as error:
            await self._call_pipeline.record_refusal(name, tool_arguments, context, error)
            states = self._profile_state.get_server_states()
            disabled = self._profile_state.settings.disabled_servers
            raise explain_unknown_name(error, name, snapshot, states, disabled) from error
        if called_as != CALL_TOOL and called_as != (right := get_call_tool_name(tool)):
            wrong = InvalidArguments(
                f"{tool.address} is not for {called_as}",
                advice=f"Call {right} with the same arguments.",
            )
            await self._call_pipeline.record_refusal(tool.address, tool_arguments, context, wrong)
            raise wrong
        if arguments.get("view") == "shape":
            confirm = bool(arguments.get("confirm"))
            result = await self._describe_shape(tool, tool_arguments, context, confirm=confirm)
        else:
            result = await self.run_tool(tool, tool_arguments, context)
            result = self._apps.link_result(tool, result, context)
        if marks := get_gateway_meta(result):
            return add_call_notes(result, marks, partial(self._render_hint, tool))
        return result

    async def _describe_shape(
        self, tool: Tool, arguments: Raw, context: CallContext, *, confirm: bool
    ) -> Raw:
        try:
            return await call_for_shape(
                self._call_pipeline, tool, arguments, context, confirm=confirm, count=count_tokens
            )
        except PorticoError as error:
            return self._to_error_result(error, tool)

    async def run_tool(
        self, tool: Tool, arguments: Any, context: CallContext, *, unabridged: bool = False
    ) -> Raw:
        """Call a tool and return its result, or its failure as an error result.

        The result is fitted into the budget, unless `unabridged`: then it stays as it is, and a
        server's own error is raised. Where the server makes a task of the call, the caller gets a
        ticket for it: at once, or after as long as it may wait.
        """

        async def work(context: CallContext) -> Raw:
            calling = self._call_pipeline.call(tool, arguments, context)
            return await self._finish(tool, calling, context, unabridged=unabridged)

        server = self._profile_state.snapshot.servers.get(tool.server)
        if (
            context.task_mode in ("none", "wait")
            or server is None
            or not declares_tasks(server.initialize_info)
            # A client that lists the tool with a schema of its results takes nothing else.
            or (unabridged and context.task_mode == "await" and "outputSchema" in tool.definition)
        ):
            return await work(context)
        found = await self._call_pipeline.tickets.run(context, work)
        return self.render_ticket(found, context) if isinstance(found, TaskTicket) else found

    def render_ticket(self, found: TaskTicket, context: CallContext) -> Raw:
        """Return the answer of a call that goes on: the task for a client that knows tasks, else
        what to read its result by."""
        held = found.held
        if context.task_mode == "return":
            return {**to_client_state(held.task.state, held.ticket), "resultType": TASK}
        return render_pending(held, self._call_pipeline.tickets.answer_s)

    async def find_task(self, ticket: str, context: CallContext) -> HeldTask:
        """Return the call of a ticket, which goes on from now on if an earlier process began it.

        Raises UnknownName, and what the rules say of the tool to its caller now.
        """
        tickets = self._call_pipeline.tickets
        context = replace(context, via="call_tool")
        found = await tickets.find(ticket, context.caller)
        address = found.tool if isinstance(found, TaskRow) else found.task.call.tool.address
        tool = await self._profile_state.snapshot.find_tool(address)
        self._call_pipeline.enforcement.check_caller(tool, context.caller)
        if isinstance(found, HeldTask):
            return found
        row = found

        async def work(context: CallContext) -> Raw:
            going_on = self._call_pipeline.resume(tool, row, context)
            return await self._finish(tool, going_on, context, unabridged=unabridged)

        unabridged = context.task_mode == "return"
        return await tickets.resume(ticket, context, work)

    async def read_task(self, ticket: str, context: CallContext) -> Raw:
        """Return the result of a call that goes on, or what to read it by later."""
        try:
            held = await self.find_task(ticket, context)
            result = await self._call_pipeline.tickets.read(held, context)
        except PorticoError as error:
            return make_error_result(error)
        if result is None:
            return render_pending(held, self._call_pipeline.tickets.answer_s)
        return result

    async def _finish(
        self,
        tool: Tool,
        calling: Coroutine[Any, Any, Raw],
        context: CallContext,
        *,
        unabridged: bool,
    ) -> Raw:
        """Await a call and return its result as its client gets it."""
        try:
            result = await calling
        except PorticoError as error:
            if unabridged and isinstance(error, RemoteError):
                raise
            result = self._to_error_result(error, tool)
        if _has_links(result):
            self._links.remember(context.caller, tool.server, result)
            if not self._profile_state.transparent_server:
                result = await confine_links(tool.server, result, self._apps.to_outer_link)
        result = self._apps.rename_in_result(tool.server, result)
        if unabridged:
            # A client that lists the tool checks its result against the declared schema.
            return without_mismatch(result)
        return await self._profile_state.fit_result(tool, result, context.caller)

    def _to_error_result(self, error: PorticoError, tool: Tool) -> Raw:
        """Return a failure as a result; raises it where the client has to handle it."""
        hint = ""
        if isinstance(error, RemoteError):
            if error.code in CLIENT_ERROR_CODES:
                raise error
            if error.code == INVALID_PARAMS or error.advice:
                hint = self._render_error_hint(error, tool)
        elif isinstance(error, InvalidArguments | DefinitionChanged):
            hint = self._render_error_hint(error, tool)
        elif not isinstance(error, BackendUnavailable | ApprovalRequired | ApprovalDenied):
            raise error
        return make_error_result(error, hint=hint)

    def _render_error_hint(self, error: PorticoError, tool: Tool) -> str:
        """Render the parameters below an error, marked as server text if they changed."""
        hint = self._render_hint(tool)
        if CHANGED_PHRASE in error.advice or isinstance(error, DefinitionChanged):
            return f"{SERVER_TEXT_NOTICE}\n{hint}"
        return hint

    def _render_hint(self, tool: Tool) -> str:
        """Render the parameters of the current definition; it may have changed during the call."""
        current = self._profile_state.snapshot.tools.get(tool.address, tool)
        return render_schema_hint(current, self._profile_state.settings.discovery_budget)


def render_pending(held: HeldTask, answer_s: float) -> Raw:
    """Return what a client that does not know tasks gets of a call that goes on."""
    address = held.task.call.tool.address
    message = to_one_line(sanitize_text(get_message(held.task.state)))[:_MAX_STATUS_CHARS]
    said = f" (the server says: {message})" if message else ""
    text = (
        f"{address} is still at work{said}. Its answer is read by"
        f' read_result(result_id="{held.ticket}"), which waits up to {answer_s:g} s for it.'
        " Do not call the tool again for this: it would do the work twice."
    )
    link: Raw = {
        "type": "resource_link",
        "uri": RESULT_URI_PREFIX + held.ticket,
        "name": "answer",
        "description": f"The answer of {to_one_line(address)}, once there is one.",
    }
    return {"content": [build_text_block(text), link], "_meta": {TASK_META_KEY: held.ticket}}


def get_call_tool_name(tool: Tool) -> str:
    """Return the meta-tool that calls a tool where calls are split."""
    return name_call_tool(is_read_only=tool.is_read_only, is_destructive=tool.is_destructive)


def _has_links(result: Raw) -> bool:
    """Return whether a result may have links; false for plain text, which most results are."""
    content = result.get("content")
    if not isinstance(content, list):
        return "messages" in result
    blocks = cast("list[Any]", content)
    if len(blocks) > MANY_BLOCKS or "messages" in result:
        return True
    for block in blocks:
        if isinstance(block, dict) and ("uri" in block or "resource" in block):
            return True
    return False


# --- `view="shape"`: only the structure of a result


SHAPE_TOKENS = 600
_SAMPLE_TOKENS = 200
_FRAME_TOKENS = 60


async def call_for_shape(
    calls: CallPipeline,
    tool: Tool,
    arguments: Mapping[str, Any],
    context: CallContext = DEFAULT_CONTEXT,
    *,
    confirm: bool = False,
    count: Callable[[str], int],
) -> Raw:
    """Call a tool and return the shape of its result.

    Raises InvalidArguments without confirmation, and whatever a call raises.
    """
    if not confirm and not is_read_only(tool):
        raise InvalidArguments(
            f'{tool.address} is not known to be read-only, and view="shape" really calls it',
            advice="Pass confirm=true if the call may have its effects, "
            "or describe_tools for what is known of its "
            "answers without calling it.",
        )
    result = await calls.call(tool, arguments, context)
    if result.get("isError") or result.get("resultType", "complete") != "complete":
        return result
    async with release_later(result):
        text = await asyncio.to_thread(describe_result, tool.address, result, count)
    answer: Raw = {"content": [build_text_block(text)]}
    if marks := get_gateway_meta(result):
        return add_gateway_meta(answer, marks)
    return answer


def describe_result(address: str, result: Raw, count: Callable[[str], int]) -> str:
    """Describe the structure of a result in at most SHAPE_TOKENS tokens. Blocks while it walks
    through a large one."""
    value = _sample_value(result)
    content = result.get("content")
    blocks: list[Any] = content if isinstance(content, list) else []
    kinds = sorted(
        {to_one_line(str(block.get("type")))[:20] for block in blocks if isinstance(block, dict)}
    )[:8]
    first = f"{to_one_line(address)[:120]} answers with {format_size(estimate_size(result, 2**40))}"
    if len(blocks) > 1 or kinds not in ([], ["text"]):
        first += f" ({len(blocks)} blocks: {', '.join(kinds)})"
    if value is None:
        return f"{first}."
    shape = infer_shape(value)
    lines = [f"{first}:", render_shape(shape, SHAPE_TOKENS - _SAMPLE_TOKENS - _FRAME_TOKENS, count)]
    if samples := render_samples(shape, _SAMPLE_TOKENS, count):
        lines += ["Samples:", *samples]
    return "\n".join(lines)


def _sample_value(result: Raw) -> Any:
    """Return the value of a result, sampled in parts if it is large."""
    if estimate_size(result, MAX_LEARNED_CHARS) < MAX_LEARNED_CHARS:
        return extract_value(result)
    structured = result.get("structuredContent")
    texts = get_texts(result)
    if structured is None and len(texts) != 1:
        return extract_value(result)
    try:
        if structured is not None:
            return sample_value(to_parts(structured))
        return sample_value(decode_parts(texts[0]))
    except ValueError:
        return texts[0]
