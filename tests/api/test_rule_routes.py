"""The rules over REST: the list, a call that is not made, what somebody sees, who was seen."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

from portico.api.administration import people_routes, rule_routes
from portico.auth.authenticator import KeyRing
from portico.auth.keys import create_key
from portico.callers import LOCAL_USER, Caller, Principal
from portico.config import Config
from portico.events import ToolCalled
from portico.gateway.rest_app import RestApp
from portico.testing import FakeBackend, serve_http
from tests.api.api_client import V1
from tests.gateways import run_gateway
from tests.http import open_client
from tests.interaction.fake_servers import text, tool

TOKEN = "s3cret-t0ken-of-the-test-0123456789"
RULES = [
    {"for": ["key:ana"], "tools": ["hub.delete_*"], "may": "deny"},
    {"tools": ["hub.pay"], "when": {"amount": {"maximum": 10}}, "may": "allow"},
    {"tools": ["hub.pay"], "may": "ask", "say": "Much money."},
]
CONFIG = {"rules": RULES, "gateway": {"token": TOKEN}, "profiles": {"work": {}}}


@asynccontextmanager
async def serve(tmp_path: Path) -> AsyncGenerator[tuple[httpx2.AsyncClient, str]]:
    ring = KeyRing()
    key, key_text = create_key("ana", 1.0)
    ring.replace([key])
    hub = FakeBackend([tool("delete_repo"), tool("pay", amount="number"), tool("look")])
    hub.on_call("look", lambda _: text("seen"))
    config = Config.model_validate(CONFIG)
    async with run_gateway({"hub": hub}, config, data_dir=tmp_path) as gateway:
        gateway.keys = ring
        async with (
            serve_http(gateway, token=TOKEN, keys=ring, api=RestApp(gateway)) as url,
            open_client(url, {"authorization": f"Bearer {TOKEN}"}) as http,
        ):
            yield http, key_text


async def test_rules_are_listed_as_they_are_written(tmp_path: Path) -> None:
    async with serve(tmp_path) as (http, _):
        body = rule_routes.RuleList.model_validate((await http.get(f"{V1}/rules")).json())
        assert body.rules[0] == {"for": ["key:ana"], "tools": ["hub.delete_*"], "may": "deny"}
        assert (body.default, body.profiles) == ("allow", ["work"])


async def test_a_call_is_decided_by_its_arguments_and_the_caller(tmp_path: Path) -> None:
    async with serve(tmp_path) as (http, _):

        async def test(target: str, who: str = "local", **arguments: int) -> tuple[str, str, bool]:
            body = {"target": target, "who": who, "arguments": arguments}
            answer = await http.post(f"{V1}/rules/test", json=body)
            verdict = rule_routes.RuleVerdict.model_validate(answer.json())
            return verdict.may, verdict.rule, verdict.seen

        assert await test("hub.pay", amount=5) == ("allow", "rules[1]", True)
        assert await test("hub.pay", amount=50) == ("ask", "rules[2]", True)
        assert await test("hub.delete_repo", who="key:ana") == ("deny", "rules[0]", False)
        assert await test("hub.delete_repo") == ("allow", "default", True)
        wrong = await http.post(f"{V1}/rules/test", json={"target": "nothing"})
        assert wrong.status_code == 404
        profile = await http.post(f"{V1}/rules/test", json={"target": "hub.pay", "profile": "x"})
        assert profile.status_code == 404


async def test_what_somebody_sees_leaves_out_what_is_denied(tmp_path: Path) -> None:
    async with serve(tmp_path) as (http, _):
        answer = await http.post(f"{V1}/rules/seen", json={"who": "key:ana"})
        page = rule_routes.SeenPage.model_validate(answer.json())
        assert {row.name: row.may for row in page.seen} == {
            "hub.pay": "depends",
            "hub.look": "allow",
        }
        assert (page.total, page.hidden) == (2, 1)


async def test_who_was_seen_is_counted_by_person(tmp_path: Path) -> None:
    async with serve(tmp_path) as (http, _):
        for _ in range(2):
            await http.post(f"{V1}/calls", json={"tool": "hub.look"})
        found: list[Any] = []
        for _ in range(600):
            found = (await http.get(f"{V1}/people")).json()["people"]
            if found and found[0]["calls"] == 2:
                break
        (card,) = [people_routes.PersonCard.model_validate(one) for one in found]
        assert (card.person, card.clients, card.failures) == ("gateway token", ["rest"], 0)


async def test_no_holder_of_a_key_sees_rules_or_people(tmp_path: Path) -> None:
    async with serve(tmp_path) as (http, key):
        headers = {"authorization": f"Bearer {key}"}
        for path in ("rules", "people"):
            assert (await http.get(f"{V1}/{path}", headers=headers)).status_code == 403
        test = await http.post(f"{V1}/rules/test", json={"target": "hub.pay"}, headers=headers)
        assert test.status_code == 403


async def test_who_administers_sees_calls_that_a_rule_hides_now_and_others_do_not(
    tmp_path: Path,
) -> None:
    hub = FakeBackend([tool("look"), tool("delete_repo")])
    for name in ("look", "delete_repo"):
        hub.on_call(name, lambda _: text("done"))
    ring = KeyRing()
    made = {name: create_key(name, 1.0) for name in ("ana", "ben")}
    ring.replace([row for row, _ in made.values()])
    deny = {"rules": [{"tools": ["hub.delete_repo"], "may": "deny"}], "gateway": {"token": TOKEN}}
    config = Config.model_validate(deny)
    async with run_gateway({"hub": hub}, config, data_dir=tmp_path) as gateway:
        gateway.keys = ring
        for person, is_ok in ((Principal("key", "ana"), True), (LOCAL_USER, True)):
            caller = Caller(name="tester", principal=person)
            gateway.bus.publish(ToolCalled("hub.delete_repo", "0" * 16, 0.1, is_ok, caller))
        await gateway.usage_data.tool_usage.flush()

        async def list_people(credential: str) -> list[str]:
            headers = {"authorization": f"Bearer {credential}"}
            calls = (await http.get(f"{V1}/calls", headers=headers)).json()["calls"]
            return sorted(call["person"] for call in calls)

        async with (
            serve_http(gateway, token=TOKEN, keys=ring, api=RestApp(gateway)) as url,
            open_client(url) as http,
        ):
            assert await list_people(TOKEN) == ["key ana", "local user"]
            assert await list_people(made["ana"][1]) == ["key ana"]
            assert await list_people(made["ben"][1]) == []
            expected = "hub.delete_repo exists, and rules[0] hides it from you"
            for credential, is_told in ((TOKEN, True), (made["ben"][1], False)):
                headers = {"authorization": f"Bearer {credential}"}
                query = {"query": "delete", "expect": "hub.delete_repo"}
                found = (await http.get(f"{V1}/tools", params=query, headers=headers)).json()
                assert (found["expected"] == [f"{expected}."]) == is_told
                answer = await http.get(f"{V1}/tools/hub/delete_repo", headers=headers)
                assert answer.status_code == 404
                assert (answer.json()["detail"] == expected) == is_told


async def test_what_a_new_rule_would_change_is_said_before_it_is_written(tmp_path: Path) -> None:
    async with serve(tmp_path) as (http, _):

        async def find(rule: dict[str, Any]) -> tuple[str, bool]:
            answer = await http.post(f"{V1}/rules/effect", json={"rule": rule})
            effect = rule_routes.NewRuleEffect.model_validate(answer.json())
            return effect.sentence, effect.dangerous

        assert await find({"may": "deny"}) == (
            "Denies all 3 tools to everybody, you included."
            " 3 tools that you see now would not exist for you.",
            True,
        )
        ana = {"for": ["key:ana"], "tools": ["hub.pay"], "may": "deny"}
        assert await find(ana) == ("Denies 1 of 3 tools to key:ana, not you.", False)
        wrong = await http.post(f"{V1}/rules/effect", json={"rule": {"may": "perhaps"}})
        assert wrong.status_code == 422
