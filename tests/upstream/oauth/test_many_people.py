"""Many people with keys and accounts of their own at one server, over HTTP, in random order:
nobody's answer, large result, stored value or credential reaches another.

PORTICO_PEOPLE and PORTICO_CALLS: how many; 200 and 20,000 by hand.
"""

import asyncio
import json
import os
import random
import re
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from portico.auth.authenticator import KeyRing
from portico.auth.keys import create_key
from portico.callers import LOCAL_USER
from portico.config import Config
from portico.gateway import GatewayRuntime
from portico.testing import serve_http
from tests.gateways import TIMEOUT_S, run_gateway
from tests.interaction.raw_clients import Message, RawHttp, call, raw_http
from tests.upstream.oauth.authorization_server import (
    run_authorization_server,
    run_protected_server,
)
from tests.upstream.oauth.signing_in import open_tokens, sign_in, target_of

PEOPLE = int(os.environ.get("PORTICO_PEOPLE", "12"))
CALLS = int(os.environ.get("PORTICO_CALLS", "300"))
SEED = 18
AT_ONCE = 24
KINDS = {"whoami": 60, "write": 20, "diary": 5, "peek": 5, "store": 4, "load": 4, "steal": 2}
"""How often each is done, in a hundred."""


@dataclass
class Person:
    name: str
    client: RawHttp
    result: str = ""
    """Id of the large result that they got last."""
    session: str = ""
    """Their state handle."""


class Crowd:
    def __init__(self, people: list[Person], seed: int) -> None:
        self.people = people
        self.chance = random.Random(seed)
        self.done = Counter[str]()
        self.crossed: list[tuple[str, str, str]] = []
        """Who did what, and what came of somebody else."""
        self.failed: list[tuple[str, str, str]] = []
        """Who did what, and what came in place of an answer."""

    async def act(self, number: int) -> None:
        person = self.chance.choice(self.people)
        (kind,) = self.chance.choices(list(KINDS), list(KINDS.values()))
        answer = await asyncio.wait_for(self._act(person, kind, number), TIMEOUT_S)
        self.done[kind] += 1
        if answer:
            is_of_others = bool(self._names_another(answer, person.name))
            found = self.crossed if is_of_others else self.failed
            found.append((person.name, kind, answer[:300]))

    async def _act(self, person: Person, kind: str, number: int) -> str:
        """Do one thing; return what is wrong with the answer, empty where nothing is."""
        me = person.name
        if kind == "whoami":
            text = await self._call(person, name="notes.whoami")
            return "" if text.endswith(f"you are {me}") else text  # it may be cached
        if kind == "write":
            text = await self._call(person, name="notes.write", arguments={"text": str(number)})
            return "" if text == f"{me} writes {number}" else text
        if kind == "diary":
            text = await self._call(person, name="notes.diary")
            found = re.search(r"portico://result/([\w-]+)", text)
            if found is None or self._names_another(text, me):
                return f"{me}: {text}"
            person.result = found[1]
            return ""
        if kind == "peek":
            return await self._peek(person)
        if kind == "store":
            code = f"store('mine', '{me}'); result('kept')"
            answer = await self._run(person, code, person.session)
            issued = answer["result"].get("_meta", {}).get("portico/session")
            person.session = issued or person.session
            return self._names_another(json.dumps(answer), me)
        if kind == "load":
            if not person.session:
                return ""
            answer = await self._run(person, "result(load('mine') or 'nothing')", person.session)
            return "" if f'"{me}"' in json.dumps(answer) or me in str(answer) else str(answer)
        # Another's state handle opens nothing.
        other = self.chance.choice(self.people)
        if other is person or not other.session:
            return ""
        answer = await self._run(person, "result(load('mine') or 'nothing')", other.session)
        return str(answer) if other.name in json.dumps(answer) else ""

    async def _peek(self, person: Person) -> str:
        """Read one's own large result, and try another's."""
        if person.result:
            own = json.dumps(await call(person.client, "read_result", result_id=person.result))
            if f"the diary of {person.name}" not in own or self._names_another(own, person.name):
                return own
        other = self.chance.choice(self.people)
        if other is person or not other.result:
            return ""
        for answer in (
            await call(person.client, "read_result", result_id=other.result),
            await person.client.request(
                "resources/read", {"uri": f"portico://result/{other.result}"}
            ),
        ):
            if "diary of" in json.dumps(answer):
                return json.dumps(answer)
        return ""

    async def _call(self, person: Person, **arguments: object) -> str:
        answer = await call(person.client, "call_tool", **arguments)
        blocks = answer.get("result", {}).get("content", [])
        return "\n".join(block.get("text", json.dumps(block)) for block in blocks) or str(answer)

    async def _run(self, person: Person, code: str, session: str) -> Message:
        more = {"session": session} if session else {}
        return await call(person.client, "run_code", code=code, language="lua", **more)

    def _names_another(self, text: str, me: str) -> str:
        """Return the name of somebody else that a text has; empty for none."""
        return next((name for name in re.findall(r"person\d+x", text) if name != me), "")


@pytest.mark.timeout(400 + CALLS // 5)
async def test_nothing_of_one_person_reaches_another(tmp_path: Path) -> None:
    names = [f"person{number}x" for number in range(PEOPLE)]
    made = {name: create_key(name, 1_000_000.0) for name in names}
    ring = KeyRing()
    ring.replace([row for row, _ in made.values()])
    async with AsyncExitStack() as stack:
        issuer = await stack.enter_async_context(run_authorization_server())
        server = await stack.enter_async_context(run_protected_server(issuer))
        tokens = await stack.enter_async_context(open_tokens(tmp_path))
        config = make_config(server.url)
        for person, user in [(LOCAL_USER.id, "operator"), *((f"key {one}", one) for one in names)]:
            await sign_in(tokens, target_of(config, person), user)
        gateway = await stack.enter_async_context(run_gateway(config=config, data_dir=tmp_path))
        url = await stack.enter_async_context(serve_http(gateway, keys=ring))
        people = [
            Person(name, await stack.enter_async_context(raw_http(url, "modern", token=key)))
            for name, (_, key) in made.items()
        ]
        crowd = Crowd(people, SEED)
        await run_all(crowd, gateway, issuer.revoke_access)
        assert crowd.crossed == []
        assert crowd.failed == []
        assert crowd.done.total() == CALLS
        whose = {token.split("-")[1] for token in server.received if "access-" in token}
        # Each token arrived; that each arrived with its owner's words is what `write` answers.
        assert whose <= {"operator", *names}
        print(f"{PEOPLE} people, {dict(crowd.done)}, {len(server.received)} tokens at the server")


async def run_all(crowd: Crowd, gateway: GatewayRuntime, revoke: object) -> None:
    assert callable(revoke)
    numbers = iter(range(CALLS))

    async def work() -> None:
        for number in numbers:
            await crowd.act(number)
            if number % 500 == 250:
                revoke()
                gateway.calls.cache.invalidate("notes")

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))


def make_config(url: str) -> Config:
    server = {
        "url": url,
        "auth": {"per_user": True},
        "cache": {"tools": {"whoami": 600, "diary": 600}},
        "limits": {"concurrency": 0},
        "timeouts": {"start_s": TIMEOUT_S, "call_s": TIMEOUT_S},
    }
    return Config.model_validate({"servers": {"notes": server}, "exposure": "meta"})
