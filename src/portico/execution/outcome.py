"""How a call ended, in a word: for the audit log, for whoever counts, and for traces. Pure."""

import asyncio
from collections.abc import Mapping
from typing import Any

from portico.errors import PorticoError

OK, TOOL_ERROR, INPUT_REQUIRED, CANCELLED, INTERNAL = "ok", "tool_error", "input_required", "cancelled", "internal"
"""Else it is the kind of the error."""
FINE = (OK, INPUT_REQUIRED)


def outcome_of(result: Mapping[str, Any]) -> str:
    """How a call ended that has an answer."""
    if result.get("isError"):
        return TOOL_ERROR
    return OK if result.get("resultType", "complete") == "complete" else INPUT_REQUIRED


def kind_of(error: BaseException) -> str:
    """How a call ended that has none."""
    if isinstance(error, asyncio.CancelledError):
        return CANCELLED
    return error.kind if isinstance(error, PorticoError) else INTERNAL
