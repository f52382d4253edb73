"""oidc-provider, a certified OpenID provider for Node, as a process on loopback.

async with run_oidc_provider(tmp_path, users={"ana": {"name": "Ana", "groups": ["dev"]}}) as idp:
    tokens = await idp.sign_in("ana", resource="http://127.0.0.1:1/mcp", scope="openid mail")

It registers clients, rotates refresh tokens, wants PKCE of public clients, introspects and revokes,
and issues access tokens for any resource. `stop` and `start` restart it at the same address with
all that it had issued. A test that uses it is marked `node`, and skipped where Node or the package
is missing (`python -m tests.conformance --install` installs both).
"""

import asyncio
import base64
import hashlib
import json
import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit

import httpx2
import pytest

from tests.conformance.suite import SuiteMissing, find_oidc_provider

SCRIPT = Path(__file__).with_suffix(".mjs")
START_S = 240.0
REDIRECT_URI = "http://127.0.0.1:1/callback"
"""Of the client that `sign_in` is; nothing listens there."""
CLIENT_ID = "public"
MACHINE_ID = "machine"
MACHINE_SECRET = "the secret of a client that is a machine"
_MAX_REDIRECTS = 12
_CLIENTS: list[dict[str, Any]] = [
    {
        "client_id": CLIENT_ID,
        "token_endpoint_auth_method": "none",
        "grant_types": ["authorization_code", "refresh_token"],
        "redirect_uris": [REDIRECT_URI],
        "application_type": "native",
    },
    {
        "client_id": MACHINE_ID,
        "client_secret": MACHINE_SECRET,
        "grant_types": ["client_credentials"],
        "redirect_uris": [],
        "response_types": [],
    },
]


class OidcProvider:
    """One provider; `issuer` is its address, the same after a restart."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self.issuer = ""
        self._settings = {**settings, "stateFile": str(folder / "oidc-provider.json")}
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, **changes: Any) -> None:
        """Start it, with changed settings (`newKeys=True`: it signs with other keys)."""
        try:
            node, package = find_oidc_provider()
        except SuiteMissing as missing:
            pytest.skip(str(missing))
        port = urlsplit(self.issuer).port or 0
        settings = {**self._settings, "port": port, **changes}
        self._process = await asyncio.create_subprocess_exec(
            str(node),
            str(SCRIPT),
            str(package),
            json.dumps(settings),
            stdout=asyncio.subprocess.PIPE,
        )
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), START_S)
        assert line, "oidc-provider ended before it listened"
        self.issuer = json.loads(line)["issuer"]

    async def stop(self) -> None:
        """End it; what it issued is kept."""
        if self._process is not None:
            self._process.kill()
            await self._process.wait()
            self._process = None

    async def sign_in(
        self, user: str, *, resource: str | None = None, scope: str = "openid"
    ) -> dict[str, Any]:
        """Return the answer with the tokens of a person (authorization code with PKCE)."""
        verifier = secrets.token_urlsafe(32)
        digest = hashlib.sha256(verifier.encode()).digest()
        params = {
            "client_id": CLIENT_ID,
            "response_type": "code",
            "redirect_uri": REDIRECT_URI,
            "scope": scope,
            "state": "x",
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
            "login_hint": user,
            **({"resource": resource} if resource else {}),
        }
        answered = await visit_authorization_url(f"{self.issuer}/auth?{urlencode(params)}")
        return await self.request_token(
            grant_type="authorization_code",
            code=parse_qs(urlsplit(answered).query)["code"][0],
            code_verifier=verifier,
            redirect_uri=REDIRECT_URI,
            client_id=CLIENT_ID,
            **({"resource": resource} if resource else {}),
        )

    async def request_token(self, **form: str) -> dict[str, Any]:
        """Return the answer of the token endpoint, which must be 200."""
        async with httpx2.AsyncClient(timeout=START_S) as http:
            reply = await http.post(f"{self.issuer}/token", data=form)
        assert reply.status_code == 200, reply.text
        return reply.json()


async def visit_authorization_url(url: str, redirect_uri: str = REDIRECT_URI) -> str:
    """Do what a browser would: return the address to which the client's answer is sent.

    The person is that of `login_hint` in the URL, else the first; `denied` consents to nothing.
    """
    async with httpx2.AsyncClient(timeout=START_S) as browser:
        for _ in range(_MAX_REDIRECTS):
            reply = await browser.get(url)
            assert reply.is_redirect, f"{reply.status_code} {reply.text}"
            url = urljoin(url, reply.headers["location"])
            if url.startswith(redirect_uri):
                return url
    raise AssertionError(f"no end of redirects: {url}")


@asynccontextmanager
async def run_oidc_provider(
    folder: Path,
    *,
    users: Mapping[str, Mapping[str, Any]] | None = None,
    clients: Sequence[Mapping[str, Any]] = (),
    scopes: Sequence[str] = ("profile", "email"),
    **options: Any,
) -> AsyncGenerator[OidcProvider]:
    """Run a provider whose state is kept in `folder`.

    `users` are claims by subject, which access tokens carry too. `clients` are added to those of
    `sign_in` and of a machine. Options, with their defaults: `tokenFormat` ("jwt", or "opaque"),
    `algorithm` ("RS256", or "ES256"), `accessTokenTtl` and `refreshTokenTtl` (seconds),
    `registration` (True), `defaultResource` (None).
    """
    settings: dict[str, Any] = {
        "users": {"ana": {"name": "Ana"}, **(users or {})},
        "clients": [*_CLIENTS, *clients],
        "scopes": list(scopes),
        "tokenFormat": "jwt",
        "algorithm": "RS256",
        "accessTokenTtl": 3_600,
        "refreshTokenTtl": 86_400,
        "registration": True,
        "defaultResource": None,
        **options,
    }
    provider = OidcProvider(folder, settings)
    try:
        await provider.start()
        yield provider
    finally:
        await provider.stop()
