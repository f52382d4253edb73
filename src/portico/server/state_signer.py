"""Signed `requestState` values, bound to one caller and one request, with an expiry. Pure but for
the clock.

A client can read the value, as it could read a server's own state; it cannot change it, use it for
another request or as another caller, or use it later. Without a configured key, one is generated
for each process; replicas that share a key accept each other's states.
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

from portico.callers import Caller
from portico.errors import INVALID_PARAMS, RemoteError
from portico.upstream.protocol.envelope import INPUT_RESPONSES, REQUEST_STATE

StateKind = Literal["parked", "wrapped"]
_KINDS: tuple[StateKind, ...] = ("parked", "wrapped")
_LAYOUT = struct.Struct(">16s16sQB")
"""Signature, binding, expiry in ms, kind; the value follows."""
_SIGNED_FROM = 16
_UNBOUND_PARAMS = frozenset({"_meta", INPUT_RESPONSES, REQUEST_STATE})


@dataclass(frozen=True)
class VerifiedState:
    """Content of a state with a valid signature."""

    kind: StateKind
    value: str


def compute_binding(caller: Caller, method: str, params: Mapping[str, Any]) -> bytes:
    """Return the digest that ties a state to its caller and request, equal in every round."""
    bound_params = {key: value for key, value in params.items() if key not in _UNBOUND_PARAMS}
    try:
        text = orjson.dumps(bound_params, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # numbers beyond 64 bits, lone surrogates
        text = json.dumps(bound_params, sort_keys=True).encode()
    owner = "\0".join((caller.profile, caller.owner, method)).encode(errors="surrogatepass")
    return hashlib.blake2b(len(owner).to_bytes(8) + owner + text, digest_size=16).digest()


class StateSigner:
    def __init__(
        self, ttl_s: float, key: bytes | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.ttl_s = ttl_s
        self._key = hashlib.blake2b(
            key or secrets.token_bytes(32), person=b"portico-state"
        ).digest()
        self._clock = clock

    def sign(self, kind: StateKind, value: str, binding: bytes) -> str:
        """Return a state that carries `value`, valid for `ttl_s` seconds."""
        expires_ms = int((self._clock() + self.ttl_s) * 1_000)
        header = _LAYOUT.pack(b"", binding, expires_ms, _KINDS.index(kind))
        body = header[_SIGNED_FROM:] + value.encode(errors="surrogatepass")
        return base64.urlsafe_b64encode(self._compute_signature(body) + body).decode().rstrip("=")

    def verify(self, state: Any, binding: bytes) -> VerifiedState:
        """Return the content of a state; raises RemoteError if it is foreign, of another request or
        expired."""
        try:
            raw = base64.b64decode(
                f"{state}{'=' * (-len(state) % 4)}", altchars=b"-_", validate=True
            )
            signature, bound_to, expires_ms, kind = _LAYOUT.unpack_from(raw)
        except (ValueError, TypeError, struct.error):
            raise _make_state_error("it was not issued here") from None
        if not hmac.compare_digest(signature, self._compute_signature(raw[_SIGNED_FROM:])):
            raise _make_state_error("it was not issued here, or was changed on its way")
        if not hmac.compare_digest(bound_to, binding):
            raise _make_state_error("it belongs to another request, or to another caller's")
        if expires_ms <= self._clock() * 1_000:
            raise _make_state_error(f"the answer took longer than the {self.ttl_s:g} s that it may")
        return VerifiedState(_KINDS[kind], raw[_LAYOUT.size :].decode(errors="surrogatepass"))

    def _compute_signature(self, body: bytes) -> bytes:
        return hmac.digest(self._key, body, "sha256")[:_SIGNED_FROM]


def _make_state_error(reason: str) -> RemoteError:
    return RemoteError(
        INVALID_PARAMS,
        f"the requestState cannot be used: {reason}. Nothing was sent to the server; "
        f"make the request again without {REQUEST_STATE} and {INPUT_RESPONSES}.",
    )


def make_used_state_error() -> RemoteError:
    """Build the error for a state whose request is no longer pending."""
    return _make_state_error(
        "the call that it belongs to was answered already, was given up, or waited too long"
    )
