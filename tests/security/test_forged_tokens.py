"""Tokens that must not open the gateway: each row of the table is an attack, and one that gets in
by any of them is a hole."""

import base64
import gzip
import hashlib
import hmac
import json
import string
import time
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Any

import httpx2
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from portico.auth.issuer_verifier import IssuerVerifier
from portico.callers import Principal
from portico.config import IssuerConfig
from tests.auth.fake_issuer import (
    AUDIENCE,
    FakeIssuer,
    answer,
    encode,
    make_key,
    run_issuer,
    sign,
    to_jwk,
)
from tests.auth.token_gateway import CAME_IN, post, post_token, serve_gateway


def forge(issuer: FakeIssuer, claims: Mapping[str, Any] | None = None, **header: Any) -> str:
    """A token signed by somebody else's key of the same kind."""
    full = {"alg": "RS256", "kid": issuer.kid, "typ": "at+jwt", **header}
    payload = json.dumps(claims or issuer.claims()).encode()
    return sign(make_key("the attacker's"), full, payload)


def sign_by_public_key(issuer: FakeIssuer, form: str) -> str:
    """A token whose shared secret is the public key, in one of its forms."""
    public = issuer.key.public_key()
    if form == "jwk":
        secret = json.dumps(issuer.keys[0]).encode()
    elif form == "modulus":
        secret = base64.urlsafe_b64decode(issuer.keys[0]["n"] + "==")
    else:
        kind = PublicFormat.PKCS1 if form == "pkcs1" else PublicFormat.SubjectPublicKeyInfo
        secret = public.public_bytes(Encoding.DER if form == "der" else Encoding.PEM, kind)
    header = {"alg": "HS256", "kid": issuer.kid, "typ": "at+jwt"}
    signing_input = f"{encode(header)}.{encode(issuer.claims())}"
    digest = hmac.new(secret, signing_input.encode(), hashlib.sha256).digest()
    return f"{signing_input}.{encode(digest)}"


def unsigned(issuer: FakeIssuer, algorithm: str, signature: str = "") -> str:
    return f"{encode({'alg': algorithm, 'typ': 'JWT'})}.{encode(issuer.claims())}.{signature}"


def change(issuer: FakeIssuer, **claims: Any) -> str:
    """A token of the issuer with changed claims; None leaves one out."""
    changed = issuer.claims(**claims)
    return issuer.sign({name: value for name, value in changed.items() if value is not None})


def tamper(issuer: FakeIssuer) -> str:
    header, _, signature = issuer.sign().split(".")
    return f"{header}.{encode(issuer.claims('root'))}.{signature}"


def splice(issuer: FakeIssuer) -> str:
    """The signature of one token under another of the same issuer."""
    other = issuer.sign(issuer.claims("bob")).rpartition(".")[0]
    return f"{other}.{issuer.sign().rpartition('.')[2]}"


def doubled_claim(issuer: FakeIssuer) -> str:
    text = json.dumps(issuer.claims(aud="https://elsewhere.example"))
    return issuer.sign(f'{text[:-1]}, "aud": "{AUDIENCE}"}}'.encode())


def doubled_header(issuer: FakeIssuer) -> str:
    text = json.dumps({"alg": "RS256", "kid": issuer.kid})
    header = encode(f'{text[:-1]}, "alg": "none"}}'.encode())
    return f"{header}.{encode(issuer.claims())}.{issuer.sign().rpartition('.')[2]}"


def nest(depth: int) -> bytes:
    return b'{"a":' * depth + b"1" + b"}" * depth


