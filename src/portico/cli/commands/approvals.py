"""`portico approvals`, `approve` and `deny`: calls that wait for a person.

--json: `{"approvals": [{"id", "state", "tool", "method", "definition", "arguments", "shown",
"person", "client", "profile", "via", "rule", "say", "created", "expires", "decided_by",
"decided_via", "reason"}]}`; `approve` and `deny` the same with what they decided. Times
are ISO times.

They run in the gateway that runs, so that its event stream and audit log have the decision; without
one they read and write the same store.
"""

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from portico.callers import LOCAL_USER
from portico.calls.approval_request import describe_caller, list_argument_lines, to_json
from portico.calls.approvals import Approvals
from portico.catalog.tool import sanitize_text, to_literal
from portico.cli.exit import EXIT_OK
from portico.cli.options import ConfigOptions
from portico.cli.screen import Screen
from portico.cli.setup import get_running_gateway
from portico.config import Config
from portico.errors import InvalidArguments
from portico.gateway.data_folder import open_approval_store
from portico.storage.rows import ApprovalRow

_STATES = {"pending": "waits", "approved": "approved", "denied": "denied", "used": "used"}


async def run_list(options: ConfigOptions) -> int:
    setup, screen = options.load()
    async with _open(setup.config) as approvals:
        rows = await approvals.list_for(LOCAL_USER)
    if screen.as_json:
        screen.write_json({"approvals": list(map(to_json, rows))})
    elif rows:
        screen.write_text("\n\n".join(map(_render, rows)))
    else:
        screen.write_text("No call waits for approval.")
    return EXIT_OK


async def run_decide(
    ids: Sequence[str], options: ConfigOptions, *, approve: bool, reason: str = ""
) -> int:
    setup, screen = options.load()
    if not ids:
        raise InvalidArguments(
            "no approval is named", advice="`portico approvals` lists those that wait."
        )
    decided: list[ApprovalRow] = []
    async with _open(setup.config) as approvals:
        for approval_id in dict.fromkeys(ids):
            row = await approvals.decide(approval_id, approve=approve, via="cli", reason=reason)
            decided.append(row)
            if not screen.as_json:
                _show_decision(screen, row)
    if screen.as_json:
        screen.write_json({"approvals": list(map(to_json, decided))})
    return EXIT_OK


@asynccontextmanager
async def _open(config: Config) -> AsyncGenerator[Approvals]:
    gateway = get_running_gateway()
    if gateway is not None:
        yield gateway.approvals
        return
    approvals = Approvals(open_approval_store(config), config.approvals)
    try:
        yield approvals
    finally:
        await approvals.close()


def _show_decision(screen: Screen, row: ApprovalRow) -> None:
    target = to_literal(row.target)[1:-1]
    if row.state == "denied":
        screen.write_text(f"{target} is denied ({row.id}).")
        return
    minutes = _count_minutes(row)
    screen.write_text(f"{target} may run once within {minutes} min ({row.id}):")
    screen.write_text("\n".join(list_argument_lines(row)))


def _render(row: ApprovalRow) -> str:
    state = _STATES[row.state]
    if row.decided_by:
        state = f"{state} by {sanitize_text(row.decided_by)} ({row.decided_via})"
        if row.reason:
            state = f"{state}: {sanitize_text(row.reason)}".replace("\n", " ")
    lines = [
        f"{row.id}  {to_literal(row.target)[1:-1]}  {state}, {_count_minutes(row)} min left",
        f"  asked by {describe_caller(row)}, {row.rule}",
    ]
    if row.say:
        lines.append(f"  {sanitize_text(row.say)}".replace("\n", " "))
    return "\n".join([*lines, *(f"  {line}" for line in list_argument_lines(row))])


def _count_minutes(row: ApprovalRow) -> int:
    return max(1, round((row.expires_at - time.time()) / 60))
