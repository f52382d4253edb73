"""The audit log: one line per call or other client request to a server, written before the
response.

A line says who made it, how, which tool, the arguments and the outcome. Arguments are stored as a
keyed hash, redacted, or not at all; results never. A call is answered even if its line cannot be
written: that is logged, shown as `problem`, and the next line written says how many are missing.
"""

import asyncio
import datetime
import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, cast

import orjson

from portico.callers import NO_CALLER, Caller
from portico.config import AuditConfig as Settings
from portico.events import Event, TokensRefused
from portico.json_text.json_codec import is_large
from portico.policy.decision import Approval
from portico.storage.audit_file import AuditChain, AuditFile, DroppedAuditFile, parse_line
from portico.storage.data_files import generate_key, load_or_create_key

if TYPE_CHECKING:
    from portico.observability.audit_shipping import AuditShipper

logger = logging.getLogger(__name__)

FILE_NAME = "audit.jsonl"
KEY_FILE = "audit.key"
MASK = "***"
MAX_NAME_CHARS = 200
MAX_PERSON_CHARS = 600
"""An issuer's address and a subject, so that no two people are one in the log."""
MAX_TEXT_CHARS = 200
MAX_DEPTH = 8
MAX_VALUES = 500
"""Limits of redacted arguments; `…` marks what is cut."""
MIN_SECRET_CHARS = 4
"""Minimum length of a secret: shorter values are ordinary words and would mask half of every text.
"""
LOG_INTERVAL_S = 60.0


class AuditEntry(NamedTuple):
    """One call or request to be logged."""

    tool: str
    tool_hash: str
    arguments: Any
    outcome: str
    """`ok`, `tool_error`, `input_required`, `cancelled`, or the kind of the error."""
    caller: Caller = NO_CALLER
    via: str = ""
    seconds: float = 0.0
    attempts: int = 1
    cached: bool = False
    repaired: bool = False
    trace_id: str = ""
    """Trace id of its spans, if any."""
    destructive: bool = False
    """Whether the tool declares itself destructive."""
    method: str = ""
    """Method of a request that is not a tool call: `resources/read`, `prompts/get` …; `tool` is
    then its target.
    """
    server: str = ""
    """Server of such a request."""
    call_id: str = ""
    """Id of the call, which its line has too; a line without one gets its own."""
    rule: str = ""
    """The rule that decided; empty where nothing had to be decided."""
    approval: Approval | None = None
    """The approval that it needed, and who decided."""


