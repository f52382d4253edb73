"""The identity provider: sends people there, and reads who came back.

What it issues is used here only, to say who somebody is and whether they are still there; no client
and no server gets any of it.
"""

import base64
import hmac
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import quote_plus

import httpx2

from portico.auth.claims import check_times, find_claim
from portico.auth.issuer_client import (
    IssuerClient,
    IssuerUnavailable,
    discover,
    read_endpoint,
)
from portico.auth.issuer_keys import IssuerKeys
from portico.auth.proxy.json_requests import JSON_HEADERS, RequestFailed, fetch_json
from portico.auth.proxy.providers import ProviderQuirks, find_quirks
from portico.auth.proxy.redirect_uris import add_to_query
from portico.auth.public_keys import is_signed_by
from portico.auth.signed_token import MalformedToken, parse_signed_token
from portico.config.auth import IssuerConfig
from portico.config.auth_proxy import ProxyConfig
from portico.errors import PorticoError

METADATA_S = 3_600.0
"""Seconds for which the provider's metadata are used before they are fetched again."""
_PAGE_SIZE = 100
_MAX_PAGES = 10
_GONE = ("invalid_grant", "bad_verification_code", "bad_refresh_token")
"""Errors that say that a code or refresh token is no longer valid; the last two are GitHub's."""


class IdentityUnconfirmed(PorticoError):
    """The identity provider did not say who signed in, in a way that can be believed."""

    kind = "unauthorized"


class PersonGone(IdentityUnconfirmed):
    """The identity provider no longer vouches for a person."""


@dataclass(frozen=True)
class SignedInPerson:
    claims: Mapping[str, Any]
    """What the provider says of the person; empty: nothing new."""
    renewal: str
    """What it confirms the person by later; empty: nothing."""
    access_token: str = field(default="", repr=False)
    id_token: str = field(default="", repr=False)


