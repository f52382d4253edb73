"""How a call ended, in a word: for the audit log, for whoever counts, and for traces. Pure."""

import asyncio
from collections.abc import Mapping
from typing import Any

from portico.errors import PorticoError

OK = "ok"
TOOL_ERROR = "tool_error"
INPUT_REQUIRED = "input_required"
CANCELLED = "cancelled"
INTERNAL = "internal"
"""Else it is the kind of the error."""
SUCCESSFUL = (OK, INPUT_REQUIRED)


def get_outcome(result: Mapping[str, Any]) -> str:
    """How a call ended that has an answer."""
    if result.get("isError"):
        return TOOL_ERROR
    if result.get("resultType", "complete") == "complete":
        return OK
    return INPUT_REQUIRED


def get_error_kind(error: BaseException) -> str:
    """How a call ended that has none."""
    if isinstance(error, asyncio.CancelledError):
        return CANCELLED
    if isinstance(error, PorticoError):
        return error.kind
    return INTERNAL
