"""The gateway as an object in an agent's program: find tools, call them, pass them to a model.

Every call takes the path of a client's request: the same scope, budgets, argument repair, limits,
usage record and audit log.
"""

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Self

from portico.config import Config, Exposure
from portico.errors import InvalidArguments, PorticoError, UnknownName
from portico.library import provider_formats
from portico.library.portable_schema import map_real_names
from portico.library.provider_formats import Format, ModelToolCall
from portico.library.results import Matches, Result, ServerInfo, ToolInfo, to_result, to_tool_info
from portico.library.session import EmbeddedSession, OfferedTools
from portico.library.settings import Servers, resolve_settings
from portico.meta_tools import tool_definitions
from portico.meta_tools.search_request import SearchRequest
from portico.rendering.tool_result import make_error_result
from portico.upstream.backend import Raw

Language = Literal["python", "lua", "javascript", "typescript"]
Detail = Literal["brief", "schema", "full"]

DEFAULT_CLIENT_NAME = "python"
"""Default client name in statistics and in the audit log."""


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

        - `config`: a file, or a dict as a file has it, ours (`servers`) or a client's
          (`mcpServers`). Without it, and without `servers`, it is the file that the command line
          would use.
        - `servers`: servers by name, in addition to those of `config`: lists of Python functions,
          or dicts as in a file.
        - `profile`: the profile of the configuration to use: its servers, tools and budgets.
        - `exposure`: what `tools` shows a model, instead of what is configured.
        - `data_dir`: where to store what servers offer; by default where the command line does.
        - `in_memory`: store nothing. No file is read or written, and every server is listed again.
        - `name`: what this agent is called in statistics and in the audit log.
        """
        self._settings = resolve_settings(
            config, servers, profile=profile, exposure=exposure, data_dir=data_dir
        )
        self._session = EmbeddedSession(self._settings, profile, name, in_memory=in_memory)
        self._offered_tools = OfferedTools(self._settings.exposure)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Problems of the configuration: servers that cannot be used, settings without effect."""
        return self._settings.warnings

    # --- lifecycle

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> Self:
        """Start the gateway. Servers start when first needed, those that were never listed at
        once.
        """
        await self._session.open()
        return self

    async def close(self) -> None:
        """Stop the gateway: cancel running calls, leave no process, socket or task. Idempotent."""
        await self._session.close()

    async def ready(self, timeout: float | None = None) -> bool:
        """Wait at most `timeout` seconds until every server is listed or has failed.

        Return whether all of them are.
        """
        return await self._session.wait_until_listed(timeout)

    def servers(self) -> list[ServerInfo]:
        """Return every server with its state."""
        view = self._session.view
        states = view.profile_state.get_server_states()
        entries = view.snapshot.servers
        return [
            ServerInfo(
                name,
                states[name].state,
                states[name].reason,
                len(entry.tools),
                entry.own_description,
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
        """Return the tools that do what the query says, best first.

        Raises `UnknownName` for an unknown server.
        """
        request = SearchRequest(
            query, server, tuple(tags), max_latency_ms, min_success_rate, limit, category=category
        )
        return await self._session.search(request)

    async def tool(self, name: str) -> ToolInfo:
        """Return one tool with its schemas.

        Names are matched leniently; raises `UnknownName` with the nearest ones.
        """
        await self._session.wait_for_first_listing(name)
        return to_tool_info(self._session.find_tool(name))

    async def describe(self, *names: str, detail: Detail = "schema") -> str:
        """Return one to ten tools as text for an agent: what they do, and every parameter.

        Raises `UnknownName`.
        """
        await self._session.wait_for_first_listing(*names)
        for name in names:
            self._session.find_tool(name)
        arguments = {"names": list(names), "detail": detail}
        return (await self._session.call_meta_tool(tool_definitions.DESCRIBE_TOOLS, arguments)).text

    async def browse(
        self, server: str | None = None, category: str | None = None, cursor: str | None = None
    ) -> str:
        """Return popular tools, categories and servers, or the tools of one, for an agent."""
        arguments = _drop_none(server=server, category=category, cursor=cursor)
        return (await self._session.call_meta_tool(tool_definitions.BROWSE_TOOLS, arguments)).text

    async def call(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, whole: bool = False
    ) -> Result:
        """Run a tool. A failure reported by the tool itself is a result with `is_error`.

        A result over the budget is summarized and stored for `read_result`; with `whole` it is
        returned complete, however large. Raises `UnknownName`, `InvalidArguments` (with what the
        tool takes), `BackendUnavailable`, `RemoteError` …
        """
        session = self._session
        call_arguments = dict(arguments or {})
        if not whole:
            params = {"name": name, "arguments": call_arguments}
            return await session.call_meta_tool(session.choose_call_tool(name), params)
        await session.wait_for_first_listing(name)
        session.require_meta_tool(session.choose_call_tool(name))
        flat_names = self._offered_tools.map_flat_names(session.view.snapshot)
        flat_name = flat_names[session.find_tool(name).address]
        return session.unwrap_result(await session.call_tool(flat_name, call_arguments), name)

    async def run_code(
        self, code: str, language: Language | None = None, timeout_s: float | None = None
    ) -> Result:
        """Run a script that calls tools, in the sandbox.

        A script that fails is a result with `is_error`.
        """
        arguments = _drop_none(code=code, language=language, timeout_s=timeout_s)
        return await self._session.call_meta_tool(tool_definitions.RUN_CODE, arguments)

    async def run_workflow(
        self,
        steps: Sequence[Mapping[str, Any]] | None = None,
        *,
        intent: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        resume: str | None = None,
    ) -> Result:
        """Run steps, in parallel where possible; an intent alone returns a plan of steps."""
        arguments = _drop_none(intent=intent, resume=resume)
        if steps is not None:
            arguments["steps"] = [dict(step) for step in steps]
        if inputs is not None:
            arguments["inputs"] = dict(inputs)
        return await self._session.call_meta_tool(tool_definitions.RUN_WORKFLOW, arguments)

    async def read_result(
        self,
        result_id: str,
        *,
        path: str | None = None,
        grep: str | None = None,
        cursor: str | None = None,
    ) -> str:
        """Return part of a stored large result: a JMESPath, matching lines, or the next page."""
        arguments = _drop_none(result_id=result_id, path=path, grep=grep, cursor=cursor)
        return (await self._session.call_meta_tool(tool_definitions.READ_RESULT, arguments)).text

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
        """Return definitions to pass to a model, in its provider's format; `handle` runs its calls.

        By default what the exposure shows: the meta-tools, through which a model finds and calls
        all others.

        - `format`: `anthropic`, `openai` (Responses), `openai-chat` (Chat Completions),
          `langchain`, or `mcp`.
        - `names`: these tools instead; meta-tools (`read_result`) may be among them.
        - `intent`: the meta-tools, and with them the few tools that serve this best.
        - `exposure`: another than the gateway's: `meta`, `code`, `full`, `semantic`.
        - `cache`: Anthropic only. Keep the definitions in the prompt cache.
        - `defer`: Anthropic and OpenAI's Responses. Tools other than the meta-tools are loaded by
          the provider's search.
        """
        form = provider_formats.check_format(format)
        if cache and form != "anthropic":
            raise InvalidArguments(
                f"cache is for anthropic; {form} has no such mark", advice="Leave it out."
            )
        if defer and form not in provider_formats.DEFERRING_FORMATS:
            raise InvalidArguments(
                f"{form} cannot defer tools",
                advice=f"Formats that can: {', '.join(provider_formats.DEFERRING_FORMATS)}.",
            )
        shown: Exposure = exposure or self._settings.exposure
        chosen = await self._choose_definitions(names, intent or "", shown)
        if names is not None:
            shown = "meta"
        chosen_names = {definition["name"] for definition in chosen}
        self._offered_tools.add(chosen_names, shown)
        if form == "langchain":
            return self._make_langchain_tools(chosen)
        deferred = set[str]()
        if defer:
            deferred = chosen_names.difference(tool_definitions.ALL_META_TOOL_NAMES)
        rendered = provider_formats.render_definitions(form, chosen, frozenset(deferred))
        if cache:
            return provider_formats.add_cache_control(rendered)
        return rendered

    async def handle(self, format: Format, call: Any) -> Any:
        """Run a model's tool call and return the reply to pass back to it.

        The reply is a `tool_result` block for Anthropic, a `function_call_output` item for OpenAI's
        Responses, a message of role `tool` for Chat Completions, a `ToolMessage` for LangChain.
        Failures are replies too, for the model to read. Only tools that `tools` has returned can be
        called. Raises `InvalidArguments` if `call` is not a tool call.
        """
        form = provider_formats.check_format(format)
        return await self._reply_to_call(form, provider_formats.parse_call(form, call))

    async def handle_all(self, format: Format, blocks: Iterable[Any] | None) -> list[Any]:
        """Run every tool call among the blocks of a model's answer concurrently.

        Return the replies in order.
        """
        form = provider_formats.check_format(format)
        # All are parsed before any runs, so that a malformed one leaves nothing half done.
        calls = [
            provider_formats.parse_call(form, call)
            for call in provider_formats.filter_calls(form, blocks)
        ]
        return list(await asyncio.gather(*(self._reply_to_call(form, call) for call in calls)))

    def offers(self, name: str) -> bool:
        """Return whether this name, called by a model, is a tool of this gateway."""
        return self._offered_tools.has(name, self._session.view)

    async def _choose_definitions(
        self, names: Iterable[str] | None, intent: str, exposure: Exposure
    ) -> list[Raw]:
        """Return the MCP definitions to show a model."""
        session = self._session
        view = session.view
        # Before servers are listed, definitions would soon change, and invalidate provider caches.
        await session.wait_for_first_listing()
        if names is not None:
            chosen = await self._pick_definitions(list(names))
        elif exposure in ("meta", "code") and not intent:
            return await session.list_tools(exposure=exposure)
        elif intent or exposure == "semantic":
            await session.wait_for_embeddings()
            allowed_meta_tools = replace(view.settings, exposure=exposure).enabled_meta_tools
            listed = await session.list_tools(intent or view.settings.intent)
            return [
                definition
                for definition in listed
                if definition["name"] in allowed_meta_tools
                or definition["name"] not in tool_definitions.ALL_META_TOOL_NAMES
            ]
        else:
            snapshot = view.snapshot
            chosen = [
                self._offered_tools.make_definition(snapshot, tool)
                for tool in snapshot.tools.values()
            ]
        view.profile_state.publish_shown(session.caller, chosen, listing=True)
        return chosen

    async def _pick_definitions(self, names: list[str]) -> list[Raw]:
        session = self._session
        view = session.view
        meta_tools = dict[str, Raw]()
        if not {*view.settings.enabled_meta_tools}.isdisjoint(names):
            meta_tools = {listed["name"]: listed for listed in await session.list_tools()}
        return [
            meta_tools.get(name)
            or self._offered_tools.make_definition(view.snapshot, session.find_tool(name))
            for name in names
        ]

    def _make_langchain_tools(self, chosen_definitions: list[Raw]) -> list[Any]:
        from portico.library import provider_formats

        return provider_formats.make_tools(chosen_definitions, self._call_for_model)

    async def _call_for_model(self, name: str, arguments: Raw) -> Result:
        return to_result(await self._run_call(ModelToolCall("", name, arguments)))

    async def _reply_to_call(self, format: Format, call: ModelToolCall) -> Any:
        raw = await self._run_call(call)
        return provider_formats.render_reply(format, call, to_result(raw), raw)

    async def _run_call(self, call: ModelToolCall) -> Raw:
        """Return the raw result of a model's call; errors are results too."""
        session = self._session
        view = session.view
        try:
            if call.problem:
                raise InvalidArguments(
                    call.problem, advice="Write them again, as the tool's schema has them."
                )
            if not self._offered_tools.has(call.name, view):
                available = ", ".join(self._offered_tools.list_names(view))
                raise UnknownName(
                    f"there is no tool {call.name!r} here", advice=f"There is: {available}."
                )
            if call.name in view.settings.enabled_meta_tools:
                exposure = self._offered_tools.exposure
                return await session.call_tool(call.name, call.arguments, exposure)
            tool = session.find_tool(call.name)
            arguments = call.arguments
            if real_names := map_real_names(tool.input_schema):
                arguments = {real_names.get(key, key): value for key, value in arguments.items()}
            call_tool = session.choose_call_tool(tool.address)
            session.require_meta_tool(call_tool)
            # Not by its flat name, so that the result is kept within the budget.
            return await session.call_tool(
                call_tool, {"name": tool.address, "arguments": arguments}
            )
        except PorticoError as error:
            if not session.is_open:
                raise  # A model cannot do anything about a closed gateway.
            return make_error_result(error)


def _drop_none(**arguments: Any) -> Raw:
    return {name: value for name, value in arguments.items() if value is not None}