class AuditLog:
    def __init__(
        self,
        file: AuditFile,
        load_key: Callable[[], bytes],
        *,
        arguments: Literal["hash", "redacted", "none"] = "hash",
        secrets: Iterable[str] = (),
        sync: bool = False,
        shipper: "AuditShipper | None" = None,
    ) -> None:
        """Create the log; `load_key` is called for the first line, `secrets` are never written.

        Each line is handed to `shipper`, too.
        """
        self._shipper = shipper
        self.sync = sync
        self.problem = ""
        """Why lines cannot be written now; empty while they can."""
        self._file = file
        self._load_key = load_key
        self._key = b""
        self._chain: AuditChain | None = None
        self._arguments = arguments
        long_secrets = {secret for secret in secrets if len(secret) >= MIN_SECRET_CHARS}
        self._secrets = tuple(sorted(long_secrets, key=len, reverse=True))
        self._lost_lines = 0
        self._logged_at = float("-inf")

    @property
    def path(self) -> Path:
        return self._file.path

    @property
    def files(self) -> int:
        """Number of its files, the rotated ones included."""
        return self._file.files

    @classmethod
    def from_settings(
        cls, settings: Settings, data_dir: Path, secrets: Iterable[str] = ()
    ) -> Self | None:
        """Return the configured log, or None if it is disabled."""
        if not settings.enabled:
            return None
        shipper = None
        if settings.ship:
            # Imported late: few gateways send their log anywhere.
            from portico.observability.audit_shipping import make_shipper

            shipper = make_shipper(settings.ship)
        path = get_audit_path(settings, data_dir)
        return cls(
            AuditFile(path, max_bytes=int(settings.max_bytes), files=settings.files),
            lambda: load_or_create_key(data_dir / KEY_FILE),
            arguments=settings.arguments,
            secrets=secrets,
            sync=settings.sync,
            shipper=shipper,
        )

    def write(self, entry: AuditEntry) -> None:
        """Write a line. Never raises."""
        self._write(lambda: self._make_line(entry))

    async def write_in_turns(self, entry: AuditEntry) -> None:
        """Write a line like `write`, but hash large arguments in a thread.

        If it is cancelled, the line is written before that is raised.
        """
        if self._arguments != "hash" or not is_large(entry.arguments):
            self.write(entry)
            return
        self._key = self._key or self._read_key()
        try:
            digest = await asyncio.to_thread(hash_arguments, entry.arguments, self._key)
        except asyncio.CancelledError:
            self.write(entry)
            raise
        self._write(lambda: self._make_line(entry, digest))

    def write_refused_tokens(self, event: Event) -> None:
        """Write a line for refused tokens; a subscriber of `TokensRefused`. Never raises."""
        if isinstance(event, TokensRefused):
            line = {"at": _format_now(), "refused_tokens": event.count, "peers": dict(event.peers)}
            self._write(lambda: line)

    def _write(self, make_line: Callable[[], Mapping[str, Any]]) -> None:
        try:
            if self._chain is None:
                self._key = self._key or self._read_key()
                self._chain = AuditChain(self._key, self._file.read_last_line())
            if self._lost_lines:
                self._append({"at": _format_now(), "lost": self._lost_lines}, self._chain)
                logger.warning(
                    "the audit log is written again; the lines of %d calls are missing",
                    self._lost_lines,
                )
                self._lost_lines = 0
                self._logged_at = float("-inf")
            self._append(make_line(), self._chain)
            if (dropped := self._file.take_dropped()) is not None:
                line = {"at": _format_now(), "dropped": _summarize_dropped(dropped)}
                self._append(line, self._chain)
            self.problem = ""
        except OSError as error:
            self._lost_lines += 1
            self._on_failure(error)

    def _append(self, line: Mapping[str, Any], chain: AuditChain) -> None:
        signed, mac = chain.sign_line(_encode_line({**line, **chain.next_position}))
        self._file.append(signed)
        chain.advance(mac)
        if self._shipper is not None:
            self._shipper.put(signed.removesuffix(b"\n"))

    async def wait_for_sync(self) -> None:
        """Wait until written lines are on disk, if configured. Never raises."""
        if self.sync:
            try:
                await asyncio.to_thread(self._file.sync)
            except OSError as error:
                self._on_failure(error)

    def use_stdout(self) -> None:
        """Let lines that are sent on to stdout go there: nothing else is written to it."""
        if self._shipper is not None:
            self._shipper.use_stdout()

    def close(self) -> None:
        self._file.close()
        if self._shipper is not None:
            self._shipper.close()

    def _make_line(self, entry: AuditEntry, digest: str | None = None) -> dict[str, Any]:
        caller = entry.caller
        subject: dict[str, Any] = {"tool": entry.tool[:MAX_NAME_CHARS], "hash": entry.tool_hash}
        if entry.method:
            subject = {"method": entry.method[:MAX_NAME_CHARS], "server": entry.server}
            subject["target"] = redact_arguments(entry.tool)
        line: dict[str, Any] = {
            "at": _format_now(),
            "id": entry.call_id or os.urandom(8).hex(),
            "person": caller.principal.id[:MAX_PERSON_CHARS],
            "client": caller.name[:MAX_NAME_CHARS],
            "profile": caller.profile,
            "who": self._hash_caller(caller),
            "way": entry.via,
            **subject,
            "outcome": entry.outcome,
            "seconds": round(entry.seconds, 6),
        }
        if not entry.method:
            line |= {"attempts": entry.attempts, "cached": entry.cached, "repaired": entry.repaired}
        if caller.principal.credential:
            line["credential"] = caller.principal.credential
        if entry.destructive:
            line["destructive"] = True
        if entry.rule:
            line["rule"] = entry.rule
        if (approval := entry.approval) is not None:
            line["approval"] = approval.id
            if approval.decided_by:
                decided = {"by": approval.decided_by, "via": approval.decided_via}
                if approval.reason:
                    decided["reason"] = approval.reason
                line["decided"] = decided
        if entry.trace_id:
            line["trace"] = entry.trace_id
        if digest is not None:
            line["arguments"] = digest
        elif self._arguments == "hash":
            line["arguments"] = hash_arguments(entry.arguments, self._key)
        elif self._arguments == "redacted":
            line["arguments"] = redact_arguments(entry.arguments, self._secrets)
        return line

    def _hash_caller(self, caller: Caller) -> str:
        """Return a hash that tells sessions apart without revealing them."""
        identity = caller.session or caller.handle
        if not identity:
            return ""
        body = identity.encode(errors="surrogatepass")
        return blake2b(body, key=self._key, digest_size=6).hexdigest()

    def _read_key(self) -> bytes:
        try:
            return self._load_key()
        except OSError as error:
            logger.warning(
                "the audit log's key cannot be kept, "
                "and hashes of this run compare to no other: %s",
                error,
            )
            return generate_key()

    def _on_failure(self, error: OSError) -> None:
        self.problem = f"the audit log cannot be written: {error.strerror or error}"
        now = time.monotonic()
        if now - self._logged_at >= LOG_INTERVAL_S:
            self._logged_at = now
            logger.error(
                "%s; calls go on without it (%d missing so far)", self.problem, self._lost_lines
            )


