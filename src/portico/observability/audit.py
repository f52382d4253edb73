"""The audit log: one line for every call, and for every other request of a client that reaches a server, written
before its answer leaves.

Who, by what way, which tool, with what, how it ended. Of arguments there is a keyed hash, or their values with
everything secret masked, or nothing; of results there is nothing. A call is answered even if its line cannot be
written: that is logged, shown as `trouble`, and the next line that can be written says how many are missing.
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
from portico.config import Audit as Settings
from portico.events import Event, TokensRefused
from portico.observability.audit_chain import Chain, parse_line
from portico.storage.audit_file import AuditFile, Dropped, kept_key
from portico.storage.habit_key import new_key

logger = logging.getLogger(__name__)

FILE = "audit.jsonl"
KEY_FILE = "audit.key"
MASK = "***"
LONGEST_NAME = 200
LONGEST_TEXT = 200
MAX_DEPTH = 8
MAX_VALUES = 500
"""What is kept of redacted arguments at most; beyond it stands `…`."""
SHORTEST_SECRET = 4
"""Shorter values of the configuration are words rather than secrets, and would mask half of every text."""
COMPLAIN_S = 60.0


class Called(NamedTuple):
    """One call, as far as the log tells."""

    tool: str
    tool_hash: str
    arguments: Any
    outcome: str
    """`ok`, `tool_error`, `input_required`, `cancelled`, or the kind of the error."""
    caller: Caller = NO_CALLER
    way: str = ""
    seconds: float = 0.0
    attempts: int = 1
    cached: bool = False
    repaired: bool = False
    trace: str = ""
    """The trace that its spans belong to, if any."""
    destructive: bool = False
    """The tool says of itself that it destroys."""
    method: str = ""
    """What was asked where it is no call of a tool: `resources/read`, `prompts/get` …; `tool` is then what of."""
    server: str = ""
    """The server that was asked that."""


def describe_request(
    server: str, method: str, params: Mapping[str, Any], outcome: str, caller: Caller, way: str, seconds: float
) -> Called:
    """A request to one server that is no call of a tool in the catalog."""
    if method == "tools/call":  # of a tool that its server does not list
        return Called(f"{server}.{params.get('name')}", "", params.get("arguments"), outcome, caller, way, seconds)
    about: Any = params.get("ref", params)
    named: Any = (about.get("uri") or about.get("name")) if isinstance(about, Mapping) else ""
    given = {key: value for key, value in params.items() if key != "_meta"}
    target = named if isinstance(named, str) else ""
    return Called(target, "", given, outcome, caller, "request", seconds, method=method, server=server)


class Audit:
    """Writes the log."""

    def __init__(
        self,
        file: AuditFile,
        key: Callable[[], bytes],
        *,
        arguments: Literal["hash", "redacted", "none"] = "hash",
        secrets: Iterable[str] = (),
        sync: bool = False,
    ) -> None:
        """`key` is asked for with the first line; `secrets` are never written, wherever they stand."""
        self.sync = sync
        self.trouble = ""
        """Why lines cannot be written now; empty while they can."""
        self._file = file
        self._key_of = key
        self._key = b""
        self._chain: Chain | None = None
        self._arguments = arguments
        self._secrets = tuple(sorted({one for one in secrets if len(one) >= SHORTEST_SECRET}, key=len, reverse=True))
        self._lost = 0
        self._complained_at = float("-inf")

    @classmethod
    def kept(cls, settings: Settings, data_dir: Path, secrets: Iterable[str] = ()) -> Self | None:
        """The log that the configuration wants, if it wants one."""
        if not settings.enabled:
            return None
        return cls(
            AuditFile(where(settings, data_dir), max_bytes=int(settings.max_bytes), files=settings.files),
            lambda: kept_key(data_dir / KEY_FILE),
            arguments=settings.arguments,
            secrets=secrets,
            sync=settings.sync,
        )

    def write(self, called: Called) -> None:
        """Write a line. Never raises."""
        self._write(lambda: self._line(called))

    def write_refused_tokens(self, event: Event) -> None:
        """Write a line for wrong tokens that were refused: subscribe it to `TokensRefused`. Never raises."""
        if isinstance(event, TokensRefused):
            line = {"at": _now(), "refused_tokens": event.count, "peers": dict(event.peers)}
            self._write(lambda: line)

    def _write(self, make_line: Callable[[], Mapping[str, Any]]) -> None:
        try:
            if self._chain is None:
                self._key = self._key or self._read_key()
                self._chain = Chain(self._key, self._file.last_line())
            if self._lost:
                self._append({"at": _now(), "lost": self._lost}, self._chain)
                self._recovered()
            self._append(make_line(), self._chain)
            if (dropped := self._file.take_dropped()) is not None:
                self._append({"at": _now(), "dropped": _summary(dropped)}, self._chain)
            self.trouble = ""
        except OSError as error:
            self._lost += 1
            self._failed(error)

    def _append(self, line: Mapping[str, Any], chain: Chain) -> None:
        sealed, mac = chain.seal(_rendered({**line, **chain.place}))
        self._file.append(sealed)
        chain.advance(mac)

    async def settled(self) -> None:
        """Wait until what was written is on the disk, where that is wanted. Never raises."""
        if self.sync:
            try:
                await asyncio.to_thread(self._file.sync)
            except OSError as error:
                self._failed(error)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def _line(self, called: Called) -> dict[str, Any]:
        caller = called.caller
        if called.method:
            target = redacted(called.tool)
            what = {"method": called.method[:LONGEST_NAME], "server": called.server, "target": target}
        else:
            what = {"tool": called.tool[:LONGEST_NAME], "hash": called.tool_hash}
        line: dict[str, Any] = {
            "at": _now(),
            "id": os.urandom(8).hex(),
            "client": caller.name[:LONGEST_NAME],
            "profile": caller.profile,
            "who": self._who(caller),
            "way": called.way,
            **what,
            "outcome": called.outcome,
            "seconds": round(called.seconds, 6),
        }
        if not called.method:
            line |= {"attempts": called.attempts, "cached": called.cached, "repaired": called.repaired}
        if called.destructive:
            line["destructive"] = True
        if called.trace:
            line["trace"] = called.trace
        if self._arguments == "hash":
            line["arguments"] = hashed(called.arguments, self._key)
        elif self._arguments == "redacted":
            line["arguments"] = redacted(called.arguments, self._secrets)
        return line

    def _who(self, caller: Caller) -> str:
        """Tells one session, or one token's holder, from another; of neither is anything to be found in it."""
        who = caller.session or caller.identity or caller.handle
        return blake2b(who.encode(errors="surrogatepass"), key=self._key, digest_size=6).hexdigest() if who else ""

    def _read_key(self) -> bytes:
        try:
            return self._key_of()
        except OSError as error:
            logger.warning("the audit log's key cannot be kept, and hashes of this run compare to no other: %s", error)
            return new_key()

    # --- trouble

    def _failed(self, error: OSError) -> None:
        self.trouble = f"the audit log cannot be written: {error.strerror or error}"
        now = time.monotonic()
        if now - self._complained_at >= COMPLAIN_S:
            self._complained_at = now
            logger.error("%s; calls go on without it (%d missing so far)", self.trouble, self._lost)

    def _recovered(self) -> None:
        logger.warning("the audit log is written again; the lines of %d calls are missing", self._lost)
        self._lost, self._complained_at = 0, float("-inf")


