"""What an attacker tries against the authorization server, and does not get."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from portico.auth.proxy.client_directory import ClientDirectory
from portico.auth.proxy.credentials import seal, unseal
from portico.auth.proxy.json_requests import RequestFailed, build_public_request, is_public
from portico.auth.token_verifier import Rejection
from portico.callers import Principal
from tests.auth.proxy.conftest import (
    CLIENT_DOCUMENT,
    CLIENT_URL,
    REDIRECT_URI,
    ProxyUnderTest,
    read_query,
    run_proxy,
)
from tests.auth.proxy.fake_provider import CLIENT_ID
from tests.auth.proxy.scripted_browser import Page, ScriptedBrowser


async def see_page(proxy: ProxyUnderTest, url: str) -> httpx2.Response:
    """Return what the browser shows at once; nothing may have been sent to the client."""
    reply = await proxy.http.get(url, follow_redirects=False)
    assert not reply.is_redirect, reply.headers["location"]
    return reply


async def see_redirect(proxy: ProxyUnderTest, url: str) -> dict[str, str]:
    """Return what the client is told at once."""
    reply = await proxy.http.get(url, follow_redirects=False)
    assert reply.is_redirect, reply.text
    assert reply.headers["location"].startswith(read_query(url)["redirect_uri"])
    return read_query(reply.headers["location"])


WRONG_CLAIMS: tuple[Callable[[dict[str, Any]], Any], ...] = (
    lambda claims: claims.update(nonce="of another sign-in"),
    lambda claims: claims.pop("nonce"),
    lambda claims: claims.update(aud="another client"),
    lambda claims: claims.update(aud=[CLIENT_ID], azp="another client"),
    lambda claims: claims.update(iss="https://evil.example"),
    lambda claims: claims.update(exp=1),
    lambda claims: claims.pop("exp"),
    lambda claims: claims.pop("sub"),
    lambda claims: claims.update(sub="a\nb"),
    lambda claims: claims.update(groups=[{"admin": True}]),
)


WRONG_ADDRESSES = (
    "http://client.example/client.json",
    "https://client.example",
    "https://client.example/",
    "https://client.example/a/../client.json",
    "https://ana@client.example/client.json",
    "https://client.example/client.json#x",
    "https://client.example/" + "a" * 500,
    "ftp://client.example/client.json",
)


# The redirect URI


FOREIGN_URIS = (
    "https://evil.example/callback",
    "http://127.0.0.1:7777/callback/../evil",
    "http://127.0.0.1:7777/callback?next=https://evil.example",
    "http://127.0.0.1:7777/callbackx",
    "http://127.0.0.1.evil.example:7777/callback",
    "http://127.0.0.1:7777@evil.example/callback",
    "http://localhost:7777/callback",
    "https://127.0.0.1:7777/callback",
    "http://[::1]:7777/callback",
    "http://127.0.0.1:99999/callback",
    "HTTP://127.0.0.1:7777/callback",
    "",
)
UNSAFE_URIS = (
    "javascript:alert(1)",
    "JavaScript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "file:///etc/passwd",
    "http://evil.example/callback",
    "http://10.0.0.1/callback",
    "https://ana:secret@client.example/callback",
    "https://client.example/callback#fragment",
    "https://client.example/a b",
    "https://client.example\\@evil.example/",
    "https:///callback",
    "/callback",
    "//client.example/callback",
    "https://client.example/\r\nSet-Cookie: a=b",
    "https://client.example/" + "a" * 2_000,
    "https://cliеnt.example/callback",
)


async def test_nobody_is_redirected_to_what_the_client_did_not_register(
    proxy: ProxyUnderTest,
) -> None:
    client = await proxy.register()
    for uri in FOREIGN_URIS:
        reply = await see_page(proxy, proxy.ask(client, redirect_uri=uri))
        assert reply.status_code == 400, uri


async def test_an_unknown_client_gets_no_redirect(proxy: ProxyUnderTest) -> None:
    reply = await see_page(proxy, proxy.ask("c-" + "0" * 32, redirect_uri="https://evil.example/"))
    assert reply.status_code == 401


async def test_no_client_registers_a_redirect_uri_that_is_unsafe(proxy: ProxyUnderTest) -> None:
    for uri in UNSAFE_URIS:
        body = {"redirect_uris": [uri]}
        reply = await proxy.http.post(f"{proxy.url}/oauth/register", json=body)
        assert reply.status_code == 400, uri
        assert reply.json()["error"] in ("invalid_redirect_uri", "invalid_client_metadata")


# PKCE, state, resource


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"code_challenge": None}, "invalid_request"),
        ({"code_challenge_method": None}, "invalid_request"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"code_challenge": "short"}, "invalid_request"),
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"response_mode": "fragment"}, "invalid_request"),
        ({"resource": "https://other.example/mcp"}, "invalid_target"),
    ],
)
async def test_a_request_that_is_not_safe_is_refused(
    proxy: ProxyUnderTest, changes: dict[str, str | None], error: str
) -> None:
    answer = await see_redirect(proxy, proxy.ask(await proxy.register(), **changes))
    assert answer["error"] == error
    assert answer["state"] == "the client's state"
    assert answer["iss"] == proxy.url
    assert "code" not in answer


async def test_a_profile_that_does_not_exist_is_no_resource(proxy: ProxyUnderTest) -> None:
    url = proxy.ask(await proxy.register(), resource=f"{proxy.url}/mcp/p/none")
    assert (await see_redirect(proxy, url))["error"] == "invalid_target"


async def test_a_parameter_that_is_given_twice_is_refused(proxy: ProxyUnderTest) -> None:
    url = f"{proxy.ask(await proxy.register())}&redirect_uri=https://evil.example/"
    assert (await see_page(proxy, url)).status_code == 400


async def test_a_code_is_of_no_use_without_its_verifier(proxy: ProxyUnderTest) -> None:
    url = proxy.ask(await proxy.register())
    code = (await proxy.authorize(url))["code"]
    reply = await proxy.redeem(url, code, code_verifier="x" * 43)
    assert reply.json()["error"] == "invalid_grant"
    again = await proxy.redeem(url, code)
    assert again.json()["error"] == "invalid_grant", "one try is all there is"


@pytest.mark.parametrize("changes", [{"code_verifier": ""}, {"redirect_uri": ""}])
async def test_a_code_needs_all_that_it_is_bound_to(
    proxy: ProxyUnderTest, changes: dict[str, str]
) -> None:
    url = proxy.ask(await proxy.register())
    code = (await proxy.authorize(url))["code"]
    reply = await proxy.redeem(url, code, **changes)
    assert reply.json()["error"] == "invalid_grant"


async def test_a_code_that_is_used_twice_ends_what_it_gave(proxy: ProxyUnderTest) -> None:
    url = proxy.ask(await proxy.register())
    code = (await proxy.authorize(url))["code"]
    tokens = (await proxy.redeem(url, code)).json()
    assert isinstance(await proxy.find_person(tokens), Principal)
    assert (await proxy.redeem(url, code)).json()["error"] == "invalid_grant"
    assert isinstance(await proxy.find_person(tokens), Rejection)


async def test_of_parallel_uses_of_a_code_one_at_most_gets_tokens(proxy: ProxyUnderTest) -> None:
    url = proxy.ask(await proxy.register())
    code = (await proxy.authorize(url))["code"]
    replies = await asyncio.gather(*(proxy.redeem(url, code) for _ in range(8)))
    assert sum(reply.status_code == 200 for reply in replies) <= 1


async def test_a_code_of_one_client_is_of_no_use_to_another(proxy: ProxyUnderTest) -> None:
    url = proxy.ask(await proxy.register())
    code = (await proxy.authorize(url))["code"]
    reply = await proxy.redeem(url, code, client_id=await proxy.register())
    assert reply.json()["error"] == "invalid_grant"


async def test_a_code_expires_within_a_minute(proxy: ProxyUnderTest) -> None:
    url = proxy.ask(await proxy.register())
    code = (await proxy.authorize(url))["code"]
    proxy.clock.ahead_s = 61
    assert (await proxy.redeem(url, code)).json()["error"] == "invalid_grant"


async def test_a_token_is_not_exchanged_for_another_resource(proxy: ProxyUnderTest) -> None:
    client = await proxy.register()
    url = proxy.ask(client, resource=f"{proxy.url}/mcp/p/work")
    code = (await proxy.authorize(url))["code"]
    reply = await proxy.redeem(url, code, resource=f"{proxy.url}/mcp")
    assert reply.json()["error"] == "invalid_target"
    tokens = (await proxy.redeem(url, code)).json()
    reply = await proxy.refresh(client, tokens["refresh_token"], resource=f"{proxy.url}/mcp/p/ops")
    assert reply.json()["error"] == "invalid_target"


# Consent, and the browser


async def test_nothing_goes_to_the_identity_provider_before_a_person_agreed(
    proxy: ProxyUnderTest,
) -> None:
    """The confused deputy: a session at the provider must not be enough for a new client."""
    await see_page(proxy, proxy.ask(await proxy.register()))
    assert not proxy.provider.authorization_requests


async def test_another_page_cannot_agree_for_a_person(proxy: ProxyUnderTest) -> None:
    asked = read_query(proxy.ask(await proxy.register()))
    form = {**asked, "decision": "allow", "form_token": "0" * 64}
    await proxy.browser.http.get(proxy.ask(await proxy.register()))
    own = {"Origin": proxy.url}
    url = f"{proxy.url}/oauth/consent"
    assert (await proxy.browser.http.post(url, data=form, headers=own)).status_code == 403
    assert not proxy.provider.authorization_requests


async def test_a_form_is_of_no_use_in_another_browser(proxy: ProxyUnderTest) -> None:
    """An attacker has a form of his own, and lets another's browser send it."""
    page = await proxy.http.get(proxy.ask(await proxy.register()))
    await proxy.browser.http.get(proxy.ask(await proxy.register()))
    reply = await proxy.browser.press(page, "allow")
    assert reply.status_code == 403


