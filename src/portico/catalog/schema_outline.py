"""Parses a raw JSON Schema into a tree of parameters for display.

Pure functions that never raise and always terminate, whatever the schema holds: a reference is
expanded once and then named, unions and merges are unfolded, and a keyword without a short form is
kept as raw JSON. Arguments are not validated here; the raw schema does that.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain, count
from typing import Any

from portico.catalog.schema_types import (
    ABSENT,
    ANNOTATION_KEYS,
    count_references,
    describe_constraints,
    detect_type,
    is_plain,
    list_types,
    list_values,
    merge_schemas,
    resolve_pointer,
    summarize_type,
    to_list,
    to_names,
    to_one_line,
    to_parameter_path,
    unescape_step,
    unwrap_reference,
)
from portico.catalog.tool import Tool, sanitize_text, to_literal
from portico.json_text.json_codec import to_object

_MAX_DEPTH = 48
"""Levels that are parsed; anything deeper is shown as its bare type."""
_MAX_NODES = 3_000
"""Nodes parsed per schema: a few hundred bytes of `allOf` can unfold into millions."""
_NOT_A_WORD = re.compile(r"[\W_]+")


@dataclass(frozen=True, slots=True)
class SchemaParameter:
    name: str = ""
    type: str = "any"
    """A JSON type, or `union`, `any`, `never`."""
    required: bool = False
    nullable: bool = False
    description: str = ""
    enum: tuple[Any, ...] = ()
    default: Any = ABSENT
    examples: tuple[Any, ...] = ()
    constraints: tuple[str, ...] = ()
    source: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False, compare=False)
    """The merged schema this was parsed from."""
    children: tuple["SchemaParameter", ...] = ()
    """An object's properties, then its patterns."""
    items: "SchemaParameter | None" = None
    prefix: tuple["SchemaParameter", ...] = ()
    """The leading items of a tuple."""
    variants: tuple["SchemaParameter", ...] = ()
    ref: str = ""
    """Type used instead: a key of `SchemaOutline.types`, or `typeof a.b` for another parameter."""
    is_pattern: bool = False
    """`name` stands for every matching key (`[key]`, `[/^x-/]`)."""


_TRUNCATED = SchemaParameter("…", constraints=("more names: see full",), is_pattern=True)
"""Placeholder for properties beyond the node limit."""


@dataclass(frozen=True, slots=True)
class SchemaOutline:
    """A schema's root and its named types in order of first use."""

    root: SchemaParameter
    types: Mapping[str, SchemaParameter]

    @property
    def parameters(self) -> tuple[SchemaParameter, ...]:
        """Top-level parameters, required ones first, otherwise in the schema's order."""
        return tuple(sorted(self.root.children, key=lambda param: not param.required))


def build_outline(schema: Any) -> SchemaOutline:
    """Build the tree of a listed schema, which may be any value."""
    reader = _SchemaReader(schema)
    root = reader.read_parameter(
        reader.flatten(schema) if isinstance(schema, dict) else schema, "", True, 0
    )
    reader.read_pending()
    return SchemaOutline(root, reader.types)


@lru_cache(maxsize=8)
def get_input_outline(tool: Tool) -> SchemaOutline:
    """Return the outline of a tool's input schema; cached, as one answer reads it several times."""
    return build_outline(tool.definition.get("inputSchema"))


def summarize_parameters(schema: Any) -> Iterator[tuple[str, bool, str]]:
    """Yield top-level parameters as (name, required, short type), the required ones first."""
    if not isinstance(schema, dict):
        return
    top = _SchemaReader(schema).flatten(schema)
    properties = to_object(top.get("properties"))
    required = to_names(top.get("required"))
    for name in [name for name in properties if name in required] + [
        name for name in required if name not in properties
    ]:
        yield name, True, summarize_type(properties.get(name), schema)
    for name, value in properties.items():
        if name not in required:
            yield name, False, summarize_type(value, schema)