NOW = time.time
ATTACKS: dict[str, Callable[[FakeIssuer], str]] = {
    # signatures
    "another key under the right kid": forge,
    "changed claims": tamper,
    "signature of another token": splice,
    "empty signature": lambda idp: idp.sign().rpartition(".")[0] + ".",
    "no signature at all": lambda idp: idp.sign().rpartition(".")[0],
    "half a signature": lambda idp: idp.sign()[:-100],
    "signature with more after it": lambda idp: idp.sign() + "AAAA",
    "alg none": lambda idp: unsigned(idp, "none"),
    "alg None": lambda idp: unsigned(idp, "None", "AAAA"),
    "alg nOnE": lambda idp: unsigned(idp, "nOnE", "AAAA"),
    "alg empty": lambda idp: unsigned(idp, "", "AAAA"),
    "alg a list": lambda idp: (
        f"{encode({'alg': ['RS256'], 'kid': idp.kid})}.{encode(idp.claims())}.AAAA"
    ),
    "HS256 by the public key (PEM)": lambda idp: sign_by_public_key(idp, "pem"),
    "HS256 by the public key (PKCS 1)": lambda idp: sign_by_public_key(idp, "pkcs1"),
    "HS256 by the public key (DER)": lambda idp: sign_by_public_key(idp, "der"),
    "HS256 by the public key (JWK)": lambda idp: sign_by_public_key(idp, "jwk"),
    "HS256 by the modulus": lambda idp: sign_by_public_key(idp, "modulus"),
    "HS256 by an empty secret": lambda idp: (
        f"{encode({'alg': 'HS256'})}.{encode(idp.claims())}.AAAA"
    ),
    "ES256 under the id of an RSA key": lambda idp: sign(
        make_key("ec", "P-256"),
        {"alg": "ES256", "kid": idp.kid},
        json.dumps(idp.claims()).encode(),
    ),
    "ES256 with a signature of zeros": lambda idp: (
        f"{encode({'alg': 'ES256', 'kid': idp.kid})}.{encode(idp.claims())}.{encode(bytes(64))}"
    ),
    "EdDSA under the id of an RSA key": lambda idp: sign(
        make_key("ed", "OKP"), {"alg": "EdDSA", "kid": idp.kid}, json.dumps(idp.claims()).encode()
    ),
    # keys that a token brings along, or points to
    "jwk in the header": lambda idp: forge(
        idp, jwk=to_jwk(make_key("the attacker's").public_key(), idp.kid)
    ),
    "jku in the header": lambda idp: forge(idp, jku="https://evil.example/jwks"),
    "x5u in the header": lambda idp: forge(idp, x5u="https://evil.example/cert.pem"),
    "x5c in the header": lambda idp: forge(idp, x5c=["MIIB"]),
    "jku in a header that is signed": lambda idp: idp.sign(jku="https://evil.example/jwks"),
    "kid: a path": lambda idp: forge(idp, kid="../../../../dev/null"),
    "kid: SQL": lambda idp: forge(idp, kid="x' UNION SELECT 'secret"),
    "kid: a URL": lambda idp: forge(idp, kid="https://evil.example/jwks"),
    "kid: a command": lambda idp: forge(idp, kid="|/usr/bin/id"),
    "kid: empty": lambda idp: forge(idp, kid=""),
    "kid: no text": lambda idp: idp.sign(kid=7),
    "kid: a list": lambda idp: idp.sign(kid=[idp.kid]),
    "kid: very long": lambda idp: idp.sign(kid="k" * 1_000),
    "no kid, another key": lambda idp: sign(
        make_key("the attacker's"), {"alg": "RS256"}, json.dumps(idp.claims()).encode()
    ),
    # the header
    "unknown crit": lambda idp: idp.sign(crit=["exp"], exp=1),
    "empty crit": lambda idp: idp.sign(crit=[]),
    "b64 false": lambda idp: idp.sign(crit=["b64"], b64=False),
    "zip": lambda idp: idp.sign(zip="DEF"),
    "typ: a logout token": lambda idp: idp.sign(typ="logout+jwt"),
    "typ: DPoP proof": lambda idp: idp.sign(typ="dpop+jwt"),
    "a name twice in the header": doubled_header,
    # form
    "padding": lambda idp: idp.sign().replace(".", "==.", 1),
    "standard base64": lambda idp: idp.sign() + "+/",
    "a line break inside": lambda idp: idp.sign()[:40] + "%0A" + idp.sign()[40:],
    "four parts": lambda idp: idp.sign() + ".AAAA",
    "header no JSON": lambda idp: f"{encode(b'alg=none')}.{encode(idp.claims())}.AAAA",
    "payload a list": lambda idp: idp.sign(b"[1]"),
    "payload no JSON": lambda idp: idp.sign(b"sub=root"),
    "payload deeply nested": lambda idp: idp.sign(nest(1_500)),
    "payload not UTF-8": lambda idp: idp.sign(b'{"sub": "\xff"}'),
    "payload NaN": lambda idp: idp.sign(
        json.dumps(idp.claims(exp=0)).replace('"exp": 0', '"exp": NaN').encode()
    ),
    "a token of 12,000 characters of junk": lambda _: "A" * 12_000,
    "a signed token beyond the limit": lambda idp: idp.sign(idp.claims(pad="x" * 14_000)),
    "a claim twice": doubled_claim,
    "a claim twice, once with an escape": lambda idp: idp.sign(
        json.dumps(idp.claims()).replace('"sub"', '"s\\u0075b": "root", "sub"').encode()
    ),
    "a claim twice within a claim": lambda idp: idp.sign(
        json.dumps(idp.claims(a=0)).replace('"a": 0', '"a": {"b": 1, "b": 2}').encode()
    ),
    "more after the payload": lambda idp: idp.sign(json.dumps(idp.claims()).encode() + b"{}"),
    "a byte order mark": lambda idp: idp.sign(b"\xef\xbb\xbf" + json.dumps(idp.claims()).encode()),
    "a number of 5,000 digits": lambda idp: idp.sign(
        json.dumps(idp.claims(a=0)).replace('"a": 0', f'"a": {"9" * 5_000}').encode()
    ),
    # time
    "expired": lambda idp: change(idp, exp=int(NOW()) - 60),
    "expired, as text": lambda idp: change(idp, exp=str(int(NOW()) + 600)),
    "expires never": lambda idp: change(idp, exp=None),
    "expires: infinity": lambda idp: idp.sign(
        json.dumps(idp.claims(exp=0)).replace('"exp": 0', '"exp": 1e999').encode()
    ),
    "expires: true": lambda idp: change(idp, exp=True),
    "not valid yet": lambda idp: change(idp, nbf=int(NOW()) + 300),
    "not valid yet, as text": lambda idp: change(idp, nbf="tomorrow"),
    "issued in the future": lambda idp: change(idp, iat=int(NOW()) + 300),
    # audience
    "another audience": lambda idp: change(idp, aud="https://elsewhere.example/mcp"),
    "no audience": lambda idp: change(idp, aud=None),
    "audience: empty list": lambda idp: change(idp, aud=[]),
    "audience: others only": lambda idp: change(idp, aud=["a", "b"]),
    "audience: longer than ours": lambda idp: change(idp, aud=f"{AUDIENCE}.evil.example"),
    "audience: a prefix of ours": lambda idp: change(idp, aud="https://portico.exampl"),
    "audience: upper case": lambda idp: change(idp, aud=AUDIENCE.upper()),
    "audience: an object": lambda idp: change(idp, aud={AUDIENCE: True}),
    "audience: ours beside no text": lambda idp: change(idp, aud=[AUDIENCE, 7]),
    "audience: a glob": lambda idp: change(idp, aud="https://portico.example/*"),
    "audience: below a profile": lambda idp: change(idp, aud=f"{AUDIENCE}/p/work/../home"),
    # issuer
    "another issuer": lambda idp: change(idp, iss="https://evil.example"),
    "no issuer": lambda idp: change(idp, iss=None),
    "issuer with a slash after it": lambda idp: change(idp, iss=f"{idp.url}/"),
    "issuer in upper case": lambda idp: change(idp, iss=idp.url.upper()),
    "issuer as a list": lambda idp: change(idp, iss=[idp.url]),
    "issuer: the gateway itself": lambda idp: change(idp, iss="gateway"),
    "issuer: the local user": lambda idp: change(idp, iss="local", sub="user"),
    # other tokens of the same issuer
    "an ID token by its at_hash": lambda idp: idp.sign(idp.claims(at_hash="x"), typ="JWT"),
    "an ID token by its nonce": lambda idp: idp.sign(idp.claims(nonce="x"), typ=None),
    "an ID token with roles": lambda idp: idp.sign(idp.claims(nonce="x", roles=["a"]), typ=None),
    "an ID token of Keycloak": lambda idp: idp.sign(idp.claims(typ="ID"), typ="JWT"),
    "a refresh token of Keycloak": lambda idp: idp.sign(idp.claims(typ="Refresh"), typ="JWT"),
    "an ID token of Cognito": lambda idp: idp.sign(idp.claims(token_use="id"), typ=None),
    "a logout token by its events": lambda idp: idp.sign(idp.claims(events={}), typ="JWT"),
    "a token bound to a key (DPoP)": lambda idp: change(idp, cnf={"jkt": "x"}),
    # who it is
    "no subject": lambda idp: change(idp, sub=None),
    "subject: empty": lambda idp: change(idp, sub=""),
    "subject: a number": lambda idp: change(idp, sub=7),
    "subject: a line break": lambda idp: change(idp, sub="ana\nkey root"),
    "subject: half a character": lambda idp: idp.sign(
        json.dumps(idp.claims("x")).replace('"x"', '"\\ud800"').encode()
    ),
    "subject: reversed in writing": lambda idp: change(idp, sub="ana\u202enimda"),
    "subject: very long": lambda idp: change(idp, sub="x" * 300),
}


