"""Rewrites an input schema for parameters that are renamed, fixed, given a default or described.

What fits the new schema fits the server's once it is translated: every keyword that concerns the
arguments as a whole is rewritten with what is known of the changed ones, in all subschemas that
apply to them (`allOf`, `if`, a `$ref` …). Of a schema with a keyword that this cannot follow, only
what it says of single parameters is kept; the call is checked against the whole schema in any case.
Work is counted: schemas come from servers. Pure.
"""

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from portico.catalog.schema_types import ABSENT, resolve_pointer
from portico.json_text import json_codec

MAX_SUBSCHEMAS = 300
MAX_DEPTH = 20
MAX_CHECKED_BYTES = 256 * 1024
"""Bytes of subschemas that are compiled to check the values of one tool."""
_LISTS = ("allOf", "anyOf", "oneOf")
_SINGLE = ("not", "if", "then", "else")
_UNFOLLOWED = (
    *("patternProperties", "propertyNames", "unevaluatedProperties", "const", "enum"),
    *("$dynamicRef", "$recursiveRef"),
)
_COUNTS = ("minProperties", "maxProperties")
_REFERENCE = re.compile(rb'"\$(?:ref|dynamicRef|recursiveRef)":"((?:[^"\\]|\\.)*)"')
_DEFINITIONS = ("$schema", "$id", "$defs", "definitions")

Fits = Callable[[Mapping[str, Any], Any], bool]
"""Returns whether a value fits a schema."""


class SchemaNotRewritable(ValueError):
    """Why a schema cannot be rewritten."""


@dataclass(frozen=True, slots=True)
class ParameterChange:
    """What changes of one parameter."""

    name: str
    """The server's name."""
    new_name: str
    """The name that callers use."""
    description: str | None = None
    fixed: Any = ABSENT
    default: Any = ABSENT
    is_secret: bool = False
    """The fixed value is not known: it holds a reference to a secret."""

    @property
    def changes_arguments(self) -> bool:
        """Whether arguments have to be translated for it."""
        return self.new_name != self.name or self.is_always_sent

    @property
    def is_fixed(self) -> bool:
        return self.fixed is not ABSENT

    @property
    def is_always_sent(self) -> bool:
        """Whether the server gets it with every call."""
        return self.is_fixed or self.default is not ABSENT

    @property
    def sent(self) -> Any:
        """The value that is sent where a caller gives none."""
        return self.fixed if self.is_fixed else self.default


