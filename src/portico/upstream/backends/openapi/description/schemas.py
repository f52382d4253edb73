"""OpenAPI's schemas → JSON Schema 2020-12: what an argument may be, complete in itself.

Each definition is translated once, however many operations reach it; a tool carries those it
reaches in `$defs`, the nearest first, until it is large enough. What is readOnly is no part of a
request and left out. `oneOf` becomes `anyOf`: without the discriminator, alternatives overlap in
most real descriptions, and the API knows better which is meant.
"""

import math
import re
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from portico.json_text import json_codec
from portico.upstream.backend import Raw
from portico.upstream.backends.openapi.description.documents import ApiDocuments, DocumentNode
from portico.upstream.backends.openapi.description.names import NameAllocator, clip_text
from portico.upstream.backends.openapi.description.parser import to_json_value
from portico.upstream.backends.openapi.description.schema_keywords import (
    convert_bounds,
    convert_enum,
    convert_string_keywords,
    list_types,
)
from portico.upstream.pattern_cost import MAX_COMPILE_US, estimate_compilation

MAX_SCHEMA_BYTES = 40_000
"""About 10,000 tokens: more of a schema nobody reads."""
MAX_DEPTH = 40
MAX_NODES = 5_000
"""In one definition. Aliases of aliases can make a large schema of ten lines."""
_CLOCK_CHECK_INTERVAL = 50
"""Schemas after which the clock is looked at: a pattern that is hard to understand takes some 20
ms."""
DESCRIPTION_CHARS = 300
EXAMPLE_BYTES = 200
_MAX_STEM_CHARS = 80
_MAX_NAME_CHARS = 90
_MAX_PATTERN_CHARS = 2_000
_MAX_STATES = 500
"""Of a pattern, roughly: characters within repetitions within repetitions."""
_CLASS_STATES = 20
_UNICODE_CLASS = re.compile(r"\\[pP]")
_REPEATED = re.compile(r"\{([0-9]+)(?:,([0-9]*))?\}")
OMITTED_TEXT = "(not shown: the whole is too large)"

_SINGLE_SCHEMA_KEYS = (
    "items",
    "additionalProperties",
    "not",
    "contains",
    "propertyNames",
    "if",
    "then",
    "else",
)
_SCHEMA_LIST_KEYS = ("allOf", "anyOf", "oneOf", "prefixItems")
_SCHEMA_MAP_KEYS = ("properties", "patternProperties", "dependentSchemas")
_KEYS_BESIDE_ANY_OF = {"anyOf", "description", "default", "examples", "deprecated"}
_NESTED = (*_SINGLE_SCHEMA_KEYS, *_SCHEMA_LIST_KEYS, *_SCHEMA_MAP_KEYS)


class TranslationTimeout(ValueError):
    """It took too long to translate the schemas of a description."""

    def __init__(self) -> None:
        super().__init__("it takes too long to make tools of it")


@dataclass(frozen=True, slots=True)
class SchemaFragment:
    """A translated schema, and the definitions it refers to, in order."""

    schema: Any
    refs: tuple[str, ...]
    size: int


