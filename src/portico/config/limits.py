"""Limits of requests, scripts and workflows, and the retention of what is stored."""

from pathlib import Path
from typing import Any, Literal

from pydantic import ByteSize, field_validator, model_validator

from portico.config.section import Section, list_names, setting

LearningMode = Literal["caller", "shared", "off"]


class LimitsConfig(Section):
    """Limits of the gateway and its clients."""

    start_concurrency: int = setting(
        4, "Servers started concurrently without a call; each counts for its first 5 seconds.", ge=1
    )
    call_starts: int = setting(
        16, "Servers started concurrently because of a call; more are queued.", ge=1
    )
    requests: int = setting(512, "Maximum number of concurrent requests of all clients.", ge=1)
    waiting: int = setting(
        1_024, "Maximum number of queued requests; more are rejected with `overloaded`.", ge=0
    )
    caller_requests: int = setting(
        128, "Maximum number of concurrent requests of one client.", ge=1
    )
    caller_waiting: int = setting(
        512, "Maximum number of queued requests of one client; more are rejected.", ge=0
    )
    caller_rate_per_s: float = setting(
        0, "Requests per second of one client, on average; 0 is unlimited.", ge=0
    )
    caller_burst: int = setting(
        100, "Requests it may start at once after a pause, with `caller_rate_per_s`.", ge=1
    )
    wait_s: float = setting(10, "Seconds a request may be queued before it is rejected.", gt=0)
    send_s: float = setting(
        60, "Seconds a client may leave data unread before it is disconnected.", gt=0
    )
    unread_bytes: ByteSize = setting(
        ByteSize(256 * 1024**2),
        "Unread answers of all clients together; they are stored on disk. Beyond this, the"
        " client with most of them is disconnected.",
        gt=0,
    )
    elicitation_s: float = setting(
        600, "Seconds an elicitation (a server's request to a client, or its user) may wait.", gt=0
    )
    elicitations: int = setting(
        256, "Maximum number of calls that wait for an elicitation at the same time.", ge=1
    )
    task_answer_s: float = setting(
        45,
        "Seconds after which a call that its server goes on with as a task is answered with what"
        " its result is read by. Less than the time-out of the clients.",
        gt=0,
    )
    tasks: int = setting(
        1_000, "Maximum number of such calls at the same time, and of results that wait.", ge=1
    )
    drain_s: float = setting(
        5, "Seconds that running calls may still take when the gateway is stopped.", ge=0
    )
    call_s: float = setting(
        600, "Longest call in seconds, whatever a server's own `timeouts` say.", gt=0
    )
    max_request_bytes: ByteSize = setting(
        ByteSize(4 * 1024**2),
        "Largest request a client may send; a number or text like 4MiB.",
        gt=0,
    )
    max_request_values: int = setting(
        25_000,
        "Maximum number of JSON values in a request. Decoding a thousand takes up to 1 ms, in"
        " which no other request is answered.",
        ge=100,
    )
    max_message_bytes: ByteSize = setting(
        ByteSize(64 * 1024**2),
        "Largest message a server may send; a number or text like 64MiB.",
        gt=0,
    )


class CodeConfig(Section):
    """Scripts that clients send to `run_code`, and their limits."""

    languages: tuple[Literal["python", "lua", "javascript", "typescript"], ...] = setting(
        ("python", "lua", "javascript", "typescript"),
        "The languages that may be used.",
        min_length=1,
    )
    wall_s: float = setting(120, "Seconds in all, including its tool calls.", gt=0)
    cpu_s: float = setting(5, "Seconds of CPU time.", gt=0)
    memory: ByteSize = setting(ByteSize(128 * 1024**2), "Memory of a script.", ge=8 * 1024**2)
    recursion: int = setting(
        200, "Nested function calls; Lua has only its own limit.", ge=10, le=1_000
    )
    calls: int = setting(200, "Tool calls.", ge=1)
    parallel: int = setting(16, "Concurrent tool calls; more are queued.", ge=1)
    output: ByteSize = setting(ByteSize(4 * 1024**2), "Printed output; more is dropped.", ge=0)
    answer: ByteSize = setting(ByteSize(4 * 1024**2), "Return value; more is an error.", ge=1024)
    workers: int = setting(
        4,
        "Concurrent scripts per language; one client may use all but one of them. More are"
        " queued, fairly between clients.",
        ge=1,
    )
    waiting: int = setting(
        16, "Queued scripts of one client per language; more are rejected.", ge=0
    )
    state_bytes: ByteSize = setting(
        ByteSize(1024**2), "Total size that each client's scripts may `store`; 0 disables it.", ge=0
    )
    state_s: float = setting(3600, "Seconds that is kept after the last `store`.", gt=0)


MAX_STEPS = 50
"""Steps of a workflow, whatever is configured."""


