"""A function as a tool that says truly what it does to the world."""

from collections.abc import Callable
from typing import Any

from portico.upstream.functions import FunctionTool, function_tool


def reads(title: str, function: Callable[..., Any]) -> FunctionTool:
    """A tool that answers and changes nothing."""
    return _offer(title, function, readOnlyHint=True, destructiveHint=False, idempotentHint=True)


def draws(title: str, function: Callable[..., Any]) -> FunctionTool:
    """A tool that changes nothing and answers differently each time."""
    return _offer(title, function, readOnlyHint=True, destructiveHint=False, idempotentHint=False)


def adds(title: str, function: Callable[..., Any]) -> FunctionTool:
    """A tool that adds something and takes nothing away."""
    return _offer(title, function, readOnlyHint=False, destructiveHint=False, idempotentHint=False)


def destroys(title: str, function: Callable[..., Any]) -> FunctionTool:
    """A tool that overwrites or removes something."""
    return _offer(title, function, readOnlyHint=False, destructiveHint=True, idempotentHint=True)


def _offer(title: str, function: Callable[..., Any], **hints: bool) -> FunctionTool:
    return function_tool(function, annotations={"title": title, **hints, "openWorldHint": False})
