"""Identity providers that differ: GitHub, which has no OpenID Connect, and what the configuration
refuses."""

import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode

import pytest
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from portico.auth.proxy.providers import ProviderQuirks, find_quirks
from portico.auth.token_verifier import Rejection
from portico.callers import Principal
from portico.config import Config
from tests.auth.proxy.conftest import ProxyUnderTest, run_proxy
from tests.upstream.loopback_server import serve


class FakeGitHub:
    """What GitHub answers, as its documentation has it: errors with 200, ids that are numbers."""

    def __init__(self) -> None:
        self.tokens: dict[str, str] = {}
        self.organizations: dict[str, list[str]] = {"ana": ["acme", "friends"], "eve": ["others"]}
        self.user = "ana"
        self.is_rate_limited = False
        self.app = Starlette(
            routes=[
                Route("/login/oauth/authorize", self._authorize),
                Route("/login/oauth/access_token", self._token, methods=["POST"]),
                Route("/user", self._user),
                Route("/user/orgs", self._orgs),
            ]
        )

    async def _authorize(self, request: Request) -> Response:
        params = request.query_params
        answer = urlencode({"code": "the-code", "state": params["state"]})
        return RedirectResponse(f"{params['redirect_uri']}?{answer}", 302)

    async def _token(self, request: Request) -> Response:
        form = parse_qs((await request.body()).decode())
        if request.headers["accept"] != "application/json" or "client_secret" not in form:
            return Response("error=incorrect_client_credentials")
        if form["code"] != ["the-code"]:
            return JSONResponse({"error": "bad_verification_code"})
        token = f"gho_{secrets.token_urlsafe(16)}"
        self.tokens[token] = self.user
        return JSONResponse({"access_token": token, "token_type": "bearer", "scope": "read:org"})

    def _find(self, request: Request) -> str:
        return self.tokens.get(request.headers["authorization"].removeprefix("Bearer "), "")

    async def _user(self, request: Request) -> Response:
        user = self._find(request)
        if self.is_rate_limited:
            return JSONResponse({"message": "API rate limit exceeded"}, 403)
        if not user:
            return JSONResponse({"message": "Bad credentials"}, 401)
        return JSONResponse({"id": 583_231, "login": user, "name": None})

    async def _orgs(self, request: Request) -> Response:
        names = self.organizations[self._find(request)]
        end = 100 * int(request.query_params["page"])
        return JSONResponse([{"login": name} for name in names[end - 100 : end]])


@asynccontextmanager
async def run_behind_github(folder: Path) -> AsyncGenerator[tuple[ProxyUnderTest, FakeGitHub]]:
    github = FakeGitHub()
    async with serve(github.app, lifespan="off") as url:
        quirks = ProviderQuirks(
            scopes=find_quirks("https://github.com").scopes,
            has_openid=False,
            endpoints={
                name: address.replace("https://github.com", url)
                for name, address in find_quirks("https://github.com").endpoints.items()
            },
            api=url,
        )
        profiles = {"work": ["group:acme"]}
        async with run_proxy(folder, quirks=quirks, profiles=profiles) as proxy:
            yield proxy, github


async def test_a_person_signs_in_with_github(tmp_path: Path) -> None:
    async with run_behind_github(tmp_path) as (proxy, github):
        client = await proxy.register()
        tokens = await proxy.sign_in(client)
        person = await proxy.find_person(tokens)
        assert isinstance(person, Principal)
        assert (person.subject, person.name, person.groups, person.profiles) == (
            "583231",
            "ana",
            ("acme", "friends"),
            ("work",),
        )
        github.organizations["ana"] = ["acme"]
        refreshed = await proxy.refresh(client, tokens["refresh_token"])
        person = await proxy.find_person(refreshed.json())
        assert isinstance(person, Principal)
        assert person.groups == ("acme",)


