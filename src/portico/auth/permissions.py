"""What the holder of a credential may do: which endpoints, REST requests and tools. Pure."""

import re

from portico.callers import LOCAL_ISSUER, TOKEN_ISSUER, Principal

_PROFILE_API = re.compile(
    r"/api/(?:docs|openapi\.json|v1/(?:tools(?:/.*)?|servers(?:/[^/]*)?|events))|/v0\.1/servers(?:/.*)?"
)
"""What the API answers to a key of certain profiles: what a profile shows, the description, and
its own events. Not the log of a server, which is of all callers."""
_CALLS = "/api/v1/calls"
"""Calling a tool by REST needs no right here: the call itself is checked, as over MCP."""
_MACHINE = re.compile(r"/api/v1/(?:config/.+|clients(?:/.*)?)")
"""What writes files of the user of this machine."""
_ADMINISTRATION = re.compile(
    r"/api/v1/(?:(?:keys|config|changes|rules|people)(?:/.*)?|servers/[^/]*/sign-in)"
)
_APPROVALS = re.compile(r"/api/v1/approvals(?:/.*)?")


def can_open_gateway(principal: Principal) -> bool:
    """Return whether a principal may see what is not of one profile, such as metrics."""
    return not principal.profiles


def can_administer(principal: Principal) -> bool:
    """Return whether a principal may see and change keys, see the configuration, and trust what
    servers say: the user of this machine, and who has the token of the configuration. No holder
    of a key makes others."""
    return principal.issuer in (LOCAL_ISSUER, TOKEN_ISSUER)


def can_approve(principal: Principal) -> bool:
    """Return whether a principal may approve calls of others at all; `approvals.by` may restrict it
    further. A key for certain profiles, or a read-only one, approves nothing."""
    return not principal.profiles and not principal.is_read_only


def can_open_profile(principal: Principal, profile: str) -> bool:
    """Return whether a principal may use the endpoint of a profile; empty: the default one."""
    return not principal.profiles or profile in principal.profiles


def can_open_api(principal: Principal, method: str, path: str) -> bool:
    """Return whether a principal may make a REST request."""
    if (method, path) == ("POST", _CALLS):
        return True
    if _ADMINISTRATION.fullmatch(path) and not can_administer(principal):
        return False
    if _MACHINE.fullmatch(path):
        return principal.issuer == LOCAL_ISSUER
    if _APPROVALS.fullmatch(path):
        return can_approve(principal)
    if not principal.profiles:
        return method in ("GET", "HEAD", "OPTIONS") or not principal.is_read_only
    return method in ("GET", "HEAD") and _PROFILE_API.fullmatch(path) is not None
