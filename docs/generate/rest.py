"""The page of REST routes and response shapes, from the API's own OpenAPI description."""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from httpx2 import ASGITransport, AsyncClient

from docs.generate.markdown import code, join_paragraphs, render_value, table
from portico.api.app import OPENAPI_PATH, make_api
from portico.testing import gateway_over

# Not "Tools" alone: that is the name of a shape, and its link target.
_TITLES = {
    "tools": "Routes of tools",
    "servers": "Routes of servers",
    "use": "Routes of use",
    "events": "Routes of events",
    "approvals": "Routes of approvals",
    "administration": "Routes of administration",
    "registry": "Routes of the registry",
}


def routes() -> dict[str, Mapping[str, Any]]:
    """Return every operation, by method and path."""
    return _operations(asyncio.run(_describe_api()))


def page() -> str:
    """Render a heading for each route, then one for each shape."""
    found = asyncio.run(_describe_api())
    operations = _operations(found)
    everywhere = _everywhere(operations)
    parts = [
        "## Every route",
        "Beside what is said of each, a route may answer (`304` to a `GET`):",
    ]
    parts.append(
        table(("status", "answer"), ((code(status), words) for status, words in everywhere))
    )
    for tag, title in _TITLES.items():
        parts.append(f"## {title}")
        for name, operation in operations.items():
            if tag in operation["tags"]:
                parts += _route(name, operation, everywhere)
    parts += ["## Shapes", "What the routes answer with."]
    for name, shape in found["components"]["schemas"].items():
        parts += _shape(name, shape)
    return join_paragraphs(parts)


def _operations(found: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {
        f"{method.upper()} {path}": operation
        for path, methods in found["paths"].items()
        for method, operation in methods.items()
    }


def _everywhere(operations: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return the responses that most routes share, such as refusals, to list them once."""
    counts = Counter(
        (status, response["description"])
        for operation in operations.values()
        for status, response in operation["responses"].items()
        if status != "200"
    )
    return sorted(answer for answer, count in counts.items() if count > len(operations) / 2)


def _route(
    name: str, operation: Mapping[str, Any], everywhere: Collection[tuple[str, str]]
) -> Iterator[str]:
    yield f"### `{name}`"
    yield f"**{operation['summary']}.** {operation.get('description', '')}"
    rows = (
        (
            code(parameter["name"]),
            "path" if parameter["in"] == "path" else "",
            _type(parameter["schema"]),
            _default(parameter["schema"]),
            parameter.get("description", ""),
        )
        for parameter in operation.get("parameters", ())
    )
    yield table(("parameter", "in", "type", "default", "meaning"), rows)
    for kind in operation.get("requestBody", {}).get("content", {}).values():
        yield "Its body is a JSON object:"
        yield _fields(kind["schema"])
    rows = [
        (code(status), _answer(status, response))
        for status, response in operation["responses"].items()
        if (status, response["description"]) not in everywhere
    ]
    yield table(("status", "answer"), rows)


def _answer(status: str, response: Mapping[str, Any]) -> str:
    shapes = [_type(kind["schema"]) for kind in response.get("content", {}).values()]
    return shapes[0] if status == "200" and shapes else response["description"]


def _shape(name: str, shape: Mapping[str, Any]) -> Iterator[str]:
    yield f"### {name}"
    yield shape.get("description", "")
    yield _fields(shape)


def _fields(shape: Mapping[str, Any]) -> str:
    required = shape.get("required", ())
    rows = (
        (
            code(key),
            _type(field),
            "" if key in required else "may be missing",
            field.get("description", ""),
        )
        for key, field in shape.get("properties", {}).items()
    )
    return table(("field", "type", "", "meaning"), rows)


def _type(schema: Mapping[str, Any]) -> str:
    if reference := schema.get("$ref"):
        name = str(reference).rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if several := schema.get("anyOf"):
        return " or ".join(kind for option in several if (kind := _type(option)) != "null")
    if (kind := schema.get("type", "any")) == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return " or ".join(map(str, kind)) if isinstance(kind, list) else str(kind)


def _default(schema: Mapping[str, Any]) -> str:
    default = schema.get("default")
    return "" if default is None or default == [] else code(render_value(default))


async def _describe_api() -> Mapping[str, Any]:
    async with gateway_over() as gateway:
        view = gateway.get_view()
        api = make_api(view.profile_state, view.search_service, gateway.store)
        async with AsyncClient(transport=ASGITransport(api), base_url="http://127.0.0.1") as client:
            found: Mapping[str, Any] = (await client.get(OPENAPI_PATH)).json()
            return found
