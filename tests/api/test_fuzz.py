"""The API answers any request, within and beyond its own description, as described."""

import asyncio
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import sampled_from
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

from portico.api.app import make_api
from portico.api.gateway_services import GatewayServices, RuleServices
from portico.callers import Caller
from portico.events import ToolCalled, ToolsShown
from portico.storage.key_store import KeyStore
from portico.testing import gateway_over, serve_http
from tests.api.api_client import backend, make_profile_state, make_tools
from tests.interaction.fake_servers import tool

TIMEOUT_S = 240
EXAMPLES = 40
ODD = ["a/b", "ünï", "with space", "..", "x" * 200]
CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.response_headers_conformance,
    checks.unsupported_method,
]


def _servers() -> dict[str, Any]:
    return {
        "git": backend(
            tool("create_issue", "Create a new issue.", owner="string"), *make_tools("git", 30)
        ),
        "mail": backend(*make_tools("mail", 5, "Sends an e-mail")),
        "odd": backend(
            *(tool(name) for name in ODD), {"name": "bare"}, {"name": "any", "inputSchema": True}
        ),
    }


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A gateway with a little use behind it, served by a thread of its own."""
    ready, found = threading.Event(), dict[str, Any]()

    async def serve() -> None:
        found["stop"], found["loop"] = asyncio.Event(), asyncio.get_running_loop()
        with tempfile.TemporaryDirectory() as folder:
            await serve_in(folder)

    async def serve_in(folder: str) -> None:
        async with gateway_over(_servers()) as gateway:
            profile_state, usage_data, record = make_profile_state(gateway)
            caller = Caller("session", "fuzz")
            gateway.bus.publish(ToolsShown(caller, "words", is_listing=True))
            for at in range(40):
                gateway.bus.publish(
                    ToolCalled(f"git.git_{at % 7}", "0" * 16, at / 100, at % 5 > 0, caller)
                )
            await usage_data.tool_usage.flush()
            await usage_data.standings.recompute()
            api = make_api(
                profile_state,
                gateway.get_view().search_service,
                record,
                services=GatewayServices(
                    upstreams=gateway.upstreams,
                    keys=KeyStore(None, Path(folder)),
                    approvals=gateway.approvals,
                    rules=RuleServices(
                        lambda: gateway.calls.enforcement.rules,
                        lambda name, caller: gateway.get_view(name, caller).snapshot,
                    ),
                ),
            )
            async with serve_http(gateway, api=api) as url:
                found["url"] = url.removesuffix("/mcp")
                ready.set()
                await found["stop"].wait()
            await record.close()

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            found["error"] = error
            raise
        finally:
            ready.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(TIMEOUT_S)
    assert "url" in found, found
    yield found["url"]
    found["loop"].call_soon_threadsafe(found["stop"].set)
    thread.join(TIMEOUT_S)
    assert not thread.is_alive()


@pytest.fixture(scope="module")
def description(address: str) -> Any:
    return schemathesis.openapi.from_url(f"{address}/api/openapi.json")


PATHS = [
    "approvals",
    "approvals/{id}",
    "calls",
    "calls/refused",
    "calls/{call_id}",
    "changes",
    "changes/{name}",
    "clients",
    "clients/{name}",
    "config",
    "config/changes",
    "config/undo",
    "keys",
    "keys/{name}",
    "keys/{name}/rotate",
    "load",
    "people",
    "rules",
    "rules/effect",
    "rules/seen",
    "rules/test",
    "servers",
    "servers/{name}",
    "servers/{name}/log",
    "servers/{name}/restart",
    "servers/{name}/sign-in",
    "stats",
    "stats/daily",
    "stats/tokens",
    "tools",
    "tools/categories",
    "tools/category/{name}",
    "tools/hot",
    "tools/{server}/{tool}",
    "/v0.1/servers",
    "/v0.1/servers/{name}/versions",
    "/v0.1/servers/{name}/versions/{version}",
]
"""Under /api/v1, but for whole paths."""


ENDLESS = {"events"}
"""What never ends cannot be tried here; `test_event_routes.py` does."""
BARE = {
    "approvals",
    "calls/refused",
    "changes",
    "clients",
    "config",
    "keys",
    "load",
    "people",
    "rules",
    "stats",
    "tools/hot",
}
"""They have no parameters that could be wrong."""
DOING = {
    "approvals/{id}": "POST",
    "changes/{name}": "POST",
    "servers/{name}/restart": "POST",
    "keys/{name}": "DELETE",
    "keys/{name}/rotate": "POST",
    "clients/{name}": "POST",
    "config/changes": "POST",
    "config/undo": "POST",
    "rules/effect": "POST",
    "rules/seen": "POST",
    "rules/test": "POST",
}
"""They do something, and have no other method."""
JSON = {"content-type": "application/json"}
"""What a program says that no page of another origin can, as what does something wants."""
pytestmark = pytest.mark.slow
KNOWN = {
    "servers/{name}": [{"name": name} for name in ("git", "Mail", "odd")],
    "servers/{name}/restart": [{"name": name} for name in ("git", "Mail", "odd")],
    "tools/category/{name}": [
        {"name": name} for name in ("other", "version-control", "Mail, chat and social media")
    ],
    "tools/{server}/{tool}": [
        {"server": "git", "tool": "create_issue"},
        *({"server": "odd", "tool": name} for name in (*ODD, "bare", "any") if name != ".."),
    ],
}
SLOW = [
    HealthCheck.too_slow,
    HealthCheck.filter_too_much,
    HealthCheck.data_too_large,
    HealthCheck.large_base_example,
]
FUZZ = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=SLOW,
)


def locate(path: str) -> str:
    return path if path.startswith("/") else f"/api/v1/{path}"


def test_every_operation_is_tried(description: Any):
    described = {operation.ok().path for operation in description.get_all_operations()}
    assert described == {locate(path) for path in (*PATHS, *ENDLESS)}


@pytest.mark.parametrize("mode", list(GenerationMode))
@pytest.mark.parametrize("path", PATHS)
def test_the_api_conforms_to_its_description_and_never_fails(
    description: Any, path: str, mode: GenerationMode
):
    if path in BARE and mode is GenerationMode.NEGATIVE:
        return
    operation = description[locate(path)][DOING.get(path, "GET")]

    @FUZZ
    @given(case=operation.as_strategy(generation_mode=mode))
    def asked(case: Any) -> None:
        case.call_and_validate(checks=CHECKS)

    asked()


@pytest.mark.parametrize("path", KNOWN)
def test_what_is_there_is_as_described(description: Any, path: str):
    operation = description[locate(path)][DOING.get(path, "GET")]
    statuses: set[int] = set()

    @FUZZ
    @given(case=operation.as_strategy(), names=sampled_from(KNOWN[path]))
    def asked(case: Any, names: dict[str, str]) -> None:
        case.path_parameters = names
        statuses.add(case.call_and_validate(checks=CHECKS, headers=JSON).status_code)

    asked()
    assert 200 in statuses
