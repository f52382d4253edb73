"""A function as a tool that says truly what it does to the world."""

from collections.abc import Callable
from typing import Any

from portico.upstream.backends.functions import FunctionTool, make_function_tool


def make_read_only_tool(title: str, function: Callable[..., Any]) -> FunctionTool:
    """A tool that answers and changes nothing."""
    return _make_tool(
        title, function, readOnlyHint=True, destructiveHint=False, idempotentHint=True
    )


def make_random_tool(title: str, function: Callable[..., Any]) -> FunctionTool:
    """A tool that changes nothing and answers differently each time."""
    return _make_tool(
        title, function, readOnlyHint=True, destructiveHint=False, idempotentHint=False
    )


def make_additive_tool(title: str, function: Callable[..., Any]) -> FunctionTool:
    """A tool that adds something and takes nothing away."""
    return _make_tool(
        title, function, readOnlyHint=False, destructiveHint=False, idempotentHint=False
    )


def make_destructive_tool(title: str, function: Callable[..., Any]) -> FunctionTool:
    """A tool that overwrites or removes something."""
    return _make_tool(
        title, function, readOnlyHint=False, destructiveHint=True, idempotentHint=True
    )


def _make_tool(title: str, function: Callable[..., Any], **hints: bool) -> FunctionTool:
    return make_function_tool(
        function, annotations={"title": title, **hints, "openWorldHint": False}
    )
