"""The gateway as a library, for agents written in Python; `from portico import Gateway` leads here.

gateway           `Gateway`: search, call, list tools for a model and answer its calls
sync_gateway      `SyncGateway`: the same without an event loop
session           the agent's session: open, close, and send requests like any client
offered_tools     which tool names its models were given
settings          constructor arguments → a configuration and in-process backends
definitions       tool definitions in each provider's format
portable_schema   input schemas that every provider accepts
model_calls       a model's tool call in each provider's format, parsed; pure
provider_results  a result in each provider's format; pure
langchain         LangChain tools and messages
results           frozen dataclasses that methods return
result_errors     error results → exceptions
reference         writes docs/reference/python.md from the docstrings
"""

from portico.embedding.definitions import Format
from portico.embedding.gateway import Gateway
from portico.embedding.results import Match, Matches, Result, ServerInfo, ToolInfo
from portico.embedding.sync_gateway import SyncGateway

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
