"""A chain of MACs through the audit log, which reveals changed, removed or inserted lines.

A line ends in `chain` (the gateway run that wrote it), `n` (its number there) and `mac`: a keyed
BLAKE2b of the previous MAC in that chain and of the line itself. Gateways that share a log write
separate chains. The first line of a chain has `after`: the MAC of the last line before it. Pure.
"""

import json
import os
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from hmac import compare_digest
from typing import Any, cast

MAX_PROBLEMS = 20
"""Maximum number of problems listed; further ones are counted."""
_MAX_RECENT_MACS = 1_000
"""Lines that other gateways may append between reading the end of the log and a chain's first line.
"""
_MAC_FIELD = b',"mac":"'


class AuditChain:
    """Signs lines. `advance` moves on after a line is in the file; `sign_line` does not."""

    def __init__(self, key: bytes, last_line: bytes = b"") -> None:
        """Start a chain after `last_line`, the last line of the log, signed or not."""
        self._key = key
        self._id = os.urandom(4).hex()
        self._line_number = 0
        self._previous_mac = str(parse_line(last_line).get("mac", ""))

    @property
    def next_position(self) -> dict[str, Any]:
        """Fields of the next line that give its position in the chain."""
        position: dict[str, Any] = {"chain": self._id, "n": self._line_number + 1}
        if not self._line_number:
            position["after"] = self._previous_mac
        return position

    def sign_line(self, line: bytes) -> tuple[bytes, str]:
        """Add the MAC to a line (a JSON object and a line break); return the line and the MAC."""
        mac = _compute_mac(self._key, self._previous_mac, line.removesuffix(b"\n"))
        return line.removesuffix(b"}\n") + _MAC_FIELD + mac.encode() + b'"}\n', mac

    def advance(self, mac: str) -> None:
        """Continue after a line that was written."""
        self._line_number += 1
        self._previous_mac = mac


@dataclass
class AuditVerification:
    """Result of `verify`."""

    signed_lines: int = 0
    unsigned_lines: int = 0
    """Lines of a version that wrote no MACs; they prove nothing."""
    torn_lines: int = 0
    """Truncated lines, as a crash or a full disk leaves them; no MAC depends on them."""
    problems: list[str] = field(default_factory=list[str])
    unlisted_problems: int = 0

    def add_problem(self, problem: str) -> None:
        """Record a problem."""
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(problem)
        else:
            self.unlisted_problems += 1


def verify(lines: Iterable[bytes], key: bytes) -> AuditVerification:
    """Check every line, oldest first. Memory does not grow with the log."""
    verification = AuditVerification()
    chain_ends: dict[str, tuple[int, str]] = {}
    chains_without_start: dict[str, int] = {}
    recent: deque[str] = deque(maxlen=_MAX_RECENT_MACS)
    dropped: Mapping[str, Any] | None = None
    orphan = ""  # position of the first line, if it claims to follow another
    for raw in lines:
        line = parse_line(raw)
        mac = line.get("mac")
        chain = line.get("chain")
        n = line.get("n")
        if not line:
            verification.torn_lines += 1
        elif not (isinstance(mac, str) and isinstance(chain, str) and isinstance(n, int)):
            if verification.signed_lines:
                verification.add_problem(
                    f"a line without a MAC stands after sealed ones: {line.get('at')}"
                )
            verification.unsigned_lines += 1
        else:
            verification.signed_lines += 1
            position = f"line {n} of chain {chain} ({line.get('at')})"
            previous_n, previous_mac = chain_ends.get(chain, (0, str(line.get("after", ""))))
            if n != previous_n + 1:
                if chain in chain_ends:
                    verification.add_problem(
                        f"{position} follows line {previous_n}: "
                        "lines were taken out, or put in another order"
                    )
                else:
                    chains_without_start[chain] = n
            elif not compare_digest(mac, _compute_mac(key, previous_mac, _strip_mac(raw))):
                verification.add_problem(f"{position} was changed")
            elif n == 1 and previous_mac and verification.signed_lines == 1:
                orphan = position
            elif n == 1 and recent and previous_mac not in recent:
                verification.add_problem(f"{position} was written after a line that is missing")
            chain_ends[chain] = n, mac
            recent.append(mac)
            if isinstance(dropped_file := line.get("dropped"), dict):
                dropped = cast("dict[str, Any]", dropped_file)
    if orphan and dropped is None:
        verification.add_problem(
            f"{orphan} was written after a line that is missing, and no full log was dropped"
        )
    for chain, n in chains_without_start.items():
        if dropped is None or (dropped.get("chain") == chain and dropped.get("n") != n - 1):
            verification.add_problem(
                f"lines before line {n} of chain {chain} are missing, and no full log was dropped"
            )
    return verification


def _compute_mac(key: bytes, previous_mac: str, line: bytes) -> str:
    return blake2b(previous_mac.encode() + b"\n" + line, key=key, digest_size=16).hexdigest()


def _strip_mac(raw: bytes) -> bytes:
    return raw[: raw.rfind(_MAC_FIELD)] + b"}"


def parse_line(raw: bytes) -> dict[str, Any]:
    """Parse a line; empty if it is not a JSON object."""
    try:
        line: Any = json.loads(raw)
    except ValueError:
        return {}
    if isinstance(line, dict):
        return cast("dict[str, Any]", line)
    return {}
