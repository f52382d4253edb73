"""References in a workflow: `${step.path}` in a text is what that JMESPath finds among the values there are. Pure.

A text that is one reference and nothing else becomes the value, with its type; in a longer text the value is written
out, objects as compact JSON. `$${` stands for `${`. An expression begins with a name: a step's id, `inputs`, and inside
`for_each` also `item` and `index`.

Two things that JMESPath refuses are understood, because everybody writes them: a bare number, true, false or null after
a comparator, and a hyphen in a name.
"""

import math
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from portico.catalog.visible import quoted
from portico.errors import InvalidArguments
from portico.execution.json_stream import compact, encode, parts
from portico.execution.selecting import MAX_EXPRESSION, evaluate, parse

INPUTS, ITEM, INDEX = "inputs", "item", "index"
RESERVED = frozenset((INPUTS, ITEM, INDEX))
MAX_DEPTH = 64
"""Levels of arguments that are looked through for references."""

MAX_REFERENCES = 1_000
"""Of one workflow: each costs a moment to be read."""
MAX_SPELLED = 20_000
"""Characters of all expressions of one workflow: reading them takes longer than anything else before it runs."""
MAX_FILLED = 4 * 1024**2
"""Characters of the arguments of one call: a few references can say a large value a thousand times."""

Node = Mapping[str, Any]

