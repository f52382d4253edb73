"""Limits of requests, scripts and workflows."""

from typing import Literal

from pydantic import ByteSize, Field

from portico.config.section import Section


class LimitsConfig(Section):
    """Limits of the gateway and its clients."""

    start_concurrency: int = Field(
        default=4,
        ge=1,
        description="Servers started concurrently without a call; each counts for its first 5"
        " seconds.",
    )
    call_starts: int = Field(
        default=16,
        ge=1,
        description="Servers started concurrently because of a call; more are queued.",
    )
    requests: int = Field(
        default=512,
        ge=1,
        description="Maximum number of concurrent requests of all clients.",
    )
    waiting: int = Field(
        default=1_024,
        ge=0,
        description="Maximum number of queued requests; more are rejected with `overloaded`.",
    )
    caller_requests: int = Field(
        default=128, ge=1, description="Maximum number of concurrent requests of one client."
    )
    caller_waiting: int = Field(
        default=512,
        ge=0,
        description="Maximum number of queued requests of one client; more are rejected.",
    )
    caller_rate_per_s: float = Field(
        default=0,
        ge=0,
        description="Requests per second of one client, on average; 0 is unlimited.",
    )
    caller_burst: int = Field(
        default=100,
        ge=1,
        description="Requests it may start at once after a pause, with `caller_rate_per_s`.",
    )
    wait_s: float = Field(
        default=10,
        gt=0,
        description="Seconds a request may be queued before it is rejected.",
    )
    send_s: float = Field(
        default=60,
        gt=0,
        description="Seconds a client may leave data unread before it is disconnected.",
    )
    unread_bytes: ByteSize = Field(
        default=ByteSize(256 * 1024**2),
        gt=0,
        description="Unread answers of all clients together; they are stored on disk. Beyond this,"
        " the client with most of them is disconnected.",
    )
    question_s: float = Field(
        default=600,
        gt=0,
        description="Seconds an elicitation (a server's request to a client, or its user) may"
        " wait.",
    )
    questions: int = Field(
        default=256,
        ge=1,
        description="Maximum number of calls that wait for an elicitation at the same time.",
    )
    drain_s: float = Field(
        default=5,
        ge=0,
        description="Seconds that running calls may still take when the gateway is stopped.",
    )
    call_s: float = Field(
        default=600,
        gt=0,
        description="Longest call in seconds, whatever a server's own `timeouts` say.",
    )
    max_request_bytes: ByteSize = Field(
        default=ByteSize(4 * 1024**2),
        gt=0,
        description="Largest request a client may send; a number or text like 4MiB.",
    )
    max_request_values: int = Field(
        default=25_000,
        ge=100,
        description="Maximum number of JSON values in a request. Decoding a thousand takes up to 1"
        " ms, in which no other request is answered.",
    )
    max_message_bytes: ByteSize = Field(
        default=ByteSize(64 * 1024**2),
        gt=0,
        description="Largest message a server may send; a number or text like 64MiB.",
    )


class CodeConfig(Section):
    """Scripts that clients send to `run_code`, and their limits."""

    languages: tuple[Literal["python", "lua", "javascript", "typescript"], ...] = Field(
        default=("python", "lua", "javascript", "typescript"),
        min_length=1,
        description="The languages that may be used.",
    )
    wall_s: float = Field(
        default=120, gt=0, description="Seconds in all, including its tool calls."
    )
    cpu_s: float = Field(default=5, gt=0, description="Seconds of CPU time.")
    memory: ByteSize = Field(
        default=ByteSize(128 * 1024**2), ge=8 * 1024**2, description="Memory of a script."
    )
    recursion: int = Field(
        default=200,
        ge=10,
        le=1_000,
        description="Nested function calls; Lua has only its own limit.",
    )
    calls: int = Field(default=200, ge=1, description="Tool calls.")
    parallel: int = Field(default=16, ge=1, description="Concurrent tool calls; more are queued.")
    output: ByteSize = Field(
        default=ByteSize(256 * 1024), ge=0, description="Printed output; more is dropped."
    )
    answer: ByteSize = Field(
        default=ByteSize(4 * 1024**2), ge=1024, description="Return value; more is an error."
    )
    workers: int = Field(
        default=4,
        ge=1,
        description="Concurrent scripts per language; one client may use all but one of them. More"
        " are queued, fairly between clients.",
    )
    waiting: int = Field(
        default=16,
        ge=0,
        description="Queued scripts of one client per language; more are rejected.",
    )
    state_bytes: ByteSize = Field(
        default=ByteSize(1024**2),
        ge=0,
        description="Total size that each client's scripts may `store`; 0 disables it.",
    )
    state_s: float = Field(
        default=3600, gt=0, description="Seconds that is kept after the last `store`."
    )


class WorkflowConfig(Section):
    """Workflows that clients send to `run_workflow`, and their limits."""

    steps: int = Field(default=50, ge=1, le=50, description="Steps.")
    parallel: int = Field(default=8, ge=1, description="Concurrent tool calls; more are queued.")
    items: int = Field(default=200, ge=1, description="Elements of one `for_each`.")
    wall_s: float = Field(
        default=600,
        gt=0,
        description="Seconds in all; unfinished steps are cancelled and can be resumed.",
    )
    ttl_s: float = Field(default=3600, gt=0, description="Seconds a run can be resumed.")
