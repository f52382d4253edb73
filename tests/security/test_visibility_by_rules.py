"""What a caller may not call it does not see, in any list, answer, count or error."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import httpx2
import pytest
from mcp.shared.exceptions import MCPError

from portico import Gateway
from portico.api.event_feed import EventListener
from portico.api.event_routes import is_server_visible
from portico.callers import KEY_ISSUER, PRINCIPAL_KEY, Caller, Principal
from portico.calls.pipeline import CallContext
from portico.config import Config
from portico.errors import PorticoError
from portico.events import CallStarted, CatalogChanged, Event, ServerStateChanged
from portico.gateway import GatewayRuntime
from portico.gateway.rest_app import RestApp
from portico.profiles.view import ProfileView
from portico.server.http.app import make_app
from portico.testing import FakeBackend
from portico.upstream.backend import Raw
from tests.gateways import TIMEOUT_S, open_gateway, run_gateway
from tests.interaction.fake_servers import text, tool

SECRET = "zanzibar"
"""Word that only names and texts of hidden things have."""
RULES: list[Raw] = [
    {"for": ["key:boss"], "may": "allow"},
    {"servers": [f"{SECRET}vault"], "may": "deny"},
    {
        "tools": [f"*.{SECRET}_*"],
        "resources": [f"*.file:///{SECRET}*"],
        "prompts": [f"*.{SECRET}*"],
        "may": "deny",
    },
]
BOSS = Caller(principal=Principal(KEY_ISSUER, "boss"))
LOCAL = Caller()
WORKER = Caller(principal=Principal(KEY_ISSUER, "worker"))


def make_server(*extra_tools: str) -> FakeBackend:
    backend = FakeBackend(
        [
            tool("read_mail", to="string"),
            {**tool(f"{SECRET}_erase", to="string"), "description": f"Erase {SECRET} mail."},
            *map(tool, extra_tools),
        ],
        resources=[
            {"uri": "file:///open", "name": "open"},
            {"uri": f"file:///{SECRET}", "name": SECRET},
        ],
        templates=[
            {"uriTemplate": "file:///a/{path}", "name": "files"},
            {"uriTemplate": f"file:///{SECRET}/{{path}}", "name": SECRET},
        ],
        prompts=[{"name": "greet"}, {"name": f"{SECRET}_greet"}],
    )
    backend.on_call("read_mail", lambda _: text("read"))
    backend.on_call(f"{SECRET}_erase", lambda _: text("erased"))
    return backend


def make_servers() -> dict[str, FakeBackend]:
    vault = FakeBackend([{**tool("open"), "description": f"Open the {SECRET} safe."}])
    return {"mail": make_server(), "post": make_server("stamp"), f"{SECRET}vault": vault}


@asynccontextmanager
async def run(*rules: Raw, **options: Any) -> AsyncGenerator[GatewayRuntime]:
    config = Config.model_validate({"rules": list(rules) or RULES, **options})
    async with run_gateway(make_servers(), config) as gateway:
        yield gateway


Ask = Callable[[ProfileView, CallContext], Awaitable[Any]]


def request(method: str, **params: Any) -> Ask:
    return lambda view, context: view.handle(method, params, context, "modern")


def meta_tool(name: str, /, **arguments: Any) -> Ask:
    return request("tools/call", name=name, arguments=arguments)


def resource(uri: str) -> Ask:
    return request("resources/read", uri=uri)


def complete(template: str, argument: str, value: str, **known: str) -> Ask:
    return request(
        "completion/complete",
        ref={"type": "ref/resource", "uri": f"portico://{template}"},
        argument={"name": argument, "value": value},
        context={"arguments": known},
    )


QUESTIONS: dict[str, Ask] = {
    "tools/list": request("tools/list"),
    "tools/list by query": request("tools/list", query="erase mail"),
    "search": meta_tool("search_tools", query="erase mail"),
    "search in detail": meta_tool("search_tools", query="erase mail", detail="schema"),
    "search explained": meta_tool("search_tools", query="erase mail", detail="explain"),
    "search by a name that is nearly right": meta_tool("search_tools", query="zanzibr"),
    "browse": meta_tool("browse_tools"),
    "browse a server": meta_tool("browse_tools", server="mail"),
    "describe": meta_tool("describe_tools", names=["mail.read_mail", "mail.erase"]),
    "nearest names": meta_tool("call_tool", name="mail.erase", arguments={}),
    "script": meta_tool("run_code", code="return await mail.erase()"),
    "search in a script": meta_tool("run_code", code="return await search_tools('erase mail')"),
    "plan": meta_tool("run_workflow", intent="erase all mail"),
    "resources/list": request("resources/list"),
    "resources/templates/list": request("resources/templates/list"),
    "prompts/list": request("prompts/list"),
    "complete a tool": complete("tool/{tool_name}", "tool_name", "zanz"),
    "complete a server": complete("backend/{backend_name}", "backend_name", "zanz"),
    "complete a resource": complete(
        "backend/{backend_name}/resource/{+uri}", "uri", "", backend_name="mail"
    ),
    "complete a category": complete("category/{category}", "category", ""),
    "instructions for a task": request(
        "prompts/get", name="find_tool", arguments={"task": "erase mail"}
    ),
    "tour": request("prompts/get", name="discover"),
    **{
        f"portico://{name}": resource(f"portico://{name}")
        for name in ("overview", "backends", "tools", "hot", "categories", "stats")
    },
    "portico://backend": resource("portico://backend/mail"),
    "portico://backend/tools": resource("portico://backend/mail/tools"),
    "portico://category": resource("portico://category/communication"),
    "a resource that is nearly right": resource("portico://mail/file:///zanziba"),
    "a prompt that is nearly right": request("prompts/get", name="mail__zanziba_greet"),
}


async def ask(view: ProfileView, question: Ask, caller: Caller) -> str:
    """Return everything that an answer or an error says, apart from what was asked."""
    try:
        return json.dumps(await question(view, CallContext(caller)), default=str)
    except PorticoError as error:
        return f"{error} {error.advice} {getattr(error, 'nearest', '')}"


EXPOSURES: dict[str, Raw] = {
    "meta": {"exposure": "meta"},
    "full": {"exposure": "full"},
    "code": {"exposure": "code"},
    "semantic": {"exposure": "semantic", "intent": "erase mail"},
}


async def find_named(view: ProfileView, caller: Caller) -> set[str]:
    """Return the questions whose answers name something hidden."""
    named = {name for name, question in QUESTIONS.items() if await mentions(view, question, caller)}
    return named | ({"instructions"} if SECRET in view.render_instructions() else set())


async def mentions(view: ProfileView, question: Ask, caller: Caller) -> bool:
    return SECRET in (await ask(view, question, caller)).lower()


@pytest.mark.parametrize("exposure", EXPOSURES)
async def test_no_answer_names_what_a_caller_may_not_call(exposure: str) -> None:
    async with run(**EXPOSURES[exposure]) as gateway:
        assert not await find_named(gateway.get_view(None, WORKER), WORKER)
        # The questions are such that somebody who may see it does.
        seen = await find_named(gateway.get_view(None, BOSS), BOSS)
        assert len(seen) >= (14 if exposure == "full" else 18), seen


def meta_name(meta: str, parameter: str, name: str) -> Ask:
    return meta_tool(meta, **{parameter: [name] if parameter == "names" else name})


def ask_for_tool(name: str) -> Ask:
    return meta_tool("call_tool", name=f"mail.{name}", arguments={})


def ask_for_prompt(name: str) -> Ask:
    return request("prompts/get", name=f"mail__{name}")


async def test_hidden_things_are_unknown_in_the_words_of_what_does_not_exist() -> None:
    async with run() as gateway:
        view = gateway.get_view(None, WORKER)
        outer = "portico://backend/mail/resource/file:///"
        for hidden, missing, ask_for in (
            (f"{SECRET}_erase", f"{SECRET}_shave", ask_for_tool),
            (f"{SECRET}_erase", f"{SECRET}_shave", partial(meta_name, "describe_tools", "names")),
            (f"{SECRET}_erase", f"{SECRET}_shave", lambda name: resource(f"portico://tool/{name}")),
            (SECRET, f"{SECRET}a", lambda name: resource(f"{outer}{name}")),
            (SECRET, f"{SECRET}a", lambda name: request("resources/subscribe", uri=name)),
            (f"{SECRET}_greet", "nonsense_greet", ask_for_prompt),
            (f"{SECRET}vault", "nonsensevault", partial(meta_name, "browse_tools", "server")),
        ):
            about_hidden = await ask(view, ask_for(hidden), WORKER)
            about_missing = await ask(view, ask_for(missing), WORKER)
            assert about_hidden.replace(hidden, missing) == about_missing


async def test_what_is_denied_only_for_some_arguments_or_is_visible_is_seen() -> None:
    rules: list[Raw] = [
        {"tools": ["mail.read_mail"], "when": {"to": "ana"}, "may": "allow"},
        {"tools": ["*.stamp"], "may": "deny", "visible": True},
        {"tools": [f"mail.{SECRET}_erase"], "may": "ask"},
        {"tools": ["*"], "may": "deny"},
    ]
    async with run(*rules) as gateway:
        view = gateway.get_view(None, WORKER)
        assert set(view.snapshot.tools) == {"mail.read_mail", "post.stamp", f"mail.{SECRET}_erase"}


async def test_the_callers_of_one_selection_of_rules_share_one_view() -> None:
    async with run() as gateway:
        other = Caller(principal=Principal(KEY_ISSUER, "other"))
        worker_view = gateway.get_view(None, WORKER)
        assert gateway.get_view(None, other) is worker_view
        assert gateway.get_view(None, BOSS) is gateway.get_view()
        assert worker_view.snapshot is worker_view.snapshot


async def test_what_is_shown_follows_the_catalog_and_the_rules() -> None:
    servers = make_servers()
    config = Config.model_validate({"rules": RULES})
    async with run_gateway(servers, config) as gateway:
        view = gateway.get_view(None, WORKER)
        entry = view.snapshot.servers["mail"]
        servers["post"].listing["tools"] = [tool("stamp"), tool(f"{SECRET}_b"), tool("weigh")]
        await gateway.refresh(["post"])
        assert set(view.snapshot.servers["post"].tools) == {"stamp", "weigh"}
        assert view.snapshot.servers["mail"] is entry, "what did not change is not filtered again"
        await gateway.apply(Config())
        assert f"post.{SECRET}_b" in gateway.get_view(None, WORKER).snapshot.tools


async def test_clients_are_told_that_their_lists_changed_when_the_rules_do() -> None:
    told = asyncio.Event()

    async def on_message(message: Any) -> None:
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            told.set()

    rules: list[Raw] = [{"tools": [f"*.{SECRET}_*"], "may": "deny"}]
    config = Config.model_validate({"exposure": "full", "rules": rules})
    options: Any = {"era": "legacy", "message_handler": on_message}
    async with open_gateway({"mail": make_server()}, config, **options) as gateway:
        names = [one.name for one in (await gateway.client.list_tools()).tools]
        assert names == ["mail__read_mail"]
        with pytest.raises(MCPError, match="no tool"):
            await gateway.call(f"mail__{SECRET}_erase", to="a")
        await gateway.runtime.apply(Config.model_validate({"exposure": "full"}))
        await asyncio.wait_for(told.wait(), TIMEOUT_S)
        names = [one.name for one in (await gateway.client.list_tools()).tools]
        assert f"mail__{SECRET}_erase" in names


async def test_a_transparent_server_is_not_asked_for_what_rules_hide() -> None:
    backend = make_server()
    rules: list[Raw] = [{"categories": ["communication"], "may": "deny"}]
    config = Config.model_validate({"rules": rules, "exposure": "full", "prefix": "never"})
    async with open_gateway({"mail": backend}, config) as gateway:
        assert gateway.runtime.get_view(None, LOCAL).transparent_server == "mail"
        category = gateway.runtime.catalog.snapshot.get_category(f"mail.{SECRET}_erase")
        assert category == "communication"
        with pytest.raises(MCPError):
            await gateway.call(f"{SECRET}_erase", to="a")
    assert not [method for method, _ in backend.requests if method == "tools/call"]


async def test_servers_that_are_hidden_do_not_make_the_last_one_transparent() -> None:
    rules: list[Raw] = [{"servers": ["post", f"{SECRET}vault"], "may": "deny"}]
    async with run(*rules, exposure="full", prefix="never") as gateway:
        view = gateway.get_view(None, WORKER)
        assert list(view.snapshot.servers) == ["mail"]
        assert view.transparent_server is None


class ActingAs:
    """An ASGI application whose requests are all on behalf of one principal."""

    def __init__(self, app: Any, principal: Principal) -> None:
        self._app = app
        self._principal = principal

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._app({**scope, PRINCIPAL_KEY: self._principal}, receive, send)


PATHS = (
    "tools",
    "tools?query=erase+mail&explain=true",
    "tools?query=erase&expect=mail.erase",
    "tools/hot",
    "tools/categories",
    "tools/category/communication",
    "tools/mail/erase",
    "servers",
    "servers/mail",
    "stats",
    "stats/daily",
    "load",
    "calls",
)


async def test_rest_shows_a_principal_what_it_may_call() -> None:
    async with run() as gateway:
        names = ["mail.read_mail", f"mail.{SECRET}_erase", f"{SECRET}vault.open"]
        for name in names:
            tool_ = gateway.catalog.snapshot.tools[name]
            with contextlib.suppress(PorticoError):
                await gateway.calls.call(tool_, {"to": "a"}, CallContext(BOSS))
        await gateway.usage_data.tool_usage.flush()
        seen: dict[str, set[str]] = {}
        rest = RestApp(gateway)
        for caller in (BOSS, WORKER):
            app = make_app(gateway.get_endpoints(), api=ActingAs(rest, caller.principal))
            transport = httpx2.ASGITransport(app=app)
            async with httpx2.AsyncClient(
                transport=transport, base_url="http://127.0.0.1:1", timeout=TIMEOUT_S
            ) as http:
                answers = {path: (await http.get(f"/api/v1/{path}")).text for path in PATHS}
            name = caller.principal.subject
            seen[name] = {path for path, answer in answers.items() if SECRET in answer}
        assert not seen["worker"]
        assert len(seen["boss"]) >= len(PATHS) - 1, seen["boss"]


async def test_the_stream_of_events_names_no_hidden_tool() -> None:
    async with run() as gateway:
        listeners: dict[str, EventListener] = {}
        for caller in (BOSS, WORKER):
            state = gateway.get_view(None, caller).profile_state
            listeners[caller.principal.subject] = EventListener(
                caller.principal,
                partial(is_server_visible, state, caller.principal),
                lambda: True,
                lambda: False,
                state.hides_tool,
            )
        events: list[Event] = [
            CallStarted("1", f"mail.{SECRET}_erase", BOSS, "cli"),
            ServerStateChanged(f"{SECRET}vault", "ready", ""),
        ]
        assert all(listeners["boss"].may_see(event) for event in events)
        assert not any(listeners["worker"].may_see(event) for event in events)
        change = CatalogChanged("mail", added=(f"mail.{SECRET}_new", "mail.new"))
        assert listeners["boss"].select_visible(change) is change
        assert listeners["worker"].select_visible(change) == CatalogChanged(
            "mail", added=("mail.new",)
        )


async def test_the_library_shows_an_agent_what_it_may_call() -> None:
    config = {"rules": [{"for": ["local"], "tools": ["*.multiply"], "may": "deny"}]}

    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    def multiply(a: int, b: int) -> int:
        """Multiply two numbers."""
        return a * b

    async with Gateway(config, servers={"math": [add, multiply]}, in_memory=True) as agent:
        assert [match.name for match in await agent.search("multiply two numbers")] == ["math.add"]
        assert "multiply" not in await agent.browse("math")
        assert agent.servers()[0].tools == 1
        with pytest.raises(PorticoError):
            await agent.tool("math.multiply")
