"""How a call ended, in a word: for the audit log, for whoever counts, and for traces. Pure."""

import asyncio
from collections.abc import Mapping
from typing import Any

from portico.errors import PorticoError

OK, TOOL_ERROR, INPUT_REQUIRED, CANCELLED, INTERNAL = "ok", "tool_error", "input_required", "cancelled", "internal"
"""Else it is the kind of the error."""
SUCCESSFUL = (OK, INPUT_REQUIRED)


def get_outcome(result: Mapping[str, Any]) -> str:
    """How a call ended that has an answer."""
    if result.get("isError"):
        return TOOL_ERROR
    return OK if result.get("resultType", "complete") == "complete" else INPUT_REQUIRED


def get_error_kind(error: BaseException) -> str:
    """How a call ended that has none."""
    if isinstance(error, asyncio.CancelledError):
        return CANCELLED
    return error.kind if isinstance(error, PorticoError) else INTERNAL