class _SchemaReader:
    """One pass over one schema: the types named so far and the remaining node budget."""

    def __init__(self, root: Any) -> None:
        self.types: dict[str, SchemaParameter] = {}
        self._root = root
        self._labels: dict[str, str] = {}
        self._pending: list[tuple[str, Any]] = []
        self._reference_counts: dict[str, int] | None = None
        self._open_references: list[str] = []
        self._nodes_left = _MAX_NODES

    def read_parameter(self, schema: Any, name: str, required: bool, depth: int) -> SchemaParameter:
        self._nodes_left -= 1
        if not isinstance(schema, dict):
            return SchemaParameter(name, "never" if schema is False else "any", required)
        if self._nodes_left < 0 or depth > _MAX_DEPTH:
            return SchemaParameter(
                name, detect_type(schema)[0], required, constraints=("more below: see full",)
            )
        if "allOf" in schema:
            schema = unwrap_reference(schema) or self.flatten(schema)
        if isinstance(schema.get("$ref"), str):
            return self._read_reference(schema, name, required, depth)
        kind, nullable = detect_type(schema)
        facts = _extract_facts(schema, name, kind)
        param = SchemaParameter(name, kind, required, nullable, **facts)
        branches = schema.get("anyOf") or schema.get("oneOf")
        if isinstance(branches, list) and branches:
            return self._read_union(
                self._read_structure(param, schema, depth), schema, branches, depth
            )
        if kind == "union":
            structure = {key: value for key, value in schema.items() if key not in ANNOTATION_KEYS}
            variants = [
                self.read_parameter({**structure, "type": type_name}, "", True, depth + 1)
                for type_name in list_types(schema)
            ]
            return replace(param, variants=tuple(variants))
        return self._read_structure(param, schema, depth)

    def read_pending(self) -> None:
        """Parse the types that were named on the way, each from its own root to limit the depth."""
        while self._pending:
            label, schema = self._pending.pop(0)
            self.types[label] = self.read_parameter(schema, "", True, 0)

    def flatten(
        self, schema: Mapping[str, Any], seen: tuple[str, ...] = (), depth: int = 0
    ) -> dict[str, Any]:
        """Merge `$ref` and `allOf` into a schema; its own keys win, `if` rules stay."""
        self._nodes_left -= 1
        ref = schema.get("$ref")
        parts = to_list(schema.get("allOf"))
        if (not parts and not isinstance(ref, str)) or self._nodes_left < 0 or depth > _MAX_DEPTH:
            return dict(schema)
        merged: dict[str, Any] = {}
        own = {key: value for key, value in schema.items() if key != "allOf"}
        if isinstance(ref, str) and isinstance(target := resolve_pointer(ref, self._root), dict):
            del own["$ref"]
            if ref not in seen:
                seen = (*seen, ref)
                merge_schemas(merged, self.flatten(target, seen, depth + 1))
        for part in parts:
            if isinstance(part, dict):
                merge_schemas(
                    merged,
                    {"allOf": [part]} if "if" in part else self.flatten(part, seen, depth + 1),
                )
        return merge_schemas(merged, own)

    def _read_reference(
        self, schema: Mapping[str, Any], name: str, required: bool, depth: int
    ) -> SchemaParameter:
        ref: str = schema["$ref"]
        target = resolve_pointer(ref, self._root)
        own = {key: value for key, value in schema.items() if key != "$ref"}
        if not isinstance(target, dict):
            param = self.read_parameter(own, name, required, depth + 1)
            return replace(param, constraints=(*param.constraints, f"$ref {to_one_line(ref)}"))
        path = to_parameter_path(ref)
        if not self._is_shown_by_name(ref, target, path):
            self._open_references.append(ref)
            param = self.read_parameter({**target, **own}, name, required, depth + 1)
            self._open_references.pop()
            return replace(
                param,
                description=_join_descriptions(
                    param.description, sanitize_text(target.get("description"))
                ),
            )
        label = f"typeof {path}" if path else self._assign_label(ref, target)
        kind, nullable = detect_type(target)
        facts = _extract_facts(own, name, kind)
        facts |= {"enum": (), "source": target, "ref": label}
        return SchemaParameter(name, kind, required, nullable, **facts)

    def _is_shown_by_name(self, ref: str, target: Mapping[str, Any], parameter_path: str) -> bool:
        """Return whether a reference is named: repeated or recursive, and not a plain type."""
        if ref in self._open_references:
            return True
        if self._reference_counts is None:
            self._reference_counts = count_references(self._root)
        if is_plain(target):
            return (
                not parameter_path
                and ("enum" in target or "description" in target)
                and self._reference_counts.get(ref, 0) > 1
            )
        return bool(parameter_path) or self._reference_counts.get(ref, 0) > 1

    def _assign_label(self, ref: str, target: Mapping[str, Any]) -> str:
        if ref not in self._labels:
            last_step = sanitize_text(unescape_step(ref.rsplit("/", 1)[-1]))
            wanted = _NOT_A_WORD.sub("_", last_step).strip("_") or "Type"
            numbered = (f"{wanted}{number}" for number in count(2))
            label = next(name for name in chain([wanted], numbered) if name not in self.types)
            self._labels[ref] = label
            self.types[label] = SchemaParameter()
            self._pending.append((label, target))
        return self._labels[ref]

    def _read_union(
        self, param: SchemaParameter, schema: Mapping[str, Any], branches: list[Any], depth: int
    ) -> SchemaParameter:
        nullable = param.nullable
        variants = list[SchemaParameter]()
        needs = list[str]()
        base = {"type": schema["type"]} if "type" in schema else {}
        for branch in branches:
            if (
                isinstance(branch, dict)
                and "required" in branch
                and branch.keys() <= {"required", "type", "title"}
            ):
                needs.append("+".join(to_one_line(name) for name in to_names(branch["required"])))
            elif isinstance(branch, dict) and (
                branch.get("type") == "null" or branch.get("const", 0) is None
            ):
                nullable = True
                if branch.get("description"):
                    param = replace(
                        param,
                        description=_join_descriptions(
                            param.description, f"null: {sanitize_text(branch['description'])}"
                        ),
                    )
            else:
                merged = {**base, **branch} if isinstance(branch, dict) else branch
                variants.append(self.read_parameter(merged, "", True, depth + 1))
        if needs:
            param = replace(param, constraints=(*param.constraints, "needs " + " or ".join(needs)))
        if not variants:
            return replace(param, nullable=nullable)
        if (
            all(
                variant.enum and not (variant.description or variant.nullable)
                for variant in variants
            )
            and not param.children
        ):
            values = tuple(value for variant in variants for value in variant.enum)
            return replace(param, type=variants[0].type, nullable=nullable, enum=values)
        if len(variants) > 1 or param.children:
            return replace(param, type="union", nullable=nullable, variants=tuple(variants))
        only = variants[0]
        return replace(
            only,
            name=param.name,
            required=param.required,
            nullable=nullable or only.nullable,
            description=_join_descriptions(param.description, only.description),
            enum=param.enum or only.enum,
            default=only.default if param.default is ABSENT else param.default,
            examples=param.examples or only.examples,
            constraints=tuple(dict.fromkeys((*param.constraints, *only.constraints))),
        )

    def _read_structure(
        self, param: SchemaParameter, schema: Mapping[str, Any], depth: int
    ) -> SchemaParameter:
        if param.type == "object":
            return replace(param, children=tuple(self._read_children(schema, depth)))
        if param.type == "array" or "items" in schema:
            prefix = schema.get("prefixItems")
            rest = schema.get("items")
            if isinstance(rest, list):
                prefix = rest
                rest = schema.get("additionalItems")
            items = None
            if isinstance(rest, dict):
                items = self.read_parameter(rest, "", True, depth + 1)
            leading = [self.read_parameter(p, "", True, depth + 1) for p in to_list(prefix)]
            return replace(param, items=items, prefix=tuple(leading))
        return param

    def _read_children(self, schema: Mapping[str, Any], depth: int) -> Iterator[SchemaParameter]:
        properties = to_object(schema.get("properties"))
        required = to_names(schema.get("required"))
        names = chain(properties, (name for name in required if name not in properties))
        for name in names:
            if self._nodes_left < 0:
                yield _TRUNCATED
                return
            yield self.read_parameter(properties.get(name, True), name, name in required, depth + 1)
        for pattern, value in to_object(schema.get("patternProperties")).items():
            yield replace(
                self.read_parameter(value, f"[/{to_one_line(pattern)}/]", False, depth + 1),
                is_pattern=True,
            )
        rest = schema.get("additionalProperties")
        keys = schema.get("propertyNames")
        if rest is True or isinstance(rest, dict):
            only = self.read_parameter(keys, "", True, depth + 1)
            limits = "|".join(map(to_literal, only.enum)) or ", ".join(only.constraints)
            # An object with arbitrary keys is shown as `object`; beside named keys it gets a line.
            if properties or limits or rest not in (True, {}):
                name = f"[key: {limits}]" if limits else "[key]"
                yield replace(self.read_parameter(rest, name, False, depth + 1), is_pattern=True)


def _extract_facts(schema: Mapping[str, Any], name: str, kind: str) -> dict[str, Any]:
    description = sanitize_text(schema.get("description")).strip()
    title = schema.get("title")
    # A title that repeats the name says nothing.
    if not description and name and isinstance(title, str):
        is_new = _keep_letters(title) not in _keep_letters(name)
        description = sanitize_text(title).strip() if is_new else ""
    examples = to_list(schema.get("examples"))
    if not examples and "example" in schema:
        examples = [schema["example"]]
    limits = describe_constraints(schema, kind)
    return {
        "description": description,
        "enum": tuple(list_values(schema)),
        "default": schema.get("default", ABSENT),
        "examples": tuple(examples),
        "constraints": tuple(text.replace("\n", "\\n") for text in limits),
        "source": schema,
    }


def _join_descriptions(first: str, second: str) -> str:
    if second.strip() in first:
        return first
    if first:
        return f"{first} ({second.strip()})"
    return second.strip()


def _keep_letters(text: str) -> str:
    return _NOT_A_WORD.sub("", text).lower()
