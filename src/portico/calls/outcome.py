"""Outcomes of calls as words, for the audit log, metrics and traces. Pure."""

import asyncio
from collections.abc import Mapping
from typing import Any

from portico.errors import PorticoError

OK = "ok"
TOOL_ERROR = "tool_error"
INPUT_REQUIRED = "input_required"
CANCELLED = "cancelled"
INTERNAL = "internal"
"""Other failures use the kind of their PorticoError."""
SUCCESSFUL = (OK, INPUT_REQUIRED)


def get_outcome(result: Mapping[str, Any]) -> str:
    """Return the outcome of a call that returned a result."""
    if result.get("isError"):
        return TOOL_ERROR
    if result.get("resultType", "complete") == "complete":
        return OK
    return INPUT_REQUIRED


def get_error_kind(error: BaseException) -> str:
    """Return the outcome of a call that raised `error`."""
    if isinstance(error, asyncio.CancelledError):
        return CANCELLED
    if isinstance(error, PorticoError):
        return error.kind
    return INTERNAL
