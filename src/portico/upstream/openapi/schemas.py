"""OpenAPI's schemas → JSON Schema 2020-12: what an argument may be, complete in itself.

Each definition is translated once, however many operations reach it; a tool carries those it reaches in `$defs`, the
nearest first, until it is large enough. What is readOnly is no part of a request and left out. `oneOf` becomes `anyOf`:
without the discriminator, alternatives overlap in most real descriptions, and the API knows better which is meant.
"""

import math
import re
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from portico.upstream import jsontext
from portico.upstream.backend import Raw
from portico.upstream.openapi.documents import Documents, Node
from portico.upstream.openapi.names import Names, clipped
from portico.upstream.openapi.numbers import bounds, choices, kinds, texts
from portico.upstream.openapi.text import plain
from portico.upstream.pattern_cost import MAX_COMPILE_US, estimate_compilation

MAX_SCHEMA_BYTES = 40_000
"""About 10,000 tokens: more of a schema nobody reads."""
DEEPEST = 40
MOST_NODES = 5_000
"""In one definition. Aliases of aliases can make a large schema of ten lines."""
_LOOK = 50
"""Schemas after which the clock is looked at: a pattern that is hard to understand takes some 20 ms."""
DESCRIPTION_CHARS = 300
EXAMPLE_BYTES = 200
_LONGEST_STEM, _LONGEST_NAME = 80, 90
_LONGEST_PATTERN = 2_000
_MOST_STATES = 500
"""Of a pattern, roughly: characters within repetitions within repetitions."""
_CLASS_STATES = 20
_UNICODE_CLASS = re.compile(r"\\[pP]")
_REPEATED = re.compile(r"\{([0-9]+)(?:,([0-9]*))?\}")
LEFT_OUT = "(not shown: the whole is too large)"

_ONE = ("items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else")
_SEVERAL = ("allOf", "anyOf", "oneOf", "prefixItems")
_NAMED = ("properties", "patternProperties", "dependentSchemas")
_BESIDE_ALTERNATIVES = {"anyOf", "description", "default", "examples", "deprecated"}
_NESTED = (*_ONE, *_SEVERAL, *_NAMED)


class TooLong(ValueError):
    """It took too long to translate the schemas of a description."""

    def __init__(self) -> None:
        super().__init__("it takes too long to make tools of it")


@dataclass(frozen=True, slots=True)
class Fragment:
    """A translated schema, and the definitions it refers to, in order."""

    schema: Any
    refs: tuple[str, ...]
    size: int


