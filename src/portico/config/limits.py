"""What nobody may exceed: requests, scripts, workflows."""

from typing import Literal

from pydantic import ByteSize, Field

from portico.config.section import Section


class LimitsConfig(Section):
    """What nobody may exceed."""

    start_concurrency: int = Field(
        default=4,
        ge=1,
        description="Servers started together that nobody has called; one counts for its first 5 seconds.",
    )
    call_starts: int = Field(
        default=16,
        ge=1,
        description="Servers started together because they were called; more wait for a place.",
    )
    requests: int = Field(
        default=512,
        ge=1,
        description="Requests of all clients that are worked on at the same time.",
    )
    waiting: int = Field(
        default=1_024,
        ge=0,
        description="Requests that may wait for that; more are turned away at once.",
    )
    caller_requests: int = Field(
        default=128, ge=1, description="Requests of one client that are worked on at the same time."
    )
    caller_waiting: int = Field(
        default=512,
        ge=0,
        description="Requests of one client that may wait for that; more are turned away at once.",
    )
    caller_rate_per_s: float = Field(
        default=0,
        ge=0,
        description="Requests of one client that begin in a second, in the long run; 0 is any number.",
    )
    caller_burst: int = Field(
        default=100,
        ge=1,
        description="Requests that it may begin at once after a pause, with `caller_rate_per_s`.",
    )
    wait_s: float = Field(
        default=10,
        gt=0,
        description="How long a request waits for its turn before it is turned away.",
    )
    send_s: float = Field(
        default=60,
        gt=0,
        description="How long a client may leave unread what it is sent before it is hung up on.",
    )
    unread_bytes: ByteSize = Field(
        default=ByteSize(256 * 1024**2),
        gt=0,
        description="Answers that all clients together may leave unread; they are kept on disk. Where there are more, "
        "the client that holds most of them is hung up on.",
    )
    question_s: float = Field(
        default=600,
        gt=0,
        description="How long a server's question to a client, or its user, may stay unanswered.",
    )
    questions: int = Field(
        default=256,
        ge=1,
        description="Calls that wait for their client's answer to a question at the same time.",
    )
    drain_s: float = Field(
        default=5,
        ge=0,
        description="How long calls under way may still take when the gateway is told to stop.",
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
        description="JSON values that a request may have. To read a thousand takes up to 1 ms, in which nobody else is "
        "answered.",
    )
    max_message_bytes: ByteSize = Field(
        default=ByteSize(64 * 1024**2),
        gt=0,
        description="Largest message a server may send; a number or text like 64MiB.",
    )


class CodeConfig(Section):
    """Scripts that clients send to `run_code`, and what each may take."""

    languages: tuple[Literal["python", "lua", "javascript", "typescript"], ...] = Field(
        default=("python", "lua", "javascript", "typescript"),
        min_length=1,
        description="The languages that are run.",
    )
    wall_s: float = Field(
        default=120, gt=0, description="Seconds in all, its calls of tools included."
    )
    cpu_s: float = Field(default=5, gt=0, description="Seconds of computing.")
    memory: ByteSize = Field(
        default=ByteSize(128 * 1024**2), ge=8 * 1024**2, description="Memory of a script."
    )
    recursion: int = Field(
        default=200,
        ge=10,
        le=1_000,
        description="Calls of functions within each other; Lua has only its own limit.",
    )
    calls: int = Field(default=200, ge=1, description="Calls of tools.")
    parallel: int = Field(
        default=16, ge=1, description="Calls of tools at the same time; more wait."
    )
    output: ByteSize = Field(
        default=ByteSize(256 * 1024), ge=0, description="What it prints; more is dropped."
    )
    answer: ByteSize = Field(
        default=ByteSize(4 * 1024**2), ge=1024, description="What it returns; more is an error."
    )
    workers: int = Field(
        default=4,
        ge=1,
        description="Scripts of one language that run at the same time; one client has all but one of them at most. "
        "More wait, and clients take turns.",
    )
    waiting: int = Field(
        default=16,
        ge=0,
        description="Scripts of one client in one language that may wait for a worker; more are refused.",
    )
    state_bytes: ByteSize = Field(
        default=ByteSize(1024**2),
        ge=0,
        description="What each client's scripts may `store` in all; 0 keeps none.",
    )
    state_s: float = Field(
        default=3600, gt=0, description="How long that is kept after the last `store`."
    )


class WorkflowConfig(Section):
    """Workflows that clients send to `run_workflow`, and what each may take."""

    steps: int = Field(default=50, ge=1, le=50, description="Steps.")
    parallel: int = Field(
        default=8, ge=1, description="Calls of tools at the same time; more wait."
    )
    items: int = Field(default=200, ge=1, description="Elements of one `for_each`.")
    wall_s: float = Field(
        default=600,
        gt=0,
        description="Seconds in all; what is not over then is cancelled, and can be resumed.",
    )
    ttl_s: float = Field(default=3600, gt=0, description="How long a run is kept, to be resumed.")