async def test_what_is_agreed_to_cannot_be_changed_in_the_form(proxy: ProxyUnderTest) -> None:
    shown = await proxy.browser.http.get(proxy.ask(await proxy.register()))
    other = await proxy.register("https://evil.example/callback")
    changes = {"client_id": other, "redirect_uri": "https://evil.example/callback"}
    assert (await proxy.browser.press(shown, "allow", **changes)).status_code == 403


async def test_a_form_from_another_origin_is_refused(proxy: ProxyUnderTest) -> None:
    shown = await proxy.browser.http.get(proxy.ask(await proxy.register()))
    reply = await proxy.browser.http.post(
        f"{proxy.url}/oauth/consent",
        data={**Page(shown.text).fields, "decision": "allow"},
        headers={"Origin": "https://evil.example"},
    )
    assert reply.status_code == 403


async def test_pages_cannot_be_framed_and_run_no_script(proxy: ProxyUnderTest) -> None:
    name = "<script>alert(1)</script>\u202e\"onload='x'"
    client = await proxy.register(client_name=name)
    state = '"><script>alert(2)</script>'
    reply = await see_page(proxy, proxy.ask(client, state=state))
    policy = reply.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "form-action 'self'" in policy
    assert reply.headers["x-frame-options"] == "DENY"
    assert "<script" not in reply.text
    assert "\u202e" not in reply.text
    cookie = reply.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie


