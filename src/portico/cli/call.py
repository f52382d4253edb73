"""`portico call`: one tool, through the same pipeline as every other call.

--json is the tool's own result, unchanged: `{"content": […], "structuredContent"?, "isError"?, …}`.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, cast

from rich.json import JSON

from portico.catalog.visible import shown
from portico.cli.arguments import read_arguments, read_object
from portico.cli.discover import found, known
from portico.cli.ending import DONE, FAILED, complain
from portico.cli.opening import Setup, none, opened
from portico.cli.screen import Screen
from portico.disclosure.discovery import schema_hint
from portico.errors import InvalidArguments, PorticoError
from portico.execution.call import Origin
from portico.upstream import jsontext

HINT_TOKENS = 2_000


async def call(setup: Setup, screen: Screen, name: str, words: Sequence[str]) -> int:
    """Run a tool and show its result; exit code 1 when the tool says that it failed."""
    async with opened(setup, screen, none) as gateway:
        await known(gateway, setup, screen, [name], patience=None)
        tool = found(gateway, setup, name)
        try:
            arguments = (
                read_object(sys.stdin.buffer.read())
                if list(words) == ["-"]
                else read_arguments(words, tool.input_schema)
            )
            with screen.busy(f"{tool.address} …"):
                result = await gateway.calls.call(tool, arguments, Origin(way="cli"))
        except InvalidArguments as error:
            advice = "\n".join(filter(None, [error.advice, schema_hint(tool, HINT_TOKENS)]))
            raise InvalidArguments(error.message, problems=error.problems, advice=advice) from error
    if screen.as_json:
        screen.data(result)
    elif result.get("isError"):
        complain(PorticoError(shown("\n".join(_plain(block) for block in _content(result))) or "the tool failed"))
    else:
        _show(screen, result)
    return FAILED if result.get("isError") else DONE


def _show(screen: Screen, result: Mapping[str, Any]) -> None:
    blocks = _content(result)
    for block in blocks:
        text = _plain(block)
        if screen.for_people:
            # What a tool answers must not steer the terminal; a program gets it as it is.
            text = shown(text)
        laid_out = _laid_out(text) if screen.for_people else None
        screen.text(text if laid_out is None else laid_out)
    structured = result.get("structuredContent")
    if structured is not None and not any(block.get("type") == "text" for block in blocks):
        screen.text(jsontext.dumps(structured).decode())


def _content(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = result.get("content")
    return (
        [block for block in cast("list[Any]", content) if isinstance(block, dict)] if isinstance(content, list) else []
    )


def _laid_out(text: str) -> JSON | None:
    if text[:1] not in "{[" or not text:
        return None
    try:
        return JSON(text)
    except ValueError:
        return None


def _plain(block: Mapping[str, Any]) -> str:
    match block.get("type"):
        case "text":
            return str(block.get("text", ""))
        case "resource_link":
            return f"[{block.get('name', 'resource')}: {block.get('uri')}]"
        case "resource":
            resource = block.get("resource")
            inner = cast("dict[str, Any]", resource) if isinstance(resource, dict) else {}
            return str(inner["text"]) if "text" in inner else f"[{inner.get('mimeType', 'data')}: {inner.get('uri')}]"
        case kind:
            size = len(str(block.get("data", ""))) * 3 // 4
            return f"[{kind} {block.get('mimeType', '')}, about {size:,} bytes; --json has it]"