class Schemas:
    """The schemas of one description."""

    def __init__(self, documents: Documents, until: float = math.inf) -> None:
        """`until` is the CPU time of this thread from which on it is given up."""
        self._documents = documents
        self._until = until
        self._names: dict[str, str] = {}
        self._given = Names(_LONGEST_NAME)
        self._targets: dict[str, Node] = {}
        self._fragments: dict[str, Fragment] = {}
        self._refs: dict[str, None] = {}
        self._nodes = 0

    def fragment(self, node: Node) -> Fragment:
        """Translate a schema."""
        outer, self._refs = self._refs, {}
        self._nodes = 0
        try:
            schema = self._schema(node.value, node.base, 0)
            data = _dumped(schema)
            for depth in (10, 7, 5, 4, 3, 2):
                if len(data) <= MAX_SCHEMA_BYTES // 2:
                    break
                schema = _shallow(schema, depth)
                data = _dumped(schema)
            if len(data) > MAX_SCHEMA_BYTES:
                schema = _shallow(schema, 0)
                data = _dumped(schema)
            kept = tuple(name for name in self._refs if f'"#/$defs/{name}"'.encode() in data)
            return Fragment(schema, kept, len(data))
        finally:
            self._refs = outer

    def definitions(self, fragments: Iterable[Fragment]) -> Raw:
        """`$defs` for some fragments: what they reach, the nearest first, up to a size."""
        fragments = list(fragments)
        left = MAX_SCHEMA_BYTES - sum(one.size for one in fragments)
        queue = deque(name for one in fragments for name in one.refs)
        found: Raw = {}
        while queue:
            name = queue.popleft()
            if name in found:
                continue
            if (known := self._fragments.get(name)) is None:
                known = self._fragments[name] = self.fragment(self._targets[name])
            if known.size > left:
                found[name] = {"description": LEFT_OUT}
                continue
            left -= known.size
            found[name] = known.schema
            queue.extend(known.refs)
        return found

    def is_hidden(self, node: Node) -> bool:
        """Whether a property is the API's to set: no part of a request."""
        return node.entries.get("readOnly") is True or self._documents.resolved(node).entries.get("readOnly") is True

    def _schema(self, value: Any, base: str, depth: int) -> Any:
        if isinstance(value, bool):
            return value
        self._nodes += 1
        if self._nodes % _LOOK == 1 and time.thread_time() > self._until:
            raise TooLong
        if not isinstance(value, dict) or depth > DEEPEST or self._nodes > MOST_NODES:
            return {}
        given = cast(Raw, value)
        if isinstance(given.get("$ref"), str):
            return self._reference(given, base, depth)
        return self._translated(given, base, depth)

    def _reference(self, given: Raw, base: str, depth: int) -> Any:
        target = self._documents.resolved(Node(given, base))
        beside = _described(given)
        if not isinstance(target.value, dict) or not target.value:
            return beside or {}
        if not any(key in target.value for key in _NESTED):
            inlined = self._translated({**cast(Raw, target.value), **_overriding(given)}, target.base, depth)
            return {**inlined, **beside}
        name = self._name(self._address(given, base), target)
        self._refs[name] = None
        found: Raw = {"$ref": f"#/$defs/{name}", **beside}
        if given.get("nullable") is True or given.get("x-nullable") is True:
            return {"anyOf": [found, {"type": "null"}]}
        return found

    def _address(self, given: Raw, base: str) -> str:
        """The last address in a chain of references: a definition is one, by whatever way it is reached."""
        address = ""
        node: Node | None = Node(given, base)
        while node is not None and isinstance(ref := node.entries.get("$ref"), str):
            following = self._documents.address(ref, node.base)
            node = self._documents.lookup(ref, node.base)
            address = following
        return address

    def _name(self, address: str, target: Node) -> str:
        if address not in self._names:
            last = address.rpartition("/")[2].replace("~1", "_").replace("~0", "~")
            stem = re.sub(r"[^A-Za-z0-9_.-]+", "_", last).strip("_.")[:_LONGEST_STEM] or "Schema"
            name = self._names[address] = self._given.take(stem)
            self._targets[name] = target
        return self._names[address]

    def _translated(self, given: Raw, base: str, depth: int) -> Any:
        allowed = kinds(given)
        found: Raw = {}
        if allowed:
            found["type"] = allowed[0] if len(allowed) == 1 else list(allowed)
        found |= _described(given)
        if (values := choices(given, allowed)) is not None:
            found["enum"] = values
        found |= bounds(given) | texts(given, is_pattern) | _values(given)
        if given.get("deprecated") is True:
            found["deprecated"] = True
        self._add_nested(found, given, base, depth)
        _add_required(found, given)
        if not allowed and (given.get("nullable") is True or given.get("x-nullable") is True) and _narrows(found):
            if "anyOf" in found and set(found) <= _BESIDE_ALTERNATIVES:
                return {**found, "anyOf": [*found["anyOf"], {"type": "null"}]}
            return {"anyOf": [found, {"type": "null"}]}
        return found

    def _add_nested(self, found: Raw, given: Raw, base: str, depth: int) -> None:
        for key in _ONE:
            if isinstance(part := given.get(key), dict | bool):
                found[key] = self._schema(part, base, depth + 1)
        if isinstance(parts := given.get("items"), list):
            found["prefixItems"] = [self._schema(part, base, depth + 1) for part in cast("list[Any]", parts)] or [{}]
        for key in _NAMED:
            if isinstance(named := given.get(key), dict):
                entries = cast(Raw, named)
                found[key] = {
                    str(name): self._schema(part, base, depth + 1)
                    for name, part in entries.items()
                    if isinstance(part, dict | bool)
                    and (key != "properties" or not self.is_hidden(Node(part, base)))
                    and (key != "patternProperties" or is_pattern(str(name)))
                }
        for key in _SEVERAL:
            if isinstance(parts := given.get(key), list) and parts:
                listed = [self._schema(part, base, depth + 1) for part in cast("list[Any]", parts)]
                self._add_several(found, key, listed)

    def _add_several(self, found: Raw, key: str, parts: list[Any]) -> None:
        if key == "allOf" and len(parts) == 1 and isinstance(parts[0], dict):
            # A reference wrapped to have a description or `nullable` beside it.
            only = cast(Raw, parts[0])
            if not set(only) & set(found) - {"description", "type"}:
                found.update({name: part for name, part in only.items() if name not in found})
                return
        if key == "oneOf":
            key = "anyOf" if "anyOf" not in found else "allOf"
            parts = parts if key == "anyOf" else [{"anyOf": parts}]
        found[key] = [*found.get(key, []), *parts]


