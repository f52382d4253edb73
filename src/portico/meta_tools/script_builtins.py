"""Search and tool descriptions as functions for scripts, returning data instead of text."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

from portico.access import Caller
from portico.errors import InvalidArguments
from portico.meta_tools import tool_definitions
from portico.meta_tools.search_request import SearchRequest
from portico.meta_tools.search_tools import SearchService
from portico.rendering.prose import extract_first_sentence
from portico.rendering.script_example import to_function_name
from portico.rendering.token_count import count_tokens
from portico.rendering.tool import render_schema, render_signature

if TYPE_CHECKING:
    from portico.profiles.profile_state import ProfileState

_MAX_SHAPE_TOKENS = 400
_SEARCH_FIELDS = ("query", "limit", "server", "category")
_MAX_NAMED = 5


class ScriptBuiltins:
    """The gateway functions that one caller's scripts may call."""

    def __init__(
        self, profile_state: "ProfileState", search_service: SearchService, caller: Caller
    ) -> None:
        self._profile_state = profile_state
        self._search_service = search_service
        self._caller = caller

    def list_functions(self) -> dict[str, Callable[..., Awaitable[Any]]]:
        """Return the functions by name, limited to the caller's enabled meta-tools."""
        functions = {
            tool_definitions.SEARCH_TOOLS: self.search_tools,
            tool_definitions.DESCRIBE_TOOLS: self.describe_tools,
        }
        return {
            name: function
            for name, function in functions.items()
            if name in self._profile_state.settings.enabled_meta_tools
        }

    async def search_tools(
        self, query: Any, limit: Any = 8, server: Any = None, category: Any = None
    ) -> list[Any]:
        """Return the best matching tools, best first."""
        if isinstance(query, dict):
            options = cast("dict[str, Any]", query)
            if unknown := options.keys() - set(_SEARCH_FIELDS):
                named = ", ".join(sorted(unknown)[:_MAX_NAMED])
                raise InvalidArguments(
                    f"search_tools takes {', '.join(_SEARCH_FIELDS)}, not {named}"
                )
            query = options.get("query")
            limit = options.get("limit", limit)
            server = options.get("server", server)
            category = options.get("category", category)
        if (
            not isinstance(query, str)
            or not isinstance(limit, int)
            or not 1 <= limit <= tool_definitions.MAX_RESULTS
        ):
            raise InvalidArguments(
                f"search_tools takes a text and a limit of 1 to {tool_definitions.MAX_RESULTS}"
            )
        if not isinstance(server, str | None) or not isinstance(category, str | None):
            raise InvalidArguments("the server and the category of search_tools are names")
        snapshot = self._profile_state.snapshot
        request = SearchRequest(query, server=server, category=category, limit=limit)
        _, search = await self._search_service.prepare_search(snapshot, request, self._caller)
        found = [snapshot.tools[hit.id] for hit in search.rank(limit).hits]
        return [
            {
                "name": tool.address,
                "function": to_function_name(tool, snapshot),
                "parameters": render_signature(tool),
                "summary": extract_first_sentence(tool.description)
                or extract_first_sentence(tool.title),
            }
            for tool in found
        ]

    async def describe_tools(self, names: Any) -> list[Any]:
        """Return each tool's typed parameters, and the shape of its results if known."""
        if isinstance(names, dict):
            names = names.get("names")
        if isinstance(names, str):
            wanted: list[Any] = [names]
        elif isinstance(names, list):
            wanted = names
        else:
            wanted = []
        if not 1 <= len(wanted) <= tool_definitions.MAX_NAMES or not all(
            isinstance(name, str) for name in wanted
        ):
            raise InvalidArguments(f"describe_tools takes 1 to {tool_definitions.MAX_NAMES} names")
        snapshot = self._profile_state.snapshot
        usage_data = self._profile_state.usage_data
        tools = [await snapshot.find_tool(name) for name in wanted]
        return [
            {
                "name": tool.address,
                "function": to_function_name(tool, snapshot),
                "schema": render_schema(tool),
                "returns": usage_data.shapes.render_line(tool, _MAX_SHAPE_TOKENS, count_tokens)
                if usage_data
                else "",
            }
            for tool in tools
        ]
