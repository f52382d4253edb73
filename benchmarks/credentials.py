"""A gateway whose callers need a credential: the same gateway called with a key, and with a token
(JWT) of an issuer whose keys a plain file server has."""

import json
import sys
import time
from pathlib import Path

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from benchmarks import processes
from benchmarks.latency_contestants import Contestant
from portico.auth.key_administration import add_key
from portico.storage.key_store import KeyStore

_AUDIENCE = "the gateway of the benchmark"
_LIFETIME_S = 86_400
_RSA_BITS = 2_048


async def contest_with_credentials(upstream: str, era: str, folder: Path) -> list[Contestant]:
    """Return the gateway in front of a server, once for each kind of credential."""
    own = folder / "credentials"
    own.mkdir()
    port, issuer_port = processes.free_port(), processes.free_port()
    issuer = f"http://127.0.0.1:{issuer_port}"
    config = processes.write_config(
        own,
        {
            "exposure": "full",
            "auth": {"issuer": issuer, "audience": _AUDIENCE, "jwks_uri": f"{issuer}/jwks.json"},
            "servers": {"echo": {"url": upstream, "protocol": era}},
        },
    )
    store = KeyStore(None, own / "data")
    _, key, _ = await add_key(store, "benchmark")
    await store.close()
    files = own / "issuer"
    files.mkdir()
    file_server = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1"]
    needed = (issuer_port, [*file_server, "--directory", str(files), str(issuer_port)])
    serve = (port, [*processes.portico(), "serve", "--config", str(config), "--port", str(port)])
    url = f"http://127.0.0.1:{port}/mcp"
    credentials = {"portico key": key, "portico jwt": _issue_token(issuer, files)}
    return [
        Contestant(name, url, "echo__echo", serve, credential=credential, needs=needed)
        for name, credential in credentials.items()
    ]


def _issue_token(issuer: str, files: Path) -> str:
    """Write the issuer's key set, and return a token of it."""
    key = rsa.generate_private_key(public_exponent=65_537, key_size=_RSA_BITS)
    public = {**RSAAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": "1", "use": "sig"}
    public.pop("key_ops", None)
    (files / "jwks.json").write_text(json.dumps({"keys": [public]}))
    now = int(time.time())
    claims = {
        "iss": issuer,
        "sub": "benchmark",
        "aud": _AUDIENCE,
        "iat": now,
        "exp": now + _LIFETIME_S,
        "scope": "openid profile",
        "groups": ["dev", "ops"],
    }
    return jwt.encode(claims, key, "RS256", {"kid": "1", "typ": "at+jwt"})
