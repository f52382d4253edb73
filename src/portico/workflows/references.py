"""References in a workflow: `${step.path}` is replaced by what that JMESPath finds. Pure.

Text that is exactly one reference becomes the value, with its type; in longer text the value is
written out, objects as compact JSON. `$${` stands for `${`. An expression begins with a name: a
step's id, `inputs`, and inside `for_each` also `item` and `index`.

Two common notations that JMESPath refuses are accepted: a bare number, true, false or null after a
comparator, and a hyphen in a name.
"""

import math
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from portico.catalog.tool import quote_text
from portico.errors import InvalidArguments
from portico.json_text.part_stream import encode_compact, encode_value, to_parts
from portico.results.path_selection import MAX_PATH_CHARS, evaluate_path, parse_path

INPUTS = "inputs"
ITEM = "item"
INDEX = "index"
RESERVED = frozenset((INPUTS, ITEM, INDEX))
MAX_DEPTH = 64
"""Levels of arguments that are searched for references."""

MAX_REFERENCES = 1_000
"""References of one workflow; parsing each takes time."""
MAX_TOTAL_EXPRESSION_CHARS = 20_000
"""Characters of all expressions of one workflow; parsing them dominates validation."""
MAX_RESOLVED_CHARS = 4 * 1024**2
"""Characters of the arguments of one call: a few references can repeat a large value many times."""

AstNode = Mapping[str, Any]

