"""`requestState` as clients carry it: signed, for one caller and one request, for a while. Pure but for the clock.

What is inside may be read by whoever holds it, as a server's own state always could; nobody can
change it, use it for another request or another caller's, or use it later. The key lives as long as
the process unless one is given: with a key of their own, replicas take each other's.
"""

import base64
import hashlib
import hmac
import json
import secrets
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from portico.access import Caller
from portico.errors import INVALID_PARAMS, RemoteError
from portico.upstream.protocol.envelope import INPUT_RESPONSES, REQUEST_STATE

StateKind = Literal["parked", "wrapped"]
_KINDS: tuple[StateKind, ...] = ("parked", "wrapped")
_LAYOUT = struct.Struct(">16s16sQB")
"""Signature, what it is bound to, when it ends, kind; the value follows."""
_SIGNED_FROM = 16
_UNBOUND_PARAMS = frozenset({"_meta", INPUT_RESPONSES, REQUEST_STATE})


@dataclass(frozen=True)
class VerifiedState:
    """What was in a state that was ours."""

    kind: StateKind
    value: str


def compute_binding(caller: Caller, method: str, params: Mapping[str, Any]) -> bytes:
    """What ties a state to its caller and its request: both as they are in every round."""
    salient = {key: value for key, value in params.items() if key not in _UNBOUND_PARAMS}
    try:
        text = orjson.dumps(salient, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # numbers beyond 64 bits, halves of surrogate pairs
        text = json.dumps(salient, sort_keys=True).encode()
    whose = "\0".join((caller.profile, caller.owner, method)).encode(errors="surrogatepass")
    return hashlib.blake2b(len(whose).to_bytes(8) + whose + text, digest_size=16).digest()


class StateSigner:
    """Signs states, and knows its own again."""

    def __init__(
        self, ttl_s: float, key: bytes | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.ttl_s = ttl_s
        self._key = hashlib.blake2b(
            key or secrets.token_bytes(32), person=b"portico-state"
        ).digest()
        self._clock = clock

    def sign(self, kind: StateKind, value: str, binding: bytes) -> str:
        """A state that says `value` to whoever opens it within its time, for the same caller and
        request."""
        ends = int((self._clock() + self.ttl_s) * 1_000)
        body = _LAYOUT.pack(b"", binding, ends, _KINDS.index(kind))[_SIGNED_FROM:] + value.encode(
            errors="surrogatepass"
        )
        return base64.urlsafe_b64encode(self._compute_signature(body) + body).decode().rstrip("=")

    def verify(self, state: Any, binding: bytes) -> VerifiedState:
        """What a state says; raises RemoteError where it is not ours, not this request's, or over
        its time."""
        try:
            raw = base64.b64decode(
                f"{state}{'=' * (-len(state) % 4)}", altchars=b"-_", validate=True
            )
            signature, made_for, ends, kind = _LAYOUT.unpack_from(raw)
        except (ValueError, TypeError, struct.error):
            raise _make_state_error("it was not issued here") from None
        if not hmac.compare_digest(signature, self._compute_signature(raw[_SIGNED_FROM:])):
            raise _make_state_error("it was not issued here, or was changed on its way")
        if not hmac.compare_digest(made_for, binding):
            raise _make_state_error("it belongs to another request, or to another caller's")
        if ends <= self._clock() * 1_000:
            raise _make_state_error(f"the answer took longer than the {self.ttl_s:g} s that it may")
        return VerifiedState(_KINDS[kind], raw[_LAYOUT.size :].decode(errors="surrogatepass"))

    def _compute_signature(self, body: bytes) -> bytes:
        return hmac.digest(self._key, body, "sha256")[:_SIGNED_FROM]


def _make_state_error(reason: str) -> RemoteError:
    return RemoteError(
        INVALID_PARAMS,
        f"the requestState cannot be used: {reason}. Nothing was sent to the server; make the request again without "
        f"{REQUEST_STATE} and {INPUT_RESPONSES}.",
    )


def make_used_state_error() -> RemoteError:
    """The refusal of a state whose call does not wait any more."""
    return _make_state_error(
        "the call that it belongs to was answered already, was given up, or waited too long"
    )
