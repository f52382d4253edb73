"""How figures of use are worded for people."""

from portico.disclosure.cards import age
from portico.observability.statistics import Statistics


def ago(at: float) -> str:
    """`3 min ago`."""
    return f"{age(at)} ago"


def milliseconds(value: float, use: Statistics) -> str:
    """A latency; nothing where no call went well, because there is none then."""
    if not use.successes:
        return ""
    if value >= 10_000:
        return f"{value / 1_000:,.0f} s"
    return f"{value:,.0f} ms" if value >= 10 else f"{value:.1f} ms"


def share(use: Statistics) -> str:
    """How many of the calls went well; never all, where one did not."""
    if not use.calls:
        return ""
    return f"{min(int(use.success_rate * 100), 100)}%"
