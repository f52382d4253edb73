"""References in a workflow: `${step.path}` in a text is what that JMESPath finds among the values
there are. Pure.

A text that is one reference and nothing else becomes the value, with its type; in a longer text the
value is written out, objects as compact JSON. `$${` stands for `${`. An expression begins with a
name: a step's id, `inputs`, and inside
`for_each` also `item` and `index`.

Two things that JMESPath refuses are understood, because everybody writes them: a bare number, true,
false or null after a comparator, and a hyphen in a name.
"""

import math
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from portico.catalog.visible_text import quote_text
from portico.errors import InvalidArguments
from portico.json_text.part_stream import encode_compact, encode_value, to_parts
from portico.results.path_selection import MAX_PATH_CHARS, evaluate_path, parse_path

INPUTS = "inputs"
ITEM = "item"
INDEX = "index"
RESERVED = frozenset((INPUTS, ITEM, INDEX))
MAX_DEPTH = 64
"""Levels of arguments that are looked through for references."""

MAX_REFERENCES = 1_000
"""Of one workflow: each costs a moment to be read."""
MAX_TOTAL_EXPRESSION_CHARS = 20_000
"""Characters of all expressions of one workflow: reading them takes longer than anything else
before it runs."""
MAX_RESOLVED_CHARS = 4 * 1024**2
"""Characters of the arguments of one call: a few references can say a large value a thousand times.
"""

AstNode = Mapping[str, Any]

