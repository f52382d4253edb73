"""Tokens of identity providers over HTTP: who comes in as whom, what that opens, and until when."""

import asyncio
import json
import re
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest

from portico.testing import FakeBackend
from portico.upstream.backend import Era
from tests.auth.fake_issuer import AUDIENCE, answer, make_key, run_issuer, to_jwk
from tests.auth.token_gateway import CAME_IN, PUBLIC_URL, post, post_token, serve_gateway
from tests.gateways import TIMEOUT_S, wait_until
from tests.interaction.fake_servers import text, tool
from tests.interaction.raw_clients import Message, call, raw_http

ERAS: list[Era] = ["legacy", "modern"]
WELL_KNOWN = "/.well-known/oauth-protected-resource"


def server() -> FakeBackend:
    read = {**tool("read"), "annotations": {"readOnlyHint": True}}
    backend = FakeBackend([read, tool("write"), tool("long")])
    for name in ("read", "write"):
        backend.on_call(name, lambda _, name=name: text(f"{name} done"))
    backend.on_call("long", lambda _: text("line\n" * 40_000))
    return backend


async def get(url: str, token: str = "", **headers: str) -> httpx2.Response:
    if token:
        headers["authorization"] = f"Bearer {token}"
    async with httpx2.AsyncClient(timeout=TIMEOUT_S) as http:
        return await http.get(url, headers=headers)


def read_challenge(reply: httpx2.Response) -> dict[str, str]:
    header = reply.headers["www-authenticate"]
    assert header.startswith("Bearer ")
    return dict(re.findall(r'(\w+)="([^"]*)"', header))


@pytest.mark.parametrize("kind", ["RSA", "P-256", "OKP"])
async def test_a_token_opens_mcp_rest_and_metrics(kind: str) -> None:
    async with run_issuer(kind) as issuer, serve_gateway(issuer) as url:
        root = url.removesuffix("/mcp")
        token = issuer.sign()
        for path in ("/api/v1/servers", "/metrics"):
            assert (await get(root + path)).status_code == 401
            assert (await get(root + path, token)).status_code == 200
        assert (await post_token(url, token)).status_code == CAME_IN
        assert "checks" in (await get(f"{root}/readyz", token)).json()
        assert "checks" not in (await get(f"{root}/readyz", f"{token}x")).json()
        assert issuer.requests["/jwks"] == 1


@pytest.mark.parametrize("era", ERAS)
async def test_a_renewed_token_is_the_same_person_and_another_persons_is_not(era: Era) -> None:
    async with run_issuer() as issuer, serve_gateway(issuer, backends={"mail": server()}) as url:
        first, renewed = issuer.sign(issuer.claims(jti="1")), issuer.sign(issuer.claims(jti="2"))
        bob = issuer.sign(issuer.claims("bob"))
        async with (
            raw_http(url, era, token=first) as ana,
            raw_http(url, era, token=renewed) as later,
            raw_http(url, era, token=bob) as other,
        ):
            answered = await call(ana, "call_tool", name="mail.long", arguments={})
            result_id = str(answered).split("portico://result/")[1][:22]
            assert "line" in str(await call(later, "read_result", result_id=result_id))
            assert "no such result" in str(await call(other, "read_result", result_id=result_id))
            if era == "legacy":
                frame = {"jsonrpc": "2.0", "id": 9, "method": "ping"}
                headers = ana._headers  # pyright: ignore[reportPrivateUsage]
                found: list[int] = []
                for token in (renewed, bob):
                    own = {**headers, "authorization": f"Bearer {token}"}
                    found.append((await ana.http.post(url, json=frame, headers=own)).status_code)
                assert found == [200, 404], "a session outlives a renewed token"


