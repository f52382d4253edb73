"""Retry policy for failed calls. Pure.

A call is retried only if the connection was lost, and only if the tool may run twice: it is
annotated as read-only or idempotent, the configuration names it, or the server cannot have begun.
Timeouts, busy servers and errors that the server returned are never retried.
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
    """Retry rule of one server."""

    times: int = 1
    """Maximum number of retries; 0 disables them."""
    tools: tuple[str, ...] = ()
    """Globs of tool names that may run twice, whatever their annotations say."""

    def can_run_twice(self, tool: Tool) -> bool:
        """Return whether retries are enabled and the tool may run twice."""
        if self.times <= 0:
            return False
        hints: Mapping[str, Any] = tool.annotations
        if hints.get("readOnlyHint") is True or hints.get("idempotentHint") is True:
            return True
        return any(fnmatchcase(tool.name, pattern) for pattern in self.tools)


DEFAULT_RETRY_RULE = RetryRule()


def should_retry(rule: RetryRule, tool: Tool, error: PorticoError, attempt: int) -> bool:
    """Return whether to retry after `error` at this attempt (1 is the first)."""
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
    """Make the error non-retryable with advice, if a tool that must not run twice may have run."""
    if (
        isinstance(error, BackendBusy)
        or not (error.was_sent and error.may_have_begun)
        or rule.can_run_twice(tool)
    ):
        return
    error.retryable = False
    if isinstance(error, BackendTimeout):
        timeout_hint = " A longer wait is this server's timeouts.call_s."
    else:
        timeout_hint = ""
    error.advice = f"It may have run: find out before you call it again.{timeout_hint}"


def compute_backoff(attempt: int) -> float:
    """Return the seconds to wait before the next attempt."""
    return min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** (attempt - 1))
