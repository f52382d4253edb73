"""Plausible calls of a tool, generated from its schema alone, also as script code. Pure."""

import math
from collections.abc import Mapping
from functools import lru_cache
from itertools import islice
from typing import Any, cast

from portico.catalog.address import find_identifier, to_identifier
from portico.catalog.schema_outline import (
    ABSENT,
    SchemaOutline,
    SchemaParameter,
    build_outline,
    get_input_outline,
)
from portico.catalog.schema_types import get_json_type
from portico.catalog.snapshot import Snapshot
from portico.catalog.tool import Tool, sanitize_text
from portico.json_text import json_codec
from portico.upstream.regex_cost import MAX_COMPILE_US, estimate_compilation

_SAMPLES = {
    "date-time": "2025-01-31T12:00:00Z", "date": "2025-01-31", "time": "12:00:00Z",
    "email": "name@example.com", "uri": "https://example.com", "url": "https://example.com",
    "uuid": "123e4567-e89b-42d3-a456-426614174000", "hostname": "example.com", "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1", "duration": "P1D", "cidrv4": "192.0.2.0/24",
}  # fmt: skip
_MORE_SAMPLES = (
    "example", "Example", "EXAMPLE", "ABC-123", "1", "12", "123", "12345", "a1b2c3", "us-east-1",
    "a/b",
)  # fmt: skip
_MAX_PATTERNS = 16
_MAX_MATCHED_CHARS = 1_000
_MAX_PATTERN_BYTES = 4 * 1024
"""Limits per schema: patterns tried, characters of a matched text, bytes of a compiled pattern."""
_KEPT = 16
"""Cached examples: one response may need the same one three times."""
_MAX_AUTHOR_EXAMPLES = 2
_MAX_OPTIONS = 3
"""Examples of the schema's author that are shown, and optional parameters in ours."""


def make_example(tool: Tool) -> dict[str, Any]:
    """Return minimal plausible arguments, from defaults, enums and examples where possible."""
    return dict(_make_minimal(tool))


@lru_cache(maxsize=_KEPT)
def _make_minimal(tool: Tool) -> dict[str, Any]:
    tree = get_input_outline(tool)
    value = _ExampleSampler(tree).sample(tree.root)
    if isinstance(value, dict):
        return value
    return {}


def make_examples(tool: Tool) -> list[dict[str, Any]]:
    """Return `arguments` and `description` of one to three calls.

    They are the author's, the minimal one, and one with some options.
    """
    tree = get_input_outline(tool)
    minimal = make_example(tool)
    authored = [value for value in tree.root.examples if isinstance(value, dict)][
        :_MAX_AUTHOR_EXAMPLES
    ]
    options = _sample_options(tree)
    candidates = [*authored, minimal, {**minimal, **options}]
    names = ", ".join(" ".join(sanitize_text(name).split()) for name in options)
    descriptions = [
        *("as its server gives it" for _ in authored),
        "only what is required" if minimal else "without arguments",
        f"with {names}",
    ]
    return [
        {"arguments": arguments, "description": description}
        for position, (arguments, description) in enumerate(
            zip(candidates, descriptions, strict=True)
        )
        if arguments not in candidates[:position]
    ][:3]


def _sample_options(tree: SchemaOutline) -> dict[str, Any]:
    """Return optional parameters with known good values; non-default values come first."""
    options = [param for param in tree.parameters if not (param.required or param.is_pattern)]
    options.sort(key=lambda param: not (param.examples or param.enum))
    known = ((param.name, _find_known_value(param)) for param in options)
    return dict(islice((item for item in known if item[1] is not ABSENT), _MAX_OPTIONS))


def _find_known_value(param: SchemaParameter) -> Any:
    """Return a value that the schema gives: an example, a non-default value, or the default."""
    for value in (
        *param.examples,
        *(item for item in param.enum if item != param.default),
        param.default,
    ):
        if value is not ABSENT and value is not None and _is_usable(value, param):
            return value
    return ABSENT


class _ExampleSampler:
    """Generator of one example. Recursive types end when `values_left` is used up."""

    def __init__(self, tree: SchemaOutline) -> None:
        self.types = tree.types
        self.values_left = 400
        self.patterns_left = _MAX_PATTERNS

    def sample(self, param: SchemaParameter, depth: int = 0) -> Any:
        self.values_left -= 1
        if param.enum:
            return param.enum[0]
        for value in (param.default, *param.examples):
            if _is_usable(value, param):
                return value
        if depth > 30 or self.values_left < 0 or param.type == "null":
            return None
        if param.ref:
            return self.sample(
                self.types.get(param.ref) or build_outline(param.source).root, depth + 1
            )
        if param.variants:
            value = self.sample(param.variants[0], depth + 1)
            if isinstance(value, dict):
                return {**self._sample_members(param, depth), **value}
            return value
        if param.type == "object":
            return self._sample_members(param, depth)
        if param.type == "array":
            return self._sample_items(param, depth)
        if param.type in ("integer", "number"):
            return _sample_number(param)
        if param.type == "boolean":
            return True
        if "pattern" not in param.source:
            return _sample_string(param)
        self.patterns_left -= 1
        if self.patterns_left >= 0:
            return _sample_pattern(param)
        return _sample_string(param)

    def _sample_members(self, param: SchemaParameter, depth: int) -> dict[str, Any]:
        wanted = (
            child
            for child in param.children
            if (child.required or "const" in child.source) and not child.is_pattern
        )
        return {child.name: self.sample(child, depth + 1) for child in wanted}

    def _sample_items(self, param: SchemaParameter, depth: int) -> list[Any]:
        values = [self.sample(item, depth + 1) for item in param.prefix]
        missing = min(
            max(_get_limit(param, "minItems", 1), 1), _get_limit(param, "maxItems", 100), 100
        ) - len(values)
        if param.items and param.items.source.get("enum") != []:
            values += [self.sample(param.items, depth + 1) for _ in range(int(missing))]
        return values


