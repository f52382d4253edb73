"""All errors of a request, each with advice.

PorticoError
├── ConfigError            the configuration cannot be used (file, line, key)
├── UnknownName            no such tool, server or profile; carries the nearest names
├── InvalidArguments       arguments do not fit the tool's schema; carries each problem
├── PermissionDenied       the rules or the caller's key do not allow this; nothing was sent
│   ├── ApprovalRequired   a rule asks a person first, who has not answered yet; carries the id
│   ├── ApprovalDenied     a rule asks a person first, who has said no
│   └── ApprovalUnavailable  a rule asks a person first, and nobody can be asked
├── AlreadyDecided         the request for approval was decided, or used, before
├── DefinitionChanged      the tool differs from what the caller was shown; nothing was sent
├── DefinitionHeld         nobody has looked at what its server says of it now; nothing was sent
├── BackendUnavailable     the tool is known, but its server cannot be reached now
│   ├── BackendTimeout     the server did not answer in time
│   ├── BackendBusy        the server's limits are reached; carries when to retry
│   ├── SignInNeeded       somebody has to sign in to the server first; nothing was sent
│   │   └── MoreRightsNeeded   the sign-in lacks rights that this call wants
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

    def __init__(
        self, message: str, *, advice: str = "", retry_after_s: float | None = None
    ) -> None:
        """`retry_after_s`: seconds after which to retry, if known."""
        super().__init__(message)
        self.message = message
        self.advice = advice
        self.retry_after_s = retry_after_s

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
        text = super().__str__()
        if self.line:
            return f"{self.file}:{self.line}: {text}"
        if self.file:
            return f"{self.file}: {text}"
        return text


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


class PermissionDenied(PorticoError):
    """The caller may not do this; nothing was sent."""

    kind = "permission_denied"
    code = INVALID_REQUEST


class ApprovalRequired(PermissionDenied):
    """A rule asks for approval, and nobody has given it yet; nothing was sent.

    Once `approval_id` is approved, the same call by the same caller runs, once.
    """

    kind = "approval_required"

    def __init__(self, message: str, approval_id: str, *, url: str = "", advice: str = "") -> None:
        super().__init__(message, advice=advice)
        self.approval_id = approval_id
        self.url = url
        """Page on which a person decides; empty where there is none."""


class ApprovalDenied(PermissionDenied):
    """A rule asks for approval, and a person has denied it; nothing was sent."""

    kind = "approval_denied"


class AlreadyDecided(PorticoError):
    """A request for approval that was approved, denied or used before."""

    kind = "already_decided"
    code = INVALID_REQUEST


class ApprovalUnavailable(PermissionDenied):
    """A rule asks for approval, and nobody can be asked here; nothing was sent."""

    kind = "approval_unavailable"


class DefinitionChanged(PorticoError):
    """The tool's definition differs from what its caller knows; nothing was sent.

    Raised once for each change.
    """

    kind = "definition_changed"
    code = INVALID_PARAMS


class DefinitionHeld(PorticoError):
    """What the server says of it was not trusted by anybody yet; nothing was sent."""

    kind = "definition_held"
    code = INVALID_REQUEST


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


class SignInNeeded(BackendUnavailable):
    """The server wants somebody to sign in first; nothing was done, and no retry helps."""

    kind = "sign_in_needed"
    retryable = False
    may_have_begun = False
    was_sent = False

    def __init__(
        self,
        message: str,
        *,
        advice: str = "",
        retry_after_s: float | None = None,
        url: str = "",
    ) -> None:
        """`url`: a page of the gateway that signs in; empty where it has none."""
        super().__init__(message, advice=advice, retry_after_s=retry_after_s)
        self.url = url


class MoreRightsNeeded(SignInNeeded):
    """One call needs rights that nobody has given; other calls of the server work."""

    kind = "more_rights_needed"


class RecordedOnly(BackendUnavailable):
    """The server is a recording."""

    kind = "recorded_only"
    retryable = False
    was_sent = False


class Overloaded(PorticoError):
    """The gateway's limits or those of this client are exceeded; nothing was begun."""

    kind = "overloaded"
    retryable = True


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
