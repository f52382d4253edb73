"""What a person is asked to approve: one call, bound to everything that it is, and how it is shown.
Pure.

The binding is a digest of caller, tool, definition and the arguments as they are sent: `1` and
`1.0`, or two spellings of one character, are different calls; the order of an object's members is
nothing. What is shown is the same JSON, one argument a line, with every character that cannot be
seen escaped.
"""

import hashlib
import json
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from portico.calls.call import Call, CallContext, ServerRequest
from portico.catalog.tool import quote_text, sanitize_text, to_literal
from portico.errors import ApprovalUnavailable
from portico.json_text.part_stream import estimate_size
from portico.policy.decision import Approval, Decision
from portico.storage.rows import ApprovalRow
from portico.upstream.backend import Raw
from portico.upstream.protocol.envelope import REQUEST_STATE

MAX_ARGUMENT_CHARS = 65_536
"""Longest arguments that can be approved: a person has to see all of them."""
MAX_FORM_CHARS = 4_000
"""Longest arguments that are shown by a client; longer ones wait in the list of approvals."""
MAX_ROUNDS = 1_000
ROUND_S = 600.0
"""Calls that go on after an elicitation of their server, and how long that may take."""
MAX_NAME_CHARS = 200
MAX_SAY_CHARS = 500
APPROVE = "approve"
DENY = "deny"
APPROVAL_META_KEY = "portico/approval"
"""Key in the `_meta` of an elicitation of the gateway's own: the id of the approval."""
_ID_BYTES = 5
_ID = re.compile(rf"[0-9a-f]{{{2 * _ID_BYTES}}}")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.-]{1,80}")
_UNBOUND_KEYS = frozenset({"_meta", "name", "arguments"})


@dataclass(frozen=True)
class ApprovalSubject:
    """What would be done if it is approved."""

    context: CallContext
    method: str
    server: str
    name: str
    """Name of the tool or prompt, or URI of the resource."""
    definition: str
    """Hash of the tool's definition; empty where there is none."""
    arguments: Any
    more: Mapping[str, Any]
    """Other parameters that are sent, such as answers to what the server asked."""

    @property
    def target(self) -> str:
        return f"{self.server}.{self.name}"


def describe_call(call: Call | ServerRequest) -> ApprovalSubject:
    """Return what a call, or another request, would do."""
    if isinstance(call, Call):
        more = {key: value for key, value in call.params.items() if key not in _UNBOUND_KEYS}
        return ApprovalSubject(
            *(call.context, call.method, call.server, call.tool.name, call.tool.hash),
            *(call.arguments, more),
        )
    params = dict(call.params or {})
    name = str(params.get("uri") or params.get("name") or call.method)
    arguments = params.get("arguments") or {}
    more = {key: value for key, value in params.items() if key not in _UNBOUND_KEYS}
    return ApprovalSubject(call.context, call.method, call.server, name, "", arguments, more)


def make_request(
    subject: ApprovalSubject, decision: Decision, now: float, valid_s: float
) -> ApprovalRow:
    """Return a new request for approval; raises ApprovalUnavailable for one nobody could read."""
    caller = subject.context.caller
    shown = subject.arguments if not subject.more else _join(subject)
    size = estimate_size(shown, MAX_ARGUMENT_CHARS)
    text = ""
    if size < MAX_ARGUMENT_CHARS:
        text = to_literal(shown)
    if not text or len(text) > MAX_ARGUMENT_CHARS:
        raise ApprovalUnavailable(
            f"a person has to approve this ({decision.say or decision.rule}), and arguments of more"
            f" than {MAX_ARGUMENT_CHARS:,} characters cannot be shown to one",
            advice="Call it with less at a time.",
        )
    return ApprovalRow(
        id=secrets.token_hex(_ID_BYTES),
        binding=compute_binding(subject),
        person=caller.principal.id,
        client=_shorten(caller.name),
        profile=caller.profile,
        method=subject.method,
        target=_shorten(subject.target, 2_000),
        definition=subject.definition,
        arguments=text,
        rule=decision.rule,
        say=_shorten(decision.say, MAX_SAY_CHARS),
        via=subject.context.via,
        created_at=now,
        expires_at=now + valid_s,
    )


def renew_request(row: ApprovalRow, now: float, valid_s: float) -> ApprovalRow:
    """Return another request for the same, with an id of its own."""
    return replace(row, id=secrets.token_hex(_ID_BYTES), created_at=now, expires_at=now + valid_s)


def is_approval_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def compute_binding(subject: ApprovalSubject) -> str:
    """Return the digest of everything that is approved; raises ApprovalUnavailable."""
    caller = subject.context.caller
    bound = [
        *(caller.principal.id, caller.profile, caller.name),
        *(subject.method, subject.server, subject.name, subject.definition),
        *(subject.arguments, dict(subject.more)),
    ]
    try:
        text = json.dumps(bound, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        raise ApprovalUnavailable(
            "a person has to approve this, and its arguments cannot be written as JSON",
            advice="Call it with simpler arguments.",
        ) from None
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=32).hexdigest()


