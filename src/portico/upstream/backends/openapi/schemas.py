"""Translates OpenAPI schemas to self-contained JSON Schema 2020-12.

Each definition is translated once, however many operations use it; a tool carries those it reaches
in `$defs`, the nearest first, up to a size. readOnly properties are no part of a request and are
left out. `oneOf` becomes `anyOf`: without the discriminator, alternatives overlap in most real
descriptions, and the API decides which is meant.
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
from portico.json_text.json_codec import to_list, to_object
from portico.upstream.backend import Raw
from portico.upstream.backends.openapi.documents import (
    ApiDocuments,
    DocumentNode,
    to_json_value,
)
from portico.upstream.backends.openapi.names import NameAllocator, clip_text
from portico.upstream.backends.openapi.schema_keywords import (
    convert_bounds,
    convert_enum,
    convert_string_keywords,
    is_nullable,
    list_types,
)
from portico.upstream.regex_cost import MAX_COMPILE_US, estimate_compilation

MAX_SCHEMA_BYTES = 40_000
"""About 10,000 tokens: larger schemas are not useful to a model."""
MAX_DEPTH = 40
MAX_NODES = 5_000
"""Nodes of one definition. Nested YAML aliases can make a huge schema of ten lines."""
_CLOCK_CHECK_INTERVAL = 50
"""Nodes between checks of the CPU time: a complicated pattern takes some 20 ms."""
DESCRIPTION_CHARS = 300
EXAMPLE_BYTES = 200
_MAX_STEM_CHARS = 80
_MAX_NAME_CHARS = 90
_MAX_PATTERN_CHARS = 2_000
_MAX_STATES = 500
"""Approximate states of a pattern: characters within nested repetitions."""
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
    """Translating the schemas of a description took too long."""

    def __init__(self) -> None:
        super().__init__("it takes too long to make tools of it")


@dataclass(frozen=True, slots=True)
class SchemaFragment:
    """A translated schema, and the definitions that it refers to, in order."""

    schema: Any
    refs: tuple[str, ...]
    size: int


class SchemaTranslator:
    def __init__(self, documents: ApiDocuments, cpu_deadline: float = math.inf) -> None:
        self._documents = documents
        self._cpu_deadline = cpu_deadline
        self._definition_names: dict[str, str] = {}
        self._name_allocator = NameAllocator(_MAX_NAME_CHARS)
        self._targets: dict[str, DocumentNode] = {}
        self._fragments: dict[str, SchemaFragment] = {}
        self._refs: dict[str, None] = {}
        self._node_count = 0

    def translate(self, node: DocumentNode) -> SchemaFragment:
        """Translate a schema, truncated to `MAX_SCHEMA_BYTES`."""
        outer_refs = self._refs
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
            refs = tuple(name for name in self._refs if f'"#/$defs/{name}"'.encode() in data)
            return SchemaFragment(schema, refs, len(data))
        finally:
            self._refs = outer_refs

    def collect_definitions(self, fragments: Iterable[SchemaFragment]) -> Raw:
        """Return `$defs` for fragments: reachable definitions, the nearest first, up to a size."""
        fragments = list(fragments)
        remaining = MAX_SCHEMA_BYTES - sum(fragment.size for fragment in fragments)
        queue = deque(name for fragment in fragments for name in fragment.refs)
        definitions: Raw = {}
        while queue:
            name = queue.popleft()
            if name in definitions:
                continue
            if (definition := self._fragments.get(name)) is None:
                definition = self._fragments[name] = self.translate(self._targets[name])
            if definition.size > remaining:
                definitions[name] = {"description": OMITTED_TEXT}
                continue
            remaining -= definition.size
            definitions[name] = definition.schema
            queue.extend(definition.refs)
        return definitions

    def is_read_only(self, node: DocumentNode) -> bool:
        """Return whether a property is set by the API only, and so no part of a request."""
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
        schema = cast(Raw, value)
        if isinstance(schema.get("$ref"), str):
            return self._translate_reference(schema, base, depth)
        return self._translate_object(schema, base, depth)

    def _translate_reference(self, given: Raw, base: str, depth: int) -> Any:
        target = self._documents.resolve(DocumentNode(given, base))
        description = _convert_description(given)
        if not isinstance(target.value, dict) or not target.value:
            return description or {}
        if not any(key in target.value for key in _NESTED):
            inlined = self._translate_object(
                {**cast(Raw, target.value), **_select_overrides(given)}, target.base, depth
            )
            return {**inlined, **description}
        name = self._get_definition_name(self._resolve_final_url(given, base), target)
        self._refs[name] = None
        reference: Raw = {"$ref": f"#/$defs/{name}", **description}
        if is_nullable(given):
            return {"anyOf": [reference, {"type": "null"}]}
        return reference

    def _resolve_final_url(self, given: Raw, base: str) -> str:
        """Return the last URL of a chain of references, which identifies a definition."""
        address = ""
        node: DocumentNode | None = DocumentNode(given, base)
        while node is not None and isinstance(ref := node.entries.get("$ref"), str):
            next_address = self._documents.resolve_url(ref, node.base)
            node = self._documents.look_up(ref, node.base)
            address = next_address
        return address

    def _get_definition_name(self, address: str, target: DocumentNode) -> str:
        if address not in self._definition_names:
            last = address.rpartition("/")[2].replace("~1", "_").replace("~0", "~")
            stem = re.sub(r"[^A-Za-z0-9_.-]+", "_", last).strip("_.")[:_MAX_STEM_CHARS] or "Schema"
            name = self._definition_names[address] = self._name_allocator.allocate(stem)
            self._targets[name] = target
        return self._definition_names[address]

    def _translate_object(self, given: Raw, base: str, depth: int) -> Any:
        types = list_types(given)
        translated: Raw = {}
        if types:
            translated["type"] = types[0] if len(types) == 1 else list(types)
        translated |= _convert_description(given)
        if (values := convert_enum(given, types)) is not None:
            translated["enum"] = values
        translated |= (
            convert_bounds(given)
            | convert_string_keywords(given, is_supported_pattern)
            | _convert_values(given)
        )
        if given.get("deprecated") is True:
            translated["deprecated"] = True
        self._add_nested(translated, given, base, depth)
        _add_required(translated, given)
        if not types and is_nullable(given) and _is_restrictive(translated):
            if "anyOf" in translated and set(translated) <= _KEYS_BESIDE_ANY_OF:
                return {**translated, "anyOf": [*translated["anyOf"], {"type": "null"}]}
            return {"anyOf": [translated, {"type": "null"}]}
        return translated

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
                translated = [
                    self._translate_value(part, base, depth + 1)
                    for part in cast("list[Any]", parts)
                ]
                self._add_combined(found, key, translated)

    def _add_combined(self, found: Raw, key: str, parts: list[Any]) -> None:
        if key == "allOf" and len(parts) == 1 and isinstance(parts[0], dict):
            # A reference wrapped in allOf to add a description or `nullable`.
            only = cast(Raw, parts[0])
            if not set(only) & set(found) - {"description", "type"}:
                found.update({name: part for name, part in only.items() if name not in found})
                return
        if key == "oneOf" and "anyOf" in found:
            key = "allOf"
            parts = [{"anyOf": parts}]
        elif key == "oneOf":
            key = "anyOf"
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
    converted: Raw = {}
    for key in ("default", "const"):
        if key in given:
            try:
                converted[key] = to_json_value(given[key])
            except ValueError:
                continue
    declared = given.get("examples")
    if not isinstance(declared, list):
        declared = [given.get("example")]
    try:
        examples = [
            example
            for example in to_json_value(declared)
            if example is not None and example != "" and example != converted.get("default")
        ]
    except ValueError:
        examples = []
    if examples and len(_dump(examples[0])) <= EXAMPLE_BYTES and "enum" not in given:
        converted["examples"] = examples[:1]
    return converted


def _add_required(found: Raw, given: Raw) -> None:
    hidden = to_object(given.get("properties")).keys() - to_object(found.get("properties")).keys()
    # In Swagger, `required: true` beside a property has no meaning here.
    required = to_list(given.get("required"))
    names = dict.fromkeys(name for name in required if isinstance(name, str) and name not in hidden)
    if names:
        found["required"] = list(names)


def _is_restrictive(found: Raw) -> bool:
    return any(
        key in found for key in ("$ref", "enum", "const", "properties", "items", *_SCHEMA_LIST_KEYS)
    )


def _truncate(schema: Any, depth: int) -> Any:
    if not isinstance(schema, dict):
        return schema
    entries = cast(Raw, schema)
    if depth <= 0:
        remaining = {key: entries[key] for key in ("type", "$ref") if key in entries}
        if len(remaining) == len(entries):
            return remaining
        return {**remaining, "description": OMITTED_TEXT}
    truncated: Raw = {}
    for key, part in entries.items():
        if key in _SINGLE_SCHEMA_KEYS:
            truncated[key] = _truncate(part, depth - 1)
        elif key in _SCHEMA_LIST_KEYS:
            truncated[key] = [_truncate(nested, depth - 1) for nested in part]
        elif key in _SCHEMA_MAP_KEYS:
            truncated[key] = {name: _truncate(nested, depth - 1) for name, nested in part.items()}
        elif key != "examples":
            truncated[key] = part
    return truncated


def _dump(schema: Any) -> bytes:
    return json_codec.dumps(schema)


def _is_costly(pattern: str) -> bool:
    """Return whether compiling a pattern could hold the GIL for more than a few milliseconds."""
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
    """Return whether a pattern is valid here: descriptions also use those of Java, Go and .NET."""
    import jsonschema_rs

    if _is_costly(text):
        return False
    try:
        jsonschema_rs.Draft202012Validator({"pattern": text})
    except (ValueError, jsonschema_rs.ValidationError):
        return False
    return True
