"""Portico: one MCP endpoint in front of all of a person's MCP servers.

The agent sees a few small tools, with which it finds, reads and runs the thousands behind them.
Importing the package does nothing: what it exports is imported on first access.

`Gateway` and `SyncGateway` embed the gateway in an agent (`portico.embedding`);
`portico.app.GatewayRuntime` composes the gateway itself.
"""

# Type checkers know this name; importing `typing` would cost more than all the rest.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from portico.embedding import (
        Format,
        Gateway,
        Match,
        Matches,
        Result,
        ServerInfo,
        SyncGateway,
        ToolInfo,
    )
    from portico.errors import (
        BackendBusy,
        BackendTimeout,
        BackendUnavailable,
        ConfigError,
        DefinitionChanged,
        InvalidArguments,
        Overloaded,
        PorticoError,
        RecordedOnly,
        RemoteError,
        StaleCursor,
        UnknownName,
    )

__version__ = "0.1.0"

__all__ = [
    "BackendBusy",
    "BackendTimeout",
    "BackendUnavailable",
    "ConfigError",
    "DefinitionChanged",
    "Format",
    "Gateway",
    "InvalidArguments",
    "Match",
    "Matches",
    "Overloaded",
    "PorticoError",
    "RecordedOnly",
    "RemoteError",
    "Result",
    "ServerInfo",
    "StaleCursor",
    "SyncGateway",
    "ToolInfo",
    "UnknownName",
    "__version__",
]

_EMBEDDING = frozenset(
    {"Format", "Gateway", "Match", "Matches", "Result", "ServerInfo", "SyncGateway", "ToolInfo"}
)


def __getattr__(name: str) -> "Any":
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module = "portico.embedding" if name in _EMBEDDING else "portico.errors"
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
