"""JSON-RPC frames and ids, and the responses to requests that a server sends."""

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
"""Concurrent requests from one server; more are refused."""
RELAYED_METHODS = frozenset({"sampling/createMessage", "elicitation/create", "roots/list"})
"""Requests that a server may send to the client whose call it processes."""
UNREADABLE = "portico/unreadable"
"""Method that replaces a request that was not decoded; refused with its `reason`."""
MAX_ID_CHARS = 256
"""Longest id of a server's own request that is stored and echoed."""


def make_message(
    method: str, params: Mapping[str, Any] | None, request_id: int | None = None
) -> Raw:
    """Return a request frame or, without an id, a notification frame."""
    message: Raw = {"jsonrpc": "2.0", "method": method}
    if request_id is not None:
        message["id"] = request_id
    if params is not None:
        message["params"] = params
    return message


def make_result_response(request_id: object, value: Raw) -> Raw:
    return {"jsonrpc": "2.0", "id": request_id, "result": value}


def make_error_response(request_id: object, code: int, message: str, data: Any = None) -> Raw:
    error: Raw = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return {"jsonrpc": "2.0", "id": request_id, "error": error}


def parse_id(value: object) -> int:
    """Return an id or token as int, or -1; some servers echo them as strings, or as 1.0."""
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
    """Return whether a server's request has an id that a response may carry."""
    if isinstance(request_id, str):
        return len(request_id) <= MAX_ID_CHARS
    return isinstance(request_id, int) and not isinstance(request_id, bool)


def make_too_many_response(request_id: object) -> Raw:
    """Return the refusal of a request above `MAX_SERVER_REQUESTS`."""
    return make_error_response(request_id, INTERNAL_ERROR, "too many requests at once")


def find_sole_caller(relays: Iterable[Relay | None]) -> Relay | None:
    """Return the relay of the one client that all calls in flight come from, else None."""
    known = [relay for relay in relays if relay is not None]
    if known and len({relay.client_key for relay in known}) == 1:
        return known[-1]
    return None


def find_addressee(in_flight: Sequence[Relay | None]) -> tuple[Relay | None, bool]:
    """Return the relay for a server's own request, or None, and whether several are possible."""
    relay = find_sole_caller(in_flight)
    return relay, relay is None and any(in_flight)


def make_call_ended_response(request_id: object) -> Raw:
    """Return the response to a server's request whose call ended before the client answered."""
    error = CallAlreadyEnded()
    return make_error_response(request_id, error.code, error.message)


def make_timeout_error(
    name: str, method: str, options: RequestOptions, elapsed_s: float
) -> BackendTimeout:
    """Return the error for a request that was not answered in time."""
    if options.total_timeout is not None and elapsed_s >= options.total_timeout:
        return BackendTimeout(
            f"{name} did not answer {method} within {options.total_timeout:.3g} s, "
            "the longest a call may take",
            advice="Try again, narrow the request, or raise limits.call_s "
            "and this server's timeouts.call_s.",
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
    """Return the response frame to a request that an upstream sent.

    `shared` means that it may concern any of several clients. Raises CallAlreadyEnded if the
    relay's call has ended.
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
        why = (
            "cannot be told to belong to one of the clients that share this server; "
            "set isolation: session for it"
        )
    else:
        why = "is not available outside a client's call"
    return make_error_response(request_id, METHOD_NOT_FOUND, f"{method} {why}")


def to_remote_error(error: Mapping[str, Any]) -> RemoteError:
    """Convert an upstream's error object, unchanged."""
    code = error.get("code")
    message = error.get("message")
    return RemoteError(
        code if isinstance(code, int) else INTERNAL_ERROR,
        message if isinstance(message, str) else "the server gave no message",
        error.get("data"),
        has_data="data" in error,
    )
