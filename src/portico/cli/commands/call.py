"""`portico call`: one tool, through the same pipeline as every other call.

--json is the tool's own result, unchanged: `{"content": […], "structuredContent"?, "isError"?, …}`;
with --explain `{"result" or "error", "rules"}`, `rules` as in `rule_explanation`.
"""

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import Any, cast

from rich.json import JSON

from portico.callers import Caller
from portico.calls.pipeline import CallContext
from portico.catalog.schema_types import resolve_pointer
from portico.catalog.tool import sanitize_text
from portico.cli.commands.browse import ensure_listed, find_tool
from portico.cli.exit import (
    EXIT_FAILED,
    EXIT_OK,
    print_error,
    print_note,
    report_failure,
    sanitize_server_text,
    to_error_data,
)
from portico.cli.look_commands import CallOptions
from portico.cli.rule_explanation import RuleExplanation, explain_request
from portico.cli.screen import Screen
from portico.cli.setup import Setup, open_gateway
from portico.cli.streams import get_streams
from portico.errors import METHOD_NOT_FOUND, InvalidArguments, PorticoError, RemoteError
from portico.gateway import GatewayRuntime
from portico.json_text import json_codec
from portico.meta_tools.browse_tools import render_schema_hint
from portico.upstream.backend import Raw

HINT_TOKENS = 2_000
MAX_PROGRESS_CHARS = 500
Schema = Mapping[str, Any]
ArgumentParser = Callable[[Schema], dict[str, Any]]
"""Makes the arguments of a call, by the schema of its tool."""


async def run_call(name: str, arguments: Sequence[str], options: CallOptions) -> int:
    """Run a tool and show its result; exit code 1 if the tool reports a failure."""
    setup, screen = options.load()
    parse = _make_parser(arguments)
    explained: RuleExplanation | None = None
    try:
        async with open_gateway(setup, screen) as gateway:
            await ensure_listed(gateway, setup, screen, [name], idle_timeout=None)
            if options.explain:
                # What cannot be explained cannot be called either: the call says why.
                with suppress(PorticoError):
                    explained = explain_request(gateway, setup.profile, setup.caller, name, parse)
            result = await _call_tool(gateway, setup, screen, name, parse)
    except PorticoError as error:
        if explained is None:
            raise
        code = report_failure(error)
        if screen.as_json:
            screen.write_json({"error": to_error_data(error), "rules": explained.to_data()})
        else:
            _show_explanation(explained)
        return code
    is_error = bool(result.get("isError"))
    if screen.as_json:
        screen.write_json(
            result if explained is None else {"result": result, "rules": explained.to_data()}
        )
    elif is_error:
        text = "\n".join(_render_block(block) for block in _get_content_blocks(result))
        print_error(PorticoError(sanitize_text(text) or "the tool failed"))
    else:
        _show_result(screen, result)
    if explained is not None and not screen.as_json:
        _show_explanation(explained)
    if is_error:
        return EXIT_FAILED
    return EXIT_OK


async def _call_tool(
    gateway: GatewayRuntime, setup: Setup, screen: Screen, name: str, parse: ArgumentParser
) -> Raw:
    tool = find_tool(gateway, setup, name)
    try:
        parsed = parse(tool.input_schema)
        label = f"{sanitize_text(tool.address)} …"
        with screen.show_spinner(label) as show:
            context = CallContext(setup.caller, via="cli")
            if screen.is_stderr_terminal:
                context = _make_progress_context(setup.caller, label, show)
            return await gateway.calls.call(tool, parsed, context)
    except InvalidArguments as error:
        advice = "\n".join(filter(None, [error.advice, render_schema_hint(tool, HINT_TOKENS)]))
        raise InvalidArguments(error.message, problems=error.problems, advice=advice) from error


def _show_explanation(explained: RuleExplanation) -> None:
    """Show on stderr which rule decided, and which came close."""
    for line in explained.to_lines():
        print_note(line)


def _make_parser(words: Sequence[str]) -> ArgumentParser:
    """Return what parses the words after a tool's name; stdin is read once, when it is needed."""
    if list(words) != ["-"]:
        return partial(parse_arguments, words)
    read = cache(get_streams().read_stdin)
    return lambda schema: parse_object(read())


