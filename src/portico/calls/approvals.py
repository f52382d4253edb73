"""Approvals: a call for which a rule says `ask` waits for a person.

The caller's client asks its user where it can. Otherwise the request is stored, and somebody who
may answers it: by REST, or `portico approve` and `portico deny`. The call waits a while for that;
then it is answered with the id, and the same call, made again, uses the approval. Each is used
once. A denial holds for the same call until it expires.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from portico.auth.permissions import can_approve
from portico.callers import LOCAL_USER, Caller, Principal
from portico.calls.approval_request import (
    APPROVE,
    DENY,
    MAX_SAY_CHARS,
    ApprovalSubject,
    can_ask_by_form,
    can_show_in_form,
    describe_call,
    is_approval_id,
    is_approved_by,
    make_form,
    make_request,
    renew_request,
)
from portico.calls.call import Call, ServerRequest
from portico.catalog.tool import quote_text, sanitize_text
from portico.config import ApprovalsConfig
from portico.errors import (
    AlreadyDecided,
    ApprovalDenied,
    ApprovalRequired,
    ApprovalUnavailable,
    PermissionDenied,
    PorticoError,
    RemoteError,
    UnknownName,
)
from portico.events import ApprovalDecided, ApprovalRequested, EventBus
from portico.observability.audit import AuditEntry, AuditLog
from portico.policy.decision import Approval, Decision
from portico.policy.patterns import CallerPattern
from portico.storage.approval_store import ApprovalStore
from portico.storage.gateway_store import StoreUnavailable
from portico.storage.rows import ApprovalRow

POLL_S = 0.25
"""Seconds between looks for decisions that were made in other processes."""
_STORE_ERRORS = (StoreUnavailable, OSError)


@dataclass(eq=False)
class _Wait:
    """Calls that wait for one decision."""

    calls: int = 0
    is_decided: asyncio.Event = field(default_factory=asyncio.Event)


class Approvals:
    """Asks people, and takes their decisions. For one event loop."""

    def __init__(
        self,
        store: ApprovalStore,
        config: ApprovalsConfig | None = None,
        bus: EventBus | None = None,
        get_audit: Callable[[], AuditLog | None] = lambda: None,
    ) -> None:
        self.store = store
        self._bus = bus or EventBus()
        self._get_audit = get_audit
        self._waits: dict[str, _Wait] = {}
        self._deciding: set[str] = set()
        self._poll_task: asyncio.Task[None] | None = None
        self.page_url = ""
        """Page of the console on which people decide; empty where there is none."""
        self.configure(config or ApprovalsConfig())

    def configure(self, config: ApprovalsConfig) -> None:
        """Apply new settings; what is stored keeps its time."""
        self._config = config
        self._approvers = [CallerPattern(one, is_restrictive=False) for one in config.by]

    async def close(self) -> None:
        if self._poll_task is not None:
            self._poll_task.cancel()
            await asyncio.wait({self._poll_task})
        await self.store.close()

    # --- calls

    async def approve(self, call: Call | ServerRequest, decision: Decision) -> None:
        """Return once a person has approved this very call, which may then be made once.

        Raises ApprovalDenied, ApprovalRequired if nobody answers in time, and ApprovalUnavailable.
        """
        subject = describe_call(call)
        wanted = make_request(subject, decision, self.store.clock(), self._config.valid_s)
        call.approval = Approval(wanted.id)
        with subject.context.pause_clock():
            try:
                row = await self._obtain(subject, wanted, call)
            except _STORE_ERRORS as error:
                raise ApprovalUnavailable(
                    "a person has to approve this, and approvals cannot be stored now",
                    advice="`portico doctor` and the gateway's log say why.",
                ) from error
        call.approval = Approval(row.id, row.decided_by, row.decided_via, row.reason)
        if row.state == "denied":
            raise _make_denial(row)
        if row.state == "pending":
            raise self._make_required(row)

    async def _obtain(
        self, subject: ApprovalSubject, wanted: ApprovalRow, call: Call | ServerRequest
    ) -> ApprovalRow:
        """Return an approval that is used now, a denial, or the request if nobody has answered."""
        found = await self.store.take(wanted)
        if found is not None and found.state != "pending":
            return found
        if self._can_ask_client(subject) and can_show_in_form(wanted):
            answered = await self._ask_client(subject, wanted)
            if answered is not None:
                return answered
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._config.wait_s
        while True:
            row = await self.store.take_or_request(wanted)
            if row is None:
                raise ApprovalUnavailable(
                    "a person has to approve this, and too many calls wait for that already",
                    advice="Wait until some of them are decided, or have expired.",
                )
            if row.state != "pending":
                return row
            call.approval = Approval(row.id)
            if row.id == wanted.id:
                self._publish_request(subject, row, is_asked_by_client=False)
            if not await self._wait_for_decision(row.id, deadline - loop.time()):
                return row
            # Another call of the same kind may have used it: then this one asks again.
            wanted = renew_request(wanted, self.store.clock(), self._config.valid_s)

    async def _wait_for_decision(self, approval_id: str, seconds: float) -> bool:
        if seconds <= 0:
            return False
        wait = self._waits.setdefault(approval_id, _Wait())
        wait.calls += 1
        if self._poll_task is None or self._poll_task.done():
            self._poll_task = asyncio.create_task(self._poll(), name="follow approvals")
        try:
            async with asyncio.timeout(seconds):
                await wait.is_decided.wait()
            return True
        except TimeoutError:
            return False
        finally:
            wait.calls -= 1
            if not wait.calls and self._waits.get(approval_id) is wait:
                del self._waits[approval_id]

    async def _poll(self) -> None:
        """Notice decisions that were made in other processes, while any call waits."""
        while self._waits:
            await asyncio.sleep(POLL_S)
            ids = [one for one in self._waits if one not in self._deciding]
            try:
                rows = await self.store.load_states(ids)
            except _STORE_ERRORS:
                continue  # the calls stop waiting by themselves
            for approval_id in ids:
                row = rows.get(approval_id)
                if row is not None and row.state == "pending":
                    continue
                if approval_id not in self._deciding and self._end_wait(approval_id) and row:
                    self._publish_decision(row, is_approved=row.state != "denied")

    def _end_wait(self, approval_id: str) -> bool:
        wait = self._waits.pop(approval_id, None)
        if wait is None:
            return False
        wait.is_decided.set()
        return True

    # --- the caller's client

    def _can_ask_client(self, subject: ApprovalSubject) -> bool:
        relay = subject.context.relay
        return (
            relay is not None
            and self._config.by_caller
            and self._is_named(subject.context.caller.principal)
            and can_ask_by_form(relay.capabilities)
        )

    async def _ask_client(
        self, subject: ApprovalSubject, wanted: ApprovalRow
    ) -> ApprovalRow | None:
        """Ask the user of the caller's client; None if it cannot be asked or does not answer."""
        relay = subject.context.relay
        assert relay is not None
        self._publish_request(subject, wanted, is_asked_by_client=True)
        try:
            answer = await relay.request("elicitation/create", make_form(wanted))
        except RemoteError:
            return None
        if answer.get("action") == "cancel":
            return None
        is_approved = is_approved_by(answer)
        decided = replace(
            wanted,
            state="used" if is_approved else "denied",
            decided_by=wanted.person,
            decided_via="elicitation",
        )
        self._publish_decision(decided, is_approved=is_approved)
        return decided

    # --- decisions

    def _is_named(self, principal: Principal) -> bool:
        """Return whether `approvals.by` names a principal, or names nobody."""
        caller = Caller(principal=principal)
        return not self._approvers or any(one.matches(caller) for one in self._approvers)

    def check_may_decide(self, principal: Principal) -> None:
        """Raise PermissionDenied unless a principal may approve and deny."""
        if not can_approve(principal) or not self._is_named(principal):
            raise PermissionDenied(
                f"{sanitize_text(principal.name or principal.id)} may not approve or deny calls",
                advice="`approvals.by` in the configuration says who may; no holder of a key that"
                " is read-only or for certain profiles.",
            )

    async def list_for(self, principal: Principal) -> Sequence[ApprovalRow]:
        """Return all requests and decisions that have not expired, the oldest first; raises
        PermissionDenied."""
        self.check_may_decide(principal)
        return await self.store.load()

    async def decide(
        self,
        approval_id: str,
        *,
        approve: bool,
        principal: Principal = LOCAL_USER,
        via: str,
        reason: str = "",
    ) -> ApprovalRow:
        """Approve or deny a request, and return it as it is now. The caller that is denied reads
        the reason, of at most `MAX_SAY_CHARS` characters.

        Raises PermissionDenied, UnknownName, and AlreadyDecided.
        """
        self.check_may_decide(principal)
        row = await self._find(approval_id)
        if approve and not self._config.by_caller and row.person == principal.id:
            raise PermissionDenied(
                "nobody approves a call of their own here",
                advice="Somebody else has to: with another key, or gateway.token.",
            )
        if row.state != "pending":
            raise _make_decided_error(row)
        state = "approved" if approve else "denied"
        self._deciding.add(row.id)
        try:
            is_done = await self.store.decide(
                row.id,
                state,
                by=principal.id,
                via=via,
                reason=sanitize_text(reason[:MAX_SAY_CHARS]),
                valid_s=self._config.valid_s,
            )
            row = await self._find(approval_id)
            if not is_done:
                raise _make_decided_error(row)
            self._publish_decision(row, is_approved=approve)
            self._write_audit(row, principal, APPROVE if approve else DENY)
        finally:
            self._deciding.discard(row.id)
            self._end_wait(row.id)
        return row

    async def _find(self, approval_id: str) -> ApprovalRow:
        rows: Mapping[str, ApprovalRow] = {}
        if is_approval_id(approval_id):
            try:
                rows = await self.store.load_states([approval_id])
            except _STORE_ERRORS as error:
                raise PorticoError(f"the approvals cannot be read: {error}") from error
        row = rows.get(approval_id)
        if row is None:
            raise UnknownName(
                f"there is no approval {quote_text(approval_id, 40)} to decide",
                advice="It may have expired. `portico approvals` lists those that wait.",
            )
        return row

    # --- what others get to know

    def _publish_request(
        self, subject: ApprovalSubject, row: ApprovalRow, *, is_asked_by_client: bool
    ) -> None:
        caller = subject.context.caller
        self._bus.publish(
            ApprovalRequested(row.id, row.target, caller, row.rule, is_asked_by_client)
        )

    def _publish_decision(self, row: ApprovalRow, *, is_approved: bool) -> None:
        self._bus.publish(
            ApprovalDecided(
                *(row.id, row.target, is_approved, row.person, row.decided_by, row.decided_via),
                row.reason,
            )
        )

    def _write_audit(self, row: ApprovalRow, principal: Principal, what: str) -> None:
        if (log := self._get_audit()) is not None:
            caller = Caller(name=row.decided_via, principal=principal)
            entry = AuditEntry(row.target, row.definition, None, "ok", caller, row.decided_via)
            approval = Approval(row.id, row.decided_by, row.decided_via, row.reason)
            log.write(entry._replace(method=f"approvals/{what}", approval=approval))

    def _make_required(self, row: ApprovalRow) -> ApprovalRequired:
        reason = f" ({sanitize_text(row.say)})" if row.say else ""
        page = f", or to decide at {self.page_url}," if self.page_url else ""
        minutes = max(1, round((row.expires_at - self.store.clock()) / 60))
        return ApprovalRequired(
            f"a person has to approve this call of {row.target} first{reason};"
            f" approval {row.id} waits",
            row.id,
            url=self.page_url,
            advice=f"Nothing was sent. Ask the user to run `portico approve {row.id}` (or deny it)"
            f"{page} within {minutes} min, then make exactly the same call again.",
        )


def _make_denial(row: ApprovalRow) -> ApprovalDenied:
    said = f" ({sanitize_text(row.say)})" if row.say else ""
    reason = f": {sanitize_text(row.reason)}" if row.reason else ""
    return ApprovalDenied(
        f"a person has denied this call of {row.target}{said}{reason}",
        advice="Nothing was sent. Do without it, or ask the user what to do instead.",
    )


def _make_decided_error(row: ApprovalRow) -> AlreadyDecided:
    how = {"approved": "approved", "used": "approved and used", "denied": "denied"}
    return AlreadyDecided(
        f"approval {row.id} was {how.get(row.state, row.state)} already",
        advice="`portico approvals` lists those that wait.",
    )
