"""Plausible calls of a tool, made from its schema alone. Pure."""

import math
from functools import lru_cache
from typing import Any

from portico.catalog.schema_outline import (
    ABSENT,
    SchemaOutline,
    SchemaParameter,
    build_outline,
    get_input_outline,
    get_json_type,
)
from portico.catalog.tool import Tool
from portico.catalog.visible_text import sanitize_text
from portico.upstream.pattern_cost import MAX_COMPILE_US, estimate_compilation

_SAMPLES = {
    "date-time": "2025-01-31T12:00:00Z", "date": "2025-01-31", "time": "12:00:00Z", "email": "name@example.com",
    "uri": "https://example.com", "url": "https://example.com", "uuid": "123e4567-e89b-42d3-a456-426614174000",
    "hostname": "example.com", "ipv4": "192.0.2.1", "ipv6": "2001:db8::1", "duration": "P1D", "cidrv4": "192.0.2.0/24",
}  # fmt: skip
_MORE_SAMPLES = (
    "example",
    "Example",
    "EXAMPLE",
    "ABC-123",
    "1",
    "12",
    "123",
    "12345",
    "a1b2c3",
    "us-east-1",
    "a/b",
)
_MAX_PATTERNS = 16
_MAX_MATCHED_CHARS = 1_000
_MAX_PATTERN_BYTES = 4 * 1024
"""How many patterns of a schema are tried, with texts of how many characters, and how large one may
be compiled."""
_KEPT = 16
"""Tools whose example is remembered: one answer may need it three times."""
_MAX_AUTHOR_EXAMPLES = 2
_MAX_OPTIONS = 3
"""How many of an author's own examples are shown, and with how many options ours."""


def make_example(tool: Tool) -> dict[str, Any]:
    """A plausible minimal arguments object: what is required, from defaults, enums and examples
    where there are any."""
    return dict(_least(tool))


@lru_cache(maxsize=_KEPT)
def _least(tool: Tool) -> dict[str, Any]:
    tree = get_input_outline(tool)
    value = _ExampleSampler(tree).sample(tree.root)
    if isinstance(value, dict):
        return value
    return {}


def make_examples(tool: Tool) -> list[dict[str, Any]]:
    """One to three calls: what the schema's author wrote, the least that is taken, and one with
    some options."""
    tree = get_input_outline(tool)
    least = make_example(tool)
    written = [value for value in tree.root.examples if isinstance(value, dict)][
        :_MAX_AUTHOR_EXAMPLES
    ]
    found = [*written, least, {**least, **_sample_options(tree)}]
    return [value for place, value in enumerate(found) if value not in found[:place]][:3]


def _sample_options(tree: SchemaOutline) -> dict[str, Any]:
    """Some optional parameters that the schema knows good values for; those that are no default
    tell most."""
    options = [param for param in tree.parameters if not (param.required or param.is_pattern)]
    known = {param.name: _find_known_value(param) for param in options}
    told = sorted(
        (param for param in options if known[param.name] is not ABSENT),
        key=lambda param: not _has_sample_values(param),
    )
    return {param.name: known[param.name] for param in told[:_MAX_OPTIONS]}


def _has_sample_values(param: SchemaParameter) -> bool:
    return bool(param.examples or param.enum)


def _find_known_value(param: SchemaParameter) -> Any:
    """A value that its schema gives: an example, another of the values than the default, or the
    default."""
    for value in (
        *param.examples,
        *(one for one in param.enum if one != param.default),
        param.default,
    ):
        if value is not ABSENT and value is not None and _is_usable(value, param):
            return value
    return ABSENT


class _ExampleSampler:
    """Makes one example; types that need themselves, or each other over and over, end when `left`
    does."""

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
            one
            for one in param.children
            if (one.required or "const" in one.source) and not one.is_pattern
        )
        return {one.name: self.sample(one, depth + 1) for one in wanted}

    def _sample_items(self, param: SchemaParameter, depth: int) -> list[Any]:
        values = [self.sample(one, depth + 1) for one in param.prefix]
        missing = min(
            max(_get_limit(param, "minItems", 1), 1), _get_limit(param, "maxItems", 100), 100
        ) - len(values)
        if param.items and param.items.source.get("enum") != []:
            values += [self.sample(param.items, depth + 1) for _ in range(int(missing))]
        return values


def _is_usable(value: Any, param: SchemaParameter) -> bool:
    """Whether a default or an example has the type that it is one for; some servers' have not."""
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
    if param.type == "integer" or below - above > 2:
        step = 1
    else:
        step = (below - above) / 2
    if value <= above:
        value = above + step
    elif value >= below:
        value = below - step
    else:
        value = value
    multiple = _get_limit(param, "multipleOf", 0)
    if multiple > 0:
        value = math.ceil(value / multiple) * multiple
    else:
        value = value
    if param.type == "integer":
        return math.ceil(value)
    return value


def _sample_string(param: SchemaParameter) -> str:
    least = min(int(_get_limit(param, "minLength", 0)), 10_000)
    most = int(_get_limit(param, "maxLength", 10_000))
    return _pick_sample(param)[:most].ljust(least, "x")


def _pick_sample(param: SchemaParameter) -> str:
    return _SAMPLES.get(str(param.source.get("format")), f"<{_render_name(param)}>")


def _render_name(param: SchemaParameter) -> str:
    return " ".join(sanitize_text(param.name).split()) or "text"


def _sample_pattern(param: SchemaParameter) -> str:
    """A text that matches the pattern, if one of a few does."""
    limits = {
        key: param.source[key]
        for key in ("pattern", "minLength", "maxLength")
        if key in param.source
    }
    first = _pick_sample(param)
    least = int(_get_limit(param, "minLength", 0))
    most = min(int(_get_limit(param, "maxLength", _MAX_MATCHED_CHARS)), _MAX_MATCHED_CHARS)
    if (
        least > _MAX_MATCHED_CHARS
        or estimate_compilation([str(limits["pattern"])]) > MAX_COMPILE_US // _MAX_PATTERNS
    ):
        return first
    # Imported here because search answers need this module at once and hardly ever a pattern. The
    # pattern is a stranger's: only a matcher that cannot run away may try it.
    import jsonschema_rs

    try:
        options = jsonschema_rs.RegexOptions(_MAX_PATTERN_BYTES)
        fits = jsonschema_rs.validator_for(limits, pattern_options=options).is_valid
    except ValueError:
        return first
    candidates = [
        one[:most] for one in (first, _render_name(param), *_MORE_SAMPLES, *_SAMPLES.values())
    ]
    return next(
        (one for one in (text.ljust(least, text[-1:] or "x") for text in candidates) if fits(one)),
        first,
    )


def _get_limit(param: SchemaParameter, key: str, default: float) -> float:
    value = param.source.get(key)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    return default
