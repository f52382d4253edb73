"""Requests to a token endpoint, and what its answers mean. Pure.

An answer is tokens, trouble that passes (AuthorizationUnavailable), or a refusal (TokenRefused): of
the client, or of what it brought.
"""

import base64
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal
from urllib.parse import quote

from portico.errors import BackendUnavailable
from portico.json_text.json_codec import to_object
from portico.upstream.oauth.authorization_http import AuthorizationUnavailable, HttpAnswer
from portico.upstream.oauth.credential import (
    AuthMethod,
    OAuthCredential,
    RegisteredClient,
    SubjectTokens,
)
from portico.upstream.transports.http_headers import redact_url

ASSERTION_LIFETIME_S = 120
_SHOWN_CHARS = 200
_MAX_TOKEN_CHARS = 16_384
_MAX_LIFETIME_S = 10 * 365 * 86_400
_CLIENT_ERRORS = ("invalid_client", "unauthorized_client")
_PASSING_ERRORS = ("temporarily_unavailable", "server_error", "slow_down")
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"  # noqa: S105 - no token
ACCESS_TOKEN_TYPE = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - no token
ID_TOKEN_TYPE = "urn:ietf:params:oauth:token-type:id_token"  # noqa: S105 - no token
ID_JAG_TYPE = "urn:ietf:params:oauth:token-type:id-jag"
_ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


class TokenRefused(Exception):
    """The authorization server refuses: the `client` (invalid_client), or the `grant`."""

    def __init__(self, what: Literal["client", "grant"], reason: str) -> None:
        super().__init__(reason)
        self.what = what
        self.reason = reason


@dataclass(frozen=True)
class ClientSecrets:
    """What the configured client proves with who it is."""

    client_secret: str = ""
    private_key: str = ""


@dataclass(frozen=True)
class TokenAnswer:
    access_token: str
    refresh_token: str
    scope: str | None
    expires_in: float | None
    is_bound: bool = False
    """Whether the access token is bound to the key that was proved (DPoP)."""


def build_code_form(
    client: RegisteredClient, code: str, verifier: str, redirect_uri: str, resource: str
) -> dict[str, str]:
    return {
        "grant_type": "authorization_code",
        "client_id": client.client_id,
        "code": code,
        "code_verifier": verifier,
        "redirect_uri": redirect_uri,
        "resource": resource,
    }


def build_refresh_form(credential: OAuthCredential) -> dict[str, str]:
    return {
        "grant_type": "refresh_token",
        "client_id": credential.client.client_id,
        "refresh_token": credential.refresh_token,
        "resource": credential.resource,
    }


def build_client_credentials_form(
    client: RegisteredClient, scope: str | None, resource: str
) -> dict[str, str]:
    form = {"grant_type": "client_credentials", "resource": resource}
    if client.auth_method != "client_secret_basic":
        form["client_id"] = client.client_id
    if scope:
        form["scope"] = scope
    return form


def build_assertion_form(
    client: RegisteredClient, assertion: str, scope: str | None, resource: str
) -> dict[str, str]:
    """RFC 7523: a token for an assertion of who it is for."""
    form = {"grant_type": JWT_BEARER, "assertion": assertion, "resource": resource}
    if client.auth_method != "client_secret_basic":
        form["client_id"] = client.client_id
    if scope:
        form["scope"] = scope
    return form


def build_exchange_form(
    subject: SubjectTokens,
    requested_type: str,
    audience: str,
    resource: str,
    scope: str | None,
) -> dict[str, str]:
    """RFC 8693: another token for the one by which a person came. `audience` and `resource` may be
    empty. An assertion is asked for by the id token, if there is one."""
    uses_id_token = bool(subject.id_token) and (
        requested_type == ID_JAG_TYPE or not subject.access_token
    )
    form = {
        "grant_type": TOKEN_EXCHANGE,
        "subject_token": subject.id_token if uses_id_token else subject.access_token,
        "subject_token_type": ID_TOKEN_TYPE if uses_id_token else ACCESS_TOKEN_TYPE,
        "requested_token_type": requested_type,
        "audience": audience,
        "resource": resource,
        "scope": scope or "",
    }
    return {name: value for name, value in form.items() if value}


def build_on_behalf_of_form(subject: SubjectTokens, scope: str | None) -> dict[str, str]:
    """What Entra has in place of RFC 8693."""
    form = {
        "grant_type": JWT_BEARER,
        "assertion": subject.access_token or subject.id_token,
        "requested_token_use": "on_behalf_of",
        "scope": scope or "",
    }
    return {name: value for name, value in form.items() if value}


def choose_auth_method(client_secrets: ClientSecrets, supported: list[str] | None) -> AuthMethod:
    """Choose how a configured client proves who it is; without metadata: the standard's default."""
    if client_secrets.private_key:
        return "private_key_jwt"
    if not client_secrets.client_secret:
        return "none"
    if supported and "client_secret_basic" not in supported and "client_secret_post" in supported:
        return "client_secret_post"
    return "client_secret_basic"


