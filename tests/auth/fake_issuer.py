"""An issuer of our own on loopback, which signs what it is asked to and fails as it is told to.

async with run_issuer() as issuer:
    token = issuer.sign({**issuer.claims("ana"), "groups": ["dev"]})
"""

import base64
import json
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Any
from urllib.parse import parse_qs

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt import PyJWK, PyJWS
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from tests.upstream.loopback_server import serve

AUDIENCE = "https://portico.example/mcp"
"""What the gateway of the tests is to issuers."""
Answer = Callable[[Any], Awaitable[None]]
"""Sends a whole HTTP answer."""
Jwk = dict[str, Any]
_JWS = PyJWS()


@cache
def make_key(kid: str, kind: str = "RSA", size: int = 2_048) -> Any:
    """A private key, the same for the same id: making one of RSA takes long."""
    if kind == "RSA":
        return rsa.generate_private_key(public_exponent=65_537, key_size=size)
    if kind == "OKP":
        return ed25519.Ed25519PrivateKey.generate()
    curve = {"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1(), "P-521": ec.SECP521R1()}[kind]
    return ec.generate_private_key(curve)


def to_jwk(key: Any, kid: str | None = None, **members: Any) -> Jwk:
    """The JWK of a private or public key."""
    if isinstance(key, rsa.RSAPrivateKey | rsa.RSAPublicKey):
        jwk = RSAAlgorithm.to_jwk(key, as_dict=True)
    elif isinstance(key, ec.EllipticCurvePrivateKey | ec.EllipticCurvePublicKey):
        jwk = ECAlgorithm.to_jwk(key, as_dict=True)
    else:
        jwk = OKPAlgorithm.to_jwk(key, as_dict=True)
    jwk.pop("key_ops", None)
    return {**jwk, **({"kid": kid} if kid else {}), **members}


def encode(data: bytes | Mapping[str, Any]) -> str:
    """Base64url of bytes, or of an object as JSON."""
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def sign(key: Any, header: Mapping[str, Any], payload: bytes) -> str:
    """A token with exactly this header and payload, whatever they are."""
    signing_input = f"{encode(header)}.{encode(payload)}"
    if isinstance(key, bytes):
        signature = _JWS.get_algorithm_by_name(header["alg"]).sign(signing_input.encode(), key)
    else:
        signer = PyJWK(to_jwk(key), header["alg"])
        signature = signer.Algorithm.sign(signing_input.encode(), key)
    return f"{signing_input}.{encode(signature)}"


class FakeIssuer:
    def __init__(self, kind: str = "RSA") -> None:
        self.url = ""
        self.kid = f"{kind} key"
        self.key = make_key(self.kid, kind)
        self.keys: list[Jwk] = [to_jwk(self.key.public_key(), self.kid, use="sig")]
        """What its key set lists."""
        self.metadata: dict[str, Any] = {}
        """Changes of its metadata."""
        self.introspected: dict[str, Mapping[str, Any]] = {}
        """Answers of introspection by token; others are inactive."""
        self.forms: list[dict[str, str]] = []
        """What was introspected."""
        self.faults: dict[str, Answer] = {}
        """By path, what is sent instead of the answer."""
        self.requests: Counter[str] = Counter()

    def claims(self, subject: str = "ana", **changes: Any) -> dict[str, Any]:
        """Claims of a token that is valid for ten minutes."""
        now = int(time.time())
        own = {"iss": self.url, "sub": subject, "aud": AUDIENCE, "iat": now, "exp": now + 600}
        return {**own, **changes}

    def sign(self, claims: Mapping[str, Any] | bytes | None = None, **header: Any) -> str:
        payload = self.claims() if claims is None else claims
        text = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        alg = {"RSA": "RS256", "OKP": "EdDSA", "P-256": "ES256"}[self.kid.removesuffix(" key")]
        full = {"alg": alg, "kid": self.kid, "typ": "at+jwt", **header}
        return sign(
            self.key, {name: value for name, value in full.items() if value is not None}, text
        )

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        path = scope["path"]
        self.requests[path] += 1
        if path in self.faults:
            await self.faults[path](send)
        elif path == "/.well-known/openid-configuration":
            metadata = {
                "issuer": self.url,
                "jwks_uri": f"{self.url}/jwks",
                "introspection_endpoint": f"{self.url}/introspect",
                **self.metadata,
            }
            await answer(send, 200, json.dumps(metadata).encode())
        elif path == "/jwks":
            await answer(send, 200, json.dumps({"keys": self.keys}).encode())
        elif path == "/introspect":
            form = parse_qs((await receive())["body"].decode())
            self.forms.append({name: values[0] for name, values in form.items()})
            said = self.introspected.get(form["token"][0], {"active": False})
            await answer(send, 200, json.dumps(said).encode())
        else:
            await answer(send, 404, b"")


async def answer(
    send: Any, status: int, body: bytes, headers: Mapping[str, str] | None = None
) -> None:
    fields = {"content-length": str(len(body)), **(headers or {})}
    encoded = [(name.encode(), value.encode()) for name, value in fields.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def run_issuer(kind: str = "RSA") -> AsyncGenerator[FakeIssuer]:
    issuer = FakeIssuer(kind)
    async with serve(issuer) as url:
        issuer.url = url
        yield issuer