_QUOTES = "'\"`"
_TOKEN = re.compile(
    r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|`(?:\\.|[^`\\])*`"
    r"|(?P<compares>==|!=|<=|>=|<|>)(?P<space>\s*)(?P<literal>-?[0-9]+(?:\.[0-9]+)?|true|false|null)(?![\w.(])"
    r"|(?P<hyphened>[A-Za-z_][A-Za-z0-9_]*(?:-[A-Za-z0-9_]+)+)",
    re.DOTALL,
)
_FIRST_OF = frozenset(
    ("subexpression", "index_expression", "pipe", "projection", "value_projection", "filter_projection", "flatten")
)
"""What goes on from its first child: only that one begins at the top."""
_NOTHING = frozenset(("literal", "expref", "index", "slice"))


def too_large() -> InvalidArguments:
    """The error for arguments that come to too much."""
    return InvalidArguments(
        f"the arguments come to more than {MAX_FILLED // 1024**2} MiB",
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
    """Of each of these sets at least one has to be there: `a.x || b.x` can do with either, `a.x || 'none'` without."""
    inputs: frozenset[str] = frozenset()
    """The inputs without which it finds nothing."""
    way: tuple[str | int, ...] | None = None
    """The names and numbers that it goes down by, if it does no more than that."""

    def found(self, scope: Mapping[str, Any]) -> Any:
        """What it finds; raises InvalidArguments where JMESPath does. Anything but a plain way may take its time."""
        if self.way is not None:
            return _down(scope, self.way)
        return evaluate(self.path, {name: scope.get(name) for name in self.names}, MAX_FILLED)


@dataclass(frozen=True)
class Template:
    """A text with references in it."""

    parts: tuple[str | Reference, ...]

    @property
    def references(self) -> tuple[Reference, ...]:
        """The references, in order."""
        return tuple(part for part in self.parts if isinstance(part, Reference))

    @property
    def sole(self) -> Reference | None:
        """The reference that is all there is."""
        return self.parts[0] if len(self.parts) == 1 and isinstance(self.parts[0], Reference) else None

    def filled(self, scope: Mapping[str, Any], until: float = math.inf) -> Any:
        """The value it stands for; raises InvalidArguments, also where it is later than `until` (time.monotonic)."""
        if (sole := self.sole) is not None:
            _in_time(until)
            return sole.found(scope)
        texts: list[str] = []
        chars = 0
        for part in self.parts:
            _in_time(until)
            for piece in (part,) if isinstance(part, str) else _written(part.found(scope)):
                _in_time(until)
                chars += len(piece)
                if chars > MAX_FILLED:
                    raise too_large()
                texts.append(piece)
        return "".join(texts)


def template(text: str) -> Template | str:
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
        end = _end(text, start + 2)
        if joined := "".join(plain):
            found.append(joined)
        plain.clear()
        found.append(expression(text[start + 2 : end]))
        at = end + 1
    if joined := "".join((*plain, text[at:])):
        found.append(joined)
    return Template(tuple(found)) if any(isinstance(part, Reference) for part in found) else "".join(map(str, found))


def expression(text: str) -> Reference:
    """One expression, as it stands between the braces; raises BadReference."""
    from jmespath.exceptions import JMESPathError  # only whoever runs workflows pays for it

    written = text.strip()
    if not written:
        raise BadReference("${} is empty; name a step, as in ${step.path}")
    if len(written) > MAX_EXPRESSION:
        raise BadReference(f"the expression has more than {MAX_EXPRESSION} characters")
    path = _TOKEN.sub(_understood, written)
    try:
        parsed = parse(path)
        names, needs = frozenset(_names(parsed)), tuple(dict.fromkeys(_needs(parsed)))
        return Reference(written, path, names, needs, frozenset(_inputs(parsed)), _way(parsed))
    except (JMESPathError, ValueError, TypeError) as error:
        if isinstance(error, BadReference):
            raise
        why = " ".join(str(error).split())[:200]
        raise BadReference(f"{quoted(written)} is not JMESPath: {why}") from None
    except RecursionError:
        raise BadReference(f"{quoted(written)} goes too deep") from None


def condition(text: str) -> Reference:
    """What `if` says: an expression, bare or as one reference; raises BadReference."""
    if "${" not in text:
        return expression(text)
    found = template(text)
    if isinstance(found, str) or found.sole is None:
        raise BadReference("it must be one expression: step.count > `0`, or ${step.found}")
    return found.sole


def prepared(value: Any, where: str = "", depth: int = 0) -> Any:
    """A value with its texts taken apart; raises BadReference, saying where."""
    if depth > MAX_DEPTH:
        raise BadReference(f"{where}: it is nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, str):
        try:
            return template(value)
        except BadReference as error:
            raise BadReference(f"{where}: {error}" if where else str(error)) from None
    if isinstance(value, dict):
        given = cast("dict[str, Any]", value)
        return {key: prepared(item, f"{where}.{key}" if where else key, depth + 1) for key, item in given.items()}
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return [prepared(item, f"{where}[{number}]", depth + 1) for number, item in enumerate(items)]
    return value


def mentioned(value: Any) -> int:
    """How many references there may be in a value that nobody has read yet."""
    found = 0
    pending: list[Any] = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, str):
            found += one.count("${")
        elif isinstance(one, dict | list):
            pending.extend(cast("dict[str, Any]", one).values() if isinstance(one, dict) else cast("list[Any]", one))
    return found


def spelled(value: Any) -> int:
    """How many characters the expressions in a value have that nobody has read yet."""
    found = 0
    pending: list[Any] = [value]
    while pending and found <= MAX_SPELLED:
        one = pending.pop()
        if isinstance(one, str):
            at = one.find("${")
            while at >= 0 and found <= MAX_SPELLED:
                try:
                    end = _end(one, at + 2)
                except BadReference:
                    end = len(one)
                found += end - at
                at = one.find("${", end)
        elif isinstance(one, dict | list):
            pending.extend(cast("dict[str, Any]", one).values() if isinstance(one, dict) else cast("list[Any]", one))
    return found


def references(tree: Any) -> Iterator[Reference]:
    """Every reference in a prepared value."""
    if isinstance(tree, Template):
        yield from tree.references
    elif isinstance(tree, dict | list):
        for item in tree.values() if isinstance(tree, dict) else tree:
            yield from references(item)


def filled(tree: Any, scope: Mapping[str, Any], until: float = math.inf) -> Any:
    """A prepared value with what its references find; raises InvalidArguments, also where it is later than `until`."""
    if isinstance(tree, Template):
        return tree.filled(scope, until)
    if isinstance(tree, dict):
        return {key: filled(item, scope, until) for key, item in tree.items()}
    return [filled(item, scope, until) for item in tree] if isinstance(tree, list) else tree


def _in_time(until: float) -> None:
    if time.monotonic() > until:
        raise InvalidArguments("its references take too long", advice="Refer to less, or to parts of smaller values.")


def _end(text: str, at: int) -> int:
    """Where the brace that was opened before `at` is closed, past quotation marks and braces inside."""
    depth, start = 1, at
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
    raise BadReference(f"{quoted(text[start - 2 :])} is not closed; write $${{ for the characters ${{ themselves")


def _understood(token: re.Match[str]) -> str:
    if token["compares"]:
        return f"{token['compares']}{token['space']}`{token['literal']}`"
    return f'"{token["hyphened"]}"' if token["hyphened"] else token[0]


def _names(node: Node) -> Iterator[str]:
    kind, children = node["type"], node["children"]
    if kind == "field":
        yield node["value"]
    elif kind in ("current", "identity"):
        raise BadReference("an expression begins with a step's id, inputs, or in for_each with item or index")
    elif kind in _FIRST_OF:
        if children[0]["type"] == "not_expression":
            raise BadReference("!a.b is read as (!a).b; write !(a.b)")
        yield from _names(children[0])
    elif kind not in _NOTHING:
        for child in children:
            yield from _names(child)


def _needs(node: Node) -> Iterator[frozenset[str]]:
    kind, children = node["type"], node["children"]
    if kind == "field":
        yield frozenset({node["value"]})
    elif kind == "or_expression":
        either = [frozenset(_names(child)) for child in children]
        if all(either):
            yield frozenset[str]().union(*either)
    elif kind in _FIRST_OF:
        yield from _needs(children[0])
    elif kind not in _NOTHING:
        for child in children:
            yield from _needs(child)


def _inputs(node: Node) -> Iterator[str]:
    """The inputs that have no alternative: `inputs.x || 'y'` can do without."""
    kind, children = node["type"], node["children"]
    if kind == "subexpression" and children[0] == {"type": "field", "children": [], "value": INPUTS}:
        if children[1]["type"] == "field":
            yield children[1]["value"]
    elif kind in _FIRST_OF:
        yield from _inputs(children[0])
    elif kind not in _NOTHING and kind != "or_expression":
        for child in children:
            yield from _inputs(child)


def _way(node: Node) -> tuple[str | int, ...] | None:
    if node["type"] in ("field", "index"):
        return (node["value"],)
    if node["type"] not in ("subexpression", "index_expression"):
        return None
    steps: list[str | int] = []
    for child in node["children"]:
        if (way := _way(child)) is None:
            return None
        steps += way
    return tuple(steps)


def _down(value: Any, way: tuple[str | int, ...]) -> Any:
    for step in way:
        if isinstance(step, str):
            value = value.get(step) if isinstance(value, Mapping) else None
        else:
            value = value[step] if isinstance(value, list) and -len(value) <= step < len(value) else None
    return value


def _written(value: Any) -> Iterator[str]:
    """A value as text, in pieces."""
    if isinstance(value, str):
        yield value
        return
    try:
        yield from compact(parts(value), encode)
    except (TypeError, ValueError, RecursionError):
        raise InvalidArguments("a value cannot be written out as JSON", advice="Refer to a part of it.") from None