async def test_a_sign_in_ends_in_the_browser_in_which_it_began(proxy: ProxyUnderTest) -> None:
    """Otherwise an attacker would agree himself, and let another sign in for him."""
    url = proxy.ask(await proxy.register())
    callback = await proxy.browser.visit(url, f"{proxy.url}/oauth/callback")
    async with ScriptedBrowser("bob") as other:
        await other.http.get(proxy.ask(await proxy.register()))
        reply = await other.http.get(str(callback.request.url))
        assert reply.status_code == 403
        assert not reply.is_redirect


async def test_an_answer_of_the_provider_is_taken_once(proxy: ProxyUnderTest) -> None:
    url = proxy.ask(await proxy.register())
    callback = str((await proxy.browser.visit(url, f"{proxy.url}/oauth/callback")).request.url)
    assert (await proxy.browser.http.get(callback)).is_redirect
    assert (await proxy.browser.http.get(callback)).status_code == 400


async def test_an_answer_without_a_sign_in_is_refused(proxy: ProxyUnderTest) -> None:
    reply = await see_page(proxy, f"{proxy.url}/oauth/callback?code=x&state=y")
    assert reply.status_code == 400


async def test_a_sign_in_does_not_wait_for_ever(proxy: ProxyUnderTest) -> None:
    url = proxy.ask(await proxy.register())
    callback = str((await proxy.browser.visit(url, f"{proxy.url}/oauth/callback")).request.url)
    proxy.clock.ahead_s = 601
    assert (await proxy.browser.http.get(callback)).status_code == 400