def authenticate(
    form: dict[str, str],
    client: RegisteredClient,
    client_secrets: ClientSecrets,
    issuer: str,
    now: float,
) -> tuple[dict[str, str], dict[str, str]]:
    """Add the client's proof of who it is; return the form and headers."""
    secret = client.client_secret or client_secrets.client_secret
    match client.auth_method:
        case "client_secret_basic":
            pair = f"{quote(client.client_id, safe='')}:{quote(secret, safe='')}"
            token = base64.b64encode(pair.encode()).decode()
            return form, {"authorization": f"Basic {token}"}
        case "client_secret_post":
            return {**form, "client_id": client.client_id, "client_secret": secret}, {}
        case "private_key_jwt":
            proof = {
                "client_id": client.client_id,
                "client_assertion_type": _ASSERTION_TYPE,
                "client_assertion": sign_assertion(
                    client.client_id, client_secrets.private_key, issuer, now
                ),
            }
            return {**form, **proof}, {}
        case "none":
            return {**form, "client_id": client.client_id}, {}


def sign_assertion(client_id: str, private_key: str, issuer: str, now: float) -> str:
    """Return a JWT by which the client proves that it has its private key (RFC 7523)."""
    import jwt
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key: Any = load_pem_private_key(private_key.strip().encode(), None)
    except (ValueError, TypeError) as error:
        raise make_key_error() from error
    if isinstance(key, rsa.RSAPrivateKey):
        algorithm = "RS256"
    elif isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.name in _CURVES:
        algorithm = _CURVES[key.curve.name]
    elif isinstance(key, ed25519.Ed25519PrivateKey):
        algorithm = "EdDSA"
    else:
        raise make_key_error()
    claims = {
        "iss": client_id,
        "sub": client_id,
        "aud": issuer,
        "iat": int(now),
        "exp": int(now) + ASSERTION_LIFETIME_S,
        "jti": secrets.token_urlsafe(16),
    }
    return jwt.encode(claims, key, algorithm=algorithm)


_CURVES = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}


def make_key_error() -> BackendUnavailable:
    error = BackendUnavailable(
        "the configured private_key cannot be used",
        advice="It is an RSA, EC or Ed25519 key in PEM, without a password: `${file:key.pem}`.",
    )
    error.retryable = False
    return error


def parse_token_answer(
    answer: HttpAnswer, endpoint: str, expected_type: str = "bearer", *, may_be_bound: bool = False
) -> TokenAnswer:
    """Return the tokens. `may_be_bound`: a key was proved. Raises TokenRefused,
    AuthorizationUnavailable."""
    try:
        body = to_object(json.loads(answer.body))
    except (ValueError, RecursionError):
        body = {}
    access_token = body.get("access_token")
    if answer.status in (200, 201) and _is_token(access_token):
        token_type = body.get("token_type", "Bearer")
        kind = token_type.lower() if isinstance(token_type, str) else ""
        is_bound = may_be_bound and kind == "dpop"
        if kind != expected_type and not is_bound:
            raise TokenRefused("grant", "it issued a token that is no bearer token")
        refresh_token = body.get("refresh_token")
        scope = body.get("scope")
        return TokenAnswer(
            str(access_token),
            str(refresh_token) if _is_token(refresh_token) else "",
            scope if isinstance(scope, str) else None,
            _parse_lifetime(body.get("expires_in")),
            is_bound,
        )
    error = body.get("error")
    # Only an authorization server says so: what a proxy in front of it answers, passes.
    is_refusal = answer.status in (400, 401, 403) and isinstance(error, str)
    if is_refusal and error not in _PASSING_ERRORS:
        what = "client" if error in _CLIENT_ERRORS else "grant"
        raise TokenRefused(what, describe_error(body))
    raise AuthorizationUnavailable(
        f"the authorization server {redact_url(endpoint)} answered HTTP {answer.status}"
        " without tokens",
        advice="Try again in a minute.",
    )


def describe_error(body: Mapping[str, Any]) -> str:
    """Return an error as its server put it, shortened and on one line."""
    error = str(body.get("error", ""))
    description = body.get("error_description")
    text = f"{error}: {description}" if isinstance(description, str) else error
    printable = "".join(char if char.isprintable() else " " for char in text)
    return " ".join(printable.split())[:_SHOWN_CHARS]


def make_credential(
    answer: TokenAnswer,
    client: RegisteredClient,
    *,
    issuer: str,
    token_endpoint: str,
    resource: str,
    requested_scope: str | None,
    now: float,
    dpop_key: str = "",
) -> OAuthCredential:
    expires_at = None if answer.expires_in is None else now + answer.expires_in
    return OAuthCredential(
        issuer,
        token_endpoint,
        resource,
        client,
        answer.access_token,
        answer.refresh_token,
        answer.scope if answer.scope is not None else (requested_scope or ""),
        now,
        expires_at,
        dpop_key=dpop_key if answer.is_bound else "",
    )


def renew_credential(old: OAuthCredential, answer: TokenAnswer, now: float) -> OAuthCredential:
    """Return a credential with renewed tokens; what the answer leaves out stays as it was."""
    return replace(
        old,
        access_token=answer.access_token,
        refresh_token=answer.refresh_token or old.refresh_token,
        scope=old.scope if answer.scope is None else answer.scope,
        obtained_at=now,
        expires_at=None if answer.expires_in is None else now + answer.expires_in,
        refresh_problem="",
    )


def _is_token(value: object) -> bool:
    """Return whether it can be sent in a header (RFC 6750)."""
    return (
        isinstance(value, str)
        and 0 < len(value) <= _MAX_TOKEN_CHARS
        and value.isascii()
        and value.isprintable()
        and " " not in value
    )


def _parse_lifetime(value: object) -> float | None:
    if isinstance(value, str) and value.isdigit():
        value = int(value[:12])
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if 0 <= value <= _MAX_LIFETIME_S else None