def _join(subject: ApprovalSubject) -> Raw:
    return {"arguments": subject.arguments, **subject.more}


def _shorten(text: str, max_chars: int = MAX_NAME_CHARS) -> str:
    if len(text) <= max_chars:
        return text
    return f"{text[:max_chars]}…"


class ApprovedRounds:
    """Calls that were approved and whose server asked its client something: the next round of the
    same call, with the server's own state, needs no other approval. Without a state it does."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._rounds: OrderedDict[tuple[str, str], tuple[float, Approval | None]] = OrderedDict()

    def remember(self, call: Call, result: Mapping[str, Any]) -> None:
        state = result.get(REQUEST_STATE)
        if result.get("resultType") != "input_required" or not isinstance(state, str):
            return
        self._rounds[_compute_call_key(call), state] = (self._clock() + ROUND_S, call.approval)
        while len(self._rounds) > MAX_ROUNDS:
            self._rounds.popitem(last=False)

    def take(self, call: Call) -> bool:
        """Return whether a call is the next round of an approved one, once."""
        state = call.params.get(REQUEST_STATE)
        if not isinstance(state, str):
            return False
        expires_at, approval = self._rounds.pop((_compute_call_key(call), state), (0.0, None))
        if expires_at <= self._clock():
            return False
        call.approval = approval
        return True


def _compute_call_key(call: Call) -> str:
    """Return the binding of a call without what only this round has."""
    return compute_binding(replace(describe_call(call), more={}))


# --- what a person sees


def describe_caller(row: ApprovalRow) -> str:
    """Return who makes the call, in words."""
    client = f"the client {quote_text(row.client)}" if row.client else "a client"
    profile = f", profile {row.profile}" if row.profile else ""
    return f"{client} ({sanitize_text(row.person)}{profile})"


def list_argument_lines(row: ApprovalRow) -> list[str]:
    """Return the exact arguments, one a line, without characters that cannot be seen."""
    arguments: Any = json.loads(row.arguments)
    if not isinstance(arguments, dict):
        return [f"  {row.arguments}"]
    if not arguments:
        return ["  (none)"]
    return [f"  {_render_name(name)}: {to_literal(value)}" for name, value in arguments.items()]


def _render_name(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else to_literal(name)


def can_show_in_form(row: ApprovalRow) -> bool:
    return len(row.arguments) <= MAX_FORM_CHARS


def make_form(row: ApprovalRow) -> Raw:
    """Return the params of an elicitation that asks a client's user."""
    server, _, name = row.target.partition(".")
    what = "call the tool" if row.method == "tools/call" else f"send {row.method} for"
    lines = [
        f"Portico asks for your approval: {describe_caller(row)} wants to {what}"
        f" {to_literal(name)} of the server {to_literal(server)}.",
        *([sanitize_text(row.say).replace("\n", " ")] if row.say else []),
        "With exactly these arguments:",
        *list_argument_lines(row),
    ]
    decision: Raw = {
        "type": "string",
        "title": "Decision",
        "description": "approve: it runs, this once. deny: nothing is sent.",
        "enum": [APPROVE, DENY],
    }
    return {
        "mode": "form",
        "message": "\n".join(lines),
        "requestedSchema": {
            "type": "object",
            "properties": {"decision": decision},
            "required": ["decision"],
        },
        "_meta": {APPROVAL_META_KEY: row.id},
    }


def is_approved_by(answer: Mapping[str, Any]) -> bool:
    """Return whether the answer to the form approves: whatever it is besides, it denies."""
    content = answer.get("content")
    return (
        answer.get("action") == "accept"
        and isinstance(content, Mapping)
        and content.get("decision") == APPROVE  # pyright: ignore[reportUnknownMemberType]
    )


def can_ask_by_form(capabilities: Mapping[str, Any]) -> bool:
    """Return whether a client has declared that it shows forms."""
    options = capabilities.get("elicitation")
    if not isinstance(options, Mapping):
        return False
    return "form" in options or "url" not in options


def to_json(row: ApprovalRow) -> Raw:
    """Return an approval as REST and `--json` show it."""
    return {
        "id": row.id,
        "state": row.state,
        "tool": sanitize_text(row.target),
        "method": row.method,
        "definition": row.definition,
        "arguments": json.loads(row.arguments),
        "shown": [line.strip() for line in list_argument_lines(row)],
        "person": sanitize_text(row.person),
        "client": sanitize_text(row.client),
        "profile": row.profile,
        "via": row.via,
        "rule": row.rule,
        "say": sanitize_text(row.say),
        "created": _to_iso_time(row.created_at),
        "expires": _to_iso_time(row.expires_at),
        "decided_by": sanitize_text(row.decided_by),
        "decided_via": row.decided_via,
        "reason": sanitize_text(row.reason),
        "decided": "" if row.decided_at is None else _to_iso_time(row.decided_at),
        "used": "" if row.used_at is None else _to_iso_time(row.used_at),
    }


def _to_iso_time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
