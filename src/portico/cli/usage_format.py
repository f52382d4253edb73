"""How figures of use are worded for people."""

from portico.profiles import cards
from portico.usage.statistics import Statistics


def format_time_ago(at: float) -> str:
    """`3 min ago`."""
    return f"{cards.format_age(at)} ago"


def format_latency(value: float, statistics: Statistics) -> str:
    """A latency; nothing where no call went well, because there is none then."""
    if not statistics.successes:
        return ""
    if value >= 10_000:
        return f"{value / 1_000:,.0f} s"
    if value >= 10:
        return f"{value:,.0f} ms"
    return f"{value:.1f} ms"


def format_success_rate(statistics: Statistics) -> str:
    """How many of the calls went well; never all, where one did not."""
    if not statistics.calls:
        return ""
    return f"{min(int(statistics.success_rate * 100), 100)}%"
