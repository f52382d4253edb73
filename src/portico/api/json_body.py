"""JSON bodies of requests: read within limits, and checked against a model."""

from collections.abc import Mapping
from typing import Any, TypeVar, cast

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from portico.api.responses import InvalidRequest
from portico.errors import PorticoError
from portico.json_text import json_codec
from portico.json_text.json_codec import has_more_values

MAX_BYTES = 2**20
MAX_VALUES = 25_000
Model = TypeVar("Model", bound=BaseModel)


async def read_json_body(request: Request, model: type[Model]) -> Model:
    """Read a body as a model; raises InvalidRequest, or RequestValidationError for other members.

    Only `application/json` is taken: no page of another origin can send that unasked.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        advice = "Send Content-Type: application/json."
        problem = PorticoError("the request does not say that it is JSON", advice=advice)
        raise InvalidRequest(problem, 415)
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_BYTES:
            raise _make_too_large()
    content = bytes(body)
    if has_more_values(content, MAX_VALUES):
        raise _make_too_large()
    try:
        found: Any = json_codec.loads(content)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        problem = PorticoError("the body is no JSON object", advice="Send a JSON object.")
        raise InvalidRequest(problem)
    try:
        return model.model_validate(found)
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_url=False)) from error


def describe_json_body(model: type[BaseModel]) -> dict[str, Any]:
    """Return what OpenAPI has to say of a body."""
    schema = model.model_json_schema()
    definitions = schema.pop("$defs", {})
    schema = _inline_references(schema, definitions)
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _inline_references(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """Return a schema with each reference replaced by what it leads to: bodies are described in
    their place, not among the shapes of answers."""
    if isinstance(schema, list):
        return [_inline_references(part, definitions) for part in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    parts = cast("dict[str, Any]", schema)
    if isinstance(reference := parts.get("$ref"), str):
        return _inline_references(definitions[reference.rpartition("/")[2]], definitions)
    return {key: _inline_references(part, definitions) for key, part in parts.items()}


def _make_too_large() -> InvalidRequest:
    error = PorticoError(
        f"the body has more than {MAX_BYTES:,} bytes or {MAX_VALUES:,} values",
        advice="Send less, or use MCP.",
    )
    return InvalidRequest(error, 413)