def _is_usable(value: Any, param: SchemaParameter) -> bool:
    """Return whether a default or example has its parameter's type; some servers' have not."""
    kind = get_json_type(value)
    if kind in ("null", "any"):
        return kind == "null" and param.nullable
    return param.type in (kind, "any", "union") or (kind, param.type) == ("integer", "number")


def _sample_number(param: SchemaParameter) -> int | float:
    low = _get_limit(param, "minimum", -math.inf)
    high = _get_limit(param, "maximum", math.inf)
    above = _get_limit(param, "exclusiveMinimum", -math.inf)
    below = _get_limit(param, "exclusiveMaximum", math.inf)
    value = min(max(1, low), high)
    step = 1 if param.type == "integer" or below - above > 2 else (below - above) / 2
    if value <= above:
        value = above + step
    elif value >= below:
        value = below - step
    multiple = _get_limit(param, "multipleOf", 0)
    if multiple > 0:
        value = math.ceil(value / multiple) * multiple
    if param.type == "integer":
        return math.ceil(value)
    return value


def _sample_string(param: SchemaParameter) -> str:
    min_chars = min(int(_get_limit(param, "minLength", 0)), 10_000)
    max_chars = int(_get_limit(param, "maxLength", 10_000))
    return _pick_sample(param)[:max_chars].ljust(min_chars, "x")


def _pick_sample(param: SchemaParameter) -> str:
    return _SAMPLES.get(str(param.source.get("format")), f"<{_render_name(param)}>")


def _render_name(param: SchemaParameter) -> str:
    return " ".join(sanitize_text(param.name).split()) or "text"


def _sample_pattern(param: SchemaParameter) -> str:
    """Return a text that matches the pattern, if one of a few candidates does."""
    limits = {
        key: param.source[key]
        for key in ("pattern", "minLength", "maxLength")
        if key in param.source
    }
    fallback = _pick_sample(param)
    min_chars = int(_get_limit(param, "minLength", 0))
    max_chars = min(int(_get_limit(param, "maxLength", _MAX_MATCHED_CHARS)), _MAX_MATCHED_CHARS)
    if (
        min_chars > _MAX_MATCHED_CHARS
        or estimate_compilation([str(limits["pattern"])]) > MAX_COMPILE_US // _MAX_PATTERNS
    ):
        return fallback
    # Imported here because search responses need this module at once but rarely a pattern. The
    # pattern is untrusted: only a linear-time matcher may run it.
    import jsonschema_rs

    try:
        options = jsonschema_rs.RegexOptions(_MAX_PATTERN_BYTES)
        is_valid = jsonschema_rs.validator_for(limits, pattern_options=options).is_valid
    except ValueError:
        return fallback
    candidates = [
        sample[:max_chars]
        for sample in (fallback, _render_name(param), *_MORE_SAMPLES, *_SAMPLES.values())
    ]
    return next(
        (
            sample
            for sample in (text.ljust(min_chars, text[-1:] or "x") for text in candidates)
            if is_valid(sample)
        ),
        fallback,
    )


def _get_limit(param: SchemaParameter, key: str, default: float) -> float:
    value = param.source.get(key)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    return default


def make_script_example(tool: Tool, snapshot: Snapshot) -> Mapping[str, str]:
    """Return the same call in Python, JavaScript and Lua, by the tool's name in scripts."""
    name = to_function_name(tool, snapshot)
    sample = make_example(tool)
    return {
        "python": f"await {name}({_to_python(sample)})",
        "javascript": f"await {name}({_to_json(sample)})",
        "lua": f"{name}({_to_lua(sample)}):await()",
    }


def to_function_name(tool: Tool, snapshot: Snapshot) -> str:
    """Return the name of a tool in scripts: `server.tool`, both as identifiers."""
    server = find_identifier(tool.server, snapshot.server_identifiers)
    name = find_identifier(tool.name, snapshot.servers[tool.server].tool_identifiers)
    return f"{server}.{name}"


def _to_python(arguments: Mapping[str, Any]) -> str:
    if all(to_identifier(name) == name for name in arguments):
        return ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    return f"**{dict(arguments)!r}"


def _to_lua(value: Any) -> str:
    if isinstance(value, Mapping):
        entries = cast("Mapping[Any, Any]", value)
        members = {str(name): _to_lua(item) for name, item in entries.items()}
        keyed = (
            (name if to_identifier(name) == name else f"[{_to_json(name)}]", item)
            for name, item in members.items()
        )
        return "{" + ", ".join(f"{name} = {item}" for name, item in keyed) + "}"
    if isinstance(value, list):
        return "{" + ", ".join(map(_to_lua, cast("list[Any]", value))) + "}"
    if value is None:
        return "nil"
    return _to_json(value)


def _to_json(value: Any) -> str:
    return json_codec.dumps(value).decode()
