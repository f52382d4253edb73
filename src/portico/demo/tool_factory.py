"""Makes tools of functions, with annotations that tell what they change."""

import re
from collections.abc import Callable
from typing import Any

from portico.upstream.backends.functions import FunctionTool, make_function_tool

_LINE_BREAK = re.compile(r"(?<!\n)\n(?!\n)")


def make_read_only_tool(title: str, function: Callable[..., Any]) -> FunctionTool:
    """Make a tool that changes nothing and is deterministic."""
    return _make_tool(
        title, function, readOnlyHint=True, destructiveHint=False, idempotentHint=True
    )


def make_random_tool(title: str, function: Callable[..., Any]) -> FunctionTool:
    """Make a tool that changes nothing, with a different result each time."""
    return _make_tool(
        title, function, readOnlyHint=True, destructiveHint=False, idempotentHint=False
    )


def make_additive_tool(title: str, function: Callable[..., Any]) -> FunctionTool:
    """Make a tool that only adds something."""
    return _make_tool(
        title, function, readOnlyHint=False, destructiveHint=False, idempotentHint=False
    )


def make_destructive_tool(title: str, function: Callable[..., Any]) -> FunctionTool:
    """Make a tool that overwrites or removes something."""
    return _make_tool(
        title, function, readOnlyHint=False, destructiveHint=True, idempotentHint=True
    )


def _make_tool(title: str, function: Callable[..., Any], **hints: bool) -> FunctionTool:
    tool = make_function_tool(
        function, annotations={"title": title, **hints, "openWorldHint": False}
    )
    # A paragraph of a docstring is wrapped in the source and is one line for clients.
    tool.definition["description"] = _LINE_BREAK.sub(" ", tool.definition["description"])
    return tool
