"""A request on its way through the pipeline, and the signature of everything that it passes."""

import os
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from portico.callers import NO_CALLER, Caller
from portico.calls.server_task import TaskMode
from portico.catalog.tool import Tool
from portico.policy.decision import Approval, Decision
from portico.upstream.backend import Raw, Relay
from portico.upstream.lifecycle.supervisor import Upstream

if TYPE_CHECKING:
    from portico.calls.running_task import RunningTask

OK = "ok"
TOOL_ERROR = "tool_error"
INPUT_REQUIRED = "input_required"
CANCELLED = "cancelled"
INTERNAL = "internal"
"""Outcomes of a call; other failures use the kind of their PorticoError."""


@dataclass(frozen=True)
class CallContext:
    """Caller, relay and options of one request."""

    caller: Caller = NO_CALLER
    relay: Relay | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Parameters other than name and arguments: `_meta`, `inputResponses`, `requestState` …"""
    queued_s: float = 0.0
    """Seconds spent in the admission queue; deducted from the call's timeouts."""
    via: str = "library"
    """Origin of the call: `call_tool`, `flat`, `script`, `workflow`, `cli`, `library`."""
    call_id: str = ""
    """Id of the call, where its maker has to know it; otherwise it gets one."""
    run_id: str = ""
    """Id of the script or workflow that makes the call, which the ids of its calls begin with."""
    pause_clock: Callable[[], AbstractContextManager[None]] = nullcontext
    """Entered while the call waits for a person, so that a script's own time stands still."""
    is_multi_round: bool = False
    """Return a server's input requests to the client, which calls again with the answers; otherwise
    the client is asked through `relay` during the call."""
    task_mode: TaskMode = "wait"
    """What the caller wants where the server makes a task of the call."""
    on_task: "Callable[[RunningTask], None] | None" = None
    """Told of the task that a server makes of the call; without it the task's questions can be
    asked only while the call waits."""


DEFAULT_CONTEXT = CallContext()


def make_call_id(run_id: str = "") -> str:
    """Return a new id: 16 hexadecimal digits, or for a call of a script or workflow those of its
    run, a dot and eight more."""
    if run_id:
        return f"{run_id}.{os.urandom(4).hex()}"
    return os.urandom(8).hex()


@dataclass(slots=True, eq=False, kw_only=True)
class ServerRequest:
    """A request to a server that is not a call of a tool in the catalog."""

    server: str
    method: str
    params: Mapping[str, Any] | None
    context: CallContext
    relay: Relay | None = None
    """The context's relay under the server's name."""
    started_at: float = field(default_factory=time.perf_counter)
    decision: Decision | None = None
    """What the rules decided; None where nothing had to be decided."""
    approval: Approval | None = None
    """The approval that it waited for, and what was decided."""


@dataclass(slots=True, eq=False, kw_only=True)
class Call:
    """One call of a tool, and how far it has come."""

    tool: Tool
    """The definition that the call was made by, replaced by the current one."""
    arguments: Any
    """Arguments as received, then as sent."""
    server_arguments: Raw | None = None
    """Arguments as the server has them, where the configuration overrides the tool's parameters."""
    unmasked_arguments: Any = None
    """Arguments as they were before rules masked them; None where nothing was masked."""
    context: CallContext
    server: str
    initial_hash: str
    """Hash of the definition that the call was made by."""
    params: Mapping[str, Any]
    """Parameters of this round, other than name and arguments."""
    method: str = "tools/call"
    relay: Relay | None = None
    """The context's relay under the server's name."""
    upstream: Upstream | None = None
    """The server, once it is started."""
    is_validated: bool = False
    """The arguments fit and the rules allow it, so the outcome counts for the tool."""
    has_waited: bool = False
    """It waited for a person, so that its definition may be another now."""
    decision: Decision | None = None
    """What the rules decided last; None where nothing had to be decided."""
    decided_hash: str = ""
    """Hash of the definition that it was decided by."""
    approval: Approval | None = None
    """The approval that it waited for, and what was decided."""
    resumed_task: str = ""
    """The server's id of a task that an earlier process began for it; nothing is called then."""
    marks: Raw = field(default_factory=dict)
    """Notes for the caller, added to the result (`results.result_meta`)."""
    is_cached: bool = False
    is_mismatched: bool = False
    """The result does not fit the output schema."""
    attempts: int = 1
    outcome: str = INTERNAL
    spent_s: float = 0.0
    """Seconds in queues and earlier attempts; deducted from the timeouts."""
    id: str = field(default_factory=lambda: make_call_id())
    """Its id in events, in the record of calls and in the audit log."""
    created_at: float = field(default_factory=time.perf_counter)
    server_start_s: float = 0.0
    """Seconds it waited for its server to start."""
    server_queue_s: float = 0.0
    """Seconds it waited for a slot of its server."""
    started_at: float = field(default_factory=time.perf_counter)
    """Start of the tool's work; excludes queues and the start of its server."""
    duration_s: float | None = None
    """Duration of the tool's work, where something else followed it."""

    @property
    def rule_arguments(self) -> Any:
        """The arguments that rules look at: repaired, and not masked."""
        return self.arguments if self.unmasked_arguments is None else self.unmasked_arguments

    @property
    def is_continuation(self) -> bool:
        """Whether this answers or resumes an earlier round, so that it is never shared, cached or
        repeated."""
        return bool(self.params) and (len(self.params) > 1 or "_meta" not in self.params)


Request = TypeVar("Request", bound=Call | ServerRequest)
Handler = Callable[[Request], Coroutine[Any, Any, Raw]]


class CallMiddleware(Protocol[Request]):
    """A part of the pipeline: does its work before, after or around `call_next`.

    One that works only before it returns `call_next(request)` without awaiting it.
    """

    def __call__(
        self, request: Request, /, call_next: Handler[Request]
    ) -> Coroutine[Any, Any, Raw]: ...


def compose(
    middlewares: list[CallMiddleware[Request]], handler: Handler[Request]
) -> Handler[Request]:
    """Return a handler that passes a request through `middlewares`, first to last, to `handler`."""
    for middleware in reversed(middlewares):
        handler = partial(middleware, call_next=handler)
    return handler
