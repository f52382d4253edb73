"""A chain of MACs through the audit log: it shows whether lines were changed, taken out or put in.

A line ends in `chain` (the run of a gateway that wrote it), `n` (its number there) and `mac`: a
keyed BLAKE2b of the MAC of the line before it in that chain, and of the line itself. Gateways that
share a log each write a chain of their own. The first line of a chain has `after`: the MAC of the
last line that there was. Pure.
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
"""Problems that are named; the others are counted."""
_MAX_RECENT_MACS = 1_000
"""Lines that other gateways may write between the end of the log being read and a chain's first
line."""
_MAC_FIELD = b',"mac":"'


class AuditChain:
    """Seals lines. `seal` does not move the chain on; `advance` does, once a line is in the file."""

    def __init__(self, key: bytes, last_line: bytes = b"") -> None:
        """`last` is the last line of the log, sealed or not."""
        self._key = key
        self._id = os.urandom(4).hex()
        self._line_number = 0
        self._previous_mac = str(parse_line(last_line).get("mac", ""))

    @property
    def next_position(self) -> dict[str, Any]:
        """The fields of the next line that say where in the chain it stands."""
        if not self._line_number:
            first = {"after": self._previous_mac}
        else:
            first = {}
        return {"chain": self._id, "n": self._line_number + 1, **first}

    def sign_line(self, line: bytes) -> tuple[bytes, str]:
        """Add the MAC to a line, an object of JSON that ends in a line break; return both."""
        mac = _compute_mac(self._key, self._previous_mac, line.removesuffix(b"\n"))
        return line.removesuffix(b"}\n") + _MAC_FIELD + mac.encode() + b'"}\n', mac

    def advance(self, mac: str) -> None:
        """Go on from a line that is in the file."""
        self._line_number += 1
        self._previous_mac = mac


@dataclass
class AuditVerification:
    """What `verify` found."""

    signed_lines: int = 0
    unsigned_lines: int = 0
    """Lines of a version that wrote no MACs; they prove nothing."""
    torn_lines: int = 0
    """Lines cut short, as a crash or a full disk leaves them; no line counts on them."""
    problems: list[str] = field(default_factory=list[str])
    unlisted_problems: int = 0

    def add_problem(self, problem: str) -> None:
        """Note a problem."""
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(problem)
        else:
            self.unlisted_problems += 1


def verify(lines: Iterable[bytes], key: bytes) -> AuditVerification:
    """Check every line, the oldest first; memory does not grow with the log."""
    verdict = AuditVerification()
    ends: dict[str, tuple[int, str]] = {}
    headless: dict[str, int] = {}
    recent: deque[str] = deque(maxlen=_MAX_RECENT_MACS)
    dropped: Mapping[str, Any] | None = None
    orphan = ""  # where the first line stands, if it says that it was written after another
    for raw in lines:
        line = parse_line(raw)
        mac = line.get("mac")
        chain = line.get("chain")
        n = line.get("n")
        if not line:
            verdict.torn_lines += 1
        elif not (isinstance(mac, str) and isinstance(chain, str) and isinstance(n, int)):
            if verdict.signed_lines:
                verdict.add_problem(
                    f"a line without a MAC stands after sealed ones: {line.get('at')}"
                )
            verdict.unsigned_lines += 1
        else:
            verdict.signed_lines += 1
            where = f"line {n} of chain {chain} ({line.get('at')})"
            known, before = ends.get(chain, (0, str(line.get("after", ""))))
            if n != known + 1:
                if chain in ends:
                    verdict.add_problem(
                        f"{where} follows line {known}: lines were taken out, or put in another order"
                    )
                else:
                    headless[chain] = n
            elif not compare_digest(mac, _compute_mac(key, before, _strip_mac(raw))):
                verdict.add_problem(f"{where} was changed")
            elif n == 1 and before and verdict.signed_lines == 1:
                orphan = where
            elif n == 1 and recent and before not in recent:
                verdict.add_problem(f"{where} was written after a line that is missing")
            ends[chain] = n, mac
            recent.append(mac)
            if isinstance(gone := line.get("dropped"), dict):
                dropped = cast("dict[str, Any]", gone)
    if orphan and dropped is None:
        verdict.add_problem(
            f"{orphan} was written after a line that is missing, and no full log was dropped"
        )
    for chain, n in headless.items():
        if dropped is None or (dropped.get("chain") == chain and dropped.get("n") != n - 1):
            verdict.add_problem(
                f"lines before line {n} of chain {chain} are missing, and no full log was dropped"
            )
    return verdict


def _compute_mac(key: bytes, previous_mac: str, line: bytes) -> str:
    return blake2b(previous_mac.encode() + b"\n" + line, key=key, digest_size=16).hexdigest()


def _strip_mac(raw: bytes) -> bytes:
    return raw[: raw.rfind(_MAC_FIELD)] + b"}"


def parse_line(raw: bytes) -> dict[str, Any]:
    """Read a line; empty where it is no object of JSON."""
    try:
        line: Any = json.loads(raw)
    except ValueError:
        return {}
    if isinstance(line, dict):
        return cast("dict[str, Any]", line)
    return {}
