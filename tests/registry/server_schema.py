"""The rules of `server.json` (2025-12-11) as a JSON Schema, written from the specification of the
registry: what it requires, allows and limits."""

from typing import Any

SCHEMA_URL = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
URL = "^(https?://[^\\s]+|\\{[a-zA-Z_][a-zA-Z0-9_]*\\}[^\\s]*)$"
_INPUT = {
    "description": {"type": "string"},
    "isRequired": {"type": "boolean"},
    "isSecret": {"type": "boolean"},
    "format": {"enum": ["string", "number", "boolean", "filepath"]},
    "value": {"type": "string"},
    "default": {"type": "string"},
    "placeholder": {"type": "string"},
    "choices": {"type": "array", "items": {"type": "string"}},
}
_VARIABLES = {
    "type": "object",
    "additionalProperties": {"type": "object", "properties": _INPUT},
}
_TEMPLATE = {**_INPUT, "variables": _VARIABLES}
_NAMED_VALUE = {
    "type": "object",
    "required": ["name"],
    "properties": {**_TEMPLATE, "name": {"type": "string"}},
}
_ARGUMENT: dict[str, Any] = {
    "type": "object",
    "required": ["type"],
    "oneOf": [
        {
            "properties": {"type": {"const": "positional"}},
            "anyOf": [{"required": ["valueHint"]}, {"required": ["value"]}],
        },
        {"properties": {"type": {"const": "named"}}, "required": ["name"]},
    ],
    "properties": {
        **_TEMPLATE,
        "name": {"type": "string"},
        "valueHint": {"type": "string"},
        "isRepeated": {"type": "boolean"},
    },
}
_REMOTE = {
    "type": "object",
    "required": ["type", "url"],
    "properties": {
        "type": {"enum": ["streamable-http", "sse"]},
        "url": {"type": "string", "pattern": URL},
        "headers": {"type": "array", "items": _NAMED_VALUE},
        "variables": _VARIABLES,
    },
}
_PACKAGE = {
    "type": "object",
    "required": ["registryType", "identifier", "transport"],
    "properties": {
        "registryType": {"type": "string"},
        "registryBaseUrl": {"type": "string", "format": "uri"},
        "identifier": {"type": "string"},
        "version": {"type": "string", "minLength": 1, "not": {"const": "latest"}},
        "fileSha256": {"type": "string", "pattern": "^[a-f0-9]{64}$"},
        "runtimeHint": {"type": "string"},
        "transport": {
            "anyOf": [
                {
                    "type": "object",
                    "required": ["type"],
                    "properties": {"type": {"const": "stdio"}},
                },
                _REMOTE,
            ]
        },
        "runtimeArguments": {"type": "array", "items": _ARGUMENT},
        "packageArguments": {"type": "array", "items": _ARGUMENT},
        "environmentVariables": {"type": "array", "items": _NAMED_VALUE},
    },
}
SERVER_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["name", "description", "version"],
    "properties": {
        "$schema": {"type": "string", "format": "uri"},
        "name": {
            "type": "string",
            "minLength": 3,
            "maxLength": 200,
            "pattern": "^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$",
        },
        "title": {"type": "string", "minLength": 1, "maxLength": 100},
        "description": {"type": "string", "minLength": 1, "maxLength": 100},
        "version": {"type": "string", "maxLength": 255},
        "websiteUrl": {"type": "string", "format": "uri"},
        "repository": {
            "type": "object",
            "required": ["url", "source"],
            "properties": {
                "url": {"type": "string", "format": "uri"},
                "source": {"type": "string"},
                "id": {"type": "string"},
                "subfolder": {"type": "string"},
            },
        },
        "packages": {"type": "array", "items": _PACKAGE},
        "remotes": {"type": "array", "items": _REMOTE},
        "icons": {"type": "array"},
        "_meta": {"type": "object"},
    },
}
