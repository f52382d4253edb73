"""Checks credentials that cannot work: empty, placeholders, without a scheme, expired. Pure."""

import base64
import binascii
import re
import time
from collections.abc import Iterator

import orjson

from portico.cli.doctor.checks.secrets import is_credential, is_placeholder
from portico.cli.doctor.finding import ConfigLocations, DoctorFinding
from portico.config import BackendConfig

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9_-]* \S")
_JWT = re.compile(r"eyJ[\w-]+\.(eyJ[\w-]+)\.[\w-]*")


def check(
    name: str, server: BackendConfig, locations: ConfigLocations, now: float | None = None
) -> Iterator[DoctorFinding]:
    """Yield what is wrong with the credentials of one server."""
    for section in ("env", "headers", "query"):
        values: dict[str, str] = getattr(server, section)
        for variable, value in values.items():
            at = locations.locate_server(name, section, variable)
            if is_credential(variable) and not value.strip():
                yield DoctorFinding(
                    "credential.empty",
                    "warning",
                    f"{variable} is empty",
                    f"Give {variable} its value, or take it out.",
                    **at,
                )
            elif is_credential(variable) and is_placeholder(value):
                yield DoctorFinding(
                    "credential.placeholder",
                    "warning",
                    f"{variable} was never filled in: its value is a placeholder",
                    "Put the real value there, as "
                    f"${{{re.sub(r'[^A-Za-z0-9_]', '_', variable).upper()}}}.",
                    **at,
                )
            elif expired := _read_past_expiry(value, time.time() if now is None else now):
                yield DoctorFinding(
                    "credential.expired",
                    "broken",
                    f"the token in {variable} expired on {expired}",
                    "Get a new one from whoever issued it, and put it in its place.",
                    **at,
                )
            elif (
                section == "headers"
                and variable.lower() == "authorization"
                and not _SCHEME.match(value.strip())
            ):
                yield DoctorFinding(
                    "credential.no_scheme",
                    "warning",
                    f"{variable} names no scheme, so the server cannot tell what kind of "
                    "credential it is",
                    f'Write {variable}: "Bearer …" (or Basic …).',
                    **at,
                )


def _read_past_expiry(value: str, now: float) -> str:
    """Return the expiry of a JSON Web Token that has expired, else empty. Nothing is verified."""
    token = _JWT.search(value)
    if token is None:
        return ""
    try:
        claims = orjson.loads(base64.urlsafe_b64decode(token[1] + "=" * (-len(token[1]) % 4)))
        expires_at = float(claims["exp"])
    except (binascii.Error, ValueError, KeyError, TypeError):
        return ""
    if expires_at < now:
        return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(expires_at))
    return ""