# The identity provider


async def test_an_answer_of_another_provider_is_refused(proxy: ProxyUnderTest) -> None:
    """Mix-up (RFC 9207)."""
    proxy.provider.answer_params = {"iss": "https://evil.example"}
    answer = await proxy.authorize(proxy.ask(await proxy.register()))
    assert answer["error"] == "access_denied"


async def test_an_answer_without_an_issuer_is_refused_where_the_provider_sends_one(
    proxy: ProxyUnderTest,
) -> None:
    proxy.provider.metadata = {"authorization_response_iss_parameter_supported": True}
    answer = await proxy.authorize(proxy.ask(await proxy.register()))
    assert answer["error"] == "access_denied"


async def test_an_id_token_that_is_not_of_this_sign_in_is_refused(proxy: ProxyUnderTest) -> None:
    client = await proxy.register()
    for number, change in enumerate(WRONG_CLAIMS):
        proxy.provider.change_claims = change
        answer = await proxy.authorize(proxy.ask(client))
        assert answer.get("error") == "access_denied", number


async def test_an_id_token_with_a_foreign_signature_is_refused(proxy: ProxyUnderTest) -> None:
    proxy.provider.signs_with_other_key = True
    answer = await proxy.authorize(proxy.ask(await proxy.register()))
    assert answer["error"] == "access_denied"


async def test_a_refresh_that_names_another_person_ends_the_sign_in(
    proxy: ProxyUnderTest,
) -> None:
    client = await proxy.register()
    tokens = await proxy.sign_in(client)
    proxy.provider.change_claims = lambda claims: claims.update(sub="bob")
    reply = await proxy.refresh(client, tokens["refresh_token"])
    assert reply.status_code == 400
    assert isinstance(await proxy.find_person(tokens), Rejection)


def read_files(folder: Path) -> bytes:
    """Return all that is stored, which must be for its owner only."""
    files = list(folder.iterdir())
    assert files
    assert all(file.stat().st_mode & 0o077 == 0 for file in files)
    return b"".join(file.read_bytes() for file in files)


async def test_nothing_of_the_provider_reaches_a_client_or_the_disk(
    proxy: ProxyUnderTest, tmp_path: Path
) -> None:
    client = await proxy.register()
    url = proxy.ask(client)
    answer = await proxy.authorize(url)
    tokens = (await proxy.redeem(url, answer["code"])).json()
    refreshed = (await proxy.refresh(client, tokens["refresh_token"])).json()
    stored = read_files(tmp_path)
    seen = json.dumps([answer, tokens, refreshed])
    assert proxy.provider.issued
    for secret in proxy.provider.issued:
        assert secret not in seen
        assert secret.encode() not in stored
    for issued in (tokens, refreshed):
        assert answer["code"].encode() not in stored
        assert issued["access_token"].encode() not in stored
        assert issued["refresh_token"].encode() not in stored


# Tokens


async def test_a_refresh_token_that_is_used_twice_ends_the_sign_in(proxy: ProxyUnderTest) -> None:
    client = await proxy.register()
    tokens = await proxy.sign_in(client)
    renewed = (await proxy.refresh(client, tokens["refresh_token"])).json()
    stolen = await proxy.refresh(client, tokens["refresh_token"])
    assert stolen.json()["error"] == "invalid_grant"
    assert isinstance(await proxy.find_person(renewed), Rejection)
    assert (await proxy.refresh(client, renewed["refresh_token"])).status_code == 400


