"""Signing in to servers on the gateway's own pages: each person for themselves, by the link that an
error or an elicitation has."""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from portico.auth.authenticator import KeyRing
from portico.auth.keys import create_key
from portico.callers import LOCAL_USER, TOKEN_HOLDER, Caller, Principal
from portico.calls.call import CallContext
from portico.config import Config
from portico.gateway import GatewayRuntime
from portico.gateway.server_sign_ins import open_server_sign_ins
from portico.server.http.app import make_app
from portico.upstream.backend import Era
from tests.auth.proxy.fake_provider import CLIENT_ID, CLIENT_SECRET, FakeProvider
from tests.auth.proxy.scripted_browser import Page, ScriptedBrowser
from tests.gateways import TIMEOUT_S, wait_until
from tests.interaction.raw_clients import Message, RawLines, raw_lines
from tests.upstream.loopback_server import serve
from tests.upstream.oauth.authorization_server import (
    ProtectedServer,
    ScriptedIssuer,
    run_authorization_server,
    run_protected_server,
)
from tests.upstream.oauth.signing_in import open_tokens, sign_in, target_of

TOKEN = "the token of the configuration"
CALL: Message = {"name": "call_tool", "arguments": {"name": "notes.whoami"}}


@dataclass
class Served:
    url: str
    gateway: GatewayRuntime
    texts: Mapping[str, str]
    """Keys by name."""

    @property
    def page(self) -> str:
        return f"{self.url}/sign-in/notes"

    async def ask(self, principal: Principal = LOCAL_USER) -> str:
        """Return what the server says whose account is used."""
        context = CallContext(Caller(principal=principal))
        run = self.gateway.get_view().run_tool("notes.whoami", {}, context)
        result: Any = await asyncio.wait_for(run, TIMEOUT_S)
        return result["content"][0]["text"]


