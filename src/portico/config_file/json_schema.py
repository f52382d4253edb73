"""JSON Schema (2020-12) of the configuration file, for editors: the models, and every form that the
file reader accepts besides: variables, short forms, text without quotes, names of clients.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, cast, get_args

from pydantic import ByteSize

from portico.config import Config, Section
from portico.config.backend import KIND_SPELLINGS
from portico.config_file.draft_builder import TEXT_KEYS
from portico.config_file.names import (
    ALLOW_KEYS,
    COMMENT_PREFIXES,
    DENY_KEYS,
    ENABLED_KEYS,
    RENAMED_KEYS,
    SERVER_MAPS,
    TIMEOUT_KEYS,
    get_fields,
    get_section_type,
)

Schema = dict[str, Any]
DIALECT = "https://json-schema.org/draft/2020-12/schema"
_VARIABLE: Schema = {"type": "string", "pattern": r"\$\{"}
_SIZE: Schema = {"type": "string", "pattern": r"^\s*\d[\d.]*\s*[kKMGTP]?i?[bB]?\s*$"}
_TEXT = ["string", "number", "boolean"]
_TEXT_LIST: Schema = {"type": "array", "items": {"type": _TEXT}}
_SHORT_FORMS: Mapping[str, list[Schema]] = {
    "LearningConfig": [{"type": "boolean"}, {"type": "string"}],
    "UsageConfig": [{"type": "boolean"}, {"const": "off"}],
    "ApprovalsConfig": [{"const": "split"}],
    "AuditConfig": [{"type": "boolean"}, {"const": "off"}],
    "Profile": [{"type": "null"}],
    "CommandTool": [{"type": "string"}, _TEXT_LIST],
    "CommandArgument": [{"type": "string"}, {"type": "null"}],
}
"""What may stand in the place of a section."""
_ONE_OR_LIST = ("inherit_env", "audience", "name_claim", "required_scopes", "scopes")
"""Lists in the place of which one text may stand."""
_OPEN_SECTIONS = ("Config", "BackendConfig")
"""Sections in which a key without a value means its default, and comments may be keys."""


def render_schema() -> str:
    """Return the schema as text, as it is published."""
    return json.dumps(build_schema(), indent=2, ensure_ascii=False) + "\n"


def build_schema() -> Schema:
    models = Config.model_json_schema()
    definitions: dict[str, Schema] = models.pop("$defs")
    sections = {section.__name__: section for section in _iter_sections(Config)}
    for name, definition in definitions.items():
        _widen_section(name, definition, sections.get(name))
    _widen_section("Config", models, Config)
    _add_client_keys(definitions["BackendConfig"]["properties"])
    for name, forms in _SHORT_FORMS.items():
        if name in definitions:
            definitions[name] = {"anyOf": [definitions[name], *forms]}
    root = cast("dict[str, Schema]", models["properties"])
    for key in SERVER_MAPS[1:]:
        root[key] = {"type": "object", "description": "Servers, as clients write them."}
    return {
        "$schema": DIALECT,
        **models,
        "title": "Portico configuration",
        "$defs": definitions,
    }


def _iter_sections(section: type[Section]) -> Iterable[type[Section]]:
    yield section
    for info in section.model_fields.values():
        inner, _ = get_section_type(info.annotation)
        if inner is not None:
            yield from _iter_sections(inner)


def _widen_section(name: str, definition: Schema, section: type[Section] | None) -> None:
    """Accept in one section what the file reader accepts."""
    definition.pop("title", None)
    properties = cast("dict[str, Schema]", definition["properties"])
    for key in [key for key, schema in properties.items() if schema.get("internal")]:
        del properties[key]
    for key, schema in properties.items():
        schema.pop("title", None)
        field = get_fields(section)[key] if section is not None else None
        is_size = field is not None and _is_size(field.annotation)
        if field is not None and field.description:
            schema["description"] = field.description  # pydantic omits it beside a like docstring
        properties[key] = _widen(schema, as_text=key in TEXT_KEYS, is_size=is_size)
        if key in _ONE_OR_LIST:
            properties[key] = _accept(properties[key], {"type": "string"})
        if key == "auth":
            properties[key] = _accept(properties[key], {"$ref": "#/$defs/IssuerConfig"})
        if name in _OPEN_SECTIONS:
            properties[key] = _accept(properties[key], {"type": "null"})
    if name in _OPEN_SECTIONS:
        prefixes = "|".join(prefix.replace("$", r"\$") for prefix in COMMENT_PREFIXES)
        definition["patternProperties"] = {f"^(?:{prefixes})": True}
    if name == "BackendConfig":
        kinds: Schema = {"enum": sorted({*KIND_SPELLINGS, "streamable-http", "streamableHttp"})}
        properties["type"] = _accept(properties["type"], kinds)
        properties["command"] = _accept(properties["command"], _TEXT_LIST)
    if name == "CommandTool":
        properties["command"] = _accept(properties["command"], {"type": "string"})


def _is_size(annotation: Any) -> bool:
    return annotation is ByteSize or ByteSize in get_args(annotation)


def _widen(schema: Schema, *, as_text: bool, is_size: bool = False) -> Schema:
    """Accept variables for numbers and switches, and unquoted scalars for text."""
    if is_size:
        schema = _accept(schema, _SIZE)
    if "items" in schema:
        schema["items"] = _widen(schema["items"], as_text=as_text)
    if isinstance(schema.get("additionalProperties"), dict):
        inner = _widen(schema["additionalProperties"], as_text=as_text)
        if as_text:
            inner = _accept(inner, {"type": "null"})
        schema["additionalProperties"] = inner
        return schema
    if "anyOf" in schema:
        schema["anyOf"] = [_widen(one, as_text=as_text) for one in schema["anyOf"]]
    kind = schema.get("type")
    if kind == "string" and "enum" not in schema and as_text:
        return {**schema, "type": _TEXT}
    if kind in ("integer", "number", "boolean") or "enum" in schema:
        return _accept(schema, _VARIABLE)
    return schema


def _accept(schema: Schema, other: Schema) -> Schema:
    """Return a schema that accepts another form too; description and default stay outside."""
    if other in schema.get("anyOf", ()):
        return schema
    outer = {key: schema[key] for key in ("description", "default") if key in schema}
    inner = {key: value for key, value in schema.items() if key not in outer}
    if set(inner) == {"anyOf"}:
        return {**outer, "anyOf": [*inner["anyOf"], other]}
    return {**outer, "anyOf": [inner, other]}


def _add_client_keys(properties: dict[str, Schema]) -> None:
    """Accept the names that clients have for keys of a server."""
    for names, description in (
        (ALLOW_KEYS, "As `tools.allow`."),
        (DENY_KEYS, "As `tools.deny`."),
        (ENABLED_KEYS, "As `disabled`, the other way round."),
        (tuple(TIMEOUT_KEYS), "As in `timeouts`."),
    ):
        for name in names:
            properties.setdefault(name, {"description": description, "deprecated": True})
    for name, own in RENAMED_KEYS.items():
        properties.setdefault(name, {"description": f"As `{own}`.", "deprecated": True})
