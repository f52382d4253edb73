"""What the gateway answers, as an agent's author reads it: frozen facts."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast, overload

from portico.catalog.tool import Tool
from portico.json_text import json_codec
from portico.rendering.prose import extract_first_sentence
from portico.upstream.backend import Raw

RESULT_URI_PREFIX = "portico://result/"
"""Where results are kept that are too large to be answered whole."""


@dataclass(frozen=True)
class ToolInfo:
    """One tool behind the gateway, as its server describes it."""

    name: str
    """Its address, `server.tool`: what every method here takes."""
    server: str
    summary: str
    """The first sentence of its description."""
    description: str = field(repr=False)
    input_schema: Mapping[str, Any] = field(repr=False)
    output_schema: Mapping[str, Any] | None = field(repr=False, default=None)
    annotations: Mapping[str, Any] = field(repr=False, default_factory=dict[str, Any])
    """Its server's hints: `readOnlyHint`, `destructiveHint` and the like. Hints, no promises."""


@dataclass(frozen=True)
class Match(ToolInfo):
    """A tool that a search found."""

    score: float = 0.0
    """How well it fits: about 0 to 1, and 2 or more where the query is its name."""
    also: tuple[str, ...] = ()
    """Tools of other servers that do the same, by name."""


@dataclass(frozen=True)
class Matches(Sequence[Match]):
    """The tools that a search found, best first: a sequence of `Match`."""

    query: str
    matches: tuple[Match, ...] = ()
    fit: str = "good"
    """`good`, `unsure`, or `none`: nothing here seems to do that, and these are only the nearest.
    """
    told: Callable[[], str] = field(repr=False, compare=False, default=str)

    @cached_property
    def text(self) -> str:
        """What an agent reads of this search: within the budget, and with what to do next."""
        return self.told()

    def __len__(self) -> int:
        return len(self.matches)

    @overload
    def __getitem__(self, index: int) -> Match: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Match]: ...
    def __getitem__(self, index: int | slice) -> Match | Sequence[Match]:
        return self.matches[index]

    def __iter__(self) -> Iterator[Match]:
        return iter(self.matches)


@dataclass(frozen=True)
class Result:
    """What a tool, a script or a workflow answered."""

    content: tuple[Mapping[str, Any], ...] = ()
    """Blocks of content as MCP has them: text, images, audio, resources, links."""
    structured: Mapping[str, Any] | None = None
    """The answer as data, where it came with any; None where it was too large to be given whole."""
    is_error: bool = False
    """The tool itself says that it failed. What it says is in `text`."""
    meta: Mapping[str, Any] = field(repr=False, default_factory=dict[str, Any])
    """`_meta` of the answer: arguments that were repaired, an answer from the cache, and what its server says.
    """

    @cached_property
    def text(self) -> str:
        """What an agent reads: all that can be said in words."""
        return "\n".join(filter(None, map(render_block, self.content))) or (
            json_codec.dumps(self.structured).decode() if self.structured is not None else ""
        )

    @property
    def result_id(self) -> str | None:
        """What `read_result` takes, where the answer was too large to be given whole."""
        uris = (
            str(one.get("uri", "")) for one in self.content if one.get("type") == "resource_link"
        )
        return next(
            (
                uri.removeprefix(RESULT_URI_PREFIX)
                for uri in uris
                if uri.startswith(RESULT_URI_PREFIX)
            ),
            None,
        )


@dataclass(frozen=True)
class ServerInfo:
    """One server behind the gateway."""

    name: str
    state: str
    """`known` from last time, `ready`, `down` … A server that is `known` starts when it is first called.
    """
    reason: str = ""
    """Why it is in that state, where something is wrong."""
    tools: int = 0
    description: str = ""


def to_tool_info(tool: Tool) -> ToolInfo:
    """A tool of the catalog, for whoever writes an agent."""
    return ToolInfo(**_get_tool_fields(tool))


def to_match(tool: Tool, score: float, also: tuple[str, ...]) -> Match:
    """A tool that was found."""
    return Match(**_get_tool_fields(tool), score=score, also=also)


def _get_tool_fields(tool: Tool) -> dict[str, Any]:
    output = tool.definition.get("outputSchema")
    return {
        "name": tool.address,
        "server": tool.server,
        "summary": extract_first_sentence(tool.description) or extract_first_sentence(tool.title),
        "description": tool.description,
        "input_schema": tool.input_schema,
        "output_schema": cast(Raw, output) if isinstance(output, dict) else None,
        "annotations": tool.annotations,
    }


def to_result(raw: Mapping[str, Any]) -> Result:
    """A raw MCP result."""
    content = raw.get("content")
    structured = raw.get("structuredContent")
    meta = raw.get("_meta")
    if isinstance(content, list):
        blocks = cast("list[Any]", content)
    else:
        blocks = []
    return Result(
        tuple(cast(Raw, one) for one in blocks if isinstance(one, dict)),
        cast(Raw, structured) if isinstance(structured, dict) else None,
        bool(raw.get("isError")),
        cast(Raw, meta) if isinstance(meta, dict) else {},
    )


def render_block(block: Mapping[str, Any]) -> str:
    """A block of content as text; of what is none, what it is."""
    match block.get("type"):
        case "text":
            return str(block.get("text", ""))
        case "resource_link":
            return f"[{block.get('name') or 'resource'}: {block.get('uri')}]"
        case "resource":
            resource = block.get("resource")
            if isinstance(resource, dict):
                inner = cast(Raw, resource)
            else:
                inner = {}
            if "text" in inner:
                return str(inner["text"])
            return f"[{inner.get('mimeType', 'data')}: {inner.get('uri')}]"
        case kind:
            size = len(str(block.get("data", ""))) * 3 // 4
            return f"[{kind}, {block.get('mimeType') or 'unknown kind'}, about {size:,} bytes]"