async def test_the_log_says_who_was_signed_out_and_why_and_has_no_secret(
    proxy: ProxyUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "portico")
    client = await proxy.register()
    tokens = await proxy.sign_in(client)
    renewed = (await proxy.refresh(client, tokens["refresh_token"])).json()
    await proxy.refresh(client, tokens["refresh_token"])
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warned) == 1
    assert "ana" in warned[0]
    assert client in warned[0]
    assert "used before" in warned[0]
    secrets = [*proxy.provider.issued, *tokens.values(), *renewed.values()]
    assert not [text for text in secrets if len(str(text)) > 20 and str(text) in caplog.text]


async def test_a_refresh_token_of_one_client_is_of_no_use_to_another(
    proxy: ProxyUnderTest,
) -> None:
    tokens = await proxy.sign_in(await proxy.register())
    reply = await proxy.refresh(await proxy.register(), tokens["refresh_token"])
    assert reply.json()["error"] == "invalid_grant"


@pytest.mark.parametrize("kind", ["code", "refresh_token"])
async def test_what_is_no_access_token_opens_nothing(proxy: ProxyUnderTest, kind: str) -> None:
    url = proxy.ask(await proxy.register())
    answer = await proxy.authorize(url)
    tokens = {**answer, **(await proxy.redeem(url, answer["code"])).json()}
    assert isinstance(await proxy.server.tokens.verify(tokens[kind]), Rejection)


async def test_a_token_that_was_made_up_or_changed_opens_nothing(proxy: ProxyUnderTest) -> None:
    token = (await proxy.sign_in(await proxy.register()))["access_token"]
    last = "A" if token[-1] != "A" else "B"
    for wrong in (token[:-1] + last, token.upper(), token + "A", token[:-1], "portico-at-"):
        assert isinstance(await proxy.server.tokens.verify(wrong), Rejection | None), wrong
        assert not isinstance(await proxy.server.tokens.verify(wrong), Principal)


async def test_an_access_token_expires(proxy: ProxyUnderTest) -> None:
    tokens = await proxy.sign_in(await proxy.register())
    proxy.clock.ahead_s = 901
    assert isinstance(await proxy.find_person(tokens), Rejection)


async def test_a_client_cannot_revoke_the_tokens_of_another(proxy: ProxyUnderTest) -> None:
    tokens = await proxy.sign_in(await proxy.register())
    form = {"token": tokens["access_token"], "client_id": await proxy.register()}
    reply = await proxy.http.post(f"{proxy.url}/oauth/revoke", data=form)
    assert reply.status_code == 401
    assert isinstance(await proxy.find_person(tokens), Principal)


@pytest.mark.parametrize("grant_type", ["password", "client_credentials", "", "implicit"])
async def test_no_other_grant_gives_tokens(proxy: ProxyUnderTest, grant_type: str) -> None:
    client = await proxy.register()
    reply = await proxy.post_token(grant_type=grant_type, client_id=client, username="ana")
    assert reply.json()["error"] == "unsupported_grant_type"


async def test_a_client_that_is_not_known_is_told_so(proxy: ProxyUnderTest) -> None:
    reply = await proxy.refresh("c-" + "0" * 32, "portico-rt-" + "0" * 32 + "_" + "a" * 43)
    assert reply.status_code == 401
    assert reply.json()["error"] == "invalid_client"


# Clients


@pytest.mark.parametrize(
    "changes",
    [
        {"client_id": "https://other.example/client.json"},
        {"client_secret": "a secret"},
        {"token_endpoint_auth_method": "client_secret_post"},
        {"redirect_uris": []},
        {"redirect_uris": ["javascript:alert(1)"]},
        {"redirect_uris": "https://client.example/callback"},
        {"client_name": {"a": "b"}},
    ],
)
async def test_a_document_that_is_not_sound_makes_no_client(
    proxy: ProxyUnderTest, changes: dict[str, Any]
) -> None:
    proxy.documents[CLIENT_URL] = {**CLIENT_DOCUMENT, **changes}
    reply = await see_page(proxy, proxy.ask(CLIENT_URL))
    assert reply.status_code in (400, 401)


async def test_a_document_of_any_size_is_not_read(proxy: ProxyUnderTest) -> None:
    proxy.documents[CLIENT_URL] = {**CLIENT_DOCUMENT, "padding": "x" * 100_000}
    reply = await see_page(proxy, proxy.ask(CLIENT_URL))
    assert "bytes" in reply.text


