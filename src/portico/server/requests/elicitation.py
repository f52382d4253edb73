"""Client capabilities for elicitation, and the params of an elicitation in each era. Pure.

An elicitation is a method and its params: `sampling/createMessage`, `elicitation/create` (a form,
or a URL to open), `roots/list`. Servers must not request what the client did not declare; one that
does gets an error that names the missing capability.
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
    """Return the declared capabilities that allow elicitation."""
    known = _NO_CAPABILITIES
    if isinstance(declared, Mapping):
        known = cast("Mapping[str, Any]", declared)
    return {
        name: known[name]
        for name in CAPABILITY_BY_METHOD.values()
        if isinstance(known.get(name), Mapping)
    }


def find_missing_capability(
    capabilities: Mapping[str, Any], method: str, params: Mapping[str, Any]
) -> Raw:
    """Return the capability that an elicitation requires and the client lacks; empty if it has
    it."""
    name = CAPABILITY_BY_METHOD.get(method)
    if name is None:
        return {method: {}}
    offered = capabilities.get(name)
    if not isinstance(offered, Mapping):
        return {name: {}}
    options = cast("Mapping[str, Any]", offered)
    if method == "elicitation/create":
        mode = params.get("mode") or "form"
        # Without a declared mode, forms are supported.
        modes = tuple(options) if options.keys() & {"form", "url"} else ("form",)
        if mode in modes:
            return {}
        return {name: {str(mode): {}}}
    if (
        method == "sampling/createMessage"
        and (params.get("tools") or params.get("toolChoice"))
        and "tools" not in options
    ):
        return {name: {"tools": {}}}
    return {}


def make_unsupported_error(missing: Mapping[str, Any]) -> RemoteError:
    """Build the error for a server whose elicitation the client does not support."""
    ((name, part),) = missing.items()
    if name not in CAPABILITY_BY_METHOD.values():
        return RemoteError(METHOD_NOT_FOUND, f"a client cannot be asked {name}")
    message = f"the client that made this call does not offer {name}"
    if part:
        return RemoteError(INVALID_PARAMS, f"{message} with {next(iter(part))}")
    return RemoteError(METHOD_NOT_FOUND, message)


def make_missing_capability_error(missing: Mapping[str, Any]) -> RemoteError:
    """Build the error for a client that lacks a capability which the server requires."""
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
    """Adapt params to the client's era: only the handshake era has an id for URL elicitations."""
    if method != "elicitation/create" or params.get("mode") != "url":
        return params
    if era == "modern":
        return {key: value for key, value in params.items() if key != "elicitationId"}
    if params.get("elicitationId"):
        return params
    return {**params, "elicitationId": secrets.token_hex(16)}


def list_input_requests(result: Mapping[str, Any]) -> list[tuple[str, Raw]]:
    """Return the elicitations in a result, each as a method and its params."""
    requests: Any = result.get("inputRequests")
    if not isinstance(requests, dict):
        return []
    return [
        (str(request.get("method")), _get_params(request))
        for request in cast(Raw, requests).values()
        if isinstance(request, dict)
    ]


def _get_params(request: Raw) -> Raw:
    params = request.get("params")
    if isinstance(params, dict):
        return cast(Raw, params)
    return {}
