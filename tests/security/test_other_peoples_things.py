"""Ben tries by every way there is to reach what belongs to Ana: large results, workflow runs,
stored values, parked requests. Both have keys that open everything; each thing is then reached by
Ana, so that the ways are known to lead somewhere."""

import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

import httpx2
import pytest

from portico.config import Config
from portico.gateway.rest_app import RestApp
from portico.testing import FakeBackend, serve_http
from portico.upstream.backend import Era, Raw
from tests.gateways import TIMEOUT_S, run_gateway
from tests.interaction.fake_servers import text, tool
from tests.interaction.raw_clients import Message, RawHttp, call, raw_http
from tests.security.test_keys_over_http import Keys

SECRET = "what Ana alone may read"
ERAS: list[Era] = ["legacy", "modern"]


def make_server() -> FakeBackend:
    """A server that answers at length, destroys, and asks its client something."""
    erase: Raw = {**tool("erase"), "annotations": {"destructiveHint": True}}
    backend = FakeBackend([tool("long"), erase, tool("ask")], era="modern")
    schema = {"type": "object", "properties": {"x": {"type": "string"}}}
    asked = {"mode": "form", "message": "Who?", "requestedSchema": schema}
    question: Raw = {
        "resultType": "input_required",
        "inputRequests": {"q": {"method": "elicitation/create", "params": asked}},
        "requestState": "s",
    }
    answers = {"long": text(f"{SECRET}\n" * 20_000), "erase": text(f"{SECRET}, erased")}

    def answer(params: Raw, _: object) -> Raw:
        if params["name"] == "ask" and not params.get("inputResponses"):
            return question
        return answers.get(params["name"], text(SECRET))

    backend.on("tools/call", answer)
    return backend


@dataclass
class Office:
    url: str
    ana: RawHttp
    ben: RawHttp
    keys: Keys
    backend: FakeBackend
    result_id: str = ""
    run_id: str = ""
    handle: str = ""

    @property
    def erased(self) -> int:
        calls = [params for method, params in self.backend.requests if method == "tools/call"]
        return sum(params["name"] == "erase" for params in calls)

    async def have_things(self) -> None:
        """Ana gets a large result, stops a workflow before it destroys, and stores a value."""
        answer = await call(self.ana, "call_tool", name="mail.long")
        self.result_id = find(r"portico://result/([\w-]+)", answer)
        steps = [{"id": "gone", "tool": "mail.erase", "arguments": {}}]
        self.run_id = find(r'resume="([\w-]+)"', await call(self.ana, "run_workflow", steps=steps))
        code = f"store('mine', '{SECRET}'); result('kept')"
        kept = await call(self.ana, "run_code", code=code, language="lua")
        self.handle = kept["result"].get("_meta", {}).get("portico/session", "")

    async def post(self, who: str, tool_name: str, **arguments: object) -> Message:
        """Call a tool by REST."""
        headers = {"authorization": f"Bearer {self.keys.texts[who]}"}
        body = {"tool": tool_name, "arguments": arguments}
        async with httpx2.AsyncClient(timeout=TIMEOUT_S, headers=headers) as http:
            url = self.url.removesuffix("/mcp")
            return (await http.post(f"{url}/api/v1/calls", json=body)).json()


def find(pattern: str, answer: Message) -> str:
    found = re.search(pattern, json.dumps(answer).replace('\\"', '"'))
    assert found is not None, answer
    return found[1]


@pytest.fixture(params=ERAS)
async def office(request: pytest.FixtureRequest) -> AsyncGenerator[Office]:
    keys = Keys()
    ana, ben = keys.add("ana"), keys.add("ben")
    backend = make_server()
    async with AsyncExitStack() as stack:
        config = Config.model_validate({"exposure": "meta"})
        gateway = await stack.enter_async_context(run_gateway({"mail": backend}, config))
        options = {"keys": keys.ring, "api": RestApp(gateway)}
        url = await stack.enter_async_context(serve_http(gateway, **options))
        form = {"elicitation": {"form": {}}}
        era: Era = request.param
        first = await stack.enter_async_context(raw_http(url, era, token=ana, **form))
        other = await stack.enter_async_context(raw_http(url, era, token=ben, **form))
        yield Office(url, first, other, keys, backend)


