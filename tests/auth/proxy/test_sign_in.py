"""People sign in with clients, through the gateway's own authorization server."""

import asyncio
import os
from pathlib import Path

import httpx2
import pytest

from portico.auth.proxy import client_directory, token_service
from portico.auth.proxy.client_directory import ClientDirectory
from portico.auth.token_verifier import Rejection
from portico.callers import Principal
from tests.auth.proxy.conftest import CLIENT_URL, REDIRECT_URI, ProxyUnderTest, run_proxy
from tests.auth.proxy.scripted_browser import ScriptedBrowser

WEB_REDIRECT = "https://client.example/callback"


async def test_a_person_signs_in_with_a_client_that_registered_itself(
    proxy: ProxyUnderTest,
) -> None:
    tokens = await proxy.sign_in(await proxy.register())
    person = await proxy.find_person(tokens)
    assert isinstance(person, Principal)
    assert (person.issuer, person.subject, person.name, person.groups) == (
        proxy.provider.issuer,
        "ana",
        "Ana",
        ("dev",),
    )
    assert tokens["expires_in"] <= 900


async def test_a_client_is_known_by_the_document_at_its_address(proxy: ProxyUnderTest) -> None:
    tokens = await proxy.sign_in(CLIENT_URL)
    assert isinstance(await proxy.find_person(tokens), Principal)


async def test_the_same_person_has_one_id_with_every_client_and_after_a_refresh(
    proxy: ProxyUnderTest,
) -> None:
    client = await proxy.register()
    tokens = await proxy.sign_in(client)
    refreshed = await proxy.refresh(client, tokens["refresh_token"])
    people = [
        await proxy.find_person(got)
        for got in (tokens, refreshed.json(), await proxy.sign_in(CLIENT_URL))
    ]
    assert {person.id for person in people if isinstance(person, Principal)} == {
        f"{proxy.provider.issuer} ana"
    }
    assert len(people) == 3


async def test_metadata_say_what_clients_need(proxy: ProxyUnderTest) -> None:
    reply = await proxy.http.get(f"{proxy.url}/.well-known/oauth-authorization-server")
    found = reply.json()
    assert found["issuer"] == proxy.url
    assert found["code_challenge_methods_supported"] == ["S256"]
    assert found["client_id_metadata_document_supported"] is True
    assert found["authorization_response_iss_parameter_supported"] is True
    assert reply.headers["access-control-allow-origin"] == "*"


async def test_the_answer_names_the_issuer_and_has_the_state_of_the_client(
    proxy: ProxyUnderTest,
) -> None:
    answer = await proxy.authorize(proxy.ask(await proxy.register()))
    assert answer["iss"] == proxy.url
    assert answer["state"] == "the client's state"


async def test_a_redirect_to_this_machine_may_use_any_port(proxy: ProxyUnderTest) -> None:
    client = await proxy.register("http://127.0.0.1:1/callback")
    await proxy.sign_in(client, redirect_uri="http://127.0.0.1:54321/callback")


async def test_a_client_for_a_scheme_of_its_own_gets_in(proxy: ProxyUnderTest) -> None:
    uri = "cursor://anysphere.cursor-mcp/oauth/callback"
    await proxy.sign_in(await proxy.register(uri), redirect_uri=uri)


async def test_the_identity_provider_is_asked_for_no_resource(proxy: ProxyUnderTest) -> None:
    await proxy.sign_in(await proxy.register())
    asked = proxy.provider.authorization_requests[0]
    assert "resource" not in asked
    assert asked["code_challenge_method"] == "S256"
    assert asked["redirect_uri"] == f"{proxy.url}/oauth/callback"


async def test_consent_is_remembered_for_a_website_and_asked_again_for_a_program(
    proxy: ProxyUnderTest,
) -> None:
    for _ in range(2):
        await proxy.authorize(proxy.ask(CLIENT_URL, redirect_uri=WEB_REDIRECT))
    assert proxy.browser.consents == 1
    for _ in range(2):
        await proxy.authorize(proxy.ask(CLIENT_URL))
    assert proxy.browser.consents == 3


async def test_consent_of_one_browser_is_none_in_another(proxy: ProxyUnderTest) -> None:
    await proxy.authorize(proxy.ask(CLIENT_URL, redirect_uri=WEB_REDIRECT))
    async with ScriptedBrowser() as other:
        proxy.browser = other
        await proxy.authorize(proxy.ask(CLIENT_URL, redirect_uri=WEB_REDIRECT))
        assert other.consents == 1


