"""Callers of every kind that a rule can name, each with its real credential over HTTP, by every way
that a client has there: what a rule says for one kind holds for its callers and for nobody else.

Each thing of the server (a tool, a resource and a prompt of one name) has a rule of its own, for
one kind of caller and with one effect; its name says both.
"""

import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from portico.auth.authenticator import KeyRing
from portico.auth.issuer_verifier import IssuerVerifier
from portico.auth.keys import create_key
from portico.config import Config
from portico.config.rules import CALLER_KINDS, SPECIAL_CALLERS
from portico.gateway.rest_app import RestApp
from portico.testing import FakeBackend, serve_http
from portico.upstream.backend import Raw
from tests.auth.fake_issuer import run_issuer
from tests.auth.token_gateway import PUBLIC_URL
from tests.gateways import run_gateway
from tests.interaction.fake_servers import text, tool
from tests.interaction.raw_clients import RawHttp, raw_http

TOKEN = "the token of the configuration"
SAID = "Ask the librarian."
KINDS = {
    "local": "local",
    "token": "token",
    "keyana": "key:ana",
    "keybob": "key:bob",
    "eve": "person:eve",
    "devs": "group:dev",
    "work": "profile:work",
    "robot": "client:robot",
}
"""What a rule is for, by the word for it in names."""
EFFECTS = ("allow", "ask", "deny", "visible")
THINGS = [
    f"{kind}_{effect}"
    for kind in KINDS
    for effect in EFFECTS
    # A client's name is a claim, for which no rule may allow anything.
    if (kind, effect) != ("robot", "allow")
]


@dataclass(frozen=True)
class Person:
    """Somebody with a credential."""

    kinds: tuple[str, ...]
    """Of which kinds it is over MCP."""
    credential: str = ""
    client: str = "raw"
    path: str = ""
    rest_kinds: tuple[str, ...] | None = None
    """Of which kinds it is over REST, where a request names no client, and the profile is that of
    the key; None: the same."""

    def find_effect(self, thing: str, way: str) -> str:
        """What the rules say of a thing to this caller."""
        kind, effect = thing.split("_")
        is_rest = way.startswith("rest") and self.rest_kinds is not None
        if kind in ((self.rest_kinds or ()) if is_rest else self.kinds):
            return effect
        return "deny" if effect == "allow" else "allow"

    def list_things(self) -> list[str]:
        """Everything that its rules are about, and two things of each rule for others."""
        return [
            thing
            for thing in THINGS
            if thing.startswith(self.kinds) or thing.endswith(("_allow", "_deny"))
        ]


PEOPLE = {
    "the local user": Person(("local",)),
    "a holder of the token": Person(("token",), TOKEN),
    "a key": Person(("keyana",), "ana"),
    "another key": Person(("keybob",), "bob"),
    "a person": Person(("eve",), "eve"),
    "a person of a group": Person(("devs",), "dan"),
    "a key of a profile": Person(("work",), "worker", path="/p/work"),
    "a key at a profile": Person(("keyana", "work"), "ana", path="/p/work", rest_kinds=("keyana",)),
    "a person with a client": Person(("eve", "robot"), "eve", client="robot", rest_kinds=("eve",)),
    "somebody whom no rule names": Person((), "carl"),
}


def make_rules() -> list[Raw]:
    """For each thing a rule for one kind. What is allowed to that kind is denied to the others;
    what is not, is allowed to them."""
    rules: list[Raw] = []
    for thing in THINGS:
        kind, effect = thing.split("_")
        about: Raw = {
            "tools": [f"mail.{thing}"],
            "resources": [f"mail.x:/{thing}"],
            "prompts": [f"mail.{thing}"],
        }
        own = {"allow": {"may": "allow"}, "ask": {"may": "ask"}, "deny": {"may": "deny"}}
        visible: Raw = {"may": "deny", "visible": True, "say": SAID}
        rules.append({"for": [KINDS[kind]], **about, **own.get(effect, visible)})
        if effect == "allow":
            rules.append({**about, "may": "deny"})
    return rules


def make_server() -> FakeBackend:
    backend = FakeBackend(
        [tool(thing, f"Paints {thing}.", to="string") for thing in THINGS],
        resources=[{"uri": f"x:/{thing}", "name": thing} for thing in THINGS],
        prompts=[{"name": thing, "arguments": [{"name": "a"}]} for thing in THINGS],
        capabilities={"tools": {}, "resources": {}, "prompts": {}, "completions": {}},
    )
    for thing in THINGS:
        backend.on_call(thing, lambda _: text("was done"))
    message = {"role": "user", "content": {"type": "text", "text": "was done"}}
    backend.on("prompts/get", lambda *_: {"messages": [message]})
    backend.on(
        "resources/read",
        lambda params, _: {"contents": [{"uri": params["uri"], "text": "was done"}]},
    )
    backend.on("completion/complete", lambda *_: {"completion": {"values": ["was done"]}})
    return backend


