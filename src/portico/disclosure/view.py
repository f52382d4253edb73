"""One profile's face to its clients: every MCP method that is about tools, resources or prompts, as raw dicts.

`meta` and `code` show the meta-tools, `full` every upstream tool. A full view of a single un-prefixed server is
transparent: names, URIs and unknown methods pass as they are.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from portico.access import EVERYTHING, Scope
from portico.catalog.snapshot import ServerEntry, Snapshot
from portico.catalog.sync import Catalog
from portico.catalog.tool import Tool
from portico.catalog.visible import quoted
from portico.config import Exposure
from portico.disclosure import answer, discovery, guidance, metatools
from portico.disclosure import cursor as cursors
from portico.disclosure.arguments import checked_arguments
from portico.disclosure.lines import ServerState, States
from portico.disclosure.links import Links
from portico.disclosure.listable import listable
from portico.disclosure.namespace import (
    inner_uri,
    not_found_code,
    outer_contents,
    outer_resource,
    outer_template,
    outer_uri,
)
from portico.disclosure.question import Question
from portico.disclosure.searching import Searching
from portico.errors import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    RESOURCE_NOT_FOUND,
    BackendUnavailable,
    InvalidArguments,
    PorticoError,
    RemoteError,
    UnknownName,
)
from portico.events import Bus
from portico.execution.call import Calls, Origin
from portico.learning import Learner
from portico.upstream.backend import Era, Raw
from portico.upstream.supervisor import Upstream

FirstListing = Callable[[Callable[[], bool]], Awaitable[None]]
PAGE = 250
_ABOUT_ONE_RESOURCE = ("resources/read", "resources/subscribe", "resources/unsubscribe")


@dataclass(frozen=True)
class Face:
    """What a profile's configuration says about its view."""

    exposure: Exposure = "meta"
    scope: Scope = EVERYTHING
    prefixed: bool = True
    discovery_budget: int = 2_000
    metatools: frozenset[str] = frozenset(metatools.NAMES)
    pins: tuple[str, ...] = field(default=())
    profile: str = ""
    unlisted: bool = True
    """Whether a transparent view passes calls of tools it does not list; not where some are left out on purpose."""


