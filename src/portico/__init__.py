"""Portico: one MCP endpoint in front of all of a person's MCP servers.

The agent sees a few small tools, with which it finds, reads and runs the thousands behind them.
Importing the package does nothing: what it exports is imported on first access.

`Gateway` and `SyncGateway` embed the gateway in an agent (`portico.library`);
`portico.gateway.GatewayRuntime` composes the gateway itself.
"""

# Type checkers know this name; importing `typing` would cost more than all the rest.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from portico.errors import (
        BackendBusy,
        BackendTimeout,
        BackendUnavailable,
        ConfigError,
        DefinitionChanged,
        DefinitionHeld,
        InvalidArguments,
        Overloaded,
        PorticoError,
        RecordedOnly,
        RemoteError,
        StaleCursor,
        UnknownName,
    )
    from portico.library import (
        Format,
        Gateway,
        Match,
        Matches,
        Result,
        ServerInfo,
        SyncGateway,
        ToolInfo,
    )

__version__ = "0.1.0"

__all__ = [
    "BackendBusy",
    "BackendTimeout",
    "BackendUnavailable",
    "ConfigError",
    "DefinitionChanged",
    "DefinitionHeld",
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


def __getattr__(name: str) -> "Any":
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    errors = import_module("portico.errors")
    module = errors if hasattr(errors, name) else import_module("portico.library")
    value = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
