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
from typing import Any, Literal, NamedTuple, Self, cast

import orjson

from portico.access import NO_CALLER, Caller
from portico.config import AuditConfig as Settings
from portico.events import Event, TokensRefused
from portico.observability.audit_chain import AuditChain, parse_line
from portico.storage.audit_file import AuditFile, DroppedAuditFile, load_or_create_key
from portico.storage.hash_key import generate_key

logger = logging.getLogger(__name__)

FILE_NAME = "audit.jsonl"
KEY_FILE = "audit.key"
MASK = "***"
MAX_NAME_CHARS = 200
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


def make_request_entry(
    server: str,
    method: str,
    params: Mapping[str, Any],
    outcome: str,
    caller: Caller,
    via: str,
    seconds: float,
) -> AuditEntry:
    """Return the entry of a request that is not a call of a tool in the catalog."""
    if method == "tools/call":  # a tool that its server does not list
        return AuditEntry(
            f"{server}.{params.get('name')}",
            "",
            params.get("arguments"),
            outcome,
            caller,
            via,
            seconds,
        )
    reference: Any = params.get("ref", params)
    target: Any = ""
    if isinstance(reference, Mapping):
        target = reference.get("uri") or reference.get("name")
    if not isinstance(target, str):
        target = ""
    arguments = {key: value for key, value in params.items() if key != "_meta"}
    return AuditEntry(
        target, "", arguments, outcome, caller, "request", seconds, method=method, server=server
    )


class AuditLog:
    """Writer of the audit log."""

    def __init__(
        self,
        file: AuditFile,
        load_key: Callable[[], bytes],
        *,
        arguments: Literal["hash", "redacted", "none"] = "hash",
        secrets: Iterable[str] = (),
        sync: bool = False,
    ) -> None:
        """Create the log; `load_key` is called for the first line, `secrets` are never written."""
        self.sync = sync
        self.problem = ""
        """Why lines cannot be written now; empty while they can."""
        self._file = file
        self._load_key = load_key
        self._key = b""
        self._chain: AuditChain | None = None
        self._arguments = arguments
        self._secrets = tuple(
            sorted(
                {secret for secret in secrets if len(secret) >= MIN_SECRET_CHARS},
                key=len,
                reverse=True,
            )
        )
        self._lost_lines = 0
        self._logged_at = float("-inf")

    @classmethod
    def from_settings(
        cls, settings: Settings, data_dir: Path, secrets: Iterable[str] = ()
    ) -> Self | None:
        """Return the configured log, or None if it is disabled."""
        if not settings.enabled:
            return None
        return cls(
            AuditFile(
                get_audit_path(settings, data_dir),
                max_bytes=int(settings.max_bytes),
                files=settings.files,
            ),
            lambda: load_or_create_key(data_dir / KEY_FILE),
            arguments=settings.arguments,
            secrets=secrets,
            sync=settings.sync,
        )

    def write(self, entry: AuditEntry) -> None:
        """Write a line. Never raises."""
        self._write(lambda: self._make_line(entry))

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
                self._on_recovery()
            self._append(make_line(), self._chain)
            if (dropped := self._file.take_dropped()) is not None:
                self._append(
                    {"at": _format_now(), "dropped": _summarize_dropped(dropped)}, self._chain
                )
            self.problem = ""
        except OSError as error:
            self._lost_lines += 1
            self._on_failure(error)

    def _append(self, line: Mapping[str, Any], chain: AuditChain) -> None:
        signed, mac = chain.sign_line(_encode_line({**line, **chain.next_position}))
        self._file.append(signed)
        chain.advance(mac)

    async def wait_for_sync(self) -> None:
        """Wait until written lines are on disk, if configured. Never raises."""
        if self.sync:
            try:
                await asyncio.to_thread(self._file.sync)
            except OSError as error:
                self._on_failure(error)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _make_line(self, entry: AuditEntry) -> dict[str, Any]:
        caller = entry.caller
        if entry.method:
            target = redact_arguments(entry.tool)
            subject = {
                "method": entry.method[:MAX_NAME_CHARS],
                "server": entry.server,
                "target": target,
            }
        else:
            subject = {"tool": entry.tool[:MAX_NAME_CHARS], "hash": entry.tool_hash}
        line: dict[str, Any] = {
            "at": _format_now(),
            "id": os.urandom(8).hex(),
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
        if entry.destructive:
            line["destructive"] = True
        if entry.trace_id:
            line["trace"] = entry.trace_id
        if self._arguments == "hash":
            line["arguments"] = hash_arguments(entry.arguments, self._key)
        elif self._arguments == "redacted":
            line["arguments"] = redact_arguments(entry.arguments, self._secrets)
        return line

    def _hash_caller(self, caller: Caller) -> str:
        """Return a hash that tells sessions and token holders apart without revealing them."""
        identity = caller.session or caller.identity or caller.handle
        if identity:
            return blake2b(
                identity.encode(errors="surrogatepass"), key=self._key, digest_size=6
            ).hexdigest()
        return ""

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

    # --- failures

    def _on_failure(self, error: OSError) -> None:
        self.problem = f"the audit log cannot be written: {error.strerror or error}"
        now = time.monotonic()
        if now - self._logged_at >= LOG_INTERVAL_S:
            self._logged_at = now
            logger.error(
                "%s; calls go on without it (%d missing so far)", self.problem, self._lost_lines
            )

    def _on_recovery(self) -> None:
        logger.warning(
            "the audit log is written again; the lines of %d calls are missing", self._lost_lines
        )
        self._lost_lines = 0
        self._logged_at = float("-inf")


def get_audit_path(settings: Settings, data_dir: Path) -> Path:
    """Return the path of the log."""
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
        if text in self._secrets:
            return MASK
        return value

    def _redact_text(self, text: str) -> str:
        from portico.config_file.mask import mask_text

        # Masked before it is cut: half a secret would not be recognised.
        is_long = len(text) > MAX_TEXT_CHARS
        window = text[: self._window_chars]
        for secret in self._secrets:
            window = window.replace(secret, MASK)
        shown = mask_text(window)
        if is_long:
            return f"{shown[:MAX_TEXT_CHARS]}…"
        return shown


def _summarize_dropped(dropped: DroppedAuditFile) -> dict[str, Any]:
    """Return the period of a dropped log file, and its last position in its chain."""
    first, last = (parse_line(line) for line in (dropped.first_line, dropped.last_line))
    summary = {
        "from": first.get("at"),
        "to": last.get("at"),
        "chain": last.get("chain"),
        "n": last.get("n"),
    }
    return {
        **{key: value for key, value in summary.items() if value is not None},
        "bytes": dropped.size,
    }


def _format_now() -> str:
    return f"{datetime.datetime.now(datetime.UTC).isoformat(timespec='milliseconds')[:-6]}Z"


def _encode_line(line: Mapping[str, Any]) -> bytes:
    """Encode a line; line breaks inside names are escaped."""
    try:
        return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:  # half of a surrogate pair in a name
        return f"{json.dumps(line)}\n".encode()
