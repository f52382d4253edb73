"""All errors of a request, each with advice.

PorticoError
├── ConfigError            the configuration cannot be used (file, line, key)
├── UnknownName            no such tool, server or profile; carries the nearest names
├── InvalidArguments       arguments do not fit the tool's schema; carries each problem
├── DefinitionChanged      the tool differs from what the caller was shown; nothing was sent
├── BackendUnavailable     the tool is known, but its server cannot be reached now
│   ├── BackendTimeout     the server did not answer in time
│   ├── BackendBusy        the server's limits are reached; carries when to retry
│   └── RecordedOnly       the server is a recording: it can be searched, never called
├── Overloaded             the gateway or this client's limits are exceeded; carries when to retry
├── StaleCursor            the catalog changed since the cursor was made, or it is not ours
└── RemoteError            a JSON-RPC error of the upstream, with secrets masked

`code` is the JSON-RPC code of an error that is sent as a protocol error. Meta-tools answer with a
tool result instead (`isError`), because a model reads results and rarely sees protocol errors.
"""

from typing import Any

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
RESOURCE_NOT_FOUND = -32002
"""Unknown resource in the handshake era; 2026-07-28 uses INVALID_PARAMS."""
UNSUPPORTED_PROTOCOL_VERSION = -32022


class PorticoError(Exception):
    """A failure a caller can act on: what happened, and what to do about it."""

    kind = "internal"
    code = INTERNAL_ERROR
    retryable = False
    retry_after_s: float | None = None
    """Seconds after which to retry, if known."""

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
            location = f"{self.file}:{self.line}: "
        elif self.file:
            location = f"{self.file}: "
        else:
            location = ""
        return location + super().__str__()


class UnknownName(PorticoError):
    """An unknown tool, server, category or profile, with the nearest names."""

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
    """The tool's definition differs from what its caller knows; nothing was sent.

    Raised once for each change.
    """

    kind = "definition_changed"
    code = INVALID_PARAMS


class BackendUnavailable(PorticoError):
    """The tool is known; its server cannot be reached now."""

    kind = "unavailable"
    retryable = True
    may_have_begun = True
    """Whether the server may have begun with the request."""
    was_sent = True
    """Whether the request was sent, as far as is known."""


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
    """The gateway's limits or those of this client are exceeded; nothing was begun."""

    kind = "overloaded"
    retryable = True

    def __init__(
        self, message: str, *, advice: str = "", retry_after_s: float | None = None
    ) -> None:
        super().__init__(message, advice=advice)
        self.retry_after_s = retry_after_s


class StaleCursor(PorticoError):
    """The cursor is no longer valid."""

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
        self.has_data = data is not None if has_data is None else has_data
