"""The gateway as a library, for agents written in Python; `from portico import Gateway` leads here.

gateway           `Gateway`: search, call, list tools for a model and answer its calls
sync_gateway      `SyncGateway`: the same without an event loop
session           the agent's session: open, close, send requests; which tools its models were given
settings          constructor arguments → a configuration and in-process backends
provider_formats  tools, calls and results in each provider's format, LangChain's too; pure
portable_schema   input schemas that every provider accepts
results           frozen dataclasses that methods return, and exceptions
"""

from portico.library.gateway import Gateway
from portico.library.provider_formats import Format
from portico.library.results import Match, Matches, Result, ServerInfo, ToolInfo
from portico.library.sync_gateway import SyncGateway

__all__ = [
    "Format",
    "Gateway",
    "Match",
    "Matches",
    "Result",
    "ServerInfo",
    "SyncGateway",
    "ToolInfo",
]
