"""The client that the official suite examines: a gateway whose one server is the given URL, with a
browser that needs no person. `python -m tests.conformance.sign_in_client URL`.

It connects, signs in where that is asked for, lists the tools and calls each, as a person would who
runs `portico login` whenever an error says so.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2

from portico.callers import LOCAL_USER
from portico.config import Config
from portico.errors import PorticoError, SignInNeeded
from portico.gateway import GatewayRuntime
from portico.upstream.oauth.credential import SubjectTokens
from portico.upstream.oauth.server_accounts import make_target
from portico.upstream.oauth.sign_in import begin_sign_in, discover_for, finish_sign_in
from tests.upstream.oauth.authorization_server import get_query

NAME = "peer"
EMA = "auth/enterprise-managed-authorization"
REDIRECT_URI = "http://127.0.0.1:1/callback"
DOCUMENT = "https://conformance-test.local/client-metadata.json"
MAX_SIGN_INS = 3
"""How often a person would sign in again before giving up."""


def make_auth(scenario: str, context: Mapping[str, Any], url: str) -> dict[str, Any] | None:
    """Return what a person would configure for a scenario."""
    if scenario == "auth/basic-cimd":
        return {"client_id": DOCUMENT}
    if scenario == "auth/pre-registration":
        return {key: context[key] for key in ("client_id", "client_secret")}
    if scenario == "auth/client-credentials-basic":
        own = {key: context[key] for key in ("client_id", "client_secret")}
        return {"grant": "client_credentials", **own}
    if scenario == "auth/client-credentials-jwt":
        own = {"client_id": context["client_id"], "private_key": context["private_key_pem"]}
        return {"grant": "client_credentials", **own}
    if scenario == "auth/wif-jwt-bearer":
        own = {"client_id": context["client_id"], "assertion": context["valid_jwt"]}
        return {"grant": "jwt_bearer", **own}
    if scenario == EMA:
        own = {key: context[key] for key in ("client_id", "client_secret")}
        provider = {
            "identity_provider": context["idp_issuer"],
            "identity_client_id": context["idp_client_id"],
        }
        # What an administrator would read in the documentation of the server.
        parts = urlsplit(url)
        metadata = f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource/mcp"
        issuer = httpx2.get(metadata).json()["authorization_servers"][0]
        return {"grant": "identity_assertion", "issuer": issuer, **provider, **own}
    return None


async def come_in(gateway: GatewayRuntime, context: Mapping[str, Any]) -> None:
    """Be the person whose id token a scenario gives."""
    tokens = SubjectTokens(
        context["idp_issuer"], id_token=context["idp_id_token"], expires_at=time.time() + 600
    )
    await gateway.servers.accounts.store.keep_subject(LOCAL_USER.id, tokens)


async def sign_in(gateway: GatewayRuntime) -> None:
    target = make_target(NAME, gateway.config.servers[NAME])
    assert target is not None
    store = gateway.servers.accounts.store
    found, trusted, scope = await discover_for(store, target)
    pending = await begin_sign_in(store, target, found, trusted, scope, REDIRECT_URI)
    async with httpx2.AsyncClient() as browser:
        reply = await browser.get(pending.url)
    await finish_sign_in(store, pending, get_query(reply.headers["location"]))


async def use(gateway: GatewayRuntime) -> None:
    """Connect, list the tools, and call each; raises what a call raises."""
    await gateway.upstreams[NAME].connect()
    await gateway.servers.syncs[NAME].refresh()
    if gateway.upstreams[NAME].state == "needs sign-in":
        raise SignInNeeded(gateway.upstreams[NAME].reason)
    for tool in list(gateway.catalog.snapshot.servers[NAME].tools.values()):
        await gateway.upstreams[NAME].request(
            "tools/call", {"name": tool.upstream_name, "arguments": {}}
        )


async def run(url: str) -> int:
    scenario = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    server: dict[str, Any] = {"url": url}
    if (auth := make_auth(scenario, context, url)) is not None:
        server["auth"] = auth
    sign_ins = 0
    with tempfile.TemporaryDirectory() as folder:
        config = Config.model_validate({"servers": {NAME: server}, "data_dir": Path(folder)})
        async with GatewayRuntime(config) as gateway:
            if scenario == EMA:
                await come_in(gateway, context)
            await gateway.wait_until_listed()
            while True:
                try:
                    await use(gateway)
                    return 0
                except SignInNeeded as error:
                    print(error, file=sys.stderr)
                    if sign_ins == MAX_SIGN_INS:
                        return 1
                    sign_ins += 1
                    await sign_in(gateway)


def main() -> int:
    try:
        return asyncio.run(run(sys.argv[1]))
    except PorticoError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
