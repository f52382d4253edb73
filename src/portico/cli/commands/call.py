"""`portico call`: one tool, through the same pipeline as every other call.

--json is the tool's own result, unchanged: `{"content": […], "structuredContent"?, "isError"?, …}`.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, cast

from rich.json import JSON

from portico.calls.pipeline import CallContext
from portico.catalog.visible_text import sanitize_text
from portico.cli.commands.browse import ensure_listed, find_tool
from portico.cli.exit import EXIT_FAILED, EXIT_OK, print_error
from portico.cli.screen import Screen
from portico.cli.setup import Setup, open_gateway, select_no_servers
from portico.cli.tool_arguments import parse_arguments, parse_object
from portico.errors import InvalidArguments, PorticoError
from portico.json_text import json_codec
from portico.meta_tools.browse_tools import render_schema_hint

HINT_TOKENS = 2_000


async def call(setup: Setup, screen: Screen, name: str, words: Sequence[str]) -> int:
    """Run a tool and show its result; exit code 1 if the tool reports a failure."""
    async with open_gateway(setup, screen, select_no_servers) as gateway:
        await ensure_listed(gateway, setup, screen, [name], idle_timeout=None)
        tool = find_tool(gateway, setup, name)
        try:
            if list(words) == ["-"]:
                arguments = parse_object(sys.stdin.buffer.read())
            else:
                arguments = parse_arguments(words, tool.input_schema)
            with screen.show_spinner(f"{tool.address} …"):
                result = await gateway.calls.call(tool, arguments, CallContext(via="cli"))
        except InvalidArguments as error:
            advice = "\n".join(filter(None, [error.advice, render_schema_hint(tool, HINT_TOKENS)]))
            raise InvalidArguments(error.message, problems=error.problems, advice=advice) from error
    if screen.as_json:
        screen.write_json(result)
    elif result.get("isError"):
        text = "\n".join(_render_block(block) for block in _get_content_blocks(result))
        print_error(PorticoError(sanitize_text(text) or "the tool failed"))
    else:
        _show_result(screen, result)
    if result.get("isError"):
        return EXIT_FAILED
    return EXIT_OK


def _show_result(screen: Screen, result: Mapping[str, Any]) -> None:
    blocks = _get_content_blocks(result)
    for block in blocks:
        text = _render_block(block)
        formatted = None
        if screen.is_stdout_terminal:
            # Control characters must not reach the terminal; other programs get the raw text.
            text = sanitize_text(text)
            formatted = _parse_as_json(text)
        screen.write_text(text if formatted is None else formatted)
    structured = result.get("structuredContent")
    if structured is not None and not any(block.get("type") == "text" for block in blocks):
        screen.write_text(json_codec.dumps(structured).decode())


def _get_content_blocks(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = result.get("content")
    if isinstance(content, list):
        return [block for block in cast("list[Any]", content) if isinstance(block, dict)]
    return []


def _parse_as_json(text: str) -> JSON | None:
    if text[:1] not in "{[" or not text:
        return None
    try:
        return JSON(text)
    except ValueError:
        return None


def _render_block(block: Mapping[str, Any]) -> str:
    match block.get("type"):
        case "text":
            return str(block.get("text", ""))
        case "resource_link":
            return f"[{block.get('name', 'resource')}: {block.get('uri')}]"
        case "resource":
            resource = block.get("resource")
            if isinstance(resource, dict):
                inner = cast("dict[str, Any]", resource)
            else:
                inner = {}
            if "text" in inner:
                return str(inner["text"])
            return f"[{inner.get('mimeType', 'data')}: {inner.get('uri')}]"
        case kind:
            size = len(str(block.get("data", ""))) * 3 // 4
            return f"[{kind} {block.get('mimeType', '')}, about {size:,} bytes; --json has it]"