async def test_an_id_that_is_no_address_of_a_document_is_refused(proxy: ProxyUnderTest) -> None:
    for client_id in WRONG_ADDRESSES:
        proxy.documents[client_id] = {**CLIENT_DOCUMENT, "client_id": client_id}
        reply = await see_page(proxy, proxy.ask(client_id))
        assert reply.status_code == 401, client_id


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0"),
        *("100.64.0.1", "224.0.0.1", "255.255.255.255", "198.18.0.1", "192.0.0.1"),
        *("::1", "::", "fe80::1%eth0", "fc00::1", "ff02::1", "::ffff:127.0.0.1"),
        *("64:ff9b::7f00:1", "2002:7f00:1::", "2001:0:7f00:1::", "::127.0.0.1", "no address"),
    ],
)
def test_no_address_of_this_network_is_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.215.14", "2606:4700::1111"])
def test_addresses_of_the_internet_are_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "2130706433", "0x7f.1"])
async def test_a_document_on_this_machine_is_not_fetched(host: str) -> None:
    async with httpx2.AsyncClient() as http:
        with pytest.raises(RequestFailed):
            await build_public_request(http, f"https://{host}/client.json")


async def test_documents_that_fail_are_not_fetched_at_every_request(tmp_path: Path) -> None:
    asked: list[str] = []

    async def build_request(http: httpx2.AsyncClient, url: str) -> httpx2.Request:
        asked.append(url)
        raise RequestFailed("it cannot be found")

    async with run_proxy(tmp_path) as proxy, httpx2.AsyncClient() as http:
        directory = ClientDirectory(proxy.store, http, build_request=build_request)
        for _ in range(5):
            with pytest.raises(Exception, match="cannot be found"):
                await directory.find(CLIENT_URL)
    assert len(asked) == 1


async def test_registration_asks_for_secrets_in_vain(proxy: ProxyUnderTest) -> None:
    """Nothing would be proved by a secret that anybody can register for."""
    body = {"redirect_uris": [REDIRECT_URI], "token_endpoint_auth_method": "client_secret_post"}
    answer = (await proxy.http.post(f"{proxy.url}/oauth/register", json=body)).json()
    assert answer["token_endpoint_auth_method"] == "none"
    assert "client_secret" not in answer


# Load


async def test_registrations_of_one_network_are_limited(proxy: ProxyUnderTest) -> None:
    body = {"redirect_uris": [REDIRECT_URI]}
    statuses = [
        (await proxy.http.post(f"{proxy.url}/oauth/register", json=body)).status_code
        for _ in range(80)
    ]
    assert statuses[:60] == [201] * 60
    assert 429 in statuses[60:]


async def test_a_large_body_is_not_read(proxy: ProxyUnderTest) -> None:
    body = {"redirect_uris": [REDIRECT_URI], "client_name": "x" * 100_000}
    reply = await proxy.http.post(f"{proxy.url}/oauth/register", json=body)
    assert reply.status_code == 413


async def test_nonsense_makes_no_client(proxy: ProxyUnderTest) -> None:
    for body in (b"", b"{", b"[]", b"null", b"[" * 60_000, b'{"redirect_uris":1}'):
        reply = await proxy.http.post(f"{proxy.url}/oauth/register", content=body)
        assert reply.status_code == 400, body[:20]
        assert reply.json()["error"] == "invalid_client_metadata"


async def test_a_form_in_another_encoding_is_refused(proxy: ProxyUnderTest) -> None:
    reply = await proxy.http.post(f"{proxy.url}/oauth/token", json={"grant_type": "refresh_token"})
    assert reply.status_code == 400


def test_a_sealed_text_opens_only_with_its_credential() -> None:
    sealed = seal("what the provider issued", "portico-rt-one")
    assert b"provider" not in sealed
    assert unseal(sealed, "portico-rt-one") == "what the provider issued"
    for other in ("portico-rt-two", ""):
        with pytest.raises(ValueError, match="cannot be read"):
            unseal(sealed, other)
    with pytest.raises(ValueError, match="cannot be read"):
        unseal(bytes([sealed[0] ^ 1]) + sealed[1:], "portico-rt-one")