_QUOTES = "'\"`"
_TOKEN = re.compile(
    r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|`(?:\\.|[^`\\])*`"
    r"|(?P<compares>==|!=|<=|>=|<|>)(?P<space>\s*)"
    r"(?P<literal>-?[0-9]+(?:\.[0-9]+)?|true|false|null)(?![\w.(])"
    r"|(?P<hyphened>[A-Za-z_][A-Za-z0-9_]*(?:-[A-Za-z0-9_]+)+)",
    re.DOTALL,
)
_STARTS_AT_FIRST_CHILD = (
    "subexpression", "index_expression", "pipe", "projection", "value_projection",
    "filter_projection", "flatten",
)  # fmt: skip
"""Nodes of which only the first child is evaluated on the scope."""
_WITHOUT_NAMES = ("literal", "expref", "index", "slice")
_INPUTS_FIELD = {"type": "field", "children": [], "value": INPUTS}


def make_too_large_error() -> InvalidArguments:
    return InvalidArguments(
        f"the arguments come to more than {MAX_RESOLVED_CHARS // 1024**2} MiB",
        advice="Refer to the parts that are needed, and not to whole values.",
    )


class BadReference(ValueError):
    """A reference that cannot be parsed; the message says why."""


@dataclass(frozen=True)
class Reference:
    text: str
    """As it was written."""
    path: str
    """As JMESPath takes it."""
    names: frozenset[str]
    """The names it starts from."""
    needs: tuple[frozenset[str], ...] = ()
    """At least one name of each set must have a value: `a.x || b.x` needs either, `a.x ||
    'none'` neither."""
    inputs: frozenset[str] = frozenset()
    """Inputs without which it finds nothing."""
    plain_path: tuple[str | int, ...] | None = None
    """The names and indices of a plain path; None for any other expression."""

    def resolve(self, scope: Mapping[str, Any]) -> Any:
        """Return what it finds; raises InvalidArguments where JMESPath fails. May be slow."""
        if self.plain_path is not None:
            return _follow_path(scope, self.plain_path)
        return evaluate_path(
            self.path, {name: scope.get(name) for name in self.names}, MAX_RESOLVED_CHARS
        )


@dataclass(frozen=True)
class TextTemplate:
    parts: tuple[str | Reference, ...]

    @property
    def references(self) -> tuple[Reference, ...]:
        return tuple(part for part in self.parts if isinstance(part, Reference))

    @property
    def sole_reference(self) -> Reference | None:
        if len(self.parts) == 1 and isinstance(self.parts[0], Reference):
            return self.parts[0]
        return None

    def resolve(self, scope: Mapping[str, Any], deadline: float = math.inf) -> Any:
        """Return the value; raises InvalidArguments, also after `deadline` (time.monotonic)."""
        if (sole := self.sole_reference) is not None:
            _check_deadline(deadline)
            return sole.resolve(scope)
        texts: list[str] = []
        chars = 0
        for part in self.parts:
            _check_deadline(deadline)
            value = part if isinstance(part, str) else part.resolve(scope)
            for piece in _iter_text_pieces(value):
                _check_deadline(deadline)
                chars += len(piece)
                if chars > MAX_RESOLVED_CHARS:
                    raise make_too_large_error()
                texts.append(piece)
        return "".join(texts)


def parse_template(text: str) -> TextTemplate | str:
    """Parse text; without references it is returned as text. Raises BadReference."""
    if "${" not in text:
        return text
    parts: list[str | Reference] = []
    plain: list[str] = []
    at = 0
    while (start := text.find("${", at)) >= 0:
        if start > at and text[start - 1] == "$":
            plain.append(text[at : start - 1] + "${")
            at = start + 2
            continue
        plain.append(text[at:start])
        end = _find_closing_brace(text, start + 2)
        if joined := "".join(plain):
            parts.append(joined)
        plain.clear()
        parts.append(parse_expression(text[start + 2 : end]))
        at = end + 1
    if joined := "".join((*plain, text[at:])):
        parts.append(joined)
    if any(isinstance(part, Reference) for part in parts):
        return TextTemplate(tuple(parts))
    return "".join(map(str, parts))


def parse_expression(text: str) -> Reference:
    """Parse one expression, as written between the braces; raises BadReference."""
    from jmespath.exceptions import JMESPathError  # imported late: only workflows need it

    expression = text.strip()
    if not expression:
        raise BadReference("${} is empty; name a step, as in ${step.path}")
    if len(expression) > MAX_PATH_CHARS:
        raise BadReference(f"the expression has more than {MAX_PATH_CHARS} characters")
    path = _TOKEN.sub(_normalize_token, expression)
    try:
        parsed = parse_path(path)
        names = frozenset(_iter_names(parsed))
        needs = tuple(dict.fromkeys(_iter_needs(parsed)))
        return Reference(
            expression, path, names, needs, frozenset(_iter_inputs(parsed)), _to_plain_path(parsed)
        )
    except (JMESPathError, ValueError, TypeError) as error:
        if isinstance(error, BadReference):
            raise
        reason = " ".join(str(error).split())[:200]
        raise BadReference(f"{quote_text(expression)} is not JMESPath: {reason}") from None
    except RecursionError:
        raise BadReference(f"{quote_text(expression)} goes too deep") from None


def nest_inputs(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Put each input that is named `step.parameter` where `${inputs.step.parameter}` finds it."""
    nested = dict(inputs)
    for name, value in inputs.items():
        first, _, rest = name.partition(".")
        around = nested.get(first, {})
        if rest and isinstance(around, dict):
            nested[first] = {rest: value, **cast("dict[str, Any]", around)}
    return nested


def parse_condition(text: str) -> Reference:
    """Parse an `if`: an expression, bare or as one reference; raises BadReference."""
    if "${" not in text:
        return parse_expression(text)
    found = parse_template(text)
    if isinstance(found, str) or found.sole_reference is None:
        raise BadReference("it must be one expression: step.count > `0`, or ${step.found}")
    return found.sole_reference


def parse_value(value: Any, where: str = "", depth: int = 0) -> Any:
    """Parse all text in a value; raises BadReference with the position."""
    if depth > MAX_DEPTH:
        raise BadReference(f"{where}: it is nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, str):
        try:
            return parse_template(value)
        except BadReference as error:
            raise BadReference(f"{where}: {error}" if where else str(error)) from None
    if isinstance(value, dict):
        prefix = f"{where}." if where else ""
        return {
            key: parse_value(item, f"{prefix}{key}", depth + 1)
            for key, item in cast("dict[str, Any]", value).items()
        }
    if isinstance(value, list):
        return [
            parse_value(item, f"{where}[{number}]", depth + 1)
            for number, item in enumerate(cast("list[Any]", value))
        ]
    return value


def count_expressions(value: Any) -> tuple[int, int]:
    """Count possible references in an unparsed value, and the characters of their expressions.

    Characters are counted up to their limit.
    """
    references = 0
    chars = 0
    pending: list[Any] = [value]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            pending.extend(cast("dict[str, Any]", node).values())
        elif isinstance(node, list):
            pending.extend(cast("list[Any]", node))
        elif isinstance(node, str):
            references += node.count("${")
            at = node.find("${")
            while at >= 0 and chars <= MAX_TOTAL_EXPRESSION_CHARS:
                try:
                    end = _find_closing_brace(node, at + 2)
                except BadReference:
                    end = len(node)
                chars += end - at
                at = node.find("${", end)
    return references, chars


def iter_references(tree: Any) -> Iterator[Reference]:
    if isinstance(tree, TextTemplate):
        yield from tree.references
    elif isinstance(tree, dict | list):
        for item in tree.values() if isinstance(tree, dict) else tree:
            yield from iter_references(item)


def resolve_references(tree: Any, scope: Mapping[str, Any], deadline: float = math.inf) -> Any:
    """Resolve the references in a parsed value; raises InvalidArguments, also after `deadline`."""
    if isinstance(tree, TextTemplate):
        return tree.resolve(scope, deadline)
    if isinstance(tree, dict):
        return {key: resolve_references(item, scope, deadline) for key, item in tree.items()}
    if isinstance(tree, list):
        return [resolve_references(item, scope, deadline) for item in tree]
    return tree


def _check_deadline(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise InvalidArguments(
            "its references take too long", advice="Refer to less, or to parts of smaller values."
        )


def _find_closing_brace(text: str, at: int) -> int:
    """Return the position of the matching closing brace, skipping quotes and nested braces."""
    depth = 1
    start = at
    while at < len(text):
        character = text[at]
        if character in _QUOTES:
            at += 1
            while at < len(text) and text[at] != character:
                at += 2 if text[at] == "\\" else 1
        elif character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if not depth:
                return at
        at += 1
    raise BadReference(
        f"{quote_text(text[start - 2 :])} is not closed;"
        " write $${ for the characters ${ themselves"
    )


def _normalize_token(token: re.Match[str]) -> str:
    if token["compares"]:
        return f"{token['compares']}{token['space']}`{token['literal']}`"
    if token["hyphened"]:
        return f'"{token["hyphened"]}"'
    return token[0]


def _iter_names(node: AstNode) -> Iterator[str]:
    kind = node["type"]
    children = node["children"]
    if kind == "field":
        yield node["value"]
    elif kind in ("current", "identity"):
        raise BadReference(
            "an expression begins with a step's id, inputs, or in for_each with item or index"
        )
    elif kind in _STARTS_AT_FIRST_CHILD:
        if children[0]["type"] == "not_expression":
            raise BadReference("!a.b is read as (!a).b; write !(a.b)")
        yield from _iter_names(children[0])
    elif kind not in _WITHOUT_NAMES:
        for child in children:
            yield from _iter_names(child)


def _iter_needs(node: AstNode) -> Iterator[frozenset[str]]:
    kind = node["type"]
    children = node["children"]
    if kind == "field":
        yield frozenset({node["value"]})
    elif kind == "or_expression":
        either = [frozenset(_iter_names(child)) for child in children]
        if all(either):
            yield frozenset[str]().union(*either)
    elif kind in _STARTS_AT_FIRST_CHILD:
        yield from _iter_needs(children[0])
    elif kind not in _WITHOUT_NAMES:
        for child in children:
            yield from _iter_needs(child)


def _iter_inputs(node: AstNode) -> Iterator[str]:
    """Yield the inputs that have no alternative: `inputs.x || 'y'` works without."""
    kind = node["type"]
    children = node["children"]
    if kind == "subexpression" and children[0] == _INPUTS_FIELD:
        if children[1]["type"] == "field":
            yield children[1]["value"]
    elif kind in _STARTS_AT_FIRST_CHILD:
        yield from _iter_inputs(children[0])
    elif kind not in _WITHOUT_NAMES and kind != "or_expression":
        for child in children:
            yield from _iter_inputs(child)


def _to_plain_path(node: AstNode) -> tuple[str | int, ...] | None:
    if node["type"] in ("field", "index"):
        return (node["value"],)
    if node["type"] not in ("subexpression", "index_expression"):
        return None
    steps: list[str | int] = []
    for child in node["children"]:
        if (nested := _to_plain_path(child)) is None:
            return None
        steps += nested
    return tuple(steps)


def _follow_path(value: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        if isinstance(step, str):
            value = value.get(step) if isinstance(value, Mapping) else None
        elif isinstance(value, list) and -len(value) <= step < len(value):
            value = value[step]
        else:
            value = None
    return value


def _iter_text_pieces(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
        return
    try:
        yield from encode_compact(to_parts(value), encode_value)
    except (TypeError, ValueError, RecursionError):
        raise InvalidArguments(
            "a value cannot be written out as JSON", advice="Refer to a part of it."
        ) from None
