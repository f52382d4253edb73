"""Embedding: the gateway as a library, for agents written in Python. `from portico import Gateway`
leads here.

The house stays as it is (`portico.app`); this is a small porch before it, at which an agent stands
like any client.

gateway      `Gateway`: find, call, tell a model of tools and answer its calls → conversation (its life, and the door),
             offering (which names its models know)
sync         `SyncGateway`: the same without an event loop
settings     what an author passes → a configuration and servers that are objects
definitions  tools as each provider takes them → portable (schemas that all of them take), langchain
requests     a model's call as each provider has it; replies: the answer in the same form; both pure
results      what is answered, as frozen facts; raising: refusals as exceptions
reference    writes docs/reference/python.md from the docstrings
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