def _described(given: Mapping[str, Any]) -> Raw:
    text = given.get("description")
    return {"description": clipped(text, DESCRIPTION_CHARS)} if isinstance(text, str) and text.strip() else {}


def _overriding(given: Raw) -> Raw:
    return {key: given[key] for key in ("default", "nullable", "x-nullable", "deprecated") if key in given}


def _values(given: Raw) -> Raw:
    found: Raw = {}
    for key in ("default", "const"):
        if key in given:
            try:
                found[key] = plain(given[key])
            except ValueError:
                continue
    shown = given.get("examples") if isinstance(given.get("examples"), list) else [given.get("example")]
    try:
        examples = [one for one in plain(shown) if one is not None and one != "" and one != found.get("default")]
    except ValueError:
        examples = []
    if examples and len(_dumped(examples[0])) <= EXAMPLE_BYTES and "enum" not in given:
        found["examples"] = examples[:1]
    return found


def _add_required(found: Raw, given: Raw) -> None:
    required = given.get("required")
    if not isinstance(required, list):
        return  # Swagger's habit of `required: true` beside a property says nothing here
    known = found.get("properties")
    hidden = set(cast(Raw, given.get("properties"))) - set(cast(Raw, known)) if isinstance(known, dict) else set[str]()
    listed = cast("list[Any]", required)
    names = dict.fromkeys(name for name in listed if isinstance(name, str) and name not in hidden)
    if names:
        found["required"] = list(names)


def _narrows(found: Raw) -> bool:
    return any(key in found for key in ("$ref", "enum", "const", "properties", "items", *_SEVERAL))


def _shallow(schema: Any, depth: int) -> Any:
    """The same, cut off below a depth."""
    if not isinstance(schema, dict):
        return schema
    given = cast(Raw, schema)
    if depth <= 0:
        kept = {key: given[key] for key in ("type", "$ref") if key in given}
        return kept if len(kept) == len(given) else {**kept, "description": LEFT_OUT}
    found: Raw = {}
    for key, part in given.items():
        if key in _ONE:
            found[key] = _shallow(part, depth - 1)
        elif key in _SEVERAL:
            found[key] = [_shallow(one, depth - 1) for one in part]
        elif key in _NAMED:
            found[key] = {name: _shallow(one, depth - 1) for name, one in part.items()}
        elif key != "examples":
            found[key] = part
    return found


def _dumped(schema: Any) -> bytes:
    return jsontext.dumps(schema)


def _is_costly(pattern: str) -> bool:
    """Whether compiling a pattern could hold every thread up for more than some milliseconds."""
    if len(pattern) > _LONGEST_PATTERN or estimate_compilation([pattern]) > MAX_COMPILE_US:
        return True
    states = 1 + _CLASS_STATES * len(_UNICODE_CLASS.findall(pattern))
    for repeated in _REPEATED.finditer(pattern):
        states *= max(1, *(int(bound[:6]) for bound in repeated.groups() if bound))
        if states > _MOST_STATES:
            return True
    return states > _MOST_STATES


@lru_cache(maxsize=10_000)
def is_pattern(text: str) -> bool:
    """Whether a pattern is one that is understood: descriptions have those of Java, Go and .NET too."""
    import jsonschema_rs

    if _is_costly(text):
        return False
    try:
        jsonschema_rs.Draft202012Validator({"pattern": text})
    except (ValueError, jsonschema_rs.ValidationError):
        return False
    return True
