"""Decides on whose behalf a token is, from claims that its issuer vouches for. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard, cast

from portico.auth.token_verifier import Rejection
from portico.callers import Principal
from portico.config.auth import EVERY_PROFILE, IssuerConfig

CLOCK_SKEW_S = 30.0
"""Seconds by which clocks may differ."""
MAX_GROUPS = 1_000
_MAX_NAME_CHARS = 255
_MAX_GROUP_CHARS = 400
_MAX_PATH_STEPS = 8
_ID_TOKEN_CLAIMS = ("at_hash", "c_hash", "s_hash")
_OTHER_TYPES = ("id", "refresh", "offline", "logout", "registrationaccesstoken")
"""`typ` (Keycloak) and `token_use` (Cognito) of tokens that are not for a resource."""


@dataclass(frozen=True)
class Audiences:
    """Which audiences are this gateway, or one of its endpoints."""

    whole: frozenset[str]
    """For every endpoint."""
    profile_root: str = ""
    """What an audience begins with that is for the endpoint of one profile; empty: none is."""

    def find_profiles(self, claim: Any) -> tuple[str, ...] | None:
        """Return the profiles for which a token is by its `aud`; empty: all, None: for none."""
        names = [claim] if isinstance(claim, str) else claim
        if not isinstance(names, list):
            return None
        texts = [name for name in cast("list[Any]", names) if isinstance(name, str)]
        if len(texts) < len(cast("list[Any]", names)):
            return None
        if not self.whole.isdisjoint(texts):
            return ()
        root = self.profile_root
        found = [text[len(root) :] for text in texts if root and text.startswith(root)]
        return tuple(name for name in found if name and "/" not in name) or None


def make_audiences(settings: IssuerConfig, public_url: str | None) -> Audiences:
    """Return the audiences of an issuer's tokens that are accepted."""
    if public_url is None:
        return Audiences(frozenset(settings.audience))
    whole = {public_url, f"{public_url}/", f"{public_url}/mcp", *settings.audience}
    return Audiences(frozenset(whole), f"{public_url}/mcp/p/")


def list_scopes(settings: IssuerConfig, profile: str) -> tuple[str, ...]:
    """Return the scopes a token should have for a profile's endpoint; empty: the default one."""
    grants = [*settings.profiles.get(profile, ()), *settings.profiles.get(EVERY_PROFILE, ())]
    granting = [grant.removeprefix("scope:") for grant in grants if grant.startswith("scope:")]
    return tuple(dict.fromkeys([*settings.required_scopes, *granting[:1]]))


def check_times(claims: Mapping[str, Any], now: float) -> str:
    """Return what is wrong with the times of a token; empty if nothing is."""
    if any(name in claims and not _is_time(claims[name]) for name in ("exp", "nbf", "iat")):
        return "a time in it is no number"
    if now >= claims.get("exp", now) + CLOCK_SKEW_S:
        return "it has expired"
    if max(claims.get("nbf", 0), claims.get("iat", 0)) > now + CLOCK_SKEW_S:
        return "it is not valid yet"
    return ""


def is_access_token(claims: Mapping[str, Any]) -> bool:
    """Return False for an ID, refresh or logout token, as far as its claims show it."""
    for name in ("typ", "token_use"):
        kind = claims.get(name)
        if isinstance(kind, str) and kind.lower() in _OTHER_TYPES:
            return False
    if "events" in claims or any(name in claims for name in _ID_TOKEN_CLAIMS):
        return False
    # An ID token answers a nonce and has no scope; some issuers copy the nonce to access tokens.
    return "nonce" not in claims or "scope" in claims or "scp" in claims


def is_bearer_access_token(answer: Mapping[str, Any]) -> bool:
    """Return False where an answer of introspection shows that the token is no access token."""
    kind = answer.get("token_type", "bearer")
    is_bearer = isinstance(kind, str) and kind.lower() in ("bearer", "access_token")
    return is_bearer and is_access_token(answer)


