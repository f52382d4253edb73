"""The one-line form of a tool: address, parameters as far as they fit, first sentence. Pure."""

from collections.abc import Sequence

from portico.catalog.schema_outline import summarize_parameters
from portico.catalog.tool import Tool, sanitize_text
from portico.rendering.prose import (
    SENTENCE_TOKENS,
    collapse_whitespace,
    extract_first_sentence,
    quote_if_needed,
)
from portico.rendering.token_budget import count_tokens, pack, to_short_line

_MAX_PARAMS_TOKENS = 22
_MAX_REQUIRED_TOKENS = 60
"""Tokens for required names; types and optional names stop at `_MAX_PARAMS_TOKENS`."""
_MAX_NAMES_TOKENS = 220
_MAX_TAGS_TOKENS = 15
"""Tokens for all names, and for tags, in a summary of under 300."""
_MAX_RESULT_TOKENS = 30
_SCALARS = ("integer", "number", "boolean")
"""Types that are omitted for options, because one more name is worth more."""
_MAX_DUPLICATES = 5
"""Maximum duplicates on other servers that are named."""


def render_brief(
    tool: Tool,
    duplicates: Sequence[str] = (),
    max_sentence_tokens: int = SENTENCE_TOKENS,
    *,
    signature: str | None = None,
) -> str:
    """Render one line: address, parameters, first sentence, and duplicates on other servers."""
    if signature is None:
        signature = render_signature(tool)
    line = f"{collapse_whitespace(sanitize_text(tool.address))}({signature})"
    sentence = extract_first_sentence(
        tool.description, max_sentence_tokens
    ) or extract_first_sentence(tool.title, max_sentence_tokens)
    if sentence:
        line = f"{line} — {sentence}"
    if duplicates:
        return f"{line} (also: {render_addresses(duplicates)})"
    return line


def render_summary(tool: Tool) -> str:
    """Render one line of under 300 tokens: every parameter's name, first sentence and tags."""
    signature = render_signature(tool)
    if "…+" in signature:
        entries = summarize_parameters(tool.definition.get("inputSchema"))
        names = [quote_if_needed(name) + ("" if needed else "?") for name, needed, _ in entries]
        shown = pack(names, _MAX_NAMES_TOKENS).texts
        rest = [f"…+{len(names) - len(shown)}"] if len(shown) < len(names) else []
        signature = ", ".join((*shown, *rest))
    line = render_brief(tool, signature=signature)
    if tool.tags:
        line += f" [tags: {to_short_line(', '.join(tool.tags), _MAX_TAGS_TOKENS)}]"
    return line


def render_signature(tool: Tool) -> str:
    """Render parameters in one short line: required names always, types and options if they fit."""
    entries = list(summarize_parameters(tool.definition.get("inputSchema")))
    required = [(quote_if_needed(name), kind) for name, needed, kind in entries if needed]
    costs = [count_tokens(f" {name}") + 1 for name, _ in required]
    spare = _MAX_PARAMS_TOKENS - sum(costs)
    used = 0
    parts = list[str]()
    for (name, kind), cost in zip(required, costs, strict=True):
        if used + cost > _MAX_REQUIRED_TOKENS:
            parts.append(f"…+{len(required) - len(parts)} required")
            break
        used += cost
        kind_cost = _count_kind_tokens(kind)
        if kind_cost and kind_cost <= spare:
            name = f"{name}: {kind}"
            spare = spare - kind_cost
            used = used + kind_cost
        parts.append(name)
    optional = entries[len(required) :]
    for position, (raw_name, _, kind) in enumerate(optional):
        name = f"{quote_if_needed(raw_name)}?"
        used += count_tokens(f" {name}") + 1
        if used > _MAX_PARAMS_TOKENS:
            parts.append(f"…+{len(optional) - position}")
            break
        kind_cost = 0 if kind in _SCALARS else _count_kind_tokens(kind)
        if kind_cost and used + kind_cost <= _MAX_PARAMS_TOKENS:
            name = f"{name}: {kind}"
            used = used + kind_cost
        parts.append(name)
    return ", ".join(parts)


def render_result_type(tool: Tool) -> str:
    """Render the fields of a tool's declared result in a few words; empty if none are declared."""
    fields = summarize_parameters(tool.definition.get("outputSchema"))
    names = ", ".join(f"{quote_if_needed(name)}: {kind}" for name, _, kind in fields)
    return to_short_line(f"{{{names}}}", _MAX_RESULT_TOKENS) if names else ""


def _count_kind_tokens(kind: str) -> int:
    if kind in ("string", "any"):
        return 0
    return count_tokens(f": {kind}")


def render_addresses(names: Sequence[str], limit: int = _MAX_DUPLICATES) -> str:
    """Render tool addresses, at most `limit`, and the number of the rest."""
    shown = [collapse_whitespace(sanitize_text(name)) for name in names[:limit]]
    if len(names) > limit:
        shown.append(f"…+{len(names) - limit}")
    return ", ".join(shown)
