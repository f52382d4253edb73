"""The gateway as an agent's author holds it: find tools, call them, and tell a model of them in its
own format.

Every call takes the way of a client's: the same door, scope, budgets, repairs, limits, record and
audit log.
"""

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Literal, Self

from portico.config import Config, Exposure
from portico.embedding import definitions, model_calls, provider_results
from portico.embedding.definitions import Format
from portico.embedding.offered_tools import OfferedTools
from portico.embedding.portable_schema import map_real_names
from portico.embedding.results import Matches, Result, ServerInfo, ToolInfo, to_result, to_tool_info
from portico.embedding.session import EmbeddedSession
from portico.embedding.settings import Servers, resolve_settings
from portico.errors import InvalidArguments, PorticoError, UnknownName
from portico.meta_tools import tool_definitions
from portico.meta_tools.search_request import SearchRequest
from portico.rendering.tool_result import make_error_result
from portico.upstream.backend import Raw

Language = Literal["python", "lua", "javascript", "typescript"]
Detail = Literal["brief", "schema", "full"]

DEFAULT_CLIENT_NAME = "python"
"""What an embedded gateway's caller is called in statistics and in the audit log, unless it has a
name."""


class Gateway:
    """One gateway in this process, for one agent: `async with Gateway("portico.yaml") as gateway:
    …`.

    It installs no signal handlers, prints nothing, leaves logging as it is, and leaves no process
    behind. It belongs to the event loop that it was opened in; `SyncGateway` is the same without
    one.
    """

    def __init__(
        self,
        config: "str | os.PathLike[str] | Mapping[str, Any] | Config | None" = None,
        *,
        servers: Servers | None = None,
        profile: str | None = None,
        exposure: Exposure | None = None,
        data_dir: "str | os.PathLike[str] | None" = None,
        in_memory: bool = False,
        name: str = DEFAULT_CLIENT_NAME,
    ) -> None:
        """Read the configuration; nothing is started yet. Raises `ConfigError`.

        - `config`: a file, or a dict as a file has it, ours (`servers`) or a client's (`mcpServers`). Without it, and
          without `servers`, it is the file that the command line would use.
        - `servers`: servers by name, beside those of `config`: lists of Python functions, or dicts as in a file.
        - `profile`: the profile of the configuration to go by: its servers, tools and budgets.
        - `exposure`: what `tools` shows a model, instead of what is configured.
        - `data_dir`: where to remember what servers offer; by default where the command line does.
        - `in_memory`: remember nothing. No file is read or written, and every server is asked anew.
        - `name`: what this agent is called in statistics and in the audit log.
        """
        self._settings = resolve_settings(
            config, servers, profile=profile, exposure=exposure, data_dir=data_dir
        )
        self._session = EmbeddedSession(self._settings, profile, name, in_memory=in_memory)
        self._offered_tools = OfferedTools(self._settings.exposure)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is odd about the configuration: servers that cannot be used, settings that lead
        nowhere."""
        return self._settings.warnings

    # --- its life

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def open(self) -> Self:
        """Begin. Servers start when they are first needed, those nothing is known of at once."""
        await self._session.open()
        return self

    async def close(self) -> None:
        """End: calls under way are cut off, and no process, socket or task is left. Idempotent."""
        await self._session.close()

    async def ready(self, timeout: float | None = None) -> bool:
        """Wait until every server has been heard or has failed, for at most `timeout` seconds;
        whether they have."""
        return await self._session.wait_until_listed(timeout)

    def servers(self) -> list[ServerInfo]:
        """Every server, and how it is."""
        view = self._session.view
        states = view.profile_state.get_server_states()
        entries = view.snapshot.servers
        return [
            ServerInfo(
                name, states[name].state, states[name].reason, len(entry.tools), entry.description
            )
            for name, entry in sorted(entries.items())
        ]

    # --- for the program

    async def search(
        self,
        query: str,
        *,
        server: str | None = None,
        category: str | None = None,
        tags: Sequence[str] = (),
        max_latency_ms: float | None = None,
        min_success_rate: float | None = None,
        limit: int = 8,
    ) -> Matches:
        """Tools that do what the query says, best first. Raises `UnknownName` for a server that is
        not here."""
        question = SearchRequest(
            query, server, tuple(tags), max_latency_ms, min_success_rate, limit, category=category
        )
        return await self._session.search(question)

    async def tool(self, name: str) -> ToolInfo:
        """One tool, with its schemas. Names are read generously; raises `UnknownName` with the
        nearest."""
        await self._session.wait_for_first_listing(name)
        return to_tool_info(self._session.find_tool(name))

    async def describe(self, *names: str, detail: Detail = "schema") -> str:
        """One to ten tools as an agent reads them: what they do, and every parameter. Raises
        `UnknownName`."""
        await self._session.wait_for_first_listing(*names)
        for name in names:
            self._session.find_tool(name)
        asked = {"names": list(names), "detail": detail}
        return (await self._session.call_meta_tool(tool_definitions.DESCRIBE_TOOLS, asked)).text

    async def browse(
        self, server: str | None = None, category: str | None = None, cursor: str | None = None
    ) -> str:
        """Popular tools, categories and servers; or the tools of a server or category. As an agent
        reads it."""
        asked = _drop_none(server=server, category=category, cursor=cursor)
        return (await self._session.call_meta_tool(tool_definitions.BROWSE_TOOLS, asked)).text

    async def call(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, whole: bool = False
    ) -> Result:
        """Run a tool. What the tool itself says went wrong is a result with `is_error`.

        A result over the budget is summed up, and kept for `read_result`; `whole` gives it as it
        is, however large. Raises `UnknownName`, `InvalidArguments` (with what the tool takes),
        `BackendUnavailable`, `RemoteError` …
        """
        conversation = self._session
        given = dict(arguments or {})
        if not whole:
            return await conversation.call_meta_tool(
                tool_definitions.CALL_TOOL, {"name": name, "arguments": given}
            )
        await conversation.wait_for_first_listing(name)
        conversation.require_meta_tool(tool_definitions.CALL_TOOL)
        flat = self._offered_tools.map_flat_names(conversation.view.snapshot)[
            conversation.find_tool(name).address
        ]
        return conversation.unwrap_result(await conversation.call_tool(flat, given), name)

    async def run_code(
        self, code: str, language: Language | None = None, timeout_s: float | None = None
    ) -> Result:
        """Run a script that calls tools, in the sandbox. A script that fails is a result with
        `is_error`."""
        asked = _drop_none(code=code, language=language, timeout_s=timeout_s)
        return await self._session.call_meta_tool(tool_definitions.RUN_CODE, asked)

    async def run_workflow(
        self,
        steps: Sequence[Mapping[str, Any]] | None = None,
        *,
        intent: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        resume: str | None = None,
    ) -> Result:
        """Run steps, in parallel where they can be; an intent alone is answered with a plan of
        steps."""
        if steps is not None:
            listed = [dict(step) for step in steps]
        else:
            listed = None
        if inputs is not None:
            values = dict(inputs)
        else:
            values = None
        asked = _drop_none(intent=intent, steps=listed, inputs=values, resume=resume)
        return await self._session.call_meta_tool(tool_definitions.RUN_WORKFLOW, asked)

    async def read_result(
        self,
        result_id: str,
        *,
        path: str | None = None,
        grep: str | None = None,
        cursor: str | None = None,
    ) -> str:
        """A part of a result that was too large: by JMESPath, by the lines that match, or the next
        page."""
        asked = _drop_none(result_id=result_id, path=path, grep=grep, cursor=cursor)
        return (await self._session.call_meta_tool(tool_definitions.READ_RESULT, asked)).text

    # --- for the model

    async def tools(
        self,
        format: Format,
        *,
        names: Iterable[str] | None = None,
        intent: str | None = None,
        exposure: Exposure | None = None,
        cache: bool = False,
        defer: bool = False,
    ) -> list[Any]:
        """Definitions to pass to a model, in its provider's format; `handle` answers the calls it
        then makes.

        By default what the exposure shows: the meta-tools, through which a model finds and calls
        all others.

        - `format`: `anthropic`, `openai` (Responses), `openai-chat` (Chat Completions), `langchain`, or `mcp`.
        - `names`: these tools instead; meta-tools (`read_result`) may be among them.
        - `intent`: the meta-tools, and beside them the few tools that serve this best.
        - `exposure`: another than the gateway's: `meta`, `code`, `full`, `semantic`.
        - `cache`: Anthropic only. Keep the definitions in the prompt cache.
        - `defer`: Anthropic and OpenAI's Responses. Tools beside the meta-tools are loaded by the provider's search.
        """
        form = definitions.check_format(format)
        if cache and form != "anthropic":
            raise InvalidArguments(
                f"cache is for anthropic; {form} has no such mark", advice="Leave it out."
            )
        if defer and form not in definitions.DEFERRING_FORMATS:
            raise InvalidArguments(
                f"{form} cannot defer tools",
                advice=f"Formats that can: {', '.join(definitions.DEFERRING_FORMATS)}.",
            )
        shown: Exposure = exposure or self._settings.exposure
        chosen = await self._choose_definitions(
            None if names is None else list(names), intent or "", shown
        )
        self._offered_tools.add((one["name"] for one in chosen), shown if names is None else "meta")
        if form == "langchain":
            return self._make_langchain_tools(chosen)
        if defer:
            later = {
                one["name"] for one in chosen if one["name"] not in tool_definitions.META_TOOL_NAMES
            }
        else:
            later = set[str]()
        made = definitions.render_definitions(form, chosen, frozenset(later))
        if cache:
            return definitions.add_cache_control(made)
        return made

    async def handle(self, format: Format, call: Any) -> Any:
        """Run the tool call of a model, and answer with what to give back to it.

        That is a `tool_result` block for Anthropic, a `function_call_output` item for OpenAI's
        Responses, a message of role `tool` for Chat Completions, a `ToolMessage` for LangChain.
        Whatever goes wrong is told to the model there. Only tools are run that `tools` has told of.
        Raises `InvalidArguments` for what is no tool call.
        """
        form = definitions.check_format(format)
        return await self._reply_to_call(form, model_calls.parse_call(form, call))

    async def handle_all(self, format: Format, blocks: Iterable[Any] | None) -> list[Any]:
        """Run every tool call among the blocks of a model's answer, at the same time; the answers
        in their order."""
        form = definitions.check_format(format)
        # All are read before any is run: one that cannot be read leaves nothing half done.
        calls = [
            model_calls.parse_call(form, call) for call in model_calls.filter_calls(form, blocks)
        ]
        return list(await asyncio.gather(*(self._reply_to_call(form, call) for call in calls)))

    def offers(self, name: str) -> bool:
        """Whether a model that calls this name means a tool of this gateway."""
        return self._offered_tools.has(name, self._session.view)

    async def _choose_definitions(
        self, names: list[str] | None, intent: str, exposure: Exposure
    ) -> list[Raw]:
        """MCP definitions of what a model is to be told of."""
        conversation = self._session
        view = conversation.view
        # Before they are heard, what is told of them would change soon, and with it what providers
        # cache.
        await conversation.wait_for_first_listing()
        if names is None and exposure in ("meta", "code") and not intent:
            return await conversation.list_tools(exposure=exposure)
        if names is None and (intent or exposure == "semantic"):
            await conversation.wait_for_embeddings()
            beside = replace(view.settings, exposure=exposure).enabled_meta_tools
            listed = await conversation.list_tools(intent or view.settings.intent)
            return [
                one
                for one in listed
                if one["name"] in beside or one["name"] not in tool_definitions.META_TOOL_NAMES
            ]
        if names is None:
            chosen = self._list_all_definitions()
        else:
            chosen = await self._pick_definitions(names)
        view.publish_shown(conversation.caller, chosen, listing=True)
        return chosen

    def _list_all_definitions(self) -> list[Raw]:
        snapshot = self._session.view.snapshot
        return [
            self._offered_tools.make_definition(snapshot, tool) for tool in snapshot.tools.values()
        ]

    async def _pick_definitions(self, names: list[str]) -> list[Raw]:
        conversation = self._session
        view = conversation.view
        ours = dict[str, Raw]()
        if not {*view.settings.enabled_meta_tools}.isdisjoint(names):
            ours = {one["name"]: one for one in await conversation.list_tools()}
        return [
            ours.get(name)
            or self._offered_tools.make_definition(view.snapshot, conversation.find_tool(name))
            for name in names
        ]

    def _make_langchain_tools(self, chosen_definitions: list[Raw]) -> list[Any]:
        from portico.embedding import langchain

        return langchain.make_tools(chosen_definitions, self._call_for_model)

    async def _call_for_model(self, name: str, arguments: Raw) -> Result:
        """For tools that call by themselves: errors are results, for the model to read."""
        return to_result(await self._run_call(model_calls.ModelToolCall("", name, arguments)))

    async def _reply_to_call(self, format: Format, call: model_calls.ModelToolCall) -> Any:
        raw = await self._run_call(call)
        return provider_results.render_reply(format, call, to_result(raw), raw)

    async def _run_call(self, call: model_calls.ModelToolCall) -> Raw:
        """The raw answer to a model's call; its errors are answers too."""
        conversation = self._session
        view = conversation.view
        try:
            if call.problem:
                raise InvalidArguments(
                    call.problem, advice="Write them again, as the tool's schema has them."
                )
            if not self._offered_tools.has(call.name, view):
                there = ", ".join(self._offered_tools.list_names(view))
                raise UnknownName(
                    f"there is no tool {call.name!r} here", advice=f"There is: {there}."
                )
            if call.name in view.settings.enabled_meta_tools:
                return await conversation.call_tool(
                    call.name, call.arguments, self._offered_tools.exposure
                )
            tool = conversation.find_tool(call.name)
            arguments = call.arguments
            if real := map_real_names(tool.input_schema):
                arguments = {real.get(key, key): value for key, value in arguments.items()}
            conversation.require_meta_tool(tool_definitions.CALL_TOOL)
            # Not by its flat name: what a model reads keeps to the budget.
            return await conversation.call_tool(
                tool_definitions.CALL_TOOL, {"name": tool.address, "arguments": arguments}
            )
        except PorticoError as error:
            if not conversation.is_open:
                raise  # no model can do anything about that
            return make_error_result(error)


def _drop_none(**arguments: Any) -> Raw:
    return {name: value for name, value in arguments.items() if value is not None}