async def test_who_is_another_person_than_agreed_begins_again(proxy: ProxyUnderTest) -> None:
    url = proxy.ask(CLIENT_URL, redirect_uri=WEB_REDIRECT)
    await proxy.authorize(url)
    proxy.browser.user = "bob"
    reply = await proxy.browser.visit(proxy.ask(CLIENT_URL, redirect_uri=WEB_REDIRECT))
    assert reply.status_code == 403
    assert "somebody else" in reply.text.lower()
    await proxy.authorize(proxy.ask(CLIENT_URL, redirect_uri=WEB_REDIRECT))
    assert proxy.browser.consents == 2, "the next time the page is shown"


async def test_who_denies_it_is_sent_back_without_a_code(proxy: ProxyUnderTest) -> None:
    proxy.browser.decision = "deny"
    answer = await proxy.authorize(proxy.ask(await proxy.register()))
    assert answer["error"] == "access_denied"
    assert answer["iss"] == proxy.url
    assert not proxy.provider.authorization_requests


async def test_the_page_shows_who_asks_and_where_answers_go(proxy: ProxyUnderTest) -> None:
    client = await proxy.register(client_name="Claude")
    page = (await proxy.http.get(proxy.ask(client))).text
    assert "Claude" in page
    assert "Anybody can register" in page
    assert REDIRECT_URI in page
    assert "client.example vouches" in (await proxy.http.get(proxy.ask(CLIENT_URL))).text


async def test_groups_of_now_come_with_each_refresh(proxy: ProxyUnderTest) -> None:
    client = await proxy.register()
    tokens = await proxy.sign_in(client)
    proxy.provider.people["ana"]["groups"] = ["ops"]
    reply = await proxy.refresh(client, tokens["refresh_token"])
    person = await proxy.find_person(reply.json())
    assert isinstance(person, Principal)
    assert person.groups == ("ops",)


async def test_groups_open_profiles_and_who_has_none_does_not_come_in(tmp_path: Path) -> None:
    profiles = {"work": ["group:dev"]}
    async with run_proxy(tmp_path, profiles=profiles) as proxy:
        client = await proxy.register()
        person = await proxy.find_person(await proxy.sign_in(client))
        assert isinstance(person, Principal)
        assert person.profiles == ("work",)
        proxy.browser.user = "eve"
        proxy.provider.people["eve"] = {"groups": ["visitors"]}
        answer = await proxy.authorize(proxy.ask(client))
        assert answer["error"] == "access_denied"


async def test_groups_come_from_userinfo_where_the_id_token_has_none(
    proxy: ProxyUnderTest,
) -> None:
    proxy.provider.change_claims = lambda claims: claims.pop("groups", None)
    person = await proxy.find_person(await proxy.sign_in(await proxy.register()))
    assert isinstance(person, Principal)
    assert person.groups == ("dev",)


async def test_a_token_for_one_profile_opens_no_other(proxy: ProxyUnderTest) -> None:
    tokens = await proxy.sign_in(await proxy.register(), resource=f"{proxy.url}/mcp/p/work")
    person = await proxy.find_person(tokens)
    assert isinstance(person, Principal)
    assert person.profiles == ("work",)


async def test_when_the_person_is_gone_at_the_provider_tokens_end(proxy: ProxyUnderTest) -> None:
    client = await proxy.register()
    tokens = await proxy.sign_in(client)
    proxy.provider.gone.add("ana")
    reply = await proxy.refresh(client, tokens["refresh_token"])
    assert reply.json()["error"] == "invalid_grant"
    assert isinstance(await proxy.find_person(tokens), Rejection)


async def test_a_provider_that_does_not_answer_ends_nothing_for_an_hour(
    proxy: ProxyUnderTest,
) -> None:
    client = await proxy.register()
    tokens = await proxy.sign_in(client)
    proxy.provider.status = 500
    reply = await proxy.refresh(client, tokens["refresh_token"])
    assert reply.status_code == 200
    proxy.clock.ahead_s = token_service.UNCONFIRMED_S + 60
    token = reply.json()["refresh_token"]
    unavailable = await proxy.refresh(client, token)
    assert unavailable.status_code == 503
    assert "retry-after" in unavailable.headers
    proxy.provider.status = 200
    proxy.clock.ahead_s = 0
    assert (await proxy.refresh(client, token)).status_code == 200, "the token is still valid"


