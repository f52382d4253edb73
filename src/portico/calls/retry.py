"""Whether a call that failed is made again. Pure.

Only where the conversation with the server was lost, and only a tool that may run twice: one that
says it is read-only or idempotent, or that the configuration names; any tool where the server
cannot have begun. A server that is slow, busy or says no has answered.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from portico.catalog.tool import Tool
from portico.errors import BackendBusy, BackendTimeout, BackendUnavailable, PorticoError

FIRST_BACKOFF_S = 0.1
MAX_BACKOFF_S = 2.0


@dataclass(frozen=True)
class RetryRule:
    """How often calls of one server are made again."""

    times: int = 1
    tools: tuple[str, ...] = ()
    """Globs of tool names that may run twice, whatever they say."""

    def can_run_twice(self, tool: Tool) -> bool:
        """Whether a tool may run twice."""
        if self.times <= 0:
            return False
        hints: Mapping[str, Any] = tool.annotations
        if hints.get("readOnlyHint") is True or hints.get("idempotentHint") is True:
            return True
        return any(fnmatchcase(tool.name, pattern) for pattern in self.tools)


DEFAULT_RETRY_RULE = RetryRule()


def should_retry(rule: RetryRule, tool: Tool, error: PorticoError, attempt: int) -> bool:
    """Whether the call that failed at this attempt (1 is the first) is made again."""
    if (
        attempt > rule.times
        or not error.retryable
        or isinstance(error, BackendTimeout | BackendBusy)
    ):
        return False
    return rule.can_run_twice(tool) or (
        isinstance(error, BackendUnavailable) and not error.may_have_begun
    )


def mark_possibly_executed(rule: RetryRule, tool: Tool, error: BackendUnavailable) -> None:
    """Say of a failure that the tool may have run all the same, where running it twice is not
    harmless."""
    if (
        isinstance(error, BackendBusy)
        or not (error.was_sent and error.may_have_begun)
        or rule.can_run_twice(tool)
    ):
        return
    error.retryable = False
    if isinstance(error, BackendTimeout):
        patient = " A longer wait is this server's timeouts.call_s."
    else:
        patient = ""
    error.advice = f"It may have run: find out before you call it again.{patient}"


def compute_backoff(attempt: int) -> float:
    """Seconds before the next attempt."""
    return min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** (attempt - 1))
