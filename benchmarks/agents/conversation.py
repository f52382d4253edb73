"""What passes between an agent and a gateway, counted in calls and tokens."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to one call, as a model reads it, and its structured content."""

    text: str
    structured: Mapping[str, Any]
    is_error: bool


@dataclass
class Conversation:
    """A client's calls during one task.

    A request counts as its compact JSON, `{"name", "arguments"}`, an answer as its text.
    """

    call: Callable[[str, dict[str, Any]], Awaitable[Any]]
    count: Callable[[str], int]
    calls: int = 0
    tokens: int = 0

    async def ask(self, name: str, arguments: Mapping[str, Any]) -> Reply:
        """Call a tool of the gateway."""
        request = orjson.dumps({"name": name, "arguments": arguments}).decode()
        result = await self.call(name, dict(arguments))
        text = "\n".join(block.text for block in result.content if block.type == "text")
        self.calls += 1
        self.tokens += self.count(request) + self.count(text)
        structured = result.structured_content
        return Reply(
            text, structured if isinstance(structured, dict) else {}, bool(result.is_error)
        )