class Visit:
    """One caller at the gateway."""

    def __init__(self, person: Person, mcp: RawHttp, backend: FakeBackend) -> None:
        self.person = person
        self._mcp = mcp
        self._backend = backend

    async def request(self, method: str, params: Raw) -> str:
        own = {"io.modelcontextprotocol/clientInfo": {"name": self.person.client, "version": "1"}}
        return json.dumps(await self._mcp.request(method, {**params, "_meta": own}))

    async def call(self, name: str, arguments: Raw) -> str:
        return await self.request("tools/call", {"name": name, "arguments": arguments})

    async def ask_rest(self, path: str, body: Raw | None = None) -> str:
        root = self._mcp.url.partition("/mcp")[0]
        url = f"{root}/api/v1/{path}"
        reply = await self._mcp.http.request("POST" if body else "GET", url, json=body)
        return reply.text

    def count_received(self) -> int:
        used = ("tools/call", "resources/read", "prompts/get", "completion/complete")
        return sum(method in used for method, _ in self._backend.requests)


@asynccontextmanager
async def open_doors(exposure: str = "meta") -> AsyncGenerator[Callable[[Person], Any]]:
    """A gateway at two addresses: one wants a credential, one is that of the local user."""
    backend = make_server()
    async with run_issuer() as issuer:
        config = Config.model_validate(
            {
                "gateway": {"public_url": PUBLIC_URL},
                "auth": [{"issuer": issuer.url}],
                "profiles": {"work": {"exposure": exposure}},
                "exposure": exposure,
                "approvals": {"wait_s": 0},
                "rules": make_rules(),
            }
        )
        made = {
            name: create_key(name, 0.0, profiles=profiles)
            for name, profiles in (("ana", ()), ("bob", ()), ("worker", ("work",)))
        }
        keys = KeyRing()
        keys.replace(row for row, _ in made.values())
        credentials = {name: key for name, (_, key) in made.items()} | {"": "", TOKEN: TOKEN}
        for name, groups in (("eve", ["ops"]), ("dan", ["dev"]), ("carl", ["ops"])):
            credentials[name] = issuer.sign(issuer.claims(name, groups=groups))
        async with run_gateway({"mail": backend}, config) as gateway:
            api = RestApp(gateway)
            verifiers = (IssuerVerifier(config.auth, PUBLIC_URL),)
            async with (
                serve_http(gateway, api=api) as own_url,
                serve_http(
                    gateway,
                    api=api,
                    token=TOKEN,
                    keys=keys,
                    verifiers=verifiers,
                    public_url=PUBLIC_URL,
                ) as url,
            ):

                @asynccontextmanager
                async def visit(person: Person) -> AsyncGenerator[Visit]:
                    address = (url if person.credential else own_url) + person.path
                    token = credentials[person.credential]
                    async with raw_http(address, "modern", token=token) as mcp:
                        yield Visit(person, mcp, backend)

                yield visit
                api.close()


def test_every_kind_that_a_rule_can_name_is_here() -> None:
    named = {kind.partition(":")[0] for kind in KINDS.values()}
    assert named == {*CALLER_KINDS, *SPECIAL_CALLERS} - {"everyone"}


Use = Callable[[Visit, str], Awaitable[str]]


async def use_tool(visit: Visit, thing: str) -> str:
    return await visit.call("call_tool", {"name": f"mail.{thing}", "arguments": {"to": "a"}})


async def use_flat_name(visit: Visit, thing: str) -> str:
    return await visit.call(f"mail__{thing}", {"to": "a"})


async def use_in_workflow(visit: Visit, thing: str) -> str:
    step = {"id": "a", "tool": f"mail.{thing}", "arguments": {"to": "a"}}
    return await visit.call("run_workflow", {"steps": [step]})


async def use_by_rest(visit: Visit, thing: str) -> str:
    body = {"tool": f"mail.{thing}", "arguments": {"to": "a"}}
    return await visit.ask_rest("calls", body)


async def use_resource(visit: Visit, thing: str) -> str:
    uri = f"portico://backend/mail/resource/x:/{thing}"
    return await visit.request("resources/read", {"uri": uri})


async def use_prompt(visit: Visit, thing: str) -> str:
    return await visit.request("prompts/get", {"name": f"mail__{thing}", "arguments": {"a": "b"}})


async def complete_argument(visit: Visit, thing: str) -> str:
    params: Raw = {
        "ref": {"type": "ref/prompt", "name": f"mail__{thing}"},
        "argument": {"name": "a", "value": ""},
    }
    return await visit.request("completion/complete", params)