_QUOTES = "'\"`"
_TOKEN = re.compile(
    r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|`(?:\\.|[^`\\])*`"
    r"|(?P<compares>==|!=|<=|>=|<|>)(?P<space>\s*)(?P<literal>-?[0-9]+(?:\.[0-9]+)?|true|false|null)(?![\w.(])"
    r"|(?P<hyphened>[A-Za-z_][A-Za-z0-9_]*(?:-[A-Za-z0-9_]+)+)",
    re.DOTALL,
)
_STARTS_AT_FIRST_CHILD = frozenset(
    (
        "subexpression",
        "index_expression",
        "pipe",
        "projection",
        "value_projection",
        "filter_projection",
        "flatten",
    )
)
"""What goes on from its first child: only that one begins at the top."""
_WITHOUT_NAMES = frozenset(("literal", "expref", "index", "slice"))


def make_too_large_error() -> InvalidArguments:
    """The error for arguments that come to too much."""
    return InvalidArguments(
        f"the arguments come to more than {MAX_RESOLVED_CHARS // 1024**2} MiB",
        advice="Refer to the parts that are needed, and not to whole values.",
    )


class BadReference(ValueError):
    """A reference that cannot be read; says why."""


@dataclass(frozen=True)
class Reference:
    """One expression."""

    text: str
    """As it was written."""
    path: str
    """As JMESPath takes it."""
    names: frozenset[str]
    """What it begins with."""
    needs: tuple[frozenset[str], ...] = ()
    """Of each of these sets at least one has to be there: `a.x || b.x` can do with either, `a.x ||
    'none'` without."""
    inputs: frozenset[str] = frozenset()
    """The inputs without which it finds nothing."""
    plain_path: tuple[str | int, ...] | None = None
    """The names and numbers that it goes down by, if it does no more than that."""

    def resolve(self, scope: Mapping[str, Any]) -> Any:
        """What it finds; raises InvalidArguments where JMESPath does. Anything but a plain way may
        take its time."""
        if self.plain_path is not None:
            return _follow_path(scope, self.plain_path)
        return evaluate_path(
            self.path, {name: scope.get(name) for name in self.names}, MAX_RESOLVED_CHARS
        )


@dataclass(frozen=True)
class TextTemplate:
    """A text with references in it."""

    parts: tuple[str | Reference, ...]

    @property
    def references(self) -> tuple[Reference, ...]:
        """The references, in order."""
        return tuple(part for part in self.parts if isinstance(part, Reference))

    @property
    def sole_reference(self) -> Reference | None:
        """The reference that is all there is."""
        if len(self.parts) == 1 and isinstance(self.parts[0], Reference):
            return self.parts[0]
        return None

    def resolve(self, scope: Mapping[str, Any], deadline: float = math.inf) -> Any:
        """The value it stands for; raises InvalidArguments, also where it is later than `until`
        (time.monotonic)."""
        if (sole := self.sole_reference) is not None:
            _check_deadline(deadline)
            return sole.resolve(scope)
        texts: list[str] = []
        chars = 0
        for part in self.parts:
            _check_deadline(deadline)
            for piece in (
                (part,) if isinstance(part, str) else _iter_text_pieces(part.resolve(scope))
            ):
                _check_deadline(deadline)
                chars += len(piece)
                if chars > MAX_RESOLVED_CHARS:
                    raise make_too_large_error()
                texts.append(piece)
        return "".join(texts)


def parse_template(text: str) -> TextTemplate | str:
    """A text taken apart; text without references comes back as text. Raises BadReference."""
    if "${" not in text:
        return text
    found: list[str | Reference] = []
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
            found.append(joined)
        plain.clear()
        found.append(parse_expression(text[start + 2 : end]))
        at = end + 1
    if joined := "".join((*plain, text[at:])):
        found.append(joined)
    if any(isinstance(part, Reference) for part in found):
        return TextTemplate(tuple(found))
    return "".join(map(str, found))


def parse_expression(text: str) -> Reference:
    """One expression, as it stands between the braces; raises BadReference."""
    from jmespath.exceptions import JMESPathError  # only whoever runs workflows pays for it

    written = text.strip()
    if not written:
        raise BadReference("${} is empty; name a step, as in ${step.path}")
    if len(written) > MAX_PATH_CHARS:
        raise BadReference(f"the expression has more than {MAX_PATH_CHARS} characters")
    path = _TOKEN.sub(_normalize_token, written)
    try:
        parsed = parse_path(path)
        names = frozenset(_iter_names(parsed))
        needs = tuple(dict.fromkeys(_iter_needs(parsed)))
        return Reference(
            written, path, names, needs, frozenset(_iter_inputs(parsed)), _to_plain_path(parsed)
        )
    except (JMESPathError, ValueError, TypeError) as error:
        if isinstance(error, BadReference):
            raise
        why = " ".join(str(error).split())[:200]
        raise BadReference(f"{quote_text(written)} is not JMESPath: {why}") from None
    except RecursionError:
        raise BadReference(f"{quote_text(written)} goes too deep") from None


def parse_condition(text: str) -> Reference:
    """What `if` says: an expression, bare or as one reference; raises BadReference."""
    if "${" not in text:
        return parse_expression(text)
    found = parse_template(text)
    if isinstance(found, str) or found.sole_reference is None:
        raise BadReference("it must be one expression: step.count > `0`, or ${step.found}")
    return found.sole_reference


def parse_value(value: Any, where: str = "", depth: int = 0) -> Any:
    """A value with its texts taken apart; raises BadReference, saying where."""
    if depth > MAX_DEPTH:
        raise BadReference(f"{where}: it is nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, str):
        try:
            return parse_template(value)
        except BadReference as error:
            raise BadReference(f"{where}: {error}" if where else str(error)) from None
    if isinstance(value, dict):
        given = cast("dict[str, Any]", value)
        return {
            key: parse_value(item, f"{where}.{key}" if where else key, depth + 1)
            for key, item in given.items()
        }
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return [
            parse_value(item, f"{where}[{number}]", depth + 1) for number, item in enumerate(items)
        ]
    return value


def count_references(value: Any) -> int:
    """How many references there may be in a value that nobody has read yet."""
    found = 0
    pending: list[Any] = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, str):
            found += one.count("${")
        elif isinstance(one, dict | list):
            pending.extend(
                cast("dict[str, Any]", one).values()
                if isinstance(one, dict)
                else cast("list[Any]", one)
            )
    return found


def count_expression_chars(value: Any) -> int:
    """How many characters the expressions in a value have that nobody has read yet."""
    found = 0
    pending: list[Any] = [value]
    while pending and found <= MAX_TOTAL_EXPRESSION_CHARS:
        one = pending.pop()
        if isinstance(one, str):
            at = one.find("${")
            while at >= 0 and found <= MAX_TOTAL_EXPRESSION_CHARS:
                try:
                    end = _find_closing_brace(one, at + 2)
                except BadReference:
                    end = len(one)
                found += end - at
                at = one.find("${", end)
        elif isinstance(one, dict | list):
            pending.extend(
                cast("dict[str, Any]", one).values()
                if isinstance(one, dict)
                else cast("list[Any]", one)
            )
    return found


def iter_references(tree: Any) -> Iterator[Reference]:
    """Every reference in a prepared value."""
    if isinstance(tree, TextTemplate):
        yield from tree.references
    elif isinstance(tree, dict | list):
        for item in tree.values() if isinstance(tree, dict) else tree:
            yield from iter_references(item)


def resolve_references(tree: Any, scope: Mapping[str, Any], deadline: float = math.inf) -> Any:
    """A prepared value with what its references find; raises InvalidArguments, also where it is
    later than `until`."""
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
    """Where the brace that was opened before `at` is closed, past quotation marks and braces
    inside."""
    depth = 1
    start = at
    while at < len(text):
        mark = text[at]
        if mark in _QUOTES:
            at += 1
            while at < len(text) and text[at] != mark:
                at += 2 if text[at] == "\\" else 1
        elif mark == "{":
            depth += 1
        elif mark == "}":
            depth -= 1
            if not depth:
                return at
        at += 1
    raise BadReference(
        f"{quote_text(text[start - 2 :])} is not closed; write $${{ for the characters ${{ themselves"
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
    """The inputs that have no alternative: `inputs.x || 'y'` can do without."""
    kind = node["type"]
    children = node["children"]
    if kind == "subexpression" and children[0] == {
        "type": "field",
        "children": [],
        "value": INPUTS,
    }:
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
        if (way := _to_plain_path(child)) is None:
            return None
        steps += way
    return tuple(steps)


def _follow_path(value: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        if isinstance(step, str):
            if isinstance(value, Mapping):
                value = value.get(step)
            else:
                value = None
        else:
            if isinstance(value, list) and -len(value) <= step < len(value):
                value = value[step]
            else:
                value = None
    return value


def _iter_text_pieces(value: Any) -> Iterator[str]:
    """A value as text, in pieces."""
    if isinstance(value, str):
        yield value
        return
    try:
        yield from encode_compact(to_parts(value), encode_value)
    except (TypeError, ValueError, RecursionError):
        raise InvalidArguments(
            "a value cannot be written out as JSON", advice="Refer to a part of it."
        ) from None
