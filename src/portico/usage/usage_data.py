"""Everything known of use: statistics, standings, token ledger and result shapes."""

from dataclasses import dataclass, field

from portico.results.learned_shapes import LearnedShapes
from portico.usage.standings import Standings
from portico.usage.token_ledger import TokenLedger
from portico.usage.tool_usage import ToolUsage


@dataclass(frozen=True)
class UsageData:
    """Everything that use has shown of the tools."""

    tool_usage: ToolUsage
    standings: Standings
    ledger: TokenLedger
    shapes: LearnedShapes = field(default_factory=LearnedShapes)
    """Shapes of past results, by tool."""