def get_audit_path(settings: Settings, data_dir: Path) -> Path:
    return settings.file or data_dir / FILE_NAME


def hash_arguments(arguments: Any, key: bytes) -> str:
    """Return a keyed hash of arguments: equal ones match, and only the key reveals more."""
    try:
        body = orjson.dumps(arguments, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        try:
            body = json.dumps(arguments, sort_keys=True, separators=(",", ":")).encode()
        except (TypeError, ValueError, RecursionError):
            return ""
    return blake2b(body, key=key, digest_size=16).hexdigest()


def redact_arguments(arguments: Any, secrets: Iterable[str] = ()) -> Any:
    """Return arguments with secrets masked by name and pattern, shortened to the limits."""
    return _Redactor(tuple(secrets)).redact(arguments, MAX_DEPTH)


class _Redactor:
    def __init__(self, secrets: tuple[str, ...]) -> None:
        self._secrets = secrets
        self._window_chars = MAX_TEXT_CHARS + max((3 * MAX_TEXT_CHARS, *map(len, secrets)))
        self._values_left = MAX_VALUES

    def redact(self, value: Any, depth: int) -> Any:
        from portico.config_file.mask import SECRET_NAME  # slow to import: compiles patterns

        self._values_left -= 1
        if isinstance(value, str):
            return self._redact_text(value)
        if isinstance(value, bool | None):
            return value
        if isinstance(value, int | float):
            return self._redact_number(value)
        if depth <= 0 or self._values_left <= 0:
            return "…"
        if isinstance(value, Mapping):
            redacted: dict[str, Any] = {}
            for name, inner in cast("Mapping[str, Any]", value).items():
                if self._values_left <= 0:
                    redacted["…"] = "…"
                    break
                redacted[self._redact_text(name)] = (
                    MASK if SECRET_NAME.search(name[:400]) else self.redact(inner, depth - 1)
                )
            return redacted
        if isinstance(value, list | tuple):
            items: list[Any] = []
            for inner in cast("list[Any]", value):
                if self._values_left <= 0:
                    items.append("…")
                    break
                items.append(self.redact(inner, depth - 1))
            return items
        return "…"

    def _redact_number(self, value: float) -> float | str:
        """Mask a configured number such as a PIN; numbers that JSON cannot represent become `…`."""
        try:
            text = orjson.dumps(value).decode()
        except TypeError:  # beyond 64 bits
            return "…"
        return MASK if text in self._secrets else value

    def _redact_text(self, text: str) -> str:
        from portico.config_file.mask import mask_text

        # Masked before it is cut: half a secret would not be recognised.
        window = text[: self._window_chars]
        for secret in self._secrets:
            window = window.replace(secret, MASK)
        shown = mask_text(window)
        return shown if len(text) <= MAX_TEXT_CHARS else f"{shown[:MAX_TEXT_CHARS]}…"


def _summarize_dropped(dropped: DroppedAuditFile) -> dict[str, Any]:
    """Return the period of a dropped log file, and its last position in its chain."""
    first = parse_line(dropped.first_line)
    last = parse_line(dropped.last_line)
    summary = {"from": first.get("at"), "to": last.get("at")}
    summary |= {"chain": last.get("chain"), "n": last.get("n"), "bytes": dropped.size}
    return {key: value for key, value in summary.items() if value is not None}


def _format_now() -> str:
    return f"{datetime.datetime.now(datetime.UTC).isoformat(timespec='milliseconds')[:-6]}Z"


def _encode_line(line: Mapping[str, Any]) -> bytes:
    """Encode a line; line breaks inside names are escaped."""
    try:
        return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:  # half of a surrogate pair in a name
        return f"{json.dumps(line)}\n".encode()