class IdentityProvider:
    """For one event loop. RequestFailed or IssuerUnavailable is raised where it does not answer."""

    def __init__(
        self,
        issuer: IssuerConfig,
        proxy: ProxyConfig,
        http: httpx2.AsyncClient,
        client: IssuerClient,
        *,
        quirks: ProviderQuirks | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`client` fetches metadata and keys. `quirks` replaces those of the issuer."""
        self.issuer = issuer.issuer
        self._settings = issuer
        self._proxy = proxy
        self._secret = proxy.client_secret.get_secret_value() if proxy.client_secret else ""
        self._quirks = quirks or find_quirks(issuer.issuer)
        self._http = http
        self._client = client
        self._clock = clock
        self._keys = IssuerKeys(issuer, client)
        self._metadata: Mapping[str, Any] | None = None
        self._metadata_until = 0.0

    async def build_authorization_url(
        self, redirect_uri: str, state: str, challenge: str, nonce: str
    ) -> str:
        """Return where a person signs in."""
        params = {
            "response_type": "code",
            "client_id": self._proxy.client_id,
            "redirect_uri": redirect_uri,
            "scope": " ".join(self._proxy.scopes or self._quirks.scopes),
            "state": state,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            **({"nonce": nonce} if self._quirks.has_openid else {}),
            **self._quirks.authorize_params,
        }
        return add_to_query(await self._find_endpoint("authorization_endpoint"), params)

    async def check_answer(self, params: Mapping[str, str]) -> None:
        """Raise IdentityUnconfirmed unless an answer is of this provider, where it says so or
        has to (RFC 9207)."""
        metadata = await self._load_metadata()
        has_to = metadata.get("authorization_response_iss_parameter_supported") is True
        if ("iss" in params or has_to) and params.get("iss") != self.issuer:
            raise IdentityUnconfirmed("the answer is of another identity provider")

    async def redeem(
        self, code: str, verifier: str, nonce: str, redirect_uri: str
    ) -> SignedInPerson:
        """Return who signed in; raises IdentityUnconfirmed."""
        answer = await self._request_token(
            grant_type="authorization_code",
            code=code,
            redirect_uri=redirect_uri,
            code_verifier=verifier,
        )
        if not self._quirks.has_openid:
            return await self._read_api_user(_read_text(answer, "access_token"))
        claims = await self._verify_id_token(_read_text(answer, "id_token"))
        if not hmac.compare_digest(_read_text(claims, "nonce").encode(), nonce.encode()):
            raise IdentityUnconfirmed("the id token was made for another sign-in")
        claims = await self._add_userinfo(claims, answer)
        return _make_person(claims, _read_text(answer, "refresh_token"), answer)

    async def confirm(self, renewal: str, subject: str) -> SignedInPerson:
        """Return what the provider says now of a person who is still there; raises PersonGone."""
        if not self._quirks.has_openid:
            person = await self._read_api_user(renewal)
        else:
            answer = await self._request_token(grant_type="refresh_token", refresh_token=renewal)
            claims: Mapping[str, Any] = {}
            if id_token := _read_text(answer, "id_token"):
                claims = await self._verify_id_token(id_token)
            claims = await self._add_userinfo(claims, answer)
            renewal = _read_text(answer, "refresh_token") or renewal
            person = _make_person(claims, renewal, answer)
        if person.claims and person.claims.get(self._settings.subject_claim) != subject:
            raise PersonGone("the identity provider named another person")
        return person

    async def close(self) -> None:
        await self._keys.close()

    async def _verify_id_token(self, text: str) -> Mapping[str, Any]:
        """Return the claims of an id token that is for this client; raises IdentityUnconfirmed."""
        try:
            token = parse_signed_token(text)
        except MalformedToken as error:
            raise IdentityUnconfirmed(f"the id token is refused: {error}") from None
        keys = []
        if token.algorithm in self._settings.algorithms:
            keys = await self._keys.find(token)
        if not any(is_signed_by(token, key) for key in keys):
            raise IdentityUnconfirmed("the id token is refused: its signature is not of its issuer")
        claims = token.claims
        if claims.get("iss") not in (self.issuer, *self._quirks.other_issuers):
            raise IdentityUnconfirmed("the id token is refused: it is of another issuer")
        audience = claims.get("aud")
        if self._proxy.client_id not in (audience if isinstance(audience, list) else [audience]):
            raise IdentityUnconfirmed("the id token is refused: it is for another client")
        if claims.get("azp", self._proxy.client_id) != self._proxy.client_id:
            raise IdentityUnconfirmed("the id token is refused: it is for another client")
        problem = check_times(claims, self._clock())
        if problem or "exp" not in claims:
            raise IdentityUnconfirmed(f"the id token is refused: {problem or 'it never expires'}")
        return claims

    async def _add_userinfo(
        self, claims: Mapping[str, Any], answer: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Return the claims, with those of the userinfo endpoint where they lack the groups.

        Userinfo of another subject is refused (OpenID Connect Core §5.3.2).
        """
        token = _read_text(answer, "access_token")
        metadata = await self._load_metadata()
        has_groups = find_claim(claims, self._settings.groups_claim) is not None
        if has_groups or "userinfo_endpoint" not in metadata:
            return claims
        status, info = await self._get(await self._find_endpoint("userinfo_endpoint"), token)
        if status != 200 or not isinstance(info, dict):
            return claims
        known = cast("dict[str, Any]", info)
        if claims and known.get("sub") != claims.get("sub"):
            raise IdentityUnconfirmed("the identity provider's userinfo is of another person")
        return {**known, **claims}

    async def _read_api_user(self, token: str) -> SignedInPerson:
        """Return who has a token, where there is no OpenID Connect (GitHub)."""
        status, user = await self._get(f"{self._quirks.api}/user", token)
        if status == 401:
            raise PersonGone("the identity provider no longer accepts the person's token")
        if status != 200 or not isinstance(user, dict):
            raise RequestFailed("the identity provider does not say who it is")
        known = cast("dict[str, Any]", user)
        login = _read_text(known, "login")
        if not isinstance(known.get("id"), int) or not login:
            raise RequestFailed("the identity provider does not say who it is")
        claims = {
            "sub": str(known["id"]),
            "name": _read_text(known, "name") or login,
            "preferred_username": login,
            "groups": await self._read_organizations(token),
        }
        return SignedInPerson(claims, token)

    async def _read_organizations(self, token: str) -> list[str]:
        """Return all organizations of a person: rules may deny by any of them."""
        names: list[str] = []
        for page in range(1, _MAX_PAGES + 1):
            url = f"{self._quirks.api}/user/orgs?per_page={_PAGE_SIZE}&page={page}"
            status, found = await self._get(url, token)
            if status != 200 or not isinstance(found, list):
                raise RequestFailed("the identity provider does not say which organizations")
            entries = cast("list[dict[str, Any]]", found)
            names += [_read_text(one, "login") for one in entries]
            if len(entries) < _PAGE_SIZE:
                return names
        raise IdentityUnconfirmed("the person is in more organizations than can be read")

    async def _request_token(self, **form: str) -> Mapping[str, Any]:
        """Return the answer of the token endpoint; raises PersonGone for a refused grant."""
        headers = dict(JSON_HEADERS)
        if not self._secret:
            form["client_id"] = self._proxy.client_id
        elif await self._uses_basic_authentication():
            # Both are encoded as in a form (RFC 6749 §2.3.1).
            name = quote_plus(self._proxy.client_id)
            headers["Authorization"] = _encode_basic(name, quote_plus(self._secret))
        else:
            form |= {"client_id": self._proxy.client_id, "client_secret": self._secret}
        url = await self._find_endpoint("token_endpoint")
        request = self._http.build_request("POST", url, data=form, headers=headers)
        status, answer = await fetch_json(self._http, request)
        fields = cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}
        error = _read_text(fields, "error")
        if error in _GONE:
            raise PersonGone("the identity provider refused the sign-in")
        # GitHub answers errors with 200.
        if status != 200 or error or not _read_text(fields, "access_token"):
            raise RequestFailed(
                f"the identity provider's token endpoint answered {error[:60] or status}"
            )
        return fields

    async def _get(self, url: str, token: str) -> tuple[int, Any]:
        headers = {**JSON_HEADERS, "Authorization": f"Bearer {token}"}
        return await fetch_json(self._http, self._http.build_request("GET", url, headers=headers))

    async def _uses_basic_authentication(self) -> bool:
        methods = (await self._load_metadata()).get("token_endpoint_auth_methods_supported")
        return self._quirks.has_openid and (not isinstance(methods, list) or _BASIC in methods)

    async def _find_endpoint(self, name: str) -> str:
        known = self._quirks.endpoints.get(name)
        return known or read_endpoint(await self._load_metadata(), name, self.issuer)

    async def _load_metadata(self) -> Mapping[str, Any]:
        """Return the provider's metadata; the last ones where it does not answer."""
        if not self._quirks.has_openid:
            return {}
        if self._metadata is None or self._clock() >= self._metadata_until:
            try:
                self._metadata = await discover(self._client, self.issuer)
            except IssuerUnavailable:
                if self._metadata is None:
                    raise
            self._metadata_until = self._clock() + METADATA_S
        return self._metadata


_BASIC = "client_secret_basic"


def _make_person(
    claims: Mapping[str, Any], renewal: str, answer: Mapping[str, Any]
) -> SignedInPerson:
    return SignedInPerson(
        claims, renewal, _read_text(answer, "access_token"), _read_text(answer, "id_token")
    )


def _encode_basic(name: str, secret: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{secret}".encode()).decode()


def _read_text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""