@pytest.mark.parametrize("attack", ATTACKS)
async def test_no_such_token_gets_in(attack: str) -> None:
    async with run_issuer() as issuer, serve_gateway(issuer) as url:
        reply = await post_token(url, ATTACKS[attack](issuer))
        assert reply.status_code == 401, reply.text
        assert reply.headers["www-authenticate"].startswith('Bearer realm="portico"')
        assert (await post_token(url, issuer.sign())).status_code == CAME_IN, "the right one does"
        foreign = {path for path in issuer.requests if path not in KNOWN_PATHS}
        assert not foreign, "nothing that a token says is fetched"


@pytest.mark.parametrize("kind", ["RSA", "P-256", "OKP"])
async def test_a_token_of_which_any_character_is_another_does_not_get_in(kind: str) -> None:
    async with run_issuer(kind) as issuer:
        settings = IssuerConfig(issuer=issuer.url, audience=(AUDIENCE,))
        verifier = IssuerVerifier([settings], None)
        token = issuer.sign()
        assert isinstance(await verifier.verify(token), Principal)
        random = Random(7)
        for position in range(len(token)):
            others = [one for one in ALPHABET if one != token[position]]
            changed = token[:position] + random.choice(others) + token[position + 1 :]
            for text in (changed, token[:position] + token[position + 1 :]):
                assert not isinstance(await verifier.verify(text), Principal), text
        await verifier.close()