Way = Callable[[Office, RawHttp, str], Awaitable[Message]]
"""Takes the client and the name of who tries."""
LOAD = "result(load('mine') or 'nothing')"


def read_by_uri(office: Office, client: RawHttp, _: str) -> Awaitable[Message]:
    return client.request("resources/read", {"uri": f"portico://result/{office.result_id}"})


def load_by_meta(office: Office, client: RawHttp, _: str) -> Awaitable[Message]:
    arguments = {"code": LOAD, "language": "lua"}
    meta = {"portico/session": office.handle} if office.handle else {}
    return client.request("tools/call", {"name": "run_code", "arguments": arguments, "_meta": meta})


def load_by_argument(office: Office, client: RawHttp, _: str) -> Awaitable[Message]:
    more = {"session": office.handle} if office.handle else {}
    return call(client, "run_code", code=LOAD, language="lua", **more)


WAYS: dict[str, Way] = {
    "read_result": lambda at, client, _: call(client, "read_result", result_id=at.result_id),
    "the uri of a result": read_by_uri,
    "resume by id": lambda at, client, _: call(client, "run_workflow", resume=at.run_id),
    "a state handle in _meta": load_by_meta,
    "a state handle as an argument": load_by_argument,
}
"""Ways that lead their owner somewhere."""
OTHER_WAYS: dict[str, Way] = {
    "read_result by REST": lambda at, _, who: at.post(who, "read_result", result_id=at.result_id),
    "resume by REST": lambda at, _, who: at.post(who, "run_workflow", resume=at.run_id),
    "a script by REST": lambda at, _, who: at.post(
        who, "run_code", code=LOAD, language="lua", session=at.handle
    ),
    "read_result by call_tool": lambda at, client, _: call(
        client, "call_tool", name="read_result", arguments={"result_id": at.result_id}
    ),
    "read_result in a workflow": lambda at, client, _: call(
        client,
        "run_workflow",
        steps=[{"id": "r", "tool": "read_result", "arguments": {"result_id": at.result_id}}],
    ),
    "the last run": lambda at, client, _: call(client, "run_workflow", resume="last"),
    "the last run, with a handle": lambda at, client, _: call(
        client, "run_workflow", resume="last", session=at.handle or "x"
    ),
}
"""Ways of which some lead nobody anywhere."""


@pytest.mark.parametrize("way", [*WAYS, *OTHER_WAYS])
async def test_what_is_anas_is_not_bens(office: Office, way: str) -> None:
    await office.have_things()
    go = {**WAYS, **OTHER_WAYS}[way]
    before = office.erased
    refused = await go(office, office.ben, "ben")
    assert SECRET not in json.dumps(refused)
    assert office.erased == before == 0
    if way in WAYS:
        reached = await go(office, office.ana, "ana")
        assert SECRET in json.dumps(reached) or office.erased == 1, reached


@pytest.mark.parametrize("office", ["modern"], indirect=True)  # a legacy client has a stream
async def test_the_state_of_anas_request_is_of_no_use_to_ben(office: Office) -> None:
    params: Message = {"name": "call_tool", "arguments": {"name": "mail.ask"}}
    asked = (await office.ana.request("tools/call", params))["result"]
    assert asked["resultType"] == "input_required"
    (key,) = asked["inputRequests"]
    more = {
        "inputResponses": {key: {"action": "accept", "content": {"x": "y"}}},
        "requestState": asked["requestState"],
    }
    refused = await office.ben.request("tools/call", {**params, **more})
    assert SECRET not in json.dumps(refused)
    assert "error" in refused
    reached = await office.ana.request("tools/call", {**params, **more})
    assert SECRET in json.dumps(reached)
