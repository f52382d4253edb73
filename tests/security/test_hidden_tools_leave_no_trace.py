"""Two gateways, one of which has tools that its rules hide: a caller whom they are hidden from gets
the same answers from both, whatever it asks, and whatever others did with the hidden tools."""

import json
import re

import httpx2
import pytest

from portico.config import Config
from portico.gateway import GatewayRuntime
from portico.gateway.rest_app import RestApp
from portico.server.http.app import make_app
from portico.testing import FakeBackend
from tests.gateways import TIMEOUT_S, run_gateway
from tests.security.test_visibility_by_rules import (
    BOSS,
    EXPOSURES,
    PATHS,
    QUESTIONS,
    RULES,
    SECRET,
    WORKER,
    ActingAs,
    Ask,
    ask,
    make_servers,
    meta_tool,
    request,
    resource,
)

_CHANGING = re.compile(
    r'(?:"(?:listed|computed|tiers_computed|memory_bytes|at|uptime_s|date|day)":'
    r'(?:"[^"]*"|[0-9.]+),?)'
    r'|-[0-9]+\.[0-9]{3}(?=["&])|cursor="[^"]+"|"tokens":\{.*?\}\},?'
    r'|"(?:listing|shown|saved|answers)":-?[0-9]+,?|,(?=\})'
)
"""Times, tokens that all have spent, and what is made from these."""


def make_servers_without_hidden_things() -> dict[str, FakeBackend]:
    servers = make_servers()
    del servers[f"{SECRET}vault"]
    for backend in servers.values():
        for kind, items in backend.listing.items():
            backend.listing[kind] = [one for one in items if SECRET not in json.dumps(one)]
    return servers


MORE: dict[str, Ask] = {
    "page 2 of a search": meta_tool("search_tools", query="mail", limit=1),
    "a search that finds nothing": meta_tool("search_tools", query="safe"),
    "a search for the hidden server": meta_tool("search_tools", query=f"{SECRET}vault.open"),
    "a search for hidden words": meta_tool("search_tools", query=SECRET, detail="explain"),
    "a search for a hidden word among others": meta_tool(
        "search_tools", query="read safe mail", detail="explain"
    ),
    "a search for a misspelt hidden word": meta_tool(
        "search_tools", query="read zanzibr mail", detail="explain"
    ),
    "a search for an action": meta_tool("search_tools", query="delete mail", detail="explain"),
    "a search for two things": meta_tool(
        "search_tools", query="open the safe and erase mail", detail="explain"
    ),
    "a search in a server": meta_tool("search_tools", query="open", server=f"{SECRET}vault"),
    "an expected tool": meta_tool("search_tools", query="erase", expect=f"mail.{SECRET}_erase"),
    "a described hidden tool": meta_tool("describe_tools", names=[f"mail.{SECRET}_erase"]),
    "names by part": meta_tool("describe_tools", names=["erase", f"{SECRET}_erase", "open"]),
    "call by bare name": meta_tool("call_tool", name=f"{SECRET}_erase", arguments={}),
    "call by glued name": meta_tool("call_tool", name=f"mail__{SECRET}_erase", arguments={}),
    "call in capitals": meta_tool("call_tool", name=f"MAIL.{SECRET.upper()}_ERASE", arguments={}),
    "call with a slash": meta_tool("call_tool", name=f"mail/{SECRET}_erase", arguments={}),
    "call with colons": meta_tool("call_tool", name=f"mail::{SECRET}_erase", arguments={}),
    "wrong arguments": meta_tool("call_tool", name=f"mail.{SECRET}_erase", arguments={"x": 1}),
    "flat": request("tools/call", name=f"mail__{SECRET}_erase", arguments={}),
    "by number": meta_tool("call_tool", name="1", arguments={}),
    "script: names of a server": meta_tool("run_code", code="return dir(mail)"),
    "script: help": meta_tool("run_code", code="return str(mail)"),
    "script: computed name": meta_tool(
        "run_code", code=f"return await call_tool('mail.' + '{SECRET}' + '_erase', {{}})"
    ),
    "script: getattr": meta_tool(
        "run_code", code=f"return await getattr(mail, '{SECRET}_erase')(to='a')"
    ),
    "script: hidden server": meta_tool("run_code", code=f"return await {SECRET}vault.open()"),
    "script: lua": meta_tool(
        "run_code", language="lua", code=f"return mail['{SECRET}_erase']({{}}):await()"
    ),
    "script: js": meta_tool(
        "run_code", language="javascript", code=f"return await mail['{SECRET}_erase']({{}})"
    ),
    "script: browse": meta_tool("run_code", code="return await browse_tools()"),
    "script: describe": meta_tool(
        "run_code", code=f"return await describe_tools(['mail.{SECRET}_erase'])"
    ),
    "workflow steps": meta_tool(
        "run_workflow",
        steps=[{"id": "a", "tool": f"mail.{SECRET}_erase", "arguments": {"to": "a"}}],
    ),
    "workflow computed": meta_tool(
        "run_workflow",
        steps=[{"id": "a", "tool": "mail.${inputs.n}", "arguments": {"to": "a"}}],
        inputs={"n": f"{SECRET}_erase"},
    ),
    "workflow plan": meta_tool("run_workflow", intent=f"open the {SECRET} safe, then erase mail"),
    "plan with a tool": meta_tool(
        "run_workflow", intent="erase mail", tools=[f"mail.{SECRET}_erase"]
    ),
    "browse hidden": meta_tool("browse_tools", server=f"{SECRET}vault"),
    "browse category": meta_tool("browse_tools", category="communication"),
    "browse everything": meta_tool("browse_tools", server="mail", detail="full"),
    "tool resource": resource(f"portico://tool/mail.{SECRET}_erase"),
    "server resource": resource(f"portico://backend/{SECRET}vault"),
    "server tools": resource(f"portico://backend/{SECRET}vault/tools"),
    "server resource read": resource(f"portico://backend/mail/resource/file:///{SECRET}"),
    "template read": resource(f"portico://backend/mail/resource/file:///{SECRET}/x"),
    "template dots": resource(f"portico://backend/mail/resource/file:///a/../{SECRET}/x"),
    "raw resource": resource(f"file:///{SECRET}"),
    "relevant": resource("portico://relevant/erase%20mail"),
    "prompt": request("prompts/get", name=f"mail__{SECRET}_greet"),
    "subscribe": request("resources/subscribe", uri=f"file:///{SECRET}"),
    "unsubscribe": request("resources/unsubscribe", uri=f"file:///{SECRET}"),
    "complete hidden prompt": request(
        "completion/complete",
        ref={"type": "ref/prompt", "name": f"mail__{SECRET}_greet"},
        argument={"name": "x", "value": ""},
    ),
    "complete hidden template": request(
        "completion/complete",
        ref={
            "type": "ref/resource",
            "uri": f"portico://backend/mail/resource/file:///{SECRET}/{{path}}",
        },
        argument={"name": "path", "value": ""},
    ),
    "own method": request("zanzi/list", server="mail"),
    "read unknown result": meta_tool("read_result", result_id="r1"),
}
MORE_PATHS = (
    *PATHS,
    f"tools/mail/{SECRET}_erase",
    f"servers/{SECRET}vault",
    f"servers/{SECRET}vault/logs",
    f"tools?query={SECRET}",
    "tools?query=read+safe+mail&explain=true",
    f"tools?query=erase&server=post&expect=mail.{SECRET}_erase",
    "tools?query=erase&server=post&expect=mail.read_mail",
    f"tools?server={SECRET}vault",
    f"tools?query=erase&expect=mail.{SECRET}_erase",
    f"calls?tool=mail.{SECRET}_erase",
    f"calls?server={SECRET}vault",
    f"stats?server={SECRET}vault",
    f"stats/daily?tool=mail.{SECRET}_erase",
    f"stats/daily?server={SECRET}vault",
    "changes",
    "approvals",
    "keys",
    "config",
    "status",
    "servers/mail",
    "servers/post",
    "tools?limit=1",
    "tools/tiers",
)


