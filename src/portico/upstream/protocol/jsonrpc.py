"""JSON-RPC as both kinds of wire speak it, duplex and HTTP: frames, ids, and answers to a server's
own requests."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from portico.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    BackendTimeout,
    PorticoError,
    RemoteError,
)
from portico.upstream.backend import CallAlreadyEnded, Raw, Relay, RequestOptions

MAX_SERVER_REQUESTS = 64
"""Requests of the other side handled at one time; more are refused."""
RELAYED_METHODS = frozenset({"sampling/createMessage", "elicitation/create", "roots/list"})
"""What a server may ask of the client whose call it works on."""
UNREADABLE = "portico/unreadable"
"""Method of what stands in for a request that was not decoded; refused with its `reason`."""
MAX_ID_CHARS = 256
"""What a server may have us remember and repeat of its own requests."""


def make_message(
    method: str, params: Mapping[str, Any] | None, request_id: int | None = None
) -> Raw:
    """A request, or without an id a notification."""
    made: Raw = {"jsonrpc": "2.0", "method": method}
    if request_id is not None:
        made["id"] = request_id
    if params is not None:
        made["params"] = params
    return made


def make_result_response(request_id: object, value: Raw) -> Raw:
    """The answer to a request."""
    return {"jsonrpc": "2.0", "id": request_id, "result": value}


def make_error_response(request_id: object, code: int, message: str, data: Any = None) -> Raw:
    """The answer to a request that is refused."""
    error: Raw = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return {"jsonrpc": "2.0", "id": request_id, "error": error}


def parse_id(value: object) -> int:
    """Some servers echo ids and tokens as strings, or as 1.0."""
    if isinstance(value, bool):
        return -1
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        if value.is_integer():
            return int(value)
        return -1
    if isinstance(value, str) and len(value) < 20 and value.isdecimal():
        return int(value)
    return -1


def is_answerable(request_id: object) -> bool:
    """Whether a request of the other side has an id that an answer may carry."""
    if isinstance(request_id, str):
        return len(request_id) <= MAX_ID_CHARS
    return isinstance(request_id, int) and not isinstance(request_id, bool)


def make_too_many_response(request_id: object) -> Raw:
    """The answer to one request too many."""
    return make_error_response(request_id, INTERNAL_ERROR, "too many requests at once")


def find_sole_caller(relays: Iterable[Relay | None]) -> Relay | None:
    """The one client all calls in flight come from: what a server says of its own belongs to it."""
    known = [relay for relay in relays if relay is not None]
    if known and len({relay.client_key for relay in known}) == 1:
        return known[-1]
    return None


def find_addressee(in_flight: Sequence[Relay | None]) -> tuple[Relay | None, bool]:
    """Whom a question of the server's own is for, if that is certain, and whether it may be for any
    of several."""
    relay = find_sole_caller(in_flight)
    return relay, relay is None and any(in_flight)


def make_call_ended_response(request_id: object) -> Raw:
    """The answer to a question whose call ended before it was answered."""
    over = CallAlreadyEnded()
    return make_error_response(request_id, over.code, over.message)


def make_timeout_error(
    name: str, method: str, options: RequestOptions, elapsed_s: float
) -> BackendTimeout:
    """A server did not answer."""
    if options.total_timeout is not None and elapsed_s >= options.total_timeout:
        return BackendTimeout(
            f"{name} did not answer {method} within {options.total_timeout:.3g} s, the longest a call may take",
            advice="Try again, narrow the request, or raise limits.call_s and this server's timeouts.call_s.",
        )
    return BackendTimeout(
        f"{name} did not answer {method} within {options.timeout or 0:.3g} s",
        advice="Try again, narrow the request, or raise this server's timeouts.call_s.",
    )


async def answer_upstream(
    request_id: object,
    method: str,
    params: Raw,
    relay: Relay | None,
    roots: tuple[Raw, ...],
    *,
    shared: bool = False,
) -> Raw:
    """The answer frame to a request an upstream made of us; `shared`: it may be about any of
    several clients.

    Raises CallOver where the relay's call is over.
    """
    if method == "ping":
        return make_result_response(request_id, {})
    if method == UNREADABLE:
        return make_error_response(
            request_id, INVALID_PARAMS, f"the request cannot be read: {params.get('reason')}"
        )
    if method in RELAYED_METHODS and relay is not None:
        try:
            return make_result_response(request_id, await relay.request(method, params))
        except CallAlreadyEnded:
            raise
        except PorticoError as error:
            if method != "roots/list":
                return make_error_response(
                    request_id, error.code, error.message, getattr(error, "data", None)
                )
    if method == "roots/list":
        return make_result_response(request_id, {"roots": list(roots)})
    if shared:
        why = "cannot be told to belong to one of the clients that share this server; set isolation: session for it"
    else:
        why = "is not available outside a client's call"
    return make_error_response(request_id, METHOD_NOT_FOUND, f"{method} {why}")


def to_remote_error(error: Mapping[str, Any]) -> RemoteError:
    """An upstream's error object, unchanged."""
    code = error.get("code")
    message = error.get("message")
    return RemoteError(
        code if isinstance(code, int) else INTERNAL_ERROR,
        message if isinstance(message, str) else "the server gave no message",
        error.get("data"),
        has_data="data" in error,
    )
