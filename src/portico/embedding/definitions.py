"""Tool definitions in the form that each model provider takes. Pure: MCP definitions in, theirs
out."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, cast, get_args

from portico.embedding.portable_schema import make_portable
from portico.errors import InvalidArguments
from portico.upstream.backend import Raw

Format = Literal["anthropic", "openai", "openai-chat", "langchain", "mcp"]
"""`openai` is the Responses API, `openai-chat` Chat Completions; `mcp` is the protocol's own form.
"""

FORMATS: tuple[str, ...] = get_args(Format)
DEFERRING_FORMATS = ("anthropic", "openai")
"""The formats whose models can be told of a tool later."""
_EPHEMERAL = {"type": "ephemeral"}


def check_format(format: str) -> Format:
    """A format there is; raises InvalidArguments for any other."""
    if format not in FORMATS:
        raise InvalidArguments(
            f"there is no format {format!r}", advice=f"Formats: {', '.join(FORMATS)}."
        )
    return cast(Format, format)


def render_definitions(
    format: Format, definitions: Iterable[Mapping[str, Any]], deferred: frozenset[str] = frozenset()
) -> list[Raw]:
    """MCP definitions in a provider's form; those named in `deferred` are loaded when its tool
    search finds them."""
    make = {"anthropic": to_anthropic, "openai": to_openai, "openai-chat": to_openai_chat}.get(
        format, dict[str, Any]
    )
    made = [make(one) for one in definitions]
    return [{**one, "defer_loading": True} if one.get("name") in deferred else one for one in made]


def to_anthropic(definition: Mapping[str, Any]) -> Raw:
    """A definition as the Messages API takes it."""
    return {
        "name": definition["name"],
        **_get_description(definition),
        "input_schema": make_portable(definition.get("inputSchema") or {}),
    }


def to_openai(definition: Mapping[str, Any]) -> Raw:
    """A definition as the Responses API takes it."""
    # Said outright: where it is left out, that API makes every optional parameter a required one.
    return {"type": "function", **_to_function(definition), "strict": False}


def to_openai_chat(definition: Mapping[str, Any]) -> Raw:
    """A definition as the Chat Completions API takes it."""
    return {"type": "function", "function": _to_function(definition)}


def add_cache_control(definitions: list[Raw]) -> list[Raw]:
    """Anthropic definitions, of which all up to the last that is loaded at once are kept in the
    prompt cache."""
    at = max(
        (place for place, one in enumerate(definitions) if not one.get("defer_loading")),
        default=None,
    )
    marked = {"cache_control": _EPHEMERAL}
    return [{**one, **marked} if place == at else one for place, one in enumerate(definitions)]


def _to_function(definition: Mapping[str, Any]) -> Raw:
    parameters = make_portable(definition.get("inputSchema") or {})
    return {"name": definition["name"], **_get_description(definition), "parameters": parameters}


def _get_description(definition: Mapping[str, Any]) -> Raw:
    said = definition.get("description") or definition.get("title")
    if isinstance(said, str) and said:
        return {"description": said}
    return {}
