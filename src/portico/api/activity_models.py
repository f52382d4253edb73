"""Models of answers about calls, keys, the configuration and use by day."""

from typing import Any, Literal

from pydantic import Field

from portico.api.models import ApiModel, optional


class CallEntry(ApiModel):
    """A call. Arguments and results are not stored."""

    id: int
    at: str
    tool: str
    ok: bool
    ms: float
    cancelled: bool | None = None
    client: str = ""
    """The name that the client claims."""
    profile: str = ""
    person: str = ""
    """On whose behalf it was made: what vouches for it, and the name there (`key ci`)."""
    via: str = optional("", "How it was made: `call_tool`, `script`, `workflow`, `rest` …")
    error: str = optional("", "The kind of failure.")
    call: str = optional("", "Its id in events and in the audit log.")


class CallList(ApiModel):
    """Calls, the latest first."""

    calls: list[CallEntry]
    next: str | None = optional(None, "The address of earlier ones.")


class RefusedCall(ApiModel):
    """A call that was refused before its tool was run."""

    call: str = Field(description="Its id in events and in the audit log, where it has one.")
    at: str
    tool: str = Field(description="Its address, or the name that no tool has.")
    error: str = Field(description="Why, as a kind: `unknown_name`, `invalid_arguments` …")
    message: str = optional("", "What the caller was told, without secrets.")
    client: str = ""
    profile: str = ""
    person: str = ""
    via: str = optional("", "How it was made.")


class RefusedCallList(ApiModel):
    """Refused calls, the latest first."""

    calls: list[RefusedCall]


class StageTime(ApiModel):
    """One stage of a call."""

    stage: str = Field(
        description="`admission` (the gateway's queue), `preparation` (checks), `start` (of its "
        "server), `server_queue` or `tool`."
    )
    ms: float


class RunCall(CallEntry):
    """A call of a script or workflow."""

    start_ms: float = Field(description="Since the first call of its run began.")


class CallDetails(CallEntry):
    """A call in full."""

    hash: str = optional("", "The hash of the definition that was called.")
    message: str = optional("", "What the caller was told of a failure; kept until a restart.")
    stages: list[StageTime] = optional([], "Where its time went, in order.")
    run: list[RunCall] = optional([], "All calls of the script or workflow that made it.")
    audit: dict[str, Any] = optional({}, "What the audit log has of it: arguments and more.")


class CallRequest(ApiModel):
    """A call of a tool."""

    tool: str = Field(min_length=1, max_length=1_024, description="Its address.")
    arguments: dict[str, Any] = Field(default={})


class CallAnswer(ApiModel):
    """What came of it."""

    call: str = Field(description="Its id in events, in the record of calls and the audit log.")
    ok: bool
    ms: float
    result: dict[str, Any] = Field(
        description="The tool's result as MCP has it; a large one is shortened, with a handle."
    )


class LogLine(ApiModel):
    """A line of a server's log."""

    sequence: int = Field(description="Numbers that are left out are of lines not kept.")
    at: str
    state: str = optional("", "The new state; left out of a line of stderr.")
    text: str = ""


class ServerLogPage(ApiModel):
    """The latest lines of a server's log."""

    server: str
    state: str
    lines: list[LogLine]


class KeyCard(ApiModel):
    """A key."""

    id: str
    name: str
    state: Literal["valid", "expired", "revoked"]
    profiles: list[str] = optional([], "Profiles that it opens; left out: everything.")
    read_only: bool = False
    created: str
    expires: str | None = None
    last_used: str | None = None


class KeyList(ApiModel):
    """Keys, the oldest first."""

    keys: list[KeyCard]


class KeyRequest(ApiModel):
    """A key to be made."""

    name: str = Field(max_length=100, description="Of a person or program, as in `ana` or `ci`.")
    profiles: list[str] = Field(default=[], max_length=100)
    read_only: bool = False
    expires: str = Field(default="", max_length=20, description="When it ends: 12h, 90d, 52w.")


class KeyRotation(ApiModel):
    """How a key is replaced."""

    expires: str = Field(
        default="",
        max_length=20,
        description="When the new one ends: 90d. As the old one.",
    )
    grace: str = Field(
        default="1h", max_length=20, description="How long the old one stays valid: 1h, 2d, 0."
    )


class NewKey(KeyCard):
    """A key that was made."""

    key: str = Field(description="Its text, shown this once.")
    replaced: list[str] = optional([], "Ids of the keys that it replaces.")


class RevokedKeys(ApiModel):
    """Keys that were revoked."""

    revoked: list[str] = Field(description="Their ids.")


class EffectiveConfig(ApiModel):
    """The configuration in use."""

    files: list[str]
    config: dict[str, Any]
    sources: dict[str, str] = Field(description="Where keys came from, by their path.")
    warnings: list[str] = Field(default=[])
    problem: str = optional("", "Why what is in the files is not in use.")
    editable: list[str] = Field(
        default=[], description="Keys that `/config/changes` changes, `*` for any name."
    )


class DayUse(ApiModel):
    """One day, UTC."""

    day: str
    calls: int
    failures: int
    listing: int
    shown: int
    saved: int


class ServerUse(ApiModel):
    """Calls of a server's tools."""

    server: str
    calls: int
    failures: int


class ClientUse(ApiModel):
    """Tokens of a client."""

    client: str
    sessions: int
    listing: int
    shown: int
    saved: int


class ServerSaving(ApiModel):
    """A server's share of the tokens that were saved."""

    server: str
    definitions: int = Field(description="Tokens that listing its tools costs now.")
    saved: int


class DailyUse(ApiModel):
    """Use by day, server and client."""

    days: list[DayUse] = Field(description="The oldest first.")
    servers: list[ServerUse] = Field(description="The most called first, at most 50.")
    clients: list[ClientUse] = Field(description="Those that saved most first, at most 50.")
    savings: list[ServerSaving] = optional(
        [],
        "What was saved, shared out among servers by what listing each one costs; the most first,"
        " at most 50.",
    )


class LastFailure(ApiModel):
    """The last call of a server that failed."""

    tool: str
    error: str
    at: str


class ServerLoad(ApiModel):
    """Calls of a server since the gateway's start, and what it uses."""

    server: str
    kind: str
    state: str
    reason: str = ""
    calls: int
    errors: int
    calls_per_s: float
    p50_ms: float | None = None
    p95_ms: float | None = None
    running: int = Field(description="Calls that run now.")
    memory_bytes: int
    processes: int
    definitions: int = optional(0, "Tokens that listing its tools costs; left out until counted.")
    last_error: LastFailure | None = None


class GatewayLoad(ApiModel):
    """The load of each server."""

    memory_bytes: int = Field(description="The gateway's own.")
    servers: list[ServerLoad]
    left_out: int | None = None
    disabled: list[str] = optional([], "Servers that are switched off in the configuration.")
