"""What a client can be asked, and how a question reads in its era. Pure.

A question is a method and its params: `sampling/createMessage`, `elicitation/create` (a form, or an
address to be visited), `roots/list`. Servers must not ask what the client did not declare; who asks
all the same is told what lacks.
"""

import secrets
from collections.abc import Mapping
from typing import Any, cast

from mcp_types import MISSING_REQUIRED_CLIENT_CAPABILITY

from portico.errors import INVALID_PARAMS, METHOD_NOT_FOUND, RemoteError
from portico.upstream.backend import Era, Raw

CAPABILITY_BY_METHOD: Mapping[str, str] = {
    "sampling/createMessage": "sampling",
    "elicitation/create": "elicitation",
    "roots/list": "roots",
}
_NO_CAPABILITIES: Mapping[str, Any] = {}


def filter_elicitable(declared: Any) -> Raw:
    """Of what a client declared, what it can be asked."""
    if isinstance(declared, Mapping):
        known: Mapping[str, Any] = cast("Mapping[str, Any]", declared)
    else:
        known = _NO_CAPABILITIES
    return {
        name: known[name]
        for name in CAPABILITY_BY_METHOD.values()
        if isinstance(known.get(name), Mapping)
    }


def find_missing_capability(
    capabilities: Mapping[str, Any], method: str, params: Mapping[str, Any]
) -> Raw:
    """What a client would have to declare to be asked this; empty where it has."""
    name = CAPABILITY_BY_METHOD.get(method)
    if name is None:
        return {method: {}}
    offered = capabilities.get(name)
    if not isinstance(offered, Mapping):
        return {name: {}}
    has = cast("Mapping[str, Any]", offered)
    if method == "elicitation/create":
        mode = params.get("mode") or "form"
        # Nothing said of modes means forms.
        if not has.keys() & {"form", "url"}:
            known = ("form",)
        else:
            known = tuple(has)
        if mode in known:
            return {}
        return {name: {str(mode): {}}}
    if (
        method == "sampling/createMessage"
        and (params.get("tools") or params.get("toolChoice"))
        and "tools" not in has
    ):
        return {name: {"tools": {}}}
    return {}


def make_unsupported_error(missing: Mapping[str, Any]) -> RemoteError:
    """What a server is told that asked what the client does not offer."""
    ((name, part),) = missing.items()
    if name not in CAPABILITY_BY_METHOD.values():
        return RemoteError(METHOD_NOT_FOUND, f"a client cannot be asked {name}")
    said = f"the client that made this call does not offer {name}"
    if part:
        return RemoteError(INVALID_PARAMS, f"{said} with {next(iter(part))}")
    return RemoteError(METHOD_NOT_FOUND, said)


def make_missing_capability_error(missing: Mapping[str, Any]) -> RemoteError:
    """What a client is told that would have to be asked what it does not offer."""
    ((name, part),) = missing.items()
    if part:
        what = f"{name} with {next(iter(part))}"
    else:
        what = name
    return RemoteError(
        MISSING_REQUIRED_CLIENT_CAPABILITY,
        f"the server needs to ask its client for {what}, which this client does not declare",
        {"requiredCapabilities": dict(missing)},
    )


def adapt_params(method: str, params: Raw, era: Era) -> Raw:
    """A question's params as the client's era has them: only the handshake era gives a visit an id."""
    if method != "elicitation/create" or params.get("mode") != "url":
        return params
    if era == "modern":
        return {key: value for key, value in params.items() if key != "elicitationId"}
    if params.get("elicitationId"):
        return params
    return {**params, "elicitationId": secrets.token_hex(16)}


def list_input_requests(result: Mapping[str, Any]) -> list[tuple[str, Raw]]:
    """What a result asks its client, each as a method and its params."""
    requests: Any = result.get("inputRequests")
    if isinstance(requests, dict):
        listed = list(cast(Raw, requests).values())
    else:
        listed = []
    return [(str(one.get("method")), _get_params(one)) for one in listed if isinstance(one, dict)]


def _get_params(request: Raw) -> Raw:
    params = request.get("params")
    if isinstance(params, dict):
        return cast(Raw, params)
    return {}
