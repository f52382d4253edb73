"""What is known of use, in one piece: how tools do, where they stand, and what clients were shown."""

from dataclasses import dataclass, field

from portico.disclosure.standings import Standings
from portico.execution.learned import Shapes
from portico.observability.ledger import Ledger
from portico.observability.usage import Usage


@dataclass(frozen=True)
class Insight:
    """Everything that use has shown of the tools."""

    usage: Usage
    standings: Standings
    ledger: Ledger
    shapes: Shapes = field(default_factory=Shapes)
    """What tools are seen to answer."""