class View:
    """Answers a profile's clients."""

    def __init__(
        self,
        face: Face,
        catalog: Catalog,
        calls: Calls,
        upstreams: Mapping[str, Upstream],
        first_listing: FirstListing | None = None,
        learner: Learner | None = None,
        bus: Bus | None = None,
    ) -> None:
        """`first_listing` waits for servers nothing was known of: until it is enough, or they have had their chance."""
        self.face = face
        self._first_listing = first_listing
        self.searching = Searching(learner, bus)
        self._catalog = catalog
        self._calls = calls
        self._upstreams = upstreams
        self._whole: Snapshot | None = None
        self._seen: Snapshot = catalog.snapshot.within(face.scope)
        self._links = Links()
        self._defined: tuple[tuple[str, ...], list[Raw]] = ((), [])

    @property
    def snapshot(self) -> Snapshot:
        """What this profile sees now."""
        if self._whole is not self._catalog.snapshot:
            self._whole = self._catalog.snapshot
            self._seen = self._whole.within(self.face.scope)
        return self._seen

    @property
    def sole(self) -> str | None:
        """The server this view is transparent for, if it is."""
        if self.face.exposure != "full" or self.face.prefixed or len(self.snapshot.servers) != 1:
            return None
        return next(iter(self.snapshot.servers))

    def capabilities(self, era: Era) -> Raw:
        """What we declare; for a transparent view what its server declares."""
        if self.sole and (hello := self.snapshot.servers[self.sole].hello):
            mirrored = dict(hello.capabilities)
            if era == "modern" and hello.era == "legacy":
                mirrored.pop("logging", None)
            return mirrored
        declared: Raw = {
            "tools": {"listChanged": True},
            "resources": {"listChanged": True, "subscribe": era == "legacy"},
            "prompts": {"listChanged": True},
            "completions": {},
        }
        return declared if era == "modern" else {**declared, "logging": {}}

    def instructions(self) -> str:
        """What the client is told first."""
        if self.sole:
            hello = self.snapshot.servers[self.sole].hello
            return hello.instructions if hello else ""
        if self.face.exposure == "full":
            return guidance.full_instructions(self.snapshot)
        return guidance.meta_instructions(self.snapshot, self._enabled)

    def input_schema(self, name: str) -> Mapping[str, Any] | None:
        """The schema a client was shown for a tool, for checking `Mcp-Param-*` headers."""
        tool = self._listed.get(name) if self.face.exposure == "full" else None
        return tool.input_schema if tool else None

    async def handle(self, method: str, params: Raw, origin: Origin, era: Era) -> Raw:
        """Answer one request; raises PorticoError."""
        handler = self._handlers.get(method)
        if handler is None:
            if self.sole:
                return await self._calls.ask(self.sole, method, params, origin)
            raise RemoteError(METHOD_NOT_FOUND, "Method not found", method)
        if self._first_listing is not None:
            await self._settle(method, params)
        try:
            return await handler(params, origin)
        except RemoteError as error:
            if method in _ABOUT_ONE_RESOURCE and (code := not_found_code(error, era)) != error.code:
                raise RemoteError(code, error.message, error.data, has_data=error.has_data) from error
            raise

    @cached_property
    def _handlers(self) -> Mapping[str, Callable[[Raw, Origin], Awaitable[Raw]]]:
        return {
            "tools/list": self._list_tools,
            "tools/call": self._call_tool,
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_templates,
            **{method: self._with_uri(method) for method in _ABOUT_ONE_RESOURCE},
            "prompts/list": self._list_prompts,
            "prompts/get": self._get_prompt,
            "completion/complete": self._complete,
            "logging/setLevel": self._set_level,
        }

    async def _settle(self, method: str, params: Raw) -> None:
        """Wait where an answer now would leave out a server that is still on its first start."""
        name = self._named_tool(method, params)

        def enough() -> bool:
            if name is not None and name in self.snapshot.names:
                return True
            return all(entry.known for entry in self.snapshot.servers.values())

        needs_no_listing = method == "tools/list" and self.face.exposure != "full"
        if self._first_listing is not None and not needs_no_listing and not enough():
            await self._first_listing(enough)
        if all(entry.known for entry in self.snapshot.servers.values()):
            self._first_listing = None

    def _named_tool(self, method: str, params: Raw) -> str | None:
        given = params.get("arguments") if self.face.exposure != "full" else params
        name = given.get("name") if method == "tools/call" and isinstance(given, dict) else None
        return name if isinstance(name, str) else None

    # --- tools

    async def _list_tools(self, params: Raw, origin: Origin) -> Raw:
        if self.face.exposure != "full":
            return self._page("tools/list", "tools", self._definitions(), params)
        page = self._page("tools/list", "tools", list(self._listed.items()), params)
        page["tools"] = [listable(tool.definition, name) for name, tool in page["tools"]]
        return page

    @property
    def _listed(self) -> Mapping[str, Tool]:
        """In `full`: every tool by the name it is listed under."""
        return self.snapshot.servers[self.sole].tools if self.sole else self.snapshot.flat

    @cached_property
    def _enabled(self) -> tuple[str, ...]:
        shown = metatools.CODE_NAMES if self.face.exposure == "code" else metatools.NAMES
        return tuple(name for name in shown if name in self.face.metatools)

    def _definitions(self) -> list[Raw]:
        servers = tuple(self.snapshot.servers)
        if self._defined[0] != servers or not self._defined[1]:
            self._defined = (servers, metatools.definitions(self._enabled, servers))
        return self._defined[1]

    async def _call_tool(self, params: Raw, origin: Origin) -> Raw:
        name, arguments = params.get("name"), params.get("arguments")
        if not isinstance(name, str):
            raise RemoteError(INVALID_PARAMS, "tools/call needs the name of a tool")
        arguments = {} if arguments is None else arguments
        if self.face.exposure == "full":
            tool = self._listed.get(name)
            if tool is not None:
                return await self._run(tool, arguments, origin)
            if self.sole and self.face.unlisted:
                return await self._calls.ask(self.sole, "tools/call", params, origin)
            return await self._run(self.snapshot.tool(name), arguments, origin)
        if name not in self._enabled:
            there = f" Tools behind this gateway are run by {metatools.CALL}(name, arguments)."
            raise UnknownName(
                f"there is no tool {quoted(name)} in this list",
                nearest=self._enabled,
                advice=f"It has: {', '.join(self._enabled)}.{there if metatools.CALL in self._enabled else ''}",
            )
        return await self._meta_call(name, arguments, origin)

    async def _meta_call(self, name: str, arguments: Any, origin: Origin) -> Raw:
        try:
            checked = checked_arguments(self._definitions(), name, arguments)
            if name == metatools.CALL:
                return await self._call_by_name(checked, origin)
            if name == metatools.SEARCH:
                asked, about = Question.of(checked), (self._states(), self.face.discovery_budget, self._enabled)
                return answer.text(await self.searching.answer(self.snapshot, asked, origin.caller, *about))
            return self._discover(name, checked)
        except PorticoError as error:
            if isinstance(error, RemoteError):
                raise
            return answer.refusal(error)

    def _discover(self, name: str, arguments: Raw) -> Raw:
        snapshot, states, budget = self.snapshot, self._states(), self.face.discovery_budget
        if name == metatools.DESCRIBE:
            body, found = discovery.describe(snapshot, budget, **arguments, states=states)
            return answer.text(body) if found else {**answer.text(body), "isError": True}
        if arguments.get("server"):
            return answer.text(discovery.browse(snapshot, states, budget, **arguments))
        return answer.text(discovery.overview(snapshot, states, budget, self.face.pins, arguments.get("cursor")))

    async def _call_by_name(self, arguments: Raw, origin: Origin) -> Raw:
        name, snapshot = arguments["name"], self.snapshot
        try:
            tool = snapshot.tool(name)
        except UnknownName as error:
            raise discovery.explained(error, name, snapshot, self._states()) from error
        return await self._run(tool, arguments.get("arguments") or {}, origin)

    async def _run(self, tool: Tool, arguments: Any, origin: Origin) -> Raw:
        try:
            result = await self._calls.call(tool, arguments, origin)
        except InvalidArguments as error:
            return answer.refusal(error, more=discovery.schema_hint(tool, self.face.discovery_budget))
        except BackendUnavailable as error:
            return answer.refusal(error)
        if not self.sole:
            self._links.remember(origin.caller.session, tool.server, result)
        return result

    def _states(self) -> States:
        return {
            name: ServerState(upstream.state, upstream.reason, upstream.since)
            for name, upstream in self._upstreams.items()
        }

    # --- resources

    async def _list_resources(self, params: Raw, origin: Origin) -> Raw:
        return self._offers("resources/list", "resources", lambda entry: entry.offers.resources, outer_resource, params)

    async def _list_templates(self, params: Raw, origin: Origin) -> Raw:
        return self._offers(
            "resources/templates/list",
            "resourceTemplates",
            lambda entry: entry.offers.templates,
            outer_template,
            params,
        )

    def _with_uri(self, method: str) -> Callable[[Raw, Origin], Awaitable[Raw]]:
        async def forward(params: Raw, origin: Origin) -> Raw:
            uri = params.get("uri")
            if not isinstance(uri, str):
                raise RemoteError(INVALID_PARAMS, f"{method} needs a uri")
            server, inner = self.locate(uri, origin.caller.session)
            result = await self._calls.ask(server, method, {**params, "uri": inner}, origin)
            return result if self.sole else outer_contents(server, result)

        return forward

    def locate(self, uri: str, session: str) -> tuple[str, str]:
        """The server that has a resource, or gave this session a link to it, and the URI it knows it by."""
        if self.sole:
            return self.sole, uri
        if (found := inner_uri(uri)) and found[0] in self.snapshot.servers:
            return found
        claimed = {
            name
            for name, entry in self.snapshot.servers.items()
            if any(resource["uri"] == uri for resource in entry.offers.resources)
        }
        # A server can claim what is another's: whoever else does, nobody is asked in its place.
        claimed |= self._links.owners(session, uri) & self.snapshot.servers.keys()
        if len(claimed) == 1:
            return claimed.pop(), uri
        raise RemoteError(RESOURCE_NOT_FOUND, f"Resource not found: {uri}", {"uri": uri})

    def outer_uri(self, server: str, uri: str) -> str:
        """A server's URI as this view's clients know it."""
        return uri if self.sole else outer_uri(server, uri)

    # --- prompts, completion, logging

    async def _list_prompts(self, params: Raw, origin: Origin) -> Raw:
        if self.sole:
            prompts = list(self.snapshot.servers[self.sole].offers.prompts)
        else:
            prompts = [{**prompt, "name": name} for name, (_, prompt) in self.snapshot.flat_prompts.items()]
        return self._page("prompts/list", "prompts", prompts, params)

    async def _get_prompt(self, params: Raw, origin: Origin) -> Raw:
        server, name = self._locate_prompt(params.get("name"))
        return await self._calls.ask(server, "prompts/get", {**params, "name": name}, origin)

    def _locate_prompt(self, name: Any) -> tuple[str, str]:
        if not isinstance(name, str):
            raise RemoteError(INVALID_PARAMS, "a prompt needs a name")
        if self.sole:
            return self.sole, name
        if found := self.snapshot.flat_prompts.get(name):
            return found[0], found[1]["name"]
        raise RemoteError(INVALID_PARAMS, f"Unknown prompt: {quoted(name)}")

    async def _complete(self, params: Raw, origin: Origin) -> Raw:
        reference = params.get("ref")
        if self.sole:
            return await self._calls.ask(self.sole, "completion/complete", params, origin)
        if not isinstance(reference, dict):
            raise RemoteError(INVALID_PARAMS, "completion/complete needs a ref")
        if reference.get("type") == "ref/prompt":
            server, name = self._locate_prompt(reference.get("name"))
            inner: Raw = {**reference, "name": name}
        else:
            server, uri = self.locate(str(reference.get("uri")), origin.caller.session)
            inner = {**reference, "uri": uri}
        return await self._calls.ask(server, "completion/complete", {**params, "ref": inner}, origin)

    async def _set_level(self, params: Raw, origin: Origin) -> Raw:
        hello = self.snapshot.servers[self.sole].hello if self.sole else None
        if self.sole and hello and hello.era == "legacy" and "logging" in hello.capabilities:
            return await self._calls.ask(self.sole, "logging/setLevel", params, origin)
        return {}

    # --- pages

    def _offers(
        self,
        method: str,
        key: str,
        pick: Callable[[ServerEntry], tuple[Raw, ...]],
        rename: Callable[[str, Raw], Raw],
        params: Raw,
    ) -> Raw:
        servers: Iterable[tuple[str, ServerEntry]] = sorted(self.snapshot.servers.items())
        items = [item if self.sole else rename(name, item) for name, entry in servers for item in pick(entry)]
        return self._page(method, key, items, params)

    def _page(self, method: str, key: str, items: list[Any], params: Raw) -> Raw:
        given = params.get("cursor")
        version = self.snapshot.version if key == "tools" else self.snapshot.offers_version
        offset = cursors.decode(str(given), method, version) if given is not None else 0
        page: Raw = {key: items[offset : offset + PAGE]}
        if offset + PAGE < len(items):
            page["nextCursor"] = cursors.encode(method, version, offset + PAGE)
        return page
