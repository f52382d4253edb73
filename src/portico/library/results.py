"""Return values of the embedded gateway, and the exceptions that its error results become."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast, overload

from portico import errors
from portico.catalog.tool import Tool
from portico.errors import PorticoError
from portico.json_text import json_codec
from portico.json_text.json_codec import to_list
from portico.rendering.prose import extract_first_sentence
from portico.rendering.tool_result import ERROR_META_KEY
from portico.upstream.backend import Raw

RESULT_URI_PREFIX = "portico://result/"
"""URI prefix of stored results, those too large to be returned complete."""
_ERRORS_BY_KIND: Mapping[str, type[PorticoError]] = {
    error.kind: error
    for error in vars(errors).values()
    if isinstance(error, type) and issubclass(error, PorticoError)
}


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
    render: Callable[[], str] = field(repr=False, compare=False, default=str)

    @cached_property
    def text(self) -> str:
        """The search result as an agent reads it: within the budget, with what to do next."""
        return self.render()

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
        for block in self.content:
            uri = str(block.get("uri", ""))
            if block.get("type") == "resource_link" and uri.startswith(RESULT_URI_PREFIX):
                return uri.removeprefix(RESULT_URI_PREFIX)
        return None


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
    return {
        "name": tool.address,
        "server": tool.server,
        "summary": extract_first_sentence(tool.description) or extract_first_sentence(tool.title),
        "description": tool.description,
        "input_schema": tool.input_schema,
        "output_schema": _get_object(tool.definition, "outputSchema"),
        "annotations": tool.annotations,
    }


def to_result(raw: Mapping[str, Any]) -> Result:
    """Convert a raw MCP result."""
    content = raw.get("content")
    blocks = to_list(content)
    return Result(
        tuple(cast(Raw, block) for block in blocks if isinstance(block, dict)),
        _get_object(raw, "structuredContent"),
        bool(raw.get("isError")),
        _get_object(raw, "_meta") or {},
    )


def _get_object(raw: Mapping[str, Any], key: str) -> Raw | None:
    value = raw.get(key)
    if isinstance(value, dict):
        return cast(Raw, value)
    return None


def to_exception(result: Mapping[str, Any], hint: str = "") -> PorticoError | None:
    """Convert a result to the gateway error it reports.

    None for a success, and for an error of the tool itself. `hint` is appended to the advice of
    InvalidArguments.
    """
    facts = _get_object(_get_object(result, "_meta") or {}, ERROR_META_KEY)
    if facts is None:
        return None
    message = facts["message"]
    advice = facts.get("advice", "")
    match _ERRORS_BY_KIND.get(facts["kind"], PorticoError):
        case errors.RemoteError:
            code = facts.get("code", errors.INTERNAL_ERROR)
            error = errors.RemoteError(code, message, facts.get("data"), has_data="data" in facts)
            error.advice = advice
        case errors.InvalidArguments:
            problems = tuple(facts.get("problems", ()))
            advice = "\n".join(filter(None, (advice, hint)))
            error = errors.InvalidArguments(message, problems=problems, advice=advice)
        case errors.UnknownName:
            nearest = tuple(facts.get("nearest", ()))
            error = errors.UnknownName(message, nearest=nearest, advice=advice)
        case error_class:
            error = error_class(message, advice=advice)
            error.retry_after_s = facts.get("retry_after_s")
    return error


def render_block(block: Mapping[str, Any]) -> str:
    """Render a content block as text; a binary block is described by type and size."""
    match block.get("type"):
        case "text":
            return str(block.get("text", ""))
        case "resource_link":
            return f"[{block.get('name') or 'resource'}: {block.get('uri')}]"
        case "resource":
            inner = _get_object(block, "resource") or {}
            if "text" in inner:
                return str(inner["text"])
            return f"[{inner.get('mimeType', 'data')}: {inner.get('uri')}]"
        case kind:
            size = len(str(block.get("data", ""))) * 3 // 4
            return f"[{kind}, {block.get('mimeType') or 'unknown kind'}, about {size:,} bytes]"
