"""Tool definitions in each model provider's format. Pure: MCP definitions in, provider definitions
out.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, cast, get_args

from portico.embedding.portable_schema import make_portable
from portico.errors import InvalidArguments
from portico.upstream.backend import Raw

Format = Literal["anthropic", "openai", "openai-chat", "langchain", "mcp"]
"""`openai` is the Responses API, `openai-chat` Chat Completions, `mcp` the protocol's own form."""

FORMATS: tuple[str, ...] = get_args(Format)
DEFERRING_FORMATS = ("anthropic", "openai")
"""Formats whose provider can load a tool definition later."""
_EPHEMERAL = {"type": "ephemeral"}


def check_format(format: str) -> Format:
    """Return `format` if it is known, else raise InvalidArguments."""
    if format not in FORMATS:
        raise InvalidArguments(
            f"there is no format {format!r}", advice=f"Formats: {', '.join(FORMATS)}."
        )
    return cast(Format, format)


def render_definitions(
    format: Format, definitions: Iterable[Mapping[str, Any]], deferred: frozenset[str] = frozenset()
) -> list[Raw]:
    """Convert MCP definitions to a provider's format.

    Those named in `deferred` are loaded only when the provider's own tool search finds them.
    """
    convert = {"anthropic": to_anthropic, "openai": to_openai, "openai-chat": to_openai_chat}.get(
        format, dict[str, Any]
    )
    rendered = [convert(definition) for definition in definitions]
    for definition in rendered:
        if definition.get("name") in deferred:
            definition["defer_loading"] = True
    return rendered


def to_anthropic(definition: Mapping[str, Any]) -> Raw:
    """Convert a definition for the Messages API."""
    return {
        "name": definition["name"],
        **_get_description(definition),
        "input_schema": make_portable(definition.get("inputSchema") or {}),
    }


def to_openai(definition: Mapping[str, Any]) -> Raw:
    """Convert a definition for the Responses API."""
    # Explicit, because by default that API makes every optional parameter required.
    return {"type": "function", **_to_function(definition), "strict": False}


def to_openai_chat(definition: Mapping[str, Any]) -> Raw:
    """Convert a definition for the Chat Completions API."""
    return {"type": "function", "function": _to_function(definition)}


def add_cache_control(definitions: list[Raw]) -> list[Raw]:
    """Mark Anthropic definitions so that all up to the last non-deferred one are in the prompt
    cache.
    """
    last = max(
        (
            index
            for index, definition in enumerate(definitions)
            if not definition.get("defer_loading")
        ),
        default=None,
    )
    marked = list(definitions)
    if last is not None:
        marked[last] = {**marked[last], "cache_control": _EPHEMERAL}
    return marked


def _to_function(definition: Mapping[str, Any]) -> Raw:
    parameters = make_portable(definition.get("inputSchema") or {})
    return {"name": definition["name"], **_get_description(definition), "parameters": parameters}


def _get_description(definition: Mapping[str, Any]) -> Raw:
    description = definition.get("description") or definition.get("title")
    if isinstance(description, str) and description:
        return {"description": description}
    return {}