async def use_hidden_things(gateway: GatewayRuntime) -> None:
    """Somebody who may uses them a lot: searches, calls, fails, stores large results."""
    view = gateway.get_view(None, BOSS)
    for _ in range(4):
        await ask(view, meta_tool("search_tools", query="erase mail"), BOSS)
        await ask(
            view, meta_tool("call_tool", name=f"mail.{SECRET}_erase", arguments={"to": "a"}), BOSS
        )
        await ask(view, meta_tool("call_tool", name=f"{SECRET}vault.open", arguments={}), BOSS)
        await ask(view, meta_tool("describe_tools", names=[f"mail.{SECRET}_erase"]), BOSS)
    await gateway.usage_data.tool_usage.flush()


def normalize(answer: str) -> str:
    return _CHANGING.sub("", answer.replace('\\"', '"'))


async def ask_rest(gateway: GatewayRuntime) -> dict[str, str]:
    app = make_app(gateway.get_endpoints(), api=ActingAs(RestApp(gateway), WORKER.principal))
    transport = httpx2.ASGITransport(app=app)
    answers: dict[str, str] = {}
    async with httpx2.AsyncClient(
        transport=transport, base_url="http://127.0.0.1:1", timeout=TIMEOUT_S
    ) as http:
        for path in sorted({*MORE_PATHS} - {"stats/daily"}):  # which counts everybody's tokens
            answer = await http.get(f"/api/v1/{path}")
            answers[path] = f"{answer.status_code} {answer.text}"
        for name in (f"mail.{SECRET}_erase", f"{SECRET}vault.open"):
            body = {"tool": name, "arguments": {"to": "a"}}
            answer = await http.post("/api/v1/calls", json=body)
            answers[f"call {name}"] = f"{answer.status_code} {answer.text}"
        answer = await http.post(f"/api/v1/servers/{SECRET}vault/restart", json={})
        answers["restart"] = f"{answer.status_code} {answer.text}"
        answer = await http.post(f"/api/v1/changes/{SECRET}vault", json={"digests": []})
        answers["trust"] = f"{answer.status_code} {answer.text}"
    return answers


@pytest.mark.parametrize("exposure", EXPOSURES)
async def test_answers_are_those_of_a_gateway_without_the_hidden_things(exposure: str) -> None:
    config = Config.model_validate({"rules": RULES, **EXPOSURES[exposure]})
    answers: list[dict[str, str]] = []
    for servers in (make_servers(), make_servers_without_hidden_things()):
        async with run_gateway(servers, config, encoded=True) as gateway:
            if len(servers) == 3:
                await use_hidden_things(gateway)
            view = gateway.get_view(None, WORKER)
            found = {
                name: normalize(await ask(view, question, WORKER))
                for name, question in {**QUESTIONS, **MORE}.items()
            }
            found["instructions"] = view.render_instructions()
            rest = await ask_rest(gateway)
            found |= {f"REST {path}": normalize(answer) for path, answer in rest.items()}
            answers.append(found)
    with_hidden, without = answers
    different = {
        name: (with_hidden[name], without[name])
        for name in with_hidden
        if with_hidden[name] != without[name]
    }
    assert not different