class SchemaTranslator:
    """The schemas of one description."""

    def __init__(self, documents: ApiDocuments, cpu_deadline: float = math.inf) -> None:
        """`until` is the CPU time of this thread from which on it is given up."""
        self._documents = documents
        self._cpu_deadline = cpu_deadline
        self._definition_names: dict[str, str] = {}
        self._name_allocator = NameAllocator(_MAX_NAME_CHARS)
        self._targets: dict[str, DocumentNode] = {}
        self._fragments: dict[str, SchemaFragment] = {}
        self._refs: dict[str, None] = {}
        self._node_count = 0

    def translate(self, node: DocumentNode) -> SchemaFragment:
        """Translate a schema."""
        outer = self._refs
        self._refs = {}
        self._node_count = 0
        try:
            schema = self._translate_value(node.value, node.base, 0)
            data = _dump(schema)
            for depth in (10, 7, 5, 4, 3, 2):
                if len(data) <= MAX_SCHEMA_BYTES // 2:
                    break
                schema = _truncate(schema, depth)
                data = _dump(schema)
            if len(data) > MAX_SCHEMA_BYTES:
                schema = _truncate(schema, 0)
                data = _dump(schema)
            kept = tuple(name for name in self._refs if f'"#/$defs/{name}"'.encode() in data)
            return SchemaFragment(schema, kept, len(data))
        finally:
            self._refs = outer

    def collect_definitions(self, fragments: Iterable[SchemaFragment]) -> Raw:
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
                known = self._fragments[name] = self.translate(self._targets[name])
            if known.size > left:
                found[name] = {"description": OMITTED_TEXT}
                continue
            left -= known.size
            found[name] = known.schema
            queue.extend(known.refs)
        return found

    def is_read_only(self, node: DocumentNode) -> bool:
        """Whether a property is the API's to set: no part of a request."""
        return (
            node.entries.get("readOnly") is True
            or self._documents.resolve(node).entries.get("readOnly") is True
        )

    def _translate_value(self, value: Any, base: str, depth: int) -> Any:
        if isinstance(value, bool):
            return value
        self._node_count += 1
        if (
            self._node_count % _CLOCK_CHECK_INTERVAL == 1
            and time.thread_time() > self._cpu_deadline
        ):
            raise TranslationTimeout
        if not isinstance(value, dict) or depth > MAX_DEPTH or self._node_count > MAX_NODES:
            return {}
        given = cast(Raw, value)
        if isinstance(given.get("$ref"), str):
            return self._translate_reference(given, base, depth)
        return self._translate_object(given, base, depth)

    def _translate_reference(self, given: Raw, base: str, depth: int) -> Any:
        target = self._documents.resolve(DocumentNode(given, base))
        beside = _convert_description(given)
        if not isinstance(target.value, dict) or not target.value:
            return beside or {}
        if not any(key in target.value for key in _NESTED):
            inlined = self._translate_object(
                {**cast(Raw, target.value), **_select_overrides(given)}, target.base, depth
            )
            return {**inlined, **beside}
        name = self._get_definition_name(self._resolve_final_url(given, base), target)
        self._refs[name] = None
        found: Raw = {"$ref": f"#/$defs/{name}", **beside}
        if given.get("nullable") is True or given.get("x-nullable") is True:
            return {"anyOf": [found, {"type": "null"}]}
        return found

    def _resolve_final_url(self, given: Raw, base: str) -> str:
        """The last address in a chain of references: a definition is one, by whatever way it is
        reached."""
        address = ""
        node: DocumentNode | None = DocumentNode(given, base)
        while node is not None and isinstance(ref := node.entries.get("$ref"), str):
            following = self._documents.resolve_url(ref, node.base)
            node = self._documents.look_up(ref, node.base)
            address = following
        return address

    def _get_definition_name(self, address: str, target: DocumentNode) -> str:
        if address not in self._definition_names:
            last = address.rpartition("/")[2].replace("~1", "_").replace("~0", "~")
            stem = re.sub(r"[^A-Za-z0-9_.-]+", "_", last).strip("_.")[:_MAX_STEM_CHARS] or "Schema"
            name = self._definition_names[address] = self._name_allocator.allocate(stem)
            self._targets[name] = target
        return self._definition_names[address]

    def _translate_object(self, given: Raw, base: str, depth: int) -> Any:
        allowed = list_types(given)
        found: Raw = {}
        if allowed:
            found["type"] = allowed[0] if len(allowed) == 1 else list(allowed)
        found |= _convert_description(given)
        if (values := convert_enum(given, allowed)) is not None:
            found["enum"] = values
        found |= (
            convert_bounds(given)
            | convert_string_keywords(given, is_supported_pattern)
            | _convert_values(given)
        )
        if given.get("deprecated") is True:
            found["deprecated"] = True
        self._add_nested(found, given, base, depth)
        _add_required(found, given)
        if (
            not allowed
            and (given.get("nullable") is True or given.get("x-nullable") is True)
            and _is_restrictive(found)
        ):
            if "anyOf" in found and set(found) <= _KEYS_BESIDE_ANY_OF:
                return {**found, "anyOf": [*found["anyOf"], {"type": "null"}]}
            return {"anyOf": [found, {"type": "null"}]}
        return found

    def _add_nested(self, found: Raw, given: Raw, base: str, depth: int) -> None:
        for key in _SINGLE_SCHEMA_KEYS:
            if isinstance(part := given.get(key), dict | bool):
                found[key] = self._translate_value(part, base, depth + 1)
        if isinstance(parts := given.get("items"), list):
            found["prefixItems"] = [
                self._translate_value(part, base, depth + 1) for part in cast("list[Any]", parts)
            ] or [{}]
        for key in _SCHEMA_MAP_KEYS:
            if isinstance(named := given.get(key), dict):
                entries = cast(Raw, named)
                found[key] = {
                    str(name): self._translate_value(part, base, depth + 1)
                    for name, part in entries.items()
                    if isinstance(part, dict | bool)
                    and (key != "properties" or not self.is_read_only(DocumentNode(part, base)))
                    and (key != "patternProperties" or is_supported_pattern(str(name)))
                }
        for key in _SCHEMA_LIST_KEYS:
            if isinstance(parts := given.get(key), list) and parts:
                listed = [
                    self._translate_value(part, base, depth + 1)
                    for part in cast("list[Any]", parts)
                ]
                self._add_combined(found, key, listed)

    def _add_combined(self, found: Raw, key: str, parts: list[Any]) -> None:
        if key == "allOf" and len(parts) == 1 and isinstance(parts[0], dict):
            # A reference wrapped to have a description or `nullable` beside it.
            only = cast(Raw, parts[0])
            if not set(only) & set(found) - {"description", "type"}:
                found.update({name: part for name, part in only.items() if name not in found})
                return
        if key == "oneOf":
            if "anyOf" not in found:
                key = "anyOf"
            else:
                key = "allOf"
            if key == "anyOf":
                parts = parts
            else:
                parts = [{"anyOf": parts}]
        found[key] = [*found.get(key, []), *parts]