ALPHABET = string.ascii_letters + string.digits + "-_.="
KNOWN_PATHS = ("/.well-known/openid-configuration", "/jwks")

Place = Callable[[str, str], Awaitable[httpx2.Response]]


def by_header(*headers: tuple[str, str]) -> Place:
    async def send(url: str, token: str) -> httpx2.Response:
        return await post(url, [(name, value.format(token=token)) for name, value in headers])

    return send


PLACES: dict[str, tuple[Place, int]] = {
    "in the query": (lambda url, token: post(f"{url}?access_token={token}", []), 401),
    "in the body": (lambda url, token: post(url, [], f"access_token={token}".encode()), 401),
    "in a cookie": (by_header(("cookie", "access_token={token}")), 401),
    "in another header": (by_header(("x-access-token", "{token}")), 401),
    "as another scheme": (by_header(("authorization", "DPoP {token}")), 401),
    "as Basic": (by_header(("authorization", "Basic {token}")), 401),
    "without a scheme": (by_header(("authorization", "{token}")), 401),
    "with a second one in the header": (
        by_header(("authorization", "Bearer {token}, Bearer {token}")),
        401,
    ),
    "with more words": (by_header(("authorization", "Bearer {token} {token}")), 401),
    "in quotation marks": (by_header(("authorization", 'Bearer "{token}"')), 401),
    "in two headers": (
        by_header(("authorization", "Bearer x"), ("authorization", "Bearer {token}")),
        400,
    ),
    "in two headers, the first being right": (
        by_header(("authorization", "Bearer {token}"), ("authorization", "Bearer x")),
        400,
    ),
}


@pytest.mark.parametrize("place", PLACES)
async def test_a_token_counts_only_in_the_one_place_for_it(place: str) -> None:
    send, status = PLACES[place]
    async with run_issuer() as issuer, serve_gateway(issuer) as url:
        reply = await send(url, issuer.sign())
        assert (reply.status_code, "jsonrpc" in reply.text) == (status, False), reply.text


def offer_shared_secret(issuer: FakeIssuer) -> str:
    """The issuer lists a shared secret, and a token is signed with it."""
    secret = b"everybody who reads the key set knows it"
    issuer.keys = [{"kty": "oct", "k": encode(secret), "kid": "s", "alg": "HS256"}, *issuer.keys]
    signing_input = f"{encode({'alg': 'HS256', 'kid': 's'})}.{encode(issuer.claims())}"
    digest = hmac.new(secret, signing_input.encode(), hashlib.sha256).digest()
    return f"{signing_input}.{encode(digest)}"