async def test_without_a_refresh_token_of_the_provider_people_sign_in_each_day(
    proxy: ProxyUnderTest,
) -> None:
    proxy.provider.gives_refresh_tokens = False
    client = await proxy.register()
    tokens = await proxy.sign_in(client)
    reply = await proxy.refresh(client, tokens["refresh_token"])
    proxy.clock.ahead_s = token_service.UNCONFIRMED_GRANT_S + 1
    late = await proxy.refresh(client, reply.json()["refresh_token"])
    assert late.json()["error"] == "invalid_grant"


@pytest.mark.parametrize("kind", ["access_token", "refresh_token"])
async def test_a_revoked_token_ends_the_sign_in(proxy: ProxyUnderTest, kind: str) -> None:
    client = await proxy.register()
    tokens = await proxy.sign_in(client)
    person = await proxy.find_person(tokens)
    assert isinstance(person, Principal)
    form = {"token": tokens[kind], "client_id": client}
    assert (await proxy.http.post(f"{proxy.url}/oauth/revoke", data=form)).status_code == 200
    assert isinstance(await proxy.find_person(tokens), Rejection)
    assert not proxy.server.tokens.accepts(person)
    reply = await proxy.refresh(client, tokens["refresh_token"])
    assert reply.json()["error"] == "invalid_grant"


async def test_to_revoke_what_is_no_token_is_no_error(proxy: ProxyUnderTest) -> None:
    form = {"token": "nonsense", "client_id": "x"}
    assert (await proxy.http.post(f"{proxy.url}/oauth/revoke", data=form)).status_code == 200


async def test_sign_ins_outlive_a_restart(tmp_path: Path) -> None:
    async with run_proxy(tmp_path) as proxy:
        client = await proxy.register()
        tokens = await proxy.sign_in(client)
        issuer = proxy.provider.issuer
    async with run_proxy(tmp_path) as proxy:
        # Another issuer: what it said of people is nothing now.
        assert isinstance(await proxy.find_person(tokens), Rejection)
        assert proxy.provider.issuer != issuer
        reply = await proxy.http.get(proxy.ask(client))
        assert reply.status_code == 200, "the client is still registered"


async def test_gateways_share_sign_ins_in_postgresql(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("postgres").url
    async with run_proxy(tmp_path, url) as proxy:
        client = await proxy.register()
        tokens = await proxy.sign_in(client)
        refreshed = await proxy.refresh(client, tokens["refresh_token"])
        assert isinstance(await proxy.find_person(refreshed.json()), Principal)
        again = await proxy.refresh(client, tokens["refresh_token"])
        assert again.json()["error"] == "invalid_grant"
        assert isinstance(await proxy.find_person(refreshed.json()), Rejection)
    assert not os.listdir(tmp_path)


async def test_a_client_whose_description_hangs_holds_up_no_other(
    proxy: ProxyUnderTest, tmp_path: Path
) -> None:
    began: list[str] = []
    is_full = asyncio.Event()

    async def build_request(http: httpx2.AsyncClient, url: str) -> httpx2.Request:
        began.append(url)
        if "hangs" in url:
            if len(began) > client_directory.MAX_FETCHES:
                is_full.set()
            await asyncio.Event().wait()
        return http.build_request("GET", f"{proxy.document_host}/?{url}")

    async with httpx2.AsyncClient() as http:
        directory = ClientDirectory(proxy.store, http, build_request=build_request)
        assert (await directory.find(CLIENT_URL)).is_document
        waiting = [
            asyncio.create_task(directory.find(f"https://hangs.example/{number}"))
            for number in range(client_directory.MAX_FETCHES + 1)
        ]
        await asyncio.wait_for(is_full.wait(), 60)
        async with asyncio.timeout(60):
            assert (await directory.find(CLIENT_URL)).is_document
        for task in waiting:
            task.cancel()


async def test_a_provider_that_cannot_be_reached_is_said_to_the_client(
    proxy: ProxyUnderTest,
) -> None:
    proxy.provider.status = 500
    answer = await proxy.authorize(proxy.ask(await proxy.register()))
    assert answer["error"] == "temporarily_unavailable"


async def test_a_token_is_not_called_wrong_while_the_store_cannot_be_read(tmp_path: Path) -> None:
    async with run_proxy(tmp_path) as proxy:
        tokens = await proxy.sign_in(await proxy.register())
        await proxy.store.close()
        for name in os.listdir(tmp_path):
            os.truncate(tmp_path / name, 100)
        answer = await proxy.find_person(tokens)
        assert isinstance(answer, Rejection)
        assert answer.status == 503
