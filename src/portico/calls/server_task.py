"""A task of the tasks extension (2026-07-28): what a server says of work that goes on after its
answer, how that is asked for, and how it is shown to a client. Pure.

A server that was told that its client knows tasks may answer `tools/call` with `resultType: task`.
Its state is read by `tasks/get` until it is `completed`, `failed` or `cancelled`.
"""

from collections.abc import Mapping
from typing import Any, Literal

from mcp_types import MISSING_REQUIRED_CLIENT_CAPABILITY

from portico.errors import INTERNAL_ERROR, RemoteError
from portico.json_text.json_codec import to_object, to_text
from portico.upstream.backend import InitializeInfo, Raw
from portico.upstream.protocol.envelope import CLIENT_CAPABILITIES_KEY

TASKS_EXTENSION = "io.modelcontextprotocol/tasks"
TASK = "task"
"""The `resultType` of an answer that announces a task."""
TaskMode = Literal["wait", "await", "return", "none"]
"""What a caller wants where a server makes a task: its result however long it takes, its result or
after some time a ticket, a ticket at once, or that the server is not told that tasks are known."""

MAX_TASK_ID = 1_024
MIN_POLL_S = 0.05
MAX_POLL_S = 60.0
DEFAULT_POLL_S = 1.0
_TERMINAL = frozenset({"completed", "failed", "cancelled"})
_STATUSES = _TERMINAL | {"working", "input_required"}
_OWN_FIELDS = frozenset({"taskId", "resultType", "result", "error"})


def declares_tasks(info: InitializeInfo | None) -> bool:
    """Return whether a server has declared that it may answer with tasks."""
    if info is None or info.era != "modern":
        return False
    return TASKS_EXTENSION in to_object(info.capabilities.get("extensions"))


def knows_tasks(params: Mapping[str, Any]) -> bool:
    """Return whether the client of a modern request declares with it that it knows tasks."""
    declared = to_object(to_object(params.get("_meta")).get(CLIENT_CAPABILITIES_KEY))
    return TASKS_EXTENSION in to_object(declared.get("extensions"))


def declare_tasks(params: Mapping[str, Any], *, known: bool = True) -> Raw:
    """Return params that declare that tasks are known, or that do not."""
    meta = to_object(params.get("_meta"))
    declared = to_object(meta.get(CLIENT_CAPABILITIES_KEY))
    extensions = {
        name: settings
        for name, settings in to_object(declared.get("extensions")).items()
        if name != TASKS_EXTENSION
    }
    if known:
        extensions[TASKS_EXTENSION] = {}
    elif not knows_tasks(params):
        return dict(params)
    changed = {**declared, "extensions": extensions}
    return {**params, "_meta": {**meta, CLIENT_CAPABILITIES_KEY: changed}}


def is_task(result: Mapping[str, Any]) -> bool:
    return result.get("resultType") == TASK


def parse_task_id(result: Mapping[str, Any]) -> str:
    """Return the id of a task that a server announces; raises RemoteError."""
    task_id = result.get("taskId")
    if not isinstance(task_id, str) or not task_id or len(task_id) > MAX_TASK_ID:
        raise RemoteError(INTERNAL_ERROR, "the server began a task, and does not say which")
    return task_id


def check_state(state: Raw) -> Raw:
    """Return what a server says of a task; raises RemoteError if it cannot be read."""
    if state.get("status") not in _STATUSES:
        raise RemoteError(INTERNAL_ERROR, "the server says nothing readable of its task")
    return state


def is_terminal(state: Mapping[str, Any]) -> bool:
    return state.get("status") in _TERMINAL


def get_poll_s(state: Mapping[str, Any]) -> float:
    """Return the seconds to wait before the state is read again."""
    wanted = state.get("pollIntervalMs")
    if isinstance(wanted, bool) or not isinstance(wanted, int | float):
        return DEFAULT_POLL_S
    return min(MAX_POLL_S, max(MIN_POLL_S, wanted / 1_000))


def get_lifetime_s(state: Mapping[str, Any]) -> float | None:
    """Return the seconds from its creation for which the server keeps a task; None: no limit."""
    kept = state.get("ttlMs")
    if isinstance(kept, bool) or not isinstance(kept, int | float) or kept < 0:
        return None
    return kept / 1_000


def get_message(state: Mapping[str, Any]) -> str:
    return to_text(state.get("statusMessage"))


def to_client_state(state: Mapping[str, Any], ticket: str) -> Raw:
    """Return the state of a task for a client that knows it by a ticket, without its result."""
    return {
        **{key: value for key, value in state.items() if key not in _OWN_FIELDS},
        "taskId": ticket,
    }


def make_extension_needed_error() -> RemoteError:
    """Build the error for a client that asks about tasks and does not declare that it knows any."""
    needed = {"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}}
    return RemoteError(
        MISSING_REQUIRED_CLIENT_CAPABILITY,
        f"this needs a client that declares {TASKS_EXTENSION}",
        needed,
    )