class WorkflowConfig(Section):
    """Workflows that clients send to `run_workflow`, and their limits."""

    steps: int = setting(MAX_STEPS, "Steps.", ge=1, le=MAX_STEPS)
    parallel: int = setting(8, "Concurrent tool calls; more are queued.", ge=1)
    items: int = setting(200, "Elements of one `for_each`.", ge=1)
    wall_s: float = setting(
        600, "Seconds in all; unfinished steps are cancelled and can be resumed.", gt=0
    )
    ttl_s: float = setting(3600, "Seconds a run can be resumed.", gt=0)


class LearningConfig(Section):
    """Learning from use by search; `learning: off` is short for `learning: {scope: off}`."""

    scope: LearningMode = setting(
        "caller",
        "Who shares what is learnt: each client by its name (and profile), all clients"
        " (`shared`), or none (`off`: nothing is learnt). No text of a query is stored, only"
        " hashes of its words and its vector.",
    )
    half_life_days: float = setting(30, "Days after which a learned weight counts half.", gt=0)
    max_followed: int = setting(
        2_000, "Searches with the tools called after them that each scope stores.", ge=1
    )
    max_together: int = setting(5_000, "Pairs of tools used together that each scope stores.", ge=1)

    @model_validator(mode="before")
    @classmethod
    def _expand_short_form(cls, data: Any) -> Any:
        if isinstance(data, str | bool):
            return {"scope": data}
        return data

    @field_validator("scope", mode="before")
    @classmethod
    def _convert_boolean_scope(cls, value: Any) -> Any:
        # YAML reads a bare `off` as false, and `on` as true.
        if isinstance(value, bool):
            return {False: "off", True: "caller"}[value]
        return value


class ResultsConfig(Section):
    """Results too large for an answer, stored on disk for the caller that received them."""

    ttl_s: float = setting(3600, "Seconds a result is stored.", gt=0)
    total_bytes: ByteSize = setting(
        ByteSize(256 * 1024**2), "Total size; the oldest are deleted.", ge=0
    )
    result_bytes: ByteSize = setting(ByteSize(64 * 1024**2), "Largest result that is stored.", ge=0)
    media_bytes: ByteSize = setting(
        ByteSize(2 * 1024**2), "Images and audio up to this size are passed on unchanged.", ge=0
    )


class UsageConfig(Section):
    """Retention of recorded calls, without arguments and results; `usage: off` records none."""

    calls_days: float = setting(30, "Days each call is stored; 0 stores none.", ge=0)
    max_calls: int = setting(100_000, "Maximum number of stored calls, the latest.", ge=0)
    daily_days: float = setting(
        400, "Days of daily counts per tool, which statistics are based on.", ge=0
    )
    sessions_days: float = setting(
        90, "Days that the tokens shown to each client session are stored; totals stay.", ge=0
    )

    @model_validator(mode="before")
    @classmethod
    def _expand_switch(cls, data: Any) -> Any:
        # YAML reads a bare `off` as false.
        if data in (False, "off"):
            return dict.fromkeys(cls.model_fields, 0)
        if data is True:
            return {}
        return data


class AuditConfig(Section):
    """Log of calls for accountability: caller, tool, arguments and outcome.

    Resources read, prompts fetched, subscriptions and completions are logged too, where they reach
    a server. `audit: off` disables it. Each line is written before its answer is sent.
    """

    enabled: bool = setting(True, "Write the audit log.")
    file: Path | None = setting(
        None, "Its path; the default is `audit.jsonl` in `data_dir`. One JSON object a line."
    )
    arguments: Literal["hash", "redacted", "none"] = setting(
        "hash",
        "What is logged of a call's arguments: a keyed hash, the values with secrets masked,"
        " or nothing.",
    )
    max_bytes: ByteSize = setting(
        ByteSize(50 * 1024**2), "Size of a file at which a new one is started.", ge=1024
    )
    files: int = setting(
        20,
        "Number of files, including the current one; by default there is room for about two"
        " million lines. A file that follows a deleted one says so.",
        ge=1,
    )
    ship: tuple[str, ...] = setting(
        (),
        "Where each line is sent as well: `stdout`, `stderr`, `syslog:udp://HOST:514`,"
        " `syslog:tcp://HOST:601`, `syslog:/dev/log`, or `otlp` (to OTEL_EXPORTER_OTLP_ENDPOINT;"
        " needs the extra `otel`).",
    )
    sync: bool = setting(
        False, "Wait until each line is on disk, not only with the operating system."
    )

    @field_validator("ship", mode="before")
    @classmethod
    def _list_destinations(cls, value: Any) -> Any:
        return list_names(value)

    @field_validator("ship")
    @classmethod
    def _check_destinations(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for one in value:
            if one not in ("stdout", "stderr", "otlp") and not one.startswith("syslog:"):
                raise ValueError(
                    f"{one!r} is no destination: write stdout, stderr, otlp or syslog:ADDRESS"
                )
        return value

    @model_validator(mode="before")
    @classmethod
    def _expand_switch(cls, data: Any) -> Any:
        # YAML reads a bare `off` as false.
        if data in (True, False, "on", "off"):
            return {"enabled": data in (True, "on")}
        return data
