"""Every way a request can fail, written once, as advice.

PorticoError
├── ConfigError            the configuration cannot be used (file, line, key, nearest key)
├── UnknownName            no such tool, server or profile; carries the nearest names
├── InvalidArguments       arguments do not fit the tool's schema; carries each problem
├── DefinitionChanged      the tool is not what its caller was shown, or a script was bound to; nothing was sent
├── BackendUnavailable     the tool is known, its server cannot be reached now; carries reason and since when
│   ├── BackendTimeout     the server did not answer in time
│   ├── BackendBusy        its limits are reached and too many wait already; nothing was sent; carries when to try again
│   └── RecordedOnly       the server is a recording: it can be searched and read, never called
├── Overloaded             the gateway has too much to do, or this client asks too much; carries when to try again
├── StaleCursor            the catalog changed since the cursor was made, or the cursor is not ours
└── RemoteError            the upstream answered a JSON-RPC error: code, message and data as they came, secrets masked

`code` is the JSON-RPC code an error has when it crosses the wire as a protocol error. Meta-tools answer with a tool
result instead (`isError`), because a model reads results and rarely sees protocol errors.
"""

from typing import Any

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
RESOURCE_NOT_FOUND = -32002
"""Unknown resource in the handshake era; 2026-07-28 says INVALID_PARAMS."""
UNSUPPORTED_PROTOCOL_VERSION = -32022


class PorticoError(Exception):
    """A failure a caller can act on: what happened, and what to do about it."""

    kind = "internal"
    code = INTERNAL_ERROR
    retryable = False
    retry_after_s: float | None = None
    """When to try again, as far as that can be said."""

    def __init__(self, message: str, *, advice: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice

    def __str__(self) -> str:
        if self.advice:
            return f"{self.message}\n{self.advice}"
        return self.message


class ConfigError(PorticoError):
    """The configuration cannot be used."""

    kind = "config"

    def __init__(
        self, message: str, *, advice: str = "", file: str = "", line: int = 0, key: str = ""
    ) -> None:
        super().__init__(message, advice=advice)
        self.file = file
        self.line = line
        self.key = key

    def __str__(self) -> str:
        if self.line:
            where = f"{self.file}:{self.line}: "
        elif self.file:
            where = f"{self.file}: "
        else:
            where = ""
        return where + super().__str__()


class UnknownName(PorticoError):
    """No such thing here; the nearest names are."""

    kind = "unknown_name"
    code = INVALID_PARAMS

    def __init__(self, message: str, *, nearest: tuple[str, ...] = (), advice: str = "") -> None:
        super().__init__(message, advice=advice)
        self.nearest = nearest


class InvalidArguments(PorticoError):
    """The arguments do not fit the tool's schema."""

    kind = "invalid_arguments"
    code = INVALID_PARAMS

    def __init__(self, message: str, *, problems: tuple[str, ...] = (), advice: str = "") -> None:
        super().__init__(message, advice=advice)
        self.problems = problems


class DefinitionChanged(PorticoError):
    """The tool is defined otherwise than its caller knows it; nothing was sent. Said once for each
    change."""

    kind = "definition_changed"
    code = INVALID_PARAMS


class BackendUnavailable(PorticoError):
    """The tool is known; its server cannot be reached now."""

    kind = "unavailable"
    retryable = True
    may_have_begun = True
    """Whether the server may have begun with what it was asked."""
    was_sent = True
    """Whether it was asked at all, as far as is known."""


class BackendTimeout(BackendUnavailable):
    """The server did not answer in time."""

    kind = "timeout"


class BackendBusy(BackendUnavailable):
    """The server's limits are reached."""

    kind = "busy"

    def __init__(
        self, message: str, *, advice: str = "", retry_after_s: float | None = None
    ) -> None:
        super().__init__(message, advice=advice)
        self.retry_after_s = retry_after_s


class RecordedOnly(BackendUnavailable):
    """The server is a recording."""

    kind = "recorded_only"
    retryable = False
    was_sent = False


class Overloaded(PorticoError):
    """The gateway has too much to do, or this client asks too much; nothing was begun."""

    kind = "overloaded"
    retryable = True

    def __init__(
        self, message: str, *, advice: str = "", retry_after_s: float | None = None
    ) -> None:
        super().__init__(message, advice=advice)
        self.retry_after_s = retry_after_s


class StaleCursor(PorticoError):
    """The cursor no longer points anywhere."""

    kind = "stale_cursor"
    code = INVALID_PARAMS


class RemoteError(PorticoError):
    """An upstream's JSON-RPC error, unchanged but for values of configured secrets."""

    kind = "remote"

    def __init__(
        self, code: int, message: str, data: Any = None, *, has_data: bool | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.data = data
        if has_data is None:
            self.has_data = data is not None
        else:
            self.has_data = has_data