async def test_the_audit_log_names_the_person_and_the_token_by_its_id(tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    extra = {"data_dir": str(tmp_path), "audit": {"file": str(log)}}
    backends = {"mail": server()}
    async with run_issuer() as issuer, serve_gateway(issuer, backends=backends, extra=extra) as url:
        token = issuer.sign(issuer.claims(jti="token-7"))
        async with raw_http(url, "modern", token=token) as client:
            await call(client, "call_tool", name="mail.read", arguments={})
        [line] = [json.loads(one) for one in log.read_text().splitlines() if '"mail.read"' in one]
        assert (line["person"], line["credential"]) == (f"{issuer.url} ana", "token-7")
        assert token not in log.read_text()


async def test_rules_know_people_and_their_groups() -> None:
    rules: list[Message] = [
        {"for": "group:dev", "tools": "mail.write"},
        {"for": "person:eve", "tools": "mail.read"},
        {"may": "deny", "visible": True},
    ]
    backends = {"mail": server()}
    async with (
        run_issuer() as issuer,
        serve_gateway(
            issuer, backends=backends, extra={"rules": rules}, groups_claim="realm_access.roles"
        ) as url,
    ):
        may: dict[tuple[str, str], bool] = {}
        for person, groups in (("ana", ["dev"]), ("eve", ["ops"])):
            token = issuer.sign(issuer.claims(person, realm_access={"roles": groups}))
            async with raw_http(url, "modern", token=token) as client:
                for name in ("read", "write"):
                    answered = await call(client, "call_tool", name=f"mail.{name}", arguments={})
                    may[person, name] = f"{name} done" in str(answered)
        assert may == {
            ("ana", "read"): False,
            ("ana", "write"): True,
            ("eve", "read"): True,
            ("eve", "write"): False,
        }


async def test_read_only_tokens_change_nothing() -> None:
    backends = {"mail": server()}
    async with (
        run_issuer() as issuer,
        serve_gateway(issuer, backends=backends, read_only=True) as url,
        raw_http(url, "modern", token=issuer.sign()) as client,
    ):
        assert "read done" in str(await call(client, "call_tool", name="mail.read", arguments={}))
        refused = await call(client, "call_tool", name="mail.write", arguments={})
        assert "read-only" in str(refused)
        root = url.removesuffix("/mcp")
        headers = [("authorization", f"Bearer {issuer.sign()}")]
        reply = await post(f"{root}/api/v1/servers/mail/restart", headers)
        assert reply.status_code == 403


PROFILES: dict[str, Any] = {
    "profiles": {
        "work": ["group:dev", "scope:work"],
        "home": ["scope:home"],
        "*": ["group:admins", "scope:all"],
    }
}
OPENED: dict[str, tuple[Message, dict[str, int]]] = {
    "a group": ({"groups": ["dev"]}, {"work": 400, "home": 403, "": 403}),
    "a scope": ({"scope": "home other"}, {"work": 403, "home": 400, "": 403}),
    "a list of scopes": ({"scp": ["home", "work"]}, {"work": 400, "home": 400, "": 403}),
    "everything": ({"groups": ["admins"]}, {"work": 400, "home": 400, "": 400}),
    "nothing": ({"groups": ["guests"], "scope": "read"}, {"work": 403, "home": 403, "": 403}),
    "nothing said": ({}, {"work": 403, "home": 403, "": 403}),
    "a scope that only begins so": ({"scope": "alles workx"}, {"work": 403, "home": 403, "": 403}),
    "a group named as a scope": ({"groups": ["work"]}, {"work": 403, "home": 403, "": 403}),
}


@pytest.mark.parametrize("held", OPENED)
async def test_scopes_and_groups_open_profiles(held: str) -> None:
    claims, expected = OPENED[held]
    async with run_issuer() as issuer, serve_gateway(issuer, **PROFILES) as url:
        token = issuer.sign(issuer.claims(**claims))
        for profile, status in expected.items():
            endpoint = f"{url}/p/{profile}" if profile else url
            assert (await post_token(endpoint, token)).status_code == status, profile
        whole = 200 if expected[""] == CAME_IN else 403
        assert (await get(url.removesuffix("/mcp") + "/metrics", token)).status_code == whole


async def test_a_token_for_the_address_of_one_profile_opens_only_that() -> None:
    async with run_issuer() as issuer, serve_gateway(issuer) as url:
        token = issuer.sign(issuer.claims(aud=[f"{AUDIENCE}/p/work", "https://elsewhere.example"]))
        assert (await post_token(f"{url}/p/work", token)).status_code == CAME_IN
        assert (await post_token(f"{url}/p/home", token)).status_code == 403
        assert (await post_token(url, token)).status_code == 403
        assert (await get(url.removesuffix("/mcp") + "/metrics", token)).status_code == 403


UNREADABLE_GROUPS: dict[str, Message] = {
    "left out by Entra": {"_claim_names": {"groups": "src1"}},
    "objects": {"groups": [{"name": "dev"}]},
    "too many": {"groups": [f"g{number}" for number in range(1_001)]},
    "a number": {"groups": 7},
}


@pytest.mark.parametrize("groups", UNREADABLE_GROUPS)
async def test_who_has_groups_that_cannot_be_read_stays_out_as_rules_may_deny(groups: str) -> None:
    async with run_issuer() as issuer, serve_gateway(issuer) as url:
        token = issuer.sign(issuer.claims(**UNREADABLE_GROUPS[groups]))
        assert (await post_token(url, token)).status_code == 403


async def test_several_issuers_vouch_for_different_people() -> None:
    async with run_issuer() as one, run_issuer("P-256") as two, serve_gateway(one, two) as url:
        for issuer in (one, two):
            assert (await post_token(url, issuer.sign())).status_code == CAME_IN
        posing = two.sign(two.claims(iss=one.url), kid=one.kid)
        assert (await post_token(url, posing)).status_code == 401
        async with raw_http(url, "legacy", token=one.sign()) as client:
            headers = {
                **client._headers,  # pyright: ignore[reportPrivateUsage]
                "authorization": f"Bearer {two.sign()}",
            }
            frame = {"jsonrpc": "2.0", "id": 9, "method": "ping"}
            reply = await client.http.post(url, json=frame, headers=headers)
        assert reply.status_code == 404, "ana of another issuer is another person"


async def test_without_a_token_a_client_learns_where_to_get_one() -> None:
    settings: dict[str, Any] = {**PROFILES, "required_scopes": "mcp"}
    async with run_issuer() as issuer, serve_gateway(issuer, **settings) as url:
        root = url.removesuffix("/mcp")
        for path, scopes in (("/mcp", "mcp all"), ("/mcp/p/work", "mcp work")):
            reply = await post(root + path, [])
            assert reply.status_code == 401
            challenge = read_challenge(reply)
            assert "error" not in challenge, "nothing was wrong with what was not sent"
            assert challenge["scope"] == scopes
            assert challenge["resource_metadata"] == f"{PUBLIC_URL}{WELL_KNOWN}{path}"
            metadata = await get(f"{root}{WELL_KNOWN}{path}", origin="https://any.example")
            assert metadata.headers["access-control-allow-origin"] == "*"
            assert metadata.json() == {
                "resource": f"{PUBLIC_URL}{path}",
                "resource_name": "Portico",
                "authorization_servers": [issuer.url],
                "bearer_methods_supported": ["header"],
                "scopes_supported": scopes.split(),
            }
        assert (await get(f"{root}{WELL_KNOWN}")).json()["resource"] == f"{PUBLIC_URL}/mcp"
        assert (await get(f"{root}/api/v1/servers")).headers["www-authenticate"]


async def test_a_wrong_token_and_one_with_too_few_scopes_are_told_apart() -> None:
    settings: dict[str, Any] = {"required_scopes": ["mcp", "tools"]}
    async with run_issuer() as issuer, serve_gateway(issuer, **settings) as url:
        expired = issuer.sign(issuer.claims(exp=int(time.time()) - 100, scope="mcp tools"))
        reply = await post_token(url, expired)
        assert reply.status_code == 401
        challenge = read_challenge(reply)
        assert challenge["error"] == "invalid_token"
        assert challenge["error_description"] == "it has expired"
        reply = await post_token(url, issuer.sign(issuer.claims(scope="mcp")))
        assert reply.status_code == 403
        challenge = read_challenge(reply)
        assert challenge["error"] == "insufficient_scope"
        assert challenge["scope"] == "mcp tools", "all that are needed, not only what is missing"
        enough = issuer.sign(issuer.claims(scope="tools mcp more"))
        assert (await post_token(url, enough)).status_code == CAME_IN


async def test_a_profile_that_needs_another_scope_says_which() -> None:
    async with run_issuer() as issuer, serve_gateway(issuer, **PROFILES) as url:
        reply = await post_token(f"{url}/p/home", issuer.sign(issuer.claims(scope="work")))
        assert reply.status_code == 403
        challenge = read_challenge(reply)
        assert (challenge["error"], challenge["scope"]) == ("insufficient_scope", "home")
        assert challenge["resource_metadata"] == f"{PUBLIC_URL}{WELL_KNOWN}/mcp/p/home"


async def test_metadata_tell_nobody_which_profiles_there_are() -> None:
    async with run_issuer() as issuer, serve_gateway(issuer) as url:
        root = url.removesuffix("/mcp") + WELL_KNOWN
        existing = (await get(f"{root}/mcp/p/work")).json()
        made_up = (await get(f"{root}/mcp/p/none")).json()
        assert {**existing, "resource": ""} == {**made_up, "resource": ""}
        for path in ("/mcp/p/", "/mcp/p/a/b", "/api", "X", "/../mcp", "/mcp/p/ü"):
            assert (await get(root + path)).status_code == 404, path


async def test_without_a_public_address_metadata_name_the_one_that_was_asked() -> None:
    async with (
        run_issuer() as issuer,
        serve_gateway(issuer, public_url=None, audience=AUDIENCE) as url,
    ):
        root = url.removesuffix("/mcp")
        challenge = read_challenge(await post(url, []))
        assert challenge["resource_metadata"] == f"{root}{WELL_KNOWN}/mcp"
        assert (await get(f"{root}{WELL_KNOWN}/mcp")).json()["resource"] == url
        quoted = await post(url, [("host", 'a"b')])
        assert quoted.status_code in (400, 401)
        assert 'a"b' not in quoted.headers.get("www-authenticate", "")


async def test_behind_a_path_the_metadata_are_where_the_specification_puts_them() -> None:
    public_url = "https://box.example/portico"
    async with run_issuer() as issuer, serve_gateway(issuer, public_url=public_url) as url:
        root = url.removesuffix("/mcp")
        location = f"{WELL_KNOWN}/portico/mcp/p/work"
        challenge = read_challenge(await post(f"{url}/p/work", []))
        assert challenge["resource_metadata"] == f"https://box.example{location}"
        assert (await get(root + location)).json()["resource"] == f"{public_url}/mcp/p/work"


async def test_expired_tokens_are_not_counted_as_guesses() -> None:
    async with run_issuer() as issuer, serve_gateway(issuer) as url:
        expired = issuer.sign(issuer.claims(exp=int(time.time()) - 100))
        found = {(await post_token(url, expired)).status_code for _ in range(40)}
        assert found == {401}, "clients that have to renew theirs are not told to wait"
        guesses = {(await post_token(url, f"guess{number}")).status_code for number in range(40)}
        assert guesses == {401, 429}


async def test_open_streams_end_with_their_token() -> None:
    moved = 0.0
    clock = lambda: time.time() + moved  # noqa: E731
    async with run_issuer() as issuer, serve_gateway(issuer, clock=clock) as url:
        has_ended: dict[str, bool] = {}

        async def listen(name: str, token: str) -> None:
            async with raw_http(url, "legacy", token=token) as client:
                headers: dict[str, str] = {
                    **client._headers,  # pyright: ignore[reportPrivateUsage]
                    "accept": "text/event-stream",
                }
                async with client.http.stream("GET", url, headers=headers, timeout=None) as reply:
                    assert reply.status_code == 200
                    has_ended[name] = False
                    async for _ in reply.aiter_bytes():
                        pass
                    has_ended[name] = True

        long = issuer.sign(issuer.claims("bob", exp=int(time.time()) + 86_400))
        listening = [
            asyncio.create_task(listen("short", issuer.sign())),
            asyncio.create_task(listen("long", long)),
        ]
        await wait_until(lambda: len(has_ended) == 2)
        moved = 3_600.0
        await wait_until(lambda: has_ended["short"])
        assert not has_ended["long"]
        for task in listening:
            task.cancel()
        await asyncio.wait(listening)


async def test_events_over_rest_are_streamed_to_who_has_a_token() -> None:
    async with run_issuer() as issuer, serve_gateway(issuer) as url:
        events = url.removesuffix("/mcp") + "/api/v1/events"
        headers = {"authorization": f"Bearer {issuer.sign()}"}
        async with (
            httpx2.AsyncClient(timeout=TIMEOUT_S) as http,
            http.stream("GET", events, headers=headers) as reply,
        ):
            assert reply.status_code == 200
            async for line in reply.aiter_lines():
                if line:
                    break


async def test_an_issuer_that_is_down_is_no_reason_to_sign_in_again() -> None:
    async def fail(send: Any) -> None:
        await answer(send, 503, b"")

    async with run_issuer() as issuer, serve_gateway(issuer, token="t0ken") as url:
        issuer.faults["/jwks"] = fail
        for _ in range(30):
            reply = await post_token(url, issuer.sign())
            assert reply.status_code == 503
            assert "www-authenticate" not in reply.headers
            assert (await post_token(url, "t0ken")).status_code == CAME_IN


async def test_people_with_keys_that_were_fetched_come_in_while_their_issuer_is_down() -> None:
    async with run_issuer() as issuer, serve_gateway(issuer) as url:
        assert (await post_token(url, issuer.sign())).status_code == CAME_IN
        issuer.faults = dict.fromkeys(
            ("/jwks", "/.well-known/openid-configuration"), lambda send: answer(send, 500, b"")
        )
        for number in range(5):
            token = issuer.sign(issuer.claims(f"person{number}"))
            assert (await post_token(url, token)).status_code == CAME_IN


async def test_a_key_set_may_have_keys_that_nobody_here_knows() -> None:
    async with run_issuer() as issuer, serve_gateway(issuer) as url:
        strange = to_jwk(make_key("other").public_key(), "strange", alg="ML-DSA-65", kty="AKP")
        issuer.keys = [strange, *issuer.keys]
        assert (await post_token(url, issuer.sign())).status_code == CAME_IN
