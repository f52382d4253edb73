"""Plausible calls of a tool, made from its schema alone. Pure."""

import math
from functools import lru_cache
from typing import Any

from portico.catalog.schema import ABSENT, Outline, Param, input_outline, json_type, outline
from portico.catalog.tool import Tool
from portico.catalog.visible import shown
from portico.upstream.pattern_cost import MAX_COMPILE_US, estimate_compilation

_SAMPLES = {
    "date-time": "2025-01-31T12:00:00Z", "date": "2025-01-31", "time": "12:00:00Z", "email": "name@example.com",
    "uri": "https://example.com", "url": "https://example.com", "uuid": "123e4567-e89b-42d3-a456-426614174000",
    "hostname": "example.com", "ipv4": "192.0.2.1", "ipv6": "2001:db8::1", "duration": "P1D", "cidrv4": "192.0.2.0/24",
}  # fmt: skip
_MORE_SAMPLES = ("example", "Example", "EXAMPLE", "ABC-123", "1", "12", "123", "12345", "a1b2c3", "us-east-1", "a/b")
_PATTERNS, _MATCHED_CHARS, _PATTERN_BYTES = 16, 1_000, 4 * 1024
"""How many patterns of a schema are tried, with texts of how many characters, and how large one may be compiled."""
_KEPT = 16
"""Tools whose example is remembered: one answer may need it three times."""
_WRITTEN, _OPTIONS = 2, 3
"""How many of an author's own examples are shown, and with how many options ours."""


def example(tool: Tool) -> dict[str, Any]:
    """A plausible minimal arguments object: what is required, from defaults, enums and examples where there are any."""
    return dict(_least(tool))


@lru_cache(maxsize=_KEPT)
def _least(tool: Tool) -> dict[str, Any]:
    tree = input_outline(tool)
    value = _Sampler(tree).value(tree.root)
    return value if isinstance(value, dict) else {}


def examples(tool: Tool) -> list[dict[str, Any]]:
    """One to three calls: what the schema's author wrote, the least that is taken, and one with some options."""
    tree = input_outline(tool)
    least = example(tool)
    written = [value for value in tree.root.examples if isinstance(value, dict)][:_WRITTEN]
    found = [*written, least, {**least, **_options(tree)}]
    return [value for place, value in enumerate(found) if value not in found[:place]][:3]


def _options(tree: Outline) -> dict[str, Any]:
    """Some optional parameters that the schema knows good values for; those that are no default tell most."""
    options = [param for param in tree.params if not (param.required or param.pattern)]
    known = {param.name: _known_value(param) for param in options}
    told = sorted((param for param in options if known[param.name] is not ABSENT), key=lambda param: not _tells(param))
    return {param.name: known[param.name] for param in told[:_OPTIONS]}


def _tells(param: Param) -> bool:
    return bool(param.examples or param.enum)


def _known_value(param: Param) -> Any:
    """A value that its schema gives: an example, another of the values than the default, or the default."""
    for value in (*param.examples, *(one for one in param.enum if one != param.default), param.default):
        if value is not ABSENT and value is not None and _is_usable(value, param):
            return value
    return ABSENT


class _Sampler:
    """Makes one example; types that need themselves, or each other over and over, end when `left` does."""

    def __init__(self, tree: Outline) -> None:
        self.types, self.left = tree.types, 400
        self.patterns_left = _PATTERNS

    def value(self, param: Param, depth: int = 0) -> Any:
        self.left -= 1
        if param.enum:
            return param.enum[0]
        for value in (param.default, *param.examples):
            if _is_usable(value, param):
                return value
        if depth > 30 or self.left < 0 or param.type == "null":
            return None
        if param.ref:
            return self.value(self.types.get(param.ref) or outline(param.source).root, depth + 1)
        if param.variants:
            value = self.value(param.variants[0], depth + 1)
            return {**self._members(param, depth), **value} if isinstance(value, dict) else value
        if param.type == "object":
            return self._members(param, depth)
        if param.type == "array":
            return self._items(param, depth)
        if param.type in ("integer", "number"):
            return _number_sample(param)
        if param.type == "boolean":
            return True
        if "pattern" not in param.source:
            return _string_sample(param)
        self.patterns_left -= 1
        return _matching_sample(param) if self.patterns_left >= 0 else _string_sample(param)

    def _members(self, param: Param, depth: int) -> dict[str, Any]:
        wanted = (one for one in param.children if (one.required or "const" in one.source) and not one.pattern)
        return {one.name: self.value(one, depth + 1) for one in wanted}

    def _items(self, param: Param, depth: int) -> list[Any]:
        values = [self.value(one, depth + 1) for one in param.prefix]
        missing = min(max(_limit(param, "minItems", 1), 1), _limit(param, "maxItems", 100), 100) - len(values)
        if param.items and param.items.source.get("enum") != []:
            values += [self.value(param.items, depth + 1) for _ in range(int(missing))]
        return values


def _is_usable(value: Any, param: Param) -> bool:
    """Whether a default or an example has the type that it is one for; some servers' have not."""
    kind = json_type(value)
    if kind in ("null", "any"):
        return kind == "null" and param.nullable
    return param.type in (kind, "any", "union") or (kind, param.type) == ("integer", "number")


def _number_sample(param: Param) -> int | float:
    low, high = _limit(param, "minimum", -math.inf), _limit(param, "maximum", math.inf)
    above, below = _limit(param, "exclusiveMinimum", -math.inf), _limit(param, "exclusiveMaximum", math.inf)
    value = min(max(1, low), high)
    step = 1 if param.type == "integer" or below - above > 2 else (below - above) / 2
    value = above + step if value <= above else below - step if value >= below else value
    multiple = _limit(param, "multipleOf", 0)
    value = math.ceil(value / multiple) * multiple if multiple > 0 else value
    return math.ceil(value) if param.type == "integer" else value


def _string_sample(param: Param) -> str:
    least, most = min(int(_limit(param, "minLength", 0)), 10_000), int(_limit(param, "maxLength", 10_000))
    return _first_sample(param)[:most].ljust(least, "x")


def _first_sample(param: Param) -> str:
    return _SAMPLES.get(str(param.source.get("format")), f"<{_plain_name(param)}>")


def _plain_name(param: Param) -> str:
    return " ".join(shown(param.name).split()) or "text"


def _matching_sample(param: Param) -> str:
    """A text that matches the pattern, if one of a few does."""
    limits = {key: param.source[key] for key in ("pattern", "minLength", "maxLength") if key in param.source}
    first = _first_sample(param)
    least = int(_limit(param, "minLength", 0))
    most = min(int(_limit(param, "maxLength", _MATCHED_CHARS)), _MATCHED_CHARS)
    if least > _MATCHED_CHARS or estimate_compilation([str(limits["pattern"])]) > MAX_COMPILE_US // _PATTERNS:
        return first
    # Imported here because search answers need this module at once and hardly ever a pattern. The pattern is a
    # stranger's: only a matcher that cannot run away may try it.
    import jsonschema_rs

    try:
        options = jsonschema_rs.RegexOptions(_PATTERN_BYTES)
        fits = jsonschema_rs.validator_for(limits, pattern_options=options).is_valid
    except ValueError:
        return first
    candidates = [one[:most] for one in (first, _plain_name(param), *_MORE_SAMPLES, *_SAMPLES.values())]
    return next((one for one in (text.ljust(least, text[-1:] or "x") for text in candidates) if fits(one)), first)


def _limit(param: Param, key: str, otherwise: float) -> float:
    value = param.source.get(key)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else otherwise