def offer(key: Any, algorithm: str, **members: Any) -> Callable[[FakeIssuer], str]:
    """The issuer lists this key too, and a token is signed with it."""

    def sign_with(issuer: FakeIssuer) -> str:
        public = {**to_jwk(key.public_key(), "other"), **members}
        issuer.keys = [public, *issuer.keys]
        header = {"alg": algorithm, "kid": "other"}
        return sign(key, header, json.dumps(issuer.claims()).encode())

    return sign_with


def offer_private(issuer: FakeIssuer) -> str:
    key = make_key("leaked")
    issuer.keys = [to_jwk(key, "leaked"), *issuer.keys]
    return sign(key, {"alg": "RS256", "kid": "leaked"}, json.dumps(issuer.claims()).encode())


KEY_SETS: dict[str, Callable[[FakeIssuer], str]] = {
    "a shared secret": offer_shared_secret,
    "a private key": offer_private,
    "an RSA key of 1,024 bits": offer(make_key("small", "RSA", 1_024), "RS256"),
    "a key for encryption": offer(make_key("other"), "RS256", use="enc"),
    "a key that may only sign": offer(make_key("other"), "RS256", key_ops=["sign"]),
    "a key of another algorithm": offer(make_key("other"), "PS256", alg="RS256"),
    "a curve that does not fit": offer(make_key("p384", "P-384"), "ES384", crv="P-256"),
    "a key of no known type": offer(make_key("other"), "RS256", kty="rsa"),
    "a key whose kid is no text": offer(make_key("other"), "RS256", kid=["other"]),
}


@pytest.mark.parametrize("key_set", KEY_SETS)
async def test_a_key_that_may_not_verify_tokens_is_not_used(key_set: str) -> None:
    async with run_issuer() as issuer, serve_gateway(issuer) as url:
        token = KEY_SETS[key_set](issuer)
        assert (await post_token(url, token)).status_code == 401
        assert (await post_token(url, issuer.sign())).status_code == CAME_IN


async def test_an_algorithm_that_is_not_configured_is_not_accepted() -> None:
    async with run_issuer() as issuer, serve_gateway(issuer, algorithms=["ES256"]) as url:
        assert (await post_token(url, issuer.sign())).status_code == 401


def send_body(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Any:
    return lambda send: answer(send, status, body, headers)


HOSTILE_ANSWERS: dict[str, tuple[str, Any]] = {
    "10 MB of keys": ("/jwks", send_body(b'{"keys": [' + b'{"kty": "RSA"},' * 700_000 + b"{}]}")),
    "a bomb of zeros": (
        "/jwks",
        send_body(gzip.compress(bytes(50_000_000)), headers={"content-encoding": "gzip"}),
    ),
    "a redirect": ("/jwks", send_body(b"", 302, {"location": "/stolen"})),
    "a redirect of the metadata": (
        "/.well-known/openid-configuration",
        send_body(b"", 307, {"location": "/stolen"}),
    ),
    "no JSON": ("/jwks", send_body(b"<html>")),
    "a list": ("/jwks", send_body(b"[]")),
    "no keys": ("/jwks", send_body(b'{"keys": []}')),
    "keys that are none": ("/jwks", send_body(b'{"keys": [1, "x", null, {"kty": {}}]}')),
    "deep nesting": ("/jwks", send_body(b"[" * 200_000)),
    "metadata of another issuer": (
        "/.well-known/openid-configuration",
        send_body(b'{"issuer": "https://evil.example", "jwks_uri": "https://evil.example/jwks"}'),
    ),
    "an error": ("/jwks", send_body(b"", 500)),
}


@pytest.mark.parametrize("hostile", HOSTILE_ANSWERS)
async def test_an_issuer_that_answers_so_lets_nobody_in_and_locks_nobody_out(hostile: str) -> None:
    path, fault = HOSTILE_ANSWERS[hostile]
    async with run_issuer() as issuer, serve_gateway(issuer, token="t0ken") as url:
        issuer.faults[path] = fault
        reply = await post_token(url, issuer.sign())
        assert (reply.status_code, reply.headers["retry-after"]) == (503, "5"), reply.text
        assert not issuer.requests["/stolen"]
        assert (await post_token(url, "t0ken")).status_code == CAME_IN
