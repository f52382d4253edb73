"""Portico: one MCP endpoint in front of all of a person's MCP servers.

The agent sees a few small tools; it finds, reads and runs the thousands behind them when it needs
them. Importing the package does nothing: what it exports is imported when it is first named.

`Gateway` and `SyncGateway` embed the gateway in an agent of one's own (`portico.embedding`); `portico.app.Gateway` is
where the house itself is put together.
"""

TYPE_CHECKING = (
    False  # as type checkers know it: to import `typing` would cost more than all the rest
)
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

    found = getattr(
        import_module("portico.embedding" if name in _EMBEDDING else "portico.errors"), name
    )
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
