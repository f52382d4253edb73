"""What callers were told of the latest calls that failed or were refused.

Kept in the memory of the process alone and bounded: a message may quote arguments or a result,
and neither is stored.
"""

import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from portico.callers import Caller
from portico.errors import PorticoError

MAX_CALLS = 500
"""Calls that are kept, the latest ones."""
MAX_MESSAGE_CHARS = 1_000
"""Characters of a message that are shown."""
_MAX_KEPT_CHARS = 4_000
"""Characters that are kept: secrets are masked before a message is cut to what is shown."""


@dataclass(frozen=True, slots=True)
class FailedCall:
    """A call that failed, or was refused before its tool was run."""

    at: float
    """Seconds since 1970."""
    call_id: str
    tool: str
    """Its address, or the name that no tool has."""
    error: str
    """`PorticoError.kind`, or `tool_error` for an error result."""
    text: str
    """What the caller was told, unmasked."""
    caller: Caller
    via: str
    is_refused: bool

    def render_message(self) -> str:
        """Return what the caller was told, without secrets and cut to a length."""
        # Imported late: compiling its patterns slows start-up, and failing calls are rare.
        from portico.config_file.mask import mask_text

        text = mask_text(self.text)
        if len(text) <= MAX_MESSAGE_CHARS:
            return text
        return f"{text[:MAX_MESSAGE_CHARS]}…"


class FailedCalls:
    """The latest failed and refused calls."""

    def __init__(self) -> None:
        self._calls: OrderedDict[str, FailedCall] = OrderedDict()

    def add(
        self,
        call_id: str,
        tool: str,
        error: str,
        text: str,
        caller: Caller,
        via: str,
        *,
        is_refused: bool,
    ) -> None:
        """Keep a call, and forget the oldest if there are too many."""
        kept = text[:_MAX_KEPT_CHARS]
        self._calls[call_id] = FailedCall(
            time.time(), call_id, tool[:_MAX_KEPT_CHARS], error, kept, caller, via, is_refused
        )
        if len(self._calls) > MAX_CALLS:
            self._calls.popitem(last=False)

    def find(self, call_id: str) -> FailedCall | None:
        """Return a call by its id, if it is among the latest."""
        return self._calls.get(call_id)

    def list_refused(self) -> Iterable[FailedCall]:
        """Return the calls that were refused, the latest first."""
        return [one for one in reversed(self._calls.values()) if one.is_refused]


def extract_error_text(result: Mapping[str, Any]) -> str:
    """Return the texts of an error result."""
    content = result.get("content")
    if not isinstance(content, list):
        return ""
    blocks = [block for block in cast("list[Any]", content) if isinstance(block, dict)]
    texts = [cast("dict[str, Any]", block).get("text") for block in blocks]
    return "\n".join(text for text in texts if isinstance(text, str))


def describe_error(error: BaseException) -> str:
    """Return what a caller is told of an error; empty for one that is not explained to callers."""
    return str(error) if isinstance(error, PorticoError) else ""
