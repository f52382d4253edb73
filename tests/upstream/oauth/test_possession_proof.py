"""Proofs that a token is used by whom it was issued to."""

import base64
import hashlib
from typing import Any

import jwt
import pytest

from portico.upstream.oauth.challenge import parse_challenge
from portico.upstream.oauth.possession_proof import make_key, make_proof

NOW = 1_800_000_000.0
URL = "https://notes.example/mcp"


def read(proof: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return header and claims of a proof, verified by the key in it."""
    header = jwt.get_unverified_header(proof)
    key = jwt.PyJWK.from_dict(header["jwk"], algorithm="ES256")
    options: Any = {"verify_iat": False}
    return header, jwt.decode(proof, key, algorithms=["ES256"], options=options)


def test_a_proof_is_for_one_request_and_token() -> None:
    proof = make_proof(make_key(), "POST", f"{URL}?a=1#b", NOW, access_token="t", nonce="n")
    header, claims = read(proof)
    assert header["typ"] == "dpop+jwt"
    assert "d" not in header["jwk"]
    jti = claims.pop("jti")
    digest = base64.urlsafe_b64encode(hashlib.sha256(b"t").digest()).rstrip(b"=").decode()
    expected = {"htm": "POST", "htu": URL, "iat": int(NOW), "ath": digest, "nonce": "n"}
    assert claims == expected
    assert len(jti) > 20


def test_no_two_proofs_are_the_same_and_each_sign_in_has_a_key_of_its_own() -> None:
    one, other = make_key(), make_key()
    proofs = {make_proof(key, "GET", URL, NOW) for key in (one, one, other)}
    assert len(proofs) == 3
    keys = {jwt.get_unverified_header(proof)["jwk"]["x"] for proof in proofs}
    assert len(keys) == 2


@pytest.mark.parametrize(
    ("header", "is_dpop"),
    [
        ('DPoP algs="ES256", resource_metadata="https://x.example/m"', True),
        ('DPoP error="use_dpop_nonce"', True),
        ('Bearer realm="x", DPoP algs="ES256"', False),
        ("Bearer", False),
        ('Basic realm="dpops"', False),
    ],
)
def test_only_a_server_that_offers_nothing_else_wants_proofs(header: str, is_dpop: bool) -> None:
    assert parse_challenge(header).is_dpop is is_dpop