def where(settings: Settings, data_dir: Path) -> Path:
    """The file that is written."""
    return settings.file or data_dir / FILE


def hashed(arguments: Any, key: bytes) -> str:
    """A hash of arguments that says which are the same, and to nobody without the key what they are."""
    try:
        body = orjson.dumps(arguments, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        try:
            body = json.dumps(arguments, sort_keys=True, separators=(",", ":")).encode()
        except (TypeError, ValueError, RecursionError):
            return ""
    return blake2b(body, key=key, digest_size=16).hexdigest()


def redacted(arguments: Any, secrets: Iterable[str] = ()) -> Any:
    """Arguments as they may be read: secrets masked by their names and looks, and no more than a line of them."""
    return _Redaction(tuple(secrets)).of(arguments, MAX_DEPTH)


class _Redaction:
    def __init__(self, secrets: tuple[str, ...]) -> None:
        self._secrets = secrets
        self._window = LONGEST_TEXT + max((3 * LONGEST_TEXT, *map(len, secrets)))
        self._left = MAX_VALUES

    def of(self, value: Any, depth: int) -> Any:
        from portico.config_file.masking import SECRET_NAME  # its patterns cost start-up

        self._left -= 1
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, bool | None):
            return value
        if isinstance(value, int | float):
            return self._number(value)
        if depth <= 0 or self._left <= 0:
            return "…"
        if isinstance(value, Mapping):
            found: dict[str, Any] = {}
            for name, inner in cast("Mapping[str, Any]", value).items():
                if self._left <= 0:
                    found["…"] = "…"
                    break
                found[self._text(name)] = MASK if SECRET_NAME.search(name[:400]) else self.of(inner, depth - 1)
            return found
        if isinstance(value, list | tuple):
            items: list[Any] = []
            for inner in cast("list[Any]", value):
                if self._left <= 0:
                    items.append("…")
                    break
                items.append(self.of(inner, depth - 1))
            return items
        return "…"

    def _number(self, value: float) -> float | str:
        """A PIN may be configured, too; and what JSON cannot say is said as text."""
        try:
            text = orjson.dumps(value).decode()
        except TypeError:  # beyond 64 bits
            return "…"
        return MASK if text in self._secrets else value

    def _text(self, text: str) -> str:
        from portico.config_file.masking import masked_text

        # Masked before it is cut: half of a secret looks like nothing.
        long = len(text) > LONGEST_TEXT
        window = text[: self._window]
        for secret in self._secrets:
            window = window.replace(secret, MASK)
        shown = masked_text(window)
        return f"{shown[:LONGEST_TEXT]}…" if long else shown


def _summary(dropped: Dropped) -> dict[str, Any]:
    """What a file that was dropped held: from when to when, and where its last line stood in its chain."""
    first, last = (parse_line(line) for line in (dropped.first, dropped.last))
    found = {"from": first.get("at"), "to": last.get("at"), "chain": last.get("chain"), "n": last.get("n")}
    return {**{key: value for key, value in found.items() if value is not None}, "bytes": dropped.size}


def _now() -> str:
    return f"{datetime.datetime.now(datetime.UTC).isoformat(timespec='milliseconds')[:-6]}Z"


def _rendered(line: Mapping[str, Any]) -> bytes:
    """A line: whatever a name holds, a line break in it is written as an escape."""
    try:
        return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:  # half of a surrogate pair in a name
        return f"{json.dumps(line)}\n".encode()