def build_principal(
    claims: Mapping[str, Any], settings: IssuerConfig, audiences: Audiences, expires_at: float
) -> Principal | Rejection:
    """Return on whose behalf a token of this issuer is, whose times were checked."""
    if "cnf" in claims:
        return _reject("it is bound to a key, and what proves that is not checked here")
    opened = audiences.find_profiles(claims.get("aud"))
    if opened is None:
        return _reject("it is meant for another audience than this gateway")
    subject = claims.get(settings.subject_claim)
    if not _is_name(subject):
        return _reject(
            f"its {settings.subject_claim} is no text of up to {_MAX_NAME_CHARS} characters"
        )
    if settings.subject_claim == "email" and claims.get("email_verified") in (False, "false"):
        return _reject("its issuer has not verified the email address", 403)
    groups = _read_groups(claims, settings.groups_claim)
    if isinstance(groups, Rejection):
        return groups
    scopes = _read_scopes(claims)
    missing = [scope for scope in settings.required_scopes if scope not in scopes]
    if missing:
        return _reject(f"it lacks the scope {' '.join(missing)}", 403)
    granted = _find_granted(settings, scopes, groups)
    profiles = _intersect(granted, opened)
    if profiles is None:
        return _reject("neither its scopes nor its groups open anything here", 403)
    identifier = claims.get("jti")
    return Principal(
        settings.issuer,
        subject,
        _read_name(claims, settings.name_claim) or subject,
        credential=identifier if _is_name(identifier) else "",
        profiles=profiles,
        is_read_only=settings.read_only,
        groups=groups,
        expires_at=expires_at,
    )


def _reject(reason: str, status: Any = 401) -> Rejection:
    return Rejection(reason, status, is_forged=False)


def _find_granted(
    settings: IssuerConfig, scopes: Sequence[str], groups: Sequence[str]
) -> tuple[str, ...] | None:
    """Return the profiles that scopes and groups open; empty: all, None: none."""
    if not settings.profiles:
        return ()
    held = {*(f"scope:{scope}" for scope in scopes), *(f"group:{group}" for group in groups)}
    granted = [name for name, grants in settings.profiles.items() if not held.isdisjoint(grants)]
    if EVERY_PROFILE in granted:
        return ()
    return tuple(granted) or None


def _intersect(granted: tuple[str, ...] | None, opened: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the profiles in both, where an empty one is all; None: none."""
    if granted is None or not opened:
        return granted
    if not granted:
        return opened
    return tuple(name for name in granted if name in opened) or None


def _read_scopes(claims: Mapping[str, Any]) -> tuple[str, ...]:
    value = claims.get("scope", claims.get("scp", ""))
    if isinstance(value, str):
        return tuple(value.split())
    if isinstance(value, list):
        return tuple(item for item in cast("list[Any]", value) if isinstance(item, str))
    return ()


def _read_groups(claims: Mapping[str, Any], path: str) -> tuple[str, ...] | Rejection:
    """Return the groups. Those that cannot all be read are refused: rules may deny by a group."""
    elsewhere = claims.get("_claim_names")
    if isinstance(elsewhere, Mapping) and path in elsewhere:
        return _reject("it has too many groups, so that its issuer left them out", 403)
    value = find_claim(claims, path)
    if value is None:
        return ()
    items: list[Any] = [value] if isinstance(value, str) else value
    if not isinstance(value, str | list) or len(items) > MAX_GROUPS:
        return _reject(f"its {path} is no list of up to {MAX_GROUPS:,} names", 403)
    if not all(_is_name(item, _MAX_GROUP_CHARS) for item in items):
        return _reject(f"its {path} has an entry that is no name", 403)
    return tuple(dict.fromkeys(items))


def find_claim(claims: Mapping[str, Any], path: str) -> Any:
    """Return a claim by its name, or by a path of names with dots; None if there is none."""
    if path in claims:
        return claims[path]
    value: Any = claims
    for step in path.split(".", _MAX_PATH_STEPS):
        if not isinstance(value, Mapping):
            return None
        value = cast("Mapping[str, Any]", value).get(step)
    return value


def _read_name(claims: Mapping[str, Any], names: Sequence[str]) -> str:
    found = (claims.get(name) for name in names)
    return next((value for value in found if _is_name(value)), "")


def _is_name(value: Any, max_chars: int = _MAX_NAME_CHARS) -> TypeGuard[str]:
    """Return whether a value is text that fits into a line of a log."""
    return isinstance(value, str) and 0 < len(value) <= max_chars and value.isprintable()


def _is_time(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and _is_finite(value)


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value) and value >= 0
    except OverflowError:  # an integer beyond what a float holds
        return False