def _convert_description(given: Mapping[str, Any]) -> Raw:
    text = given.get("description")
    if isinstance(text, str) and text.strip():
        return {"description": clip_text(text, DESCRIPTION_CHARS)}
    return {}


def _select_overrides(given: Raw) -> Raw:
    return {
        key: given[key]
        for key in ("default", "nullable", "x-nullable", "deprecated")
        if key in given
    }


def _convert_values(given: Raw) -> Raw:
    found: Raw = {}
    for key in ("default", "const"):
        if key in given:
            try:
                found[key] = to_json_value(given[key])
            except ValueError:
                continue
    if isinstance(given.get("examples"), list):
        shown = given.get("examples")
    else:
        shown = [given.get("example")]
    try:
        examples = [
            one
            for one in to_json_value(shown)
            if one is not None and one != "" and one != found.get("default")
        ]
    except ValueError:
        examples = []
    if examples and len(_dump(examples[0])) <= EXAMPLE_BYTES and "enum" not in given:
        found["examples"] = examples[:1]
    return found


def _add_required(found: Raw, given: Raw) -> None:
    required = given.get("required")
    if not isinstance(required, list):
        return  # Swagger's habit of `required: true` beside a property says nothing here
    known = found.get("properties")
    if isinstance(known, dict):
        hidden = set(cast(Raw, given.get("properties"))) - set(cast(Raw, known))
    else:
        hidden = set[str]()
    listed = cast("list[Any]", required)
    names = dict.fromkeys(name for name in listed if isinstance(name, str) and name not in hidden)
    if names:
        found["required"] = list(names)


def _is_restrictive(found: Raw) -> bool:
    return any(
        key in found for key in ("$ref", "enum", "const", "properties", "items", *_SCHEMA_LIST_KEYS)
    )


def _truncate(schema: Any, depth: int) -> Any:
    """The same, cut off below a depth."""
    if not isinstance(schema, dict):
        return schema
    given = cast(Raw, schema)
    if depth <= 0:
        kept = {key: given[key] for key in ("type", "$ref") if key in given}
        if len(kept) == len(given):
            return kept
        return {**kept, "description": OMITTED_TEXT}
    found: Raw = {}
    for key, part in given.items():
        if key in _SINGLE_SCHEMA_KEYS:
            found[key] = _truncate(part, depth - 1)
        elif key in _SCHEMA_LIST_KEYS:
            found[key] = [_truncate(one, depth - 1) for one in part]
        elif key in _SCHEMA_MAP_KEYS:
            found[key] = {name: _truncate(one, depth - 1) for name, one in part.items()}
        elif key != "examples":
            found[key] = part
    return found


def _dump(schema: Any) -> bytes:
    return json_codec.dumps(schema)


def _is_costly(pattern: str) -> bool:
    """Whether compiling a pattern could hold every thread up for more than some milliseconds."""
    if len(pattern) > _MAX_PATTERN_CHARS or estimate_compilation([pattern]) > MAX_COMPILE_US:
        return True
    states = 1 + _CLASS_STATES * len(_UNICODE_CLASS.findall(pattern))
    for repeated in _REPEATED.finditer(pattern):
        states *= max(1, *(int(bound[:6]) for bound in repeated.groups() if bound))
        if states > _MAX_STATES:
            return True
    return states > _MAX_STATES


@lru_cache(maxsize=10_000)
def is_supported_pattern(text: str) -> bool:
    """Whether a pattern is one that is understood: descriptions have those of Java, Go and .NET
    too."""
    import jsonschema_rs

    if _is_costly(text):
        return False
    try:
        jsonschema_rs.Draft202012Validator({"pattern": text})
    except (ValueError, jsonschema_rs.ValidationError):
        return False
    return True