async def test_a_rate_limit_of_github_signs_nobody_out(tmp_path: Path) -> None:
    async with run_behind_github(tmp_path) as (proxy, github):
        client = await proxy.register()
        tokens = await proxy.sign_in(client)
        github.is_rate_limited = True
        reply = await proxy.refresh(client, tokens["refresh_token"])
        assert reply.status_code == 200
        assert isinstance(await proxy.find_person(reply.json()), Principal)


async def test_all_organizations_are_read(tmp_path: Path) -> None:
    async with run_behind_github(tmp_path) as (proxy, github):
        client = await proxy.register()
        github.organizations["ana"] = [*(f"other-{number}" for number in range(250)), "acme"]
        person = await proxy.find_person(await proxy.sign_in(client))
        assert isinstance(person, Principal)
        assert len(person.groups) == 251
        github.organizations["ana"] = [f"acme-{number}" for number in range(1_001)]
        assert (await proxy.authorize(proxy.ask(client)))["error"] == "access_denied"


async def test_who_is_in_no_organization_that_opens_something_does_not_come_in(
    tmp_path: Path,
) -> None:
    async with run_behind_github(tmp_path) as (proxy, github):
        github.user = "eve"
        answer = await proxy.authorize(proxy.ask(await proxy.register()))
        assert answer["error"] == "access_denied"


async def test_who_leaves_the_organization_or_takes_the_token_back_is_out(tmp_path: Path) -> None:
    async with run_behind_github(tmp_path) as (proxy, github):
        client = await proxy.register()
        tokens = await proxy.sign_in(client)
        other = await proxy.sign_in(client)
        github.organizations["ana"] = []
        reply = await proxy.refresh(client, tokens["refresh_token"])
        assert reply.json()["error"] == "invalid_grant"
        assert isinstance(await proxy.find_person(tokens), Rejection)
        github.organizations["ana"] = ["acme"]
        github.tokens.clear()
        reply = await proxy.refresh(client, other["refresh_token"])
        assert reply.json()["error"] == "invalid_grant"


def test_google_is_asked_for_a_refresh_token_in_its_own_way() -> None:
    quirks = find_quirks("https://accounts.google.com")
    assert quirks.authorize_params["access_type"] == "offline"
    assert "offline_access" not in quirks.scopes
    assert quirks.other_issuers == ("accounts.google.com",)


PROXY = {"client_id": "portico", "client_secret": "a secret"}
GATEWAY = {"public_url": "https://portico.example"}


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"auth": {"issuer": "https://github.com", "proxy": PROXY}}, "anybody can have an account"),
        (
            {"auth": {"issuer": "https://accounts.google.com", "proxy": PROXY}},
            "anybody can have an account",
        ),
        (
            {
                "auth": {
                    "issuer": "https://login.microsoftonline.com/common/v2.0",
                    "proxy": PROXY,
                }
            },
            "name the tenant",
        ),
        (
            {"auth": {"issuer": "https://id.example", "proxy": PROXY, "required_scopes": "mcp"}},
            "gives out no scopes",
        ),
        (
            {
                "auth": {
                    "issuer": "https://id.example",
                    "proxy": PROXY,
                    "profiles": {"*": ["scope:x"]},
                }
            },
            "gives out no scopes",
        ),
        (
            {
                "auth": [
                    {"issuer": "https://id.example", "proxy": PROXY},
                    {"issuer": "https://id.example/other", "proxy": PROXY},
                ]
            },
            "only one issuer may have proxy",
        ),
        (
            {
                "gateway": {},
                "auth": {"issuer": "https://id.example", "proxy": PROXY, "audience": "x"},
            },
            "proxy needs gateway.public_url",
        ),
    ],
)
def test_a_configuration_that_would_not_be_safe_is_refused(
    config: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValidationError, match=problem):
        Config.model_validate({"gateway": GATEWAY, **config})


def test_the_secret_of_the_gateway_is_not_shown() -> None:
    config = Config.model_validate(
        {"gateway": GATEWAY, "auth": {"issuer": "https://id.example", "proxy": PROXY}}
    )
    assert "a secret" not in repr(config)
