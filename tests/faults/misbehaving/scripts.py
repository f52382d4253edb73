"""Every script there is: anyone who imports this has them all registered."""

from __future__ import annotations

from tests.faults.misbehaving import answers, calls, greeting, listings, replies
from tests.faults.misbehaving.healthy import PLACES
from tests.faults.misbehaving.steps import SCRIPTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tests.faults.misbehaving.steps import Script

KINDS = (greeting, listings, calls, answers, replies)


def script_for(fault: str, where: str) -> Script | None:
    """Return what a fault does in a place."""
    spoiled = SCRIPTS.get(fault, {})
    return spoiled.get(where) or (spoiled.get("every") if where in PLACES.values() else None)
