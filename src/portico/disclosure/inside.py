"""What a script finds of ours beside the tools: the same search and descriptions, as data rather than as pages."""

from collections.abc import Awaitable, Callable
from typing import Any, cast

from portico.access import Caller
from portico.disclosure import metatools
from portico.disclosure.prose import first_sentence
from portico.disclosure.question import Question
from portico.disclosure.render import schema, signature
from portico.disclosure.script import function
from portico.disclosure.searching import Searching
from portico.disclosure.sight import Sight
from portico.disclosure.tokens import count
from portico.errors import InvalidArguments

_SHAPE_TOKENS = 400
_SEARCH_FIELDS = ("query", "limit", "server", "category")
_NAMED = 5


class Inside:
    """The functions of ours that one caller's scripts may call."""

    def __init__(self, sight: Sight, searching: Searching, caller: Caller) -> None:
        self._sight = sight
        self._searching = searching
        self._caller = caller

    def functions(self) -> dict[str, Callable[..., Awaitable[Any]]]:
        """By name, as far as the caller has them outside of scripts too."""
        ours = {metatools.SEARCH: self.search_tools, metatools.DESCRIBE: self.describe_tools}
        return {name: call for name, call in ours.items() if name in self._sight.face.enabled}

    async def search_tools(self, query: Any, limit: Any = 8, server: Any = None, category: Any = None) -> list[Any]:
        """The tools that fit best, best first."""
        if isinstance(query, dict):
            given = cast("dict[str, Any]", query)
            if unknown := given.keys() - set(_SEARCH_FIELDS):
                named = ", ".join(sorted(unknown)[:_NAMED])
                raise InvalidArguments(f"search_tools takes {', '.join(_SEARCH_FIELDS)}, not {named}")
            query, limit = given.get("query"), given.get("limit", limit)
            server, category = given.get("server", server), given.get("category", category)
        if not isinstance(query, str) or not isinstance(limit, int) or not 1 <= limit <= metatools.MAX_RESULTS:
            raise InvalidArguments(f"search_tools takes a text and a limit of 1 to {metatools.MAX_RESULTS}")
        if not isinstance(server, str | None) or not isinstance(category, str | None):
            raise InvalidArguments("the server and the category of search_tools are names")
        snapshot = self._sight.snapshot
        question = Question(query, server=server, category=category, limit=limit)
        _, search = await self._searching.prepared(snapshot, question, self._caller)
        found = [snapshot.tools[hit.id] for hit in search.ranking(limit).hits]
        return [
            {
                "name": tool.address,
                "function": function(tool, snapshot),
                "parameters": signature(tool),
                "summary": first_sentence(tool.description) or first_sentence(tool.title),
            }
            for tool in found
        ]

    async def describe_tools(self, names: Any) -> list[Any]:
        """Each tool's typed parameters, and what it returns as far as that is known."""
        names = names.get("names") if isinstance(names, dict) else names
        wanted: list[Any] = [names] if isinstance(names, str) else names if isinstance(names, list) else []
        if not 1 <= len(wanted) <= metatools.MAX_NAMES or not all(isinstance(name, str) for name in wanted):
            raise InvalidArguments(f"describe_tools takes 1 to {metatools.MAX_NAMES} names")
        snapshot, insight = self._sight.snapshot, self._sight.insight
        tools = [await snapshot.find_tool(name) for name in wanted]
        return [
            {
                "name": tool.address,
                "function": function(tool, snapshot),
                "schema": schema(tool),
                "returns": insight.shapes.told(tool, _SHAPE_TOKENS, count) if insight else "",
            }
            for tool in tools
        ]