USES: dict[str, Use] = {
    "call_tool": use_tool,
    "flat": use_flat_name,
    "workflow": use_in_workflow,
    "rest": use_by_rest,
    "resource": use_resource,
    "prompt": use_prompt,
    "completion": complete_argument,
}
SIGNS = {"allow": "was done", "ask": "approv", "deny": "", "visible": SAID}
"""What an answer says by effect. What is hidden is answered like what does not exist."""


def check_answer(answer: str, effect: str) -> str:
    """Return what is wrong with an answer."""
    shown = {name for name, sign in SIGNS.items() if sign and sign in answer}
    return "" if shown == {effect} - {"deny"} else f"{effect}: {answer}"


@pytest.mark.parametrize("way", USES)
async def test_what_a_rule_decides_it_decides_for_whom_it_is(way: str) -> None:
    wrong: list[str] = []
    async with open_doors("full" if way == "flat" else "meta") as open_visit:
        for who, person in PEOPLE.items():
            async with open_visit(person) as visit:
                for thing in person.list_things():
                    effect = person.find_effect(thing, way)
                    if way == "completion" and effect == "ask":
                        effect = "allow"  # Nothing is run by it, so nobody is asked.
                    before = visit.count_received()
                    problem = check_answer(await USES[way](visit, thing), effect)
                    received = visit.count_received() - before
                    if problem or received != (effect == "allow"):
                        wrong.append(f"{who}, {thing}, {received} received; {problem}")
    assert not wrong


async def test_what_a_rule_decides_it_decides_in_scripts() -> None:
    lines = ["answers = {}"]
    for thing in THINGS:
        lines += [
            "try:",
            f"    answers['{thing}'] = str(await mail.{thing}(to='a'))",
            "except Exception as error:",
            f"    answers['{thing}'] = str(error)[:300]",
        ]
    code = "\n".join([*lines, "return answers"])
    wrong: list[str] = []
    async with open_doors() as open_visit:
        for who, person in PEOPLE.items():
            async with open_visit(person) as visit:
                before = visit.count_received()
                ran = json.loads(await visit.call("run_code", {"code": code}))
                answers = ran["result"]["structuredContent"]
                effects = {thing: person.find_effect(thing, "script") for thing in THINGS}
                for thing, effect in effects.items():
                    if problem := check_answer(answers[thing], effect):
                        wrong.append(f"{who}, {thing}; {problem}")
                received = visit.count_received() - before
                if received != list(effects.values()).count("allow"):
                    wrong.append(f"{who}, {received} received")
    assert not wrong


Look = Callable[[Visit], Awaitable[str]]


async def browse(visit: Visit) -> str:
    return await visit.call("browse_tools", {"server": "mail"})


async def search(visit: Visit) -> str:
    answers = [
        await visit.call("search_tools", {"query": f"paints {kind}", "limit": 20}) for kind in KINDS
    ]
    return "".join(answers)


async def describe(visit: Visit) -> str:
    """The names are in the answer too where they do not exist; what they do is not."""
    names = [f"mail.{thing}" for thing in THINGS]
    answers = [
        await visit.call("describe_tools", {"names": names[start : start + 8]})
        for start in range(0, len(names), 8)
    ]
    return " ".join(re.findall(r"Paints \w+", "".join(answers)))


async def complete_names(visit: Visit) -> str:
    params: Raw = {
        "ref": {"type": "ref/resource", "uri": "portico://tool/{tool_name}"},
        "argument": {"name": "tool_name", "value": ""},
    }
    return await visit.request("completion/complete", params)


async def read_each_tool(visit: Visit) -> str:
    answers = [
        await visit.request("resources/read", {"uri": f"portico://tool/mail.{thing}"})
        for thing in visit.person.list_things()
    ]
    return " ".join(re.findall(r"Paints \w+", "".join(answers)))


def list_all(method: str) -> Look:
    return lambda visit: visit.request(method, {})


def get(path: str) -> Look:
    return lambda visit: visit.ask_rest(path)


LOOKS: dict[str, Look] = {
    "tools/list": list_all("tools/list"),
    "resources/list": list_all("resources/list"),
    "prompts/list": list_all("prompts/list"),
    "browse": browse,
    "search": search,
    "describe": describe,
    "completion of names": complete_names,
    "resources of tools": read_each_tool,
    "rest": get("tools?limit=100"),
}


@pytest.mark.parametrize("way", LOOKS)
async def test_who_may_use_a_thing_sees_it_and_nobody_else(way: str) -> None:
    async with open_doors("full" if way == "tools/list" else "meta") as open_visit:
        for who, person in PEOPLE.items():
            async with open_visit(person) as visit:
                shown = await LOOKS[way](visit)
            found = set(re.findall(r"[a-z]+_[a-z]+", shown)) & set(THINGS)
            things = person.list_things() if way == "resources of tools" else THINGS
            expected = {thing for thing in things if person.find_effect(thing, way) != "deny"}
            assert found == expected, who
