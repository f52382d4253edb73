"""Formats usage statistics for people."""

from portico.profiles import cards
from portico.usage.statistics import Statistics


def format_time_ago(at: float) -> str:
    """Format a time like `3 min ago`."""
    return f"{cards.format_age(at)} ago"


def format_latency(value: float, statistics: Statistics) -> str:
    """Format a latency; empty if no call succeeded."""
    if not statistics.successes:
        return ""
    if value >= 10_000:
        return f"{value / 1_000:,.0f} s"
    if value >= 10:
        return f"{value:,.0f} ms"
    return f"{value:.1f} ms"


def format_success_rate(statistics: Statistics) -> str:
    """Format the success rate, rounded down, so that 100% means every call."""
    if not statistics.calls:
        return ""
    return f"{min(int(statistics.success_rate * 100), 100)}%"
