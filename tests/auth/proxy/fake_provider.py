"""An identity provider of our own, which does what a test wants, also what none should."""

import json
import secrets
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, urlencode

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from portico.auth.proxy.credentials import compute_challenge

CLIENT_ID = "portico-at-the-provider"
CLIENT_SECRET = "secret of the gateway"
_KEY = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
_OTHER_KEY = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)


class FakeProvider:
    """`issuer` is set once it listens."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.issuer = ""
        self.people: dict[str, dict[str, Any]] = {"ana": {"name": "Ana", "groups": ["dev"]}}
        self.gone: set[str] = set()
        self.metadata: dict[str, Any] = {}
        """Changes of its metadata."""
        self.change_claims: Callable[[dict[str, Any]], None] = lambda _: None
        self.answer_params: dict[str, str] = {}
        """Parameters added to what it sends back through the browser."""
        self.signs_with_other_key = False
        self.gives_refresh_tokens = True
        self.status = 200
        """Of the token endpoint."""
        self.codes: dict[str, dict[str, str]] = {}
        self.refresh_tokens: dict[str, str] = {}
        """Person by refresh token; each is valid once."""
        self.issued: list[str] = []
        """Every token and code that it gave out."""
        self.authorization_requests: list[dict[str, str]] = []
        self.app = Starlette(
            routes=[
                Route("/.well-known/openid-configuration", self._describe),
                Route("/authorize", self._authorize),
                Route("/token", self._token, methods=["POST"]),
                Route("/jwks", self._keys),
                Route("/userinfo", self._userinfo),
            ]
        )

    async def _describe(self, _: Request) -> Response:
        return JSONResponse(
            {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/jwks",
                "userinfo_endpoint": f"{self.issuer}/userinfo",
                **self.metadata,
            }
        )

    async def _authorize(self, request: Request) -> Response:
        params = dict(request.query_params)
        self.authorization_requests.append(params)
        code = self._remember(secrets.token_urlsafe(16))
        self.codes[code] = params
        answer = {"code": code, "state": params["state"], **self.answer_params}
        return RedirectResponse(f"{params['redirect_uri']}?{urlencode(answer)}", 302)

    async def _token(self, request: Request) -> Response:
        form = {key: values[0] for key, values in parse_qs((await request.body()).decode()).items()}
        if self.status != 200:
            return JSONResponse({"error": "server_error"}, self.status)
        if request.headers.get("authorization", "").partition(" ")[0] != "Basic":
            return JSONResponse({"error": "invalid_client"}, 401)
        nonce = ""
        if form["grant_type"] == "authorization_code":
            asked = self.codes.pop(form["code"], None)
            if asked is None or compute_challenge(form["code_verifier"]) != asked["code_challenge"]:
                return JSONResponse({"error": "invalid_grant"}, 400)
            person = asked.get("login_hint", "ana")
            nonce = asked["nonce"]
        else:
            person = self.refresh_tokens.pop(form["refresh_token"], "")
        if not person or person in self.gone:
            return JSONResponse({"error": "invalid_grant"}, 400)
        answer = {
            "access_token": self._remember(f"{person}-{secrets.token_urlsafe(16)}"),
            "token_type": "Bearer",
            "id_token": self._remember(self.sign(person, nonce)),
        }
        if self.gives_refresh_tokens:
            answer["refresh_token"] = self._remember(secrets.token_urlsafe(16))
            self.refresh_tokens[answer["refresh_token"]] = person
        return JSONResponse(answer)

    def sign(self, person: str, nonce: str) -> str:
        now = int(self._clock())
        claims: dict[str, Any] = {
            "iss": self.issuer,
            "sub": person,
            "aud": CLIENT_ID,
            "iat": now,
            "exp": now + 300,
            **self.people.get(person, {"name": person}),
        }
        if nonce:
            claims["nonce"] = nonce
        self.change_claims(claims)
        key = _OTHER_KEY if self.signs_with_other_key else _KEY
        return jwt.encode(claims, key, "RS256", headers={"kid": "one"})

    async def _keys(self, _: Request) -> Response:
        key: Mapping[str, Any] = json.loads(RSAAlgorithm.to_jwk(_KEY.public_key()))
        return JSONResponse({"keys": [{**key, "kid": "one", "alg": "RS256", "use": "sig"}]})

    async def _userinfo(self, request: Request) -> Response:
        person = request.headers["authorization"].removeprefix("Bearer ").partition("-")[0]
        return JSONResponse({"sub": person, **self.people.get(person, {})})

    def _remember(self, text: str) -> str:
        self.issued.append(text)
        return text