@dataclass
class Place:
    issuer: ScriptedIssuer
    server: ProtectedServer
    folder: Path

    @asynccontextmanager
    async def serve(
        self,
        *keys: str,
        per_user: bool = True,
        token: str | None = None,
        extra: Mapping[str, Any] | None = None,
        rights: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[Served]:
        """Serve a gateway; `keys` are names, all with these `rights`."""
        apps: list[ASGIApp] = []

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await apps[0](scope, receive, send)

        ring = KeyRing()
        made = [create_key(name, 1_000_000.0, **(rights or {})) for name in keys]
        ring.replace([row for row, _ in made])
        auth = {"per_user": True} if per_user else "oauth"
        async with serve(app, lifespan="off") as url:
            config = Config.model_validate(
                {
                    "servers": {"notes": {"url": self.server.url, "auth": auth}},
                    "profiles": {"work": {}, "home": {"servers": []}},
                    "gateway": {"public_url": url},
                    **(extra or {}),
                }
            )
            gateway = GatewayRuntime(config.model_copy(update={"data_dir": self.folder}))
            sign_ins = open_server_sign_ins(gateway, url)
            async with gateway:
                await asyncio.wait_for(gateway.wait_until_listed(), TIMEOUT_S)
                served = make_app(
                    gateway.get_endpoints(),
                    token=token,
                    keys=ring,
                    verifiers=gateway.open_verifiers(),
                    authorization_server=gateway.authorization_server,
                    public_url=url,
                    server_sign_ins=sign_ins,
                )
                apps.append(served)
                async with served.router.lifespan_context(served):
                    yield Served(url, gateway, {row.name: text for row, text in made})

    async def list_tools(self, per_user: bool = True) -> None:
        """Have the server listed once, with an account that is forgotten then."""
        async with open_tokens(self.folder) as tokens, self.serve(per_user=per_user) as served:
            target = target_of(served.gateway.config)
            await sign_in(tokens, target, "operator")
            await served.gateway.upstreams["notes"].restart()
            await served.gateway.refresh(["notes"])
            assert await served.ask() == "you are operator"
            await tokens.forget(target)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncGenerator[Place]:
    async with AsyncExitStack() as stack:
        issuer = await stack.enter_async_context(run_authorization_server())
        server = await stack.enter_async_context(run_protected_server(issuer))
        yield Place(issuer, server, tmp_path)


def find_link(error: str) -> str:
    found = re.search(r"http://\S+/sign-in/\w+", error)
    assert found is not None, error
    return found[0]


async def test_an_error_links_a_page_that_signs_in_and_the_next_call_works(place: Place) -> None:
    async with place.serve(per_user=False) as served, ScriptedBrowser() as browser:
        (status,) = served.gateway.list_statuses()
        assert status.state == "needs sign-in"
        assert find_link(status.reason) == served.page
        reply = await browser.visit(served.page)
        assert (reply.status_code, "notes is signed in to" in reply.text) == (200, True)
        # It connects, and lists the tools, without another request.
        await wait_until(lambda: served.gateway.catalog.snapshot.servers["notes"].is_listed)
        assert await served.ask() == "you are ana"


async def test_each_person_signs_in_to_an_account_of_their_own_by_the_same_link(
    place: Place,
) -> None:
    await place.list_tools()
    async with place.serve("ana", "ben") as served:
        for name in ("ana", "ben"):
            error = await served.ask(Principal("key", name))
            assert error.startswith("sign_in_needed")
            assert find_link(error) == served.page
            async with ScriptedBrowser(name, credential=served.texts[name]) as browser:
                assert (await browser.visit(served.page)).status_code == 200
            assert await served.ask(Principal("key", name)) == f"you are {name}"
        assert await served.ask(Principal("key", "ana")) == "you are ana"
        assert (await served.ask(Principal("key", "eve"))).startswith("sign_in_needed")


async def test_who_signs_in_first_has_the_tools_listed(place: Place) -> None:
    async with place.serve("ana") as served:
        async with ScriptedBrowser("ana", credential=served.texts["ana"]) as browser:
            assert (await browser.visit(served.page)).status_code == 200
        await wait_until(lambda: served.gateway.catalog.snapshot.servers["notes"].is_listed)
        assert await served.ask(Principal("key", "ana")) == "you are ana"


async def test_only_who_runs_the_gateway_changes_the_account_of_everybody(place: Place) -> None:
    async with place.serve("ana", per_user=False, token=TOKEN) as served:
        async with ScriptedBrowser("eve", credential=served.texts["ana"]) as browser:
            reply = await browser.visit(served.page)
            assert (reply.status_code, "one account" in reply.text) == (400, True)
        assert not place.issuer.requests
        async with ScriptedBrowser("ana", credential=TOKEN) as browser:
            assert (await browser.visit(served.page)).status_code == 200
        await wait_until(lambda: served.gateway.catalog.snapshot.servers["notes"].is_listed)
        assert await served.ask(TOKEN_HOLDER) == "you are ana"


@pytest.mark.parametrize("credential", ["", "portico_wrong", TOKEN + "x"])
async def test_who_is_not_known_begins_nothing(place: Place, credential: str) -> None:
    async with place.serve("ana", token=TOKEN) as served:
        async with ScriptedBrowser(credential=credential) as browser:
            reply = await browser.visit(served.page)
        assert reply.status_code == 401
        assert not place.issuer.requests


async def test_many_wrong_keys_are_not_looked_at(place: Place) -> None:
    async with place.serve("ana") as served, ScriptedBrowser(credential="wrong") as browser:
        statuses = [(await browser.visit(served.page)).status_code for _ in range(30)]
        assert (statuses[0], statuses[-1]) == (401, 429)


async def test_a_key_signs_in_to_no_server_that_it_does_not_show(place: Place) -> None:
    async with place.serve("ana", rights={"profiles": ("home",)}) as served:
        for page in (served.page, f"{served.url}/sign-in/nothing"):
            async with ScriptedBrowser(credential=served.texts["ana"]) as browser:
                reply = await browser.visit(page)
            assert reply.status_code == 400
            assert "there is no server" in reply.text.lower()
        assert not place.issuer.requests


async def test_the_form_is_of_the_browser_that_was_asked(place: Place) -> None:
    async with place.serve() as served, httpx2.AsyncClient(timeout=TIMEOUT_S) as http:
        form = Page((await http.get(served.page)).text).fields
        own = {"Origin": served.url}
        tries = {
            "another page": ({"Origin": "https://evil.example"}, form),
            "no token": (own, {}),
            "another token": (own, {"form_token": "0" * 64}),
        }
        for name, (headers, fields) in tries.items():
            reply = await http.post(served.page, data={"x": "y", **fields}, headers=headers)
            assert reply.status_code == 403, name
        async with httpx2.AsyncClient(timeout=TIMEOUT_S) as other:
            reply = await other.post(served.page, data=form, headers=own)
            assert reply.status_code == 403
        assert not place.issuer.requests
        assert (await http.post(served.page, data=form, headers=own)).status_code == 200


async def begin(served: Served, browser: ScriptedBrowser) -> str:
    """Return the address at which a sign-in ends, without going there."""
    callback = f"{served.url}/oauth/server-callback"
    return str((await browser.visit(served.page, callback)).request.url)


async def test_what_comes_back_counts_once_and_in_its_browser_alone(place: Place) -> None:
    await place.list_tools()
    async with place.serve() as served, ScriptedBrowser("ana") as browser:
        callback = await begin(served, browser)
        async with ScriptedBrowser("eve") as other:
            await other.visit(served.page, f"{served.url}/oauth")  # it has a cookie of its own
            assert (await other.http.get(callback)).status_code == 400
        for changed in (callback.replace("state=", "state=x"), callback.partition("&state")[0]):
            assert (await browser.http.get(changed)).status_code == 400
        assert (await served.ask()).startswith("sign_in_needed")
        callback = await begin(served, browser)
        assert (await browser.http.get(callback)).status_code == 200
        assert (await browser.http.get(callback)).status_code == 400
        assert await served.ask() == "you are ana"


async def test_another_replica_may_answer_what_comes_back(place: Place) -> None:
    await place.list_tools()
    async with place.serve() as one, place.serve() as other, ScriptedBrowser("ana") as browser:
        callback = await begin(one, browser)
        answered = callback.replace(one.url, other.url)
        assert (await browser.http.get(answered)).status_code == 200
        assert await one.ask() == "you are ana"
        assert await other.ask() == "you are ana"


async def test_an_error_that_comes_back_is_shown_as_text(place: Place) -> None:
    async with place.serve() as served, ScriptedBrowser("ana") as browser:
        callback = await begin(served, browser)
        state = re.search(r"state=([^&]+)", callback)
        assert state is not None
        lie = f"error=access_denied&error_description=%3Cb%3Eno&state={state[1]}"
        url = f"{served.url}/oauth/server-callback?{lie}&iss={place.issuer.issuer}"
        reply = await browser.http.get(url)
        assert (reply.status_code, "<b>" in reply.text) == (400, False)


async def test_people_of_an_identity_provider_say_there_who_they_are(place: Place) -> None:
    await place.list_tools()
    provider = FakeProvider(time.time)
    provider.people["ben"] = {"name": "Ben", "groups": ["dev"]}
    async with serve(provider.app, lifespan="off") as provider.issuer:
        proxy = {"client_id": CLIENT_ID, "client_secret": CLIENT_SECRET}
        auth = {"issuer": provider.issuer, "proxy": proxy, "profiles": {"*": ["group:dev"]}}
        async with place.serve(extra={"auth": auth}) as served:
            for name in ("ana", "ben"):
                async with ScriptedBrowser(name) as browser:
                    reply = await browser.visit(served.page)
                    assert "notes is signed in to" in reply.text, reply.text
                    visited = str(browser.visited)
                    assert provider.issuer in visited
                    assert place.issuer.issuer in visited
                person = Principal(provider.issuer, name)
                assert await served.ask(person) == f"you are {name}"
            provider.people["ben"]["groups"] = []
            async with ScriptedBrowser("ben") as browser:
                assert (await browser.visit(served.page)).status_code >= 400


async def test_a_code_of_the_identity_provider_is_of_its_browser(place: Place) -> None:
    """Else somebody could be made to sign in to a server as somebody else's account."""
    provider = FakeProvider(time.time)
    async with serve(provider.app, lifespan="off") as provider.issuer:
        proxy = {"client_id": CLIENT_ID, "client_secret": CLIENT_SECRET}
        auth = {"issuer": provider.issuer, "proxy": proxy}
        async with place.serve(extra={"auth": auth}) as served:
            async with ScriptedBrowser("eve") as eve:
                identified = f"{served.url}/oauth/identified"
                url = str((await eve.visit(served.page, identified)).request.url)
            async with ScriptedBrowser("ana") as ana:
                await ana.http.get(served.page)
                assert (await ana.http.get(url)).status_code == 400
            assert not place.issuer.requests


async def test_the_gateway_describes_itself_as_a_client(place: Place) -> None:
    async with place.serve() as served, httpx2.AsyncClient(timeout=TIMEOUT_S) as http:
        document = (await http.get(f"{served.url}/oauth/client.json")).json()
        assert document["client_id"] == f"{served.url}/oauth/client.json"
        assert document["redirect_uris"] == [f"{served.url}/oauth/server-callback"]


async def ask_to_sign_in(client: RawLines) -> tuple[Message, Message, int]:
    """Call, and return what the client is asked, the whole message, and the id of the call."""
    calling = await client.ask("tools/call", CALL)
    if client.era == "legacy":
        first = await client.wait_for(lambda message: "method" in message)
        return first["params"], first, calling
    first = await client.answer_to(calling)
    ((_, question),) = first["result"]["inputRequests"].items()
    return question["params"], first, calling


async def answer(client: RawLines, first: Message, calling: int, action: str) -> Message:
    if client.era == "legacy":
        await client.send({"id": first["id"], "result": {"action": action}})
        return await client.answer_to(calling)
    ((key, _),) = first["result"]["inputRequests"].items()
    state = first["result"]["requestState"]
    more = {"inputResponses": {key: {"action": action}}, "requestState": state}
    return await client.request("tools/call", {**CALL, **more})


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("per_user", [True, False])
async def test_a_client_that_can_open_it_is_asked_and_the_call_goes_on(
    place: Place, era: Era, per_user: bool
) -> None:
    await place.list_tools(per_user)
    async with (
        place.serve(per_user=per_user) as served,
        raw_lines(served.gateway.get_endpoint(), era, elicitation={"url": {}}) as client,
    ):
        asked, first, calling = await ask_to_sign_in(client)
        assert (asked["mode"], asked["url"]) == ("url", served.page)
        assert "notes needs a sign-in" in asked["message"]
        answering = asyncio.create_task(answer(client, first, calling, "accept"))
        async with ScriptedBrowser("ana") as browser:
            assert (await browser.visit(served.page)).status_code == 200
        result = (await asyncio.wait_for(answering, TIMEOUT_S))["result"]
        assert result["content"][0]["text"] == "you are ana"


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_who_declines_gets_the_error_with_its_link(place: Place, era: Era) -> None:
    await place.list_tools()
    async with (
        place.serve() as served,
        raw_lines(served.gateway.get_endpoint(), era, elicitation={"url": {}}) as client,
    ):
        _, first, calling = await ask_to_sign_in(client)
        refused = await answer(client, first, calling, "decline")
        assert find_link(str(refused)) == served.page


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_client_that_cannot_open_addresses_gets_the_error_at_once(
    place: Place, era: Era
) -> None:
    await place.list_tools()
    async with (
        place.serve() as served,
        raw_lines(served.gateway.get_endpoint(), era, elicitation={"form": {}}) as client,
    ):
        assert find_link(str(await client.request("tools/call", CALL))) == served.page