class ProgressRelay:
    """Shows a server's progress reports; nobody can be asked on a command line."""

    capabilities: Mapping[str, Any] = {}

    def __init__(self, label: str, show: Callable[[str], None]) -> None:
        self.client_key = f"command {id(self)}"
        self._label = label
        self._show = show

    async def notify(self, method: str, params: Raw) -> None:
        """Show a progress report beside the label; other notifications are dropped."""
        if method == "notifications/progress" and (report := render_progress(params)):
            await asyncio.to_thread(self._show, f"{self._label} {report}")

    async def request(self, method: str, params: Raw) -> Raw:
        """Refuse to ask the user."""
        raise RemoteError(METHOD_NOT_FOUND, f"{method} is not available on the command line")

    async def pause(self) -> None:
        """Do nothing: the command waits for the result."""


def render_progress(params: Mapping[str, Any]) -> str:
    """Render a progress report: the share that is done, and the server's own words."""
    parts: list[str] = []
    try:
        share = float(params["progress"]) / float(params["total"])
    except (KeyError, TypeError, ValueError, ArithmeticError):
        share = math.nan
    if math.isfinite(share):
        parts.append(f"{min(max(share, 0.0), 1.0):.0%}")
    message = params.get("message")
    if isinstance(message, str):
        parts.append(" ".join(sanitize_server_text(message[:MAX_PROGRESS_CHARS]).split()))
    return " ".join(filter(None, parts))


def _make_progress_context(caller: Caller, label: str, show: Callable[[str], None]) -> CallContext:
    """Return the context of a call whose progress is shown."""
    return CallContext(
        caller,
        relay=ProgressRelay(label, show),
        extra={"_meta": {"progressToken": "command"}},
        via="cli",
        is_multi_round=True,  # a server that asks is answered with its own request, as elsewhere
    )


def _show_result(screen: Screen, result: Mapping[str, Any]) -> None:
    blocks = _get_content_blocks(result)
    for block in blocks:
        text = _render_block(block)
        if screen.is_stdout_terminal:
            # Control characters must not reach the terminal; other programs get the raw text.
            text = sanitize_text(text)
            screen.write_text(_parse_as_json(text) or text)
        else:
            screen.write_text(text)
    structured = result.get("structuredContent")
    if structured is not None and not any(block.get("type") == "text" for block in blocks):
        screen.write_text(json_codec.dumps(structured).decode())


