"""Return values of the embedded gateway: frozen dataclasses."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast, overload

from portico.catalog.tool import Tool
from portico.json_text import json_codec
from portico.rendering.prose import extract_first_sentence
from portico.upstream.backend import Raw

RESULT_URI_PREFIX = "portico://result/"
"""URI prefix of stored results, those too large to be returned complete."""


@dataclass(frozen=True)
class ToolInfo:
    """One tool behind the gateway, as its server describes it."""

    name: str
    """Its address, `server.tool`, as every method takes it."""
    server: str
    summary: str
    """The first sentence of its description."""
    description: str = field(repr=False)
    input_schema: Mapping[str, Any] = field(repr=False)
    output_schema: Mapping[str, Any] | None = field(repr=False, default=None)
    annotations: Mapping[str, Any] = field(repr=False, default_factory=dict[str, Any])
    """Its server's hints: `readOnlyHint`, `destructiveHint` and the like. Not guaranteed."""


@dataclass(frozen=True)
class Match(ToolInfo):
    """A tool that a search found."""

    score: float = 0.0
    """How well it matches: about 0 to 1, and 2 or more if the query is its name."""
    also: tuple[str, ...] = ()
    """Addresses of equivalent tools of other servers."""


@dataclass(frozen=True)
class Matches(Sequence[Match]):
    """The tools that a search found, best first: a sequence of `Match`."""

    query: str
    matches: tuple[Match, ...] = ()
    fit: str = "good"
    """`good`, `unsure`, or `none`: nothing seems to match, and these are only the nearest."""
    told: Callable[[], str] = field(repr=False, compare=False, default=str)

    @cached_property
    def text(self) -> str:
        """The search result as an agent reads it: within the budget, with what to do next."""
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
    """The result of a tool, a script or a workflow."""

    content: tuple[Mapping[str, Any], ...] = ()
    """MCP content blocks: text, images, audio, resources, links."""
    structured: Mapping[str, Any] | None = None
    """The structured content, if any; None if it was too large to be returned complete."""
    is_error: bool = False
    """True if the tool itself reports a failure; the message is in `text`."""
    meta: Mapping[str, Any] = field(repr=False, default_factory=dict[str, Any])
    """`_meta` of the result: repaired arguments, cache hits, and the server's own."""

    @cached_property
    def text(self) -> str:
        """The content as text for an agent; other blocks are described."""
        return "\n".join(filter(None, map(render_block, self.content))) or (
            json_codec.dumps(self.structured).decode() if self.structured is not None else ""
        )

    @property
    def result_id(self) -> str | None:
        """The id for `read_result`, if the result was too large to be returned complete."""
        uris = (
            str(block.get("uri", ""))
            for block in self.content
            if block.get("type") == "resource_link"
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
    """`known` from an earlier run, `ready`, `down` … A `known` server starts when first called."""
    reason: str = ""
    """Why it is in that state, if something is wrong."""
    tools: int = 0
    description: str = ""


def to_tool_info(tool: Tool) -> ToolInfo:
    """Convert a tool of the catalog."""
    return ToolInfo(**_get_tool_fields(tool))


def to_match(tool: Tool, score: float, also: tuple[str, ...]) -> Match:
    """Convert a search hit."""
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
    """Convert a raw MCP result."""
    content = raw.get("content")
    structured = raw.get("structuredContent")
    meta = raw.get("_meta")
    if isinstance(content, list):
        blocks = cast("list[Any]", content)
    else:
        blocks = []
    return Result(
        tuple(cast(Raw, block) for block in blocks if isinstance(block, dict)),
        cast(Raw, structured) if isinstance(structured, dict) else None,
        bool(raw.get("isError")),
        cast(Raw, meta) if isinstance(meta, dict) else {},
    )


def render_block(block: Mapping[str, Any]) -> str:
    """Render a content block as text; a binary block is described by type and size."""
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