@dataclass
class SchemaRewriter:
    """Looks at one schema and rewrites it; every method raises SchemaNotRewritable."""

    schema: Mapping[str, Any]
    fits: Fits
    _left: int = MAX_SUBSCHEMAS
    _bytes_left: int = MAX_CHECKED_BYTES
    _changes: Mapping[str, ParameterChange] = field(default_factory=dict[str, ParameterChange])

    def list_parameters(self) -> frozenset[str]:
        """Return the names of all parameters."""
        self._left = MAX_SUBSCHEMAS
        names: set[str] = set()
        for node in self._iter_nodes(self.schema, 0):
            names.update(_get_object(node, "properties"))
        return frozenset(names)

    def accepts(self, name: str, value: Any) -> bool:
        """Return whether a value fits what every call's parameter of this name must fit."""
        self._left = MAX_SUBSCHEMAS
        return all(
            self._fits(part, value)
            for node in self._iter_required_nodes(self.schema, 0)
            if isinstance(part := _get_object(node, "properties").get(name), dict)
        )

    def rewrite(self, changes: Sequence[ParameterChange]) -> dict[str, Any]:
        """Return the schema as callers see it."""
        self._changes = {change.name: change for change in changes}
        self._left = MAX_SUBSCHEMAS
        if any(change.changes_arguments for change in changes):
            self._check_references()
        found = self._rewrite(self.schema, 0, ())
        if found is False:
            raise SchemaNotRewritable("its schema allows no call with these values")
        rewritten = cast("dict[str, Any]", found)
        for key in ("examples", "default"):
            if key in rewritten:
                rewritten[key] = self._rewrite_instances(rewritten[key])
        return rewritten

    def rewrite_simply(self, changes: Iterable[ParameterChange]) -> dict[str, Any]:
        """Return a schema of the parameters alone, for one that cannot be rewritten."""
        # What is sent is not compared with it.
        self._changes = {change.name: replace(change, is_secret=True) for change in changes}
        self._left = MAX_SUBSCHEMAS
        properties: dict[str, Any] = {}
        required: list[str] = []
        with contextlib.suppress(SchemaNotRewritable):
            for node in self._iter_required_nodes(self.schema, 0):
                properties = {**_get_object(node, "properties"), **properties}
                required += self._map_names(node.get("required"))
        new = {key: self.schema[key] for key in _DEFINITIONS if key in self.schema}
        new["type"] = "object"
        self._rewrite_properties({"properties": properties}, new)
        _set_or_remove(new, "required", list(dict.fromkeys(required)))
        return new

    def _check_references(self) -> None:
        """Refuse references to the arguments themselves: the parts they lead to are rewritten."""
        for match in _REFERENCE.finditer(json_codec.dumps(dict(self.schema))):
            if not match[1].startswith((b"#/$defs/", b"#/definitions/")):
                raise SchemaNotRewritable("its schema refers to parts of itself")

    def _rewrite(self, node: Any, depth: int, followed: tuple[str, ...]) -> Any:
        """Return a subschema of the arguments, rewritten; False if nothing can fit it."""
        if not isinstance(node, dict):
            return node
        self._spend(depth)
        schema = cast("dict[str, Any]", node)
        self._check_keywords(schema)
        new = dict(schema)
        required = self._rewrite_properties(schema, new)
        if required is None:
            return False
        combined: list[Any] = []
        self._rewrite_dependencies(schema, new, required, combined, depth, followed)
        for key in _LISTS:
            if isinstance(schema.get(key), list):
                parts = cast("list[Any]", schema[key])
                new[key] = [self._rewrite(part, depth + 1, followed) for part in parts]
        for key in _SINGLE:
            if key in schema:
                new[key] = self._rewrite(schema[key], depth + 1, followed)
        if isinstance(reference := schema.get("$ref"), str):
            del new["$ref"]
            target = self._follow(reference, followed)
            combined.append(self._rewrite(target, depth + 1, (*followed, reference)))
            is_alone = not required and len(combined) == 1
            if is_alone and isinstance(combined[0], dict) and not new.keys() - {*_DEFINITIONS}:
                return {**new, **cast("dict[str, Any]", combined[0])}
        if combined:
            new["allOf"] = [*new.get("allOf", ()), *combined]
        _set_or_remove(new, "required", list(dict.fromkeys(required)))
        return new

    def _check_keywords(self, schema: Mapping[str, Any]) -> None:
        if any(change.changes_arguments for change in self._changes.values()):
            for key in _UNFOLLOWED:
                if key in schema:
                    raise SchemaNotRewritable(f"its schema uses {key} for all arguments")
        if any(change.default is not ABSENT for change in self._changes.values()):
            for key in _COUNTS:
                if key in schema:
                    raise SchemaNotRewritable(f"its schema uses {key}")

    def _rewrite_properties(
        self, schema: Mapping[str, Any], new: dict[str, Any]
    ) -> list[str] | None:
        """Rewrite what a subschema says of single parameters.

        Returns the names that it requires, or None if the values that are sent never fit it.
        """
        properties = _get_object(schema, "properties")
        required = self._map_names(schema.get("required"))
        additional = schema.get("additionalProperties", True)
        rewritten: dict[str, Any] = {}
        for name, part in properties.items():
            change = self._changes.get(name)
            if change is None:
                rewritten[name] = part
            elif not change.is_fixed:
                rewritten[change.new_name] = _describe(part, change)
        for change in self._changes.values():
            rule = properties.get(change.name, additional)
            if not change.is_always_sent or change.is_secret or rule is True:
                continue
            if rule is not False and self._fits(_to_schema(rule), change.sent):
                continue
            if change.is_fixed:
                return None
            required.append(change.new_name)
        if "properties" in schema:
            new["properties"] = rewritten
        hidden = sum(change.is_fixed for change in self._changes.values())
        for key in _COUNTS if hidden else ():
            if isinstance(schema.get(key), int):
                new[key] = schema[key] - hidden
                if new[key] < 0:
                    if key == "maxProperties":
                        return None
                    del new[key]
        return required

    def _rewrite_dependencies(
        self,
        schema: Mapping[str, Any],
        new: dict[str, Any],
        required: list[str],
        combined: list[Any],
        depth: int,
        followed: tuple[str, ...],
    ) -> None:
        for key in ("dependentRequired", "dependentSchemas", "dependencies"):
            if key not in schema:
                continue
            rewritten: dict[str, Any] = {}
            for name, rule in _get_object(schema, key).items():
                change = self._changes.get(name)
                if isinstance(rule, list):
                    wanted: Any = self._map_names(rule)
                else:
                    wanted = self._rewrite(rule, depth + 1, followed)
                if change is None or not change.is_always_sent:
                    rewritten[change.new_name if change else name] = wanted
                elif isinstance(rule, list):
                    required.extend(wanted)
                else:
                    combined.append(wanted)
            _set_or_remove(new, key, rewritten)

    def _map_names(self, names: Any) -> list[str]:
        """Return the names that callers use, without those that are always sent."""
        found: list[str] = []
        for name in cast("list[Any]", names) if isinstance(names, list) else ():
            if not isinstance(name, str):
                continue
            change = self._changes.get(name)
            if change is None:
                found.append(name)
            elif not change.is_always_sent:
                found.append(change.new_name)
        return found

    def _rewrite_instances(self, value: Any) -> Any:
        """Rewrite examples of arguments."""
        if isinstance(value, list):
            return [self._rewrite_instances(one) for one in cast("list[Any]", value)]
        if not isinstance(value, dict):
            return value
        renamed: dict[str, Any] = {}
        for name, one in cast("dict[str, Any]", value).items():
            change = self._changes.get(name)
            if change is None:
                renamed[name] = one
            elif not change.is_fixed:
                renamed[change.new_name] = one
        return renamed

    # --- reading

    def _iter_nodes(
        self, node: Any, depth: int, followed: tuple[str, ...] = ()
    ) -> Iterator[dict[str, Any]]:
        """Yield all subschemas that apply to the arguments as a whole."""
        if not isinstance(node, dict):
            return
        self._spend(depth)
        schema = cast("dict[str, Any]", node)
        yield schema
        for part in _iter_parts(schema):
            yield from self._iter_nodes(part, depth + 1, followed)
        if isinstance(reference := schema.get("$ref"), str):
            target = self._follow(reference, followed)
            yield from self._iter_nodes(target, depth + 1, (*followed, reference))

    def _iter_required_nodes(
        self, node: Any, depth: int, followed: tuple[str, ...] = ()
    ) -> Iterator[dict[str, Any]]:
        """Yield those that every call must fit."""
        if not isinstance(node, dict):
            return
        self._spend(depth)
        schema = cast("dict[str, Any]", node)
        yield schema
        parts = schema.get("allOf")
        for part in cast("list[Any]", parts) if isinstance(parts, list) else ():
            yield from self._iter_required_nodes(part, depth + 1, followed)
        if isinstance(reference := schema.get("$ref"), str):
            target = self._follow(reference, followed)
            yield from self._iter_required_nodes(target, depth + 1, (*followed, reference))

    def _follow(self, reference: str, followed: tuple[str, ...]) -> Any:
        target = resolve_pointer(reference, self.schema) if reference.startswith("#/") else ABSENT
        if target is ABSENT or reference in followed:
            raise SchemaNotRewritable("its schema has a reference that leads nowhere")
        return target

    def _fits(self, part: Mapping[str, Any], value: Any) -> bool:
        definitions = {key: self.schema[key] for key in _DEFINITIONS if key in self.schema}
        whole = {**definitions, **part}
        self._bytes_left -= len(json_codec.dumps(whole))
        if self._bytes_left < 0:
            raise SchemaNotRewritable("its schema is too large")
        return self.fits(whole, value)

    def _spend(self, depth: int) -> None:
        self._left -= 1
        if self._left < 0 or depth > MAX_DEPTH:
            raise SchemaNotRewritable("its schema is too large")


def _iter_parts(schema: Mapping[str, Any]) -> Iterator[Any]:
    for key in _LISTS:
        if isinstance(schema.get(key), list):
            yield from schema[key]
    for key in _SINGLE:
        if key in schema:
            yield schema[key]
    for key in ("dependentSchemas", "dependencies"):
        yield from _get_object(schema, key).values()


def _describe(part: Any, change: ParameterChange) -> Any:
    """Return the schema of a parameter with its new description and default."""
    added: dict[str, Any] = {}
    if change.description is not None:
        added["description"] = change.description
    if change.default is not ABSENT:
        added["default"] = change.default
    return {**_to_schema(part), **added} if added else part


def _to_schema(part: Any) -> Mapping[str, Any]:
    if isinstance(part, dict):
        return cast("Mapping[str, Any]", part)
    return {"not": {}} if part is False else {}


def _get_object(schema: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = schema.get(key)
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _set_or_remove(schema: dict[str, Any], key: str, value: Iterable[Any]) -> None:
    """Set a keyword, or remove it where nothing is left of it."""
    if value:
        schema[key] = value
    else:
        schema.pop(key, None)