def _get_content_blocks(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = result.get("content")
    if isinstance(content, list):
        return [block for block in cast("list[Any]", content) if isinstance(block, dict)]
    return []


def _parse_as_json(text: str) -> JSON | None:
    try:
        if text.startswith(("{", "[")):
            return JSON(text)
        return None
    except ValueError:
        return None


def _render_block(block: Mapping[str, Any]) -> str:
    match block:
        case {"type": "text"}:
            return str(block.get("text", ""))
        case {"type": "resource_link"}:
            return f"[{block.get('name', 'resource')}: {block.get('uri')}]"
        case {"type": "resource", "resource": {"text": text}}:
            return str(text)
        case {"type": "resource", "resource": dict(inner)}:
            return f"[{inner.get('mimeType', 'data')}: {inner.get('uri')}]"
        case _:
            size = len(str(block.get("data", ""))) * 3 // 4
            return (
                f"[{block.get('type')} {block.get('mimeType', '')}, about {size:,} bytes; "
                "--json has it]"
            )


_TYPES: Mapping[type, tuple[str, ...]] = {
    bool: ("boolean",),
    int: ("integer", "number"),
    float: ("number",),
    str: ("string",),
    list: ("array",),
    dict: ("object",),
    type(None): ("null",),
}
_UNION_KEYS = ("anyOf", "oneOf", "allOf")
_MAX_DEPTH = 8


def parse_arguments(words: Sequence[str], schema: Schema) -> dict[str, Any]:
    """Parse the words after a tool's name, using the types of its schema; raises InvalidArguments.

    `{"a": 1}` is used as it is. `a=1 name=x tags=red,blue filter.year=2024` is read key by key: a
    number where the schema wants one, a list from commas or a repeated key, an object from dotted
    keys; `key:=JSON` gives an exact value.
    """
    if len(words) == 1 and words[0].lstrip().startswith("{"):
        return parse_object(words[0])
    pairs: dict[str, list[str]] = {}
    exact: dict[str, Any] = {}
    for word in words:
        key, sign, value = word.partition("=")
        if not sign or not key:
            raise InvalidArguments(
                f"{word!r} is no argument",
                advice="Write key=value, key:=JSON, one JSON object in quotes, or - to read JSON "
                "from stdin.",
            )
        if key.endswith(":"):
            exact[key[:-1]] = _parse_json(value, key[:-1])
        else:
            pairs.setdefault(key, []).append(value)
    arguments: dict[str, Any] = {}
    for key, values in pairs.items():
        path, part = _locate_key(key, schema, schema)
        _set_at_path(arguments, path, _parse_values(values, part, schema))
    for key, value in exact.items():
        _set_at_path(arguments, _locate_key(key, schema, schema)[0], value)
    return arguments


def parse_object(text: str | bytes) -> dict[str, Any]:
    """Parse a JSON object of arguments; raises InvalidArguments."""
    advice = 'Write them like {"key": "value"}.'
    try:
        value = json_codec.loads(text.encode() if isinstance(text, str) else text)
    except ValueError as error:
        raise InvalidArguments(f"the arguments are not JSON: {error}", advice=advice) from None
    if not isinstance(value, dict):
        raise InvalidArguments("the arguments must be one JSON object", advice=advice)
    return cast("dict[str, Any]", value)


def _parse_json(text: str, key: str) -> Any:
    try:
        return json_codec.loads(text.encode())
    except ValueError as error:
        raise InvalidArguments(
            f"{key}:= is not followed by JSON: {error}", advice=f'For text write {key}="…".'
        ) from None


def _locate_key(key: str, part: Schema, root: Schema) -> tuple[list[str], Schema]:
    """Return the path of a key and its schema, splitting at dots where the schema has objects."""
    properties: dict[str, Schema] = {}
    for variant in _iterate_variants(part, root):
        found = variant.get("properties")
        for name, inner in found.items() if isinstance(found, dict) else ():
            properties.setdefault(name, inner if isinstance(inner, dict) else {})
    if key in properties:
        return [key], properties[key]
    head, dot, rest = key.partition(".")
    if dot and rest and head in properties:
        path, inner = _locate_key(rest, properties[head], root)
        return [head, *path], inner
    return [key], {}


def _iterate_variants(part: Any, root: Schema, depth: int = 0) -> Iterator[Schema]:
    """Yield a schema, the target of its reference, and each of its branches, recursively."""
    if not isinstance(part, dict):
        return
    schema = cast("dict[str, Any]", part)
    yield schema
    if depth >= _MAX_DEPTH:
        return
    if isinstance(schema.get("$ref"), str):
        yield from _iterate_variants(resolve_pointer(schema["$ref"], root), root, depth + 1)
    for key in _UNION_KEYS:
        branches = schema.get(key)
        for branch in cast("list[Any]", branches) if isinstance(branches, list) else ():
            yield from _iterate_variants(branch, root, depth + 1)


def _collect_types(part: Schema, root: Schema) -> set[str]:
    """Return the types a schema allows; empty if it does not say."""
    types: set[str] = set()
    for variant in _iterate_variants(part, root):
        declared = variant.get("type")
        if isinstance(declared, str):
            types.add(declared)
        elif isinstance(declared, list):
            types.update(cast("list[str]", declared))
        allowed = variant.get("enum")
        values = list(cast("list[Any]", allowed)) if isinstance(allowed, list) else []
        if "const" in variant:
            values.append(variant["const"])
        for value in values:
            types.update(_TYPES.get(type(value), ()))
    return types


def _parse_values(values: list[str], part: Schema, root: Schema) -> Any:
    types = _collect_types(part, root)
    is_single = len(values) == 1
    if "array" not in types or (is_single and values[0].lstrip().startswith("[")):
        return _parse_scalar(values[-1], types)
    if is_single and types & {"string", "object"}:
        return _parse_scalar(values[0], types)
    if is_single:
        values = [item.strip() for item in values[0].split(",") if item.strip()]
    variants = (variant.get("items") for variant in _iterate_variants(part, root))
    items = next((one for one in variants if isinstance(one, dict)), {})
    return [_parse_scalar(item, _collect_types(items, root)) for item in values]


def _parse_scalar(text: str, types: set[str]) -> Any:
    """Parse text as one of the types; text that fits none stays text, for validation to reject."""
    if types == {"string"}:
        return text
    if "boolean" in types and text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        value = json_codec.loads(text.encode())
    except ValueError:
        return text
    if not types:
        return value
    # A string type takes text literally, unless a more specific type fits.
    if types & {*_TYPES.get(type(value), ())} and not isinstance(value, str):
        return value
    return text


def _set_at_path(into: dict[str, Any], path: list[str], value: Any) -> None:
    *sections, last = path
    for section in sections:
        inner = into.setdefault(section, {})
        if not isinstance(inner, dict):
            raise InvalidArguments(
                f"{section} is given both whole and in parts", advice="Keep one of them."
            )
        into = cast("dict[str, Any]", inner)
    into[last] = value
