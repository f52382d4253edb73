"""No typed model stands between the two wires: what a server says arrives as it was said.

A real process says odd things on stdio; raw clients of both eras read them over HTTP and over
pipes, by the flat name (`full`) and through `call_tool` (`meta`).
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from portico.config import BackendConfig, Config, Profile
from portico.testing import gateway_over, serve_http
from portico.upstream.backend import Raw
from tests.gateways import ContextHolder
from tests.interaction import vendor
from tests.interaction.raw_clients import RawClient, call, pages, raw_http, raw_lines, result

pytestmark = pytest.mark.asyncio(loop_scope="session")

SERVER = Path(__file__).with_name("vendor_server.py")
WIRES = [f"{era}_{transport}" for era in ("legacy", "modern") for transport in ("stdio", "http")]
MODERN_ONLY = {"resultType", "ttlMs", "cacheScope"}
SERVER_INFO = "io.modelcontextprotocol/serverInfo"


@dataclass(frozen=True)
class Wire:
    """A raw client, and how it spells a call."""

    client: RawClient
    exposed: str

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        if self.exposed == "full":
            return await call(self.client, f"vendor__{tool}", **arguments)
        return await call(self.client, "call_tool", name=f"vendor.{tool}", arguments=arguments)


Wires = dict[tuple[str, str], RawClient]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def wires(holder: ContextHolder, tmp_path_factory: pytest.TempPathFactory) -> Wires:
    config = Config(
        servers={"vendor": BackendConfig(command=sys.executable, args=("-S", str(SERVER)))},
        exposure="full",
        profiles={"meta": Profile(exposure="meta")},
        data_dir=tmp_path_factory.mktemp("vendor"),
    )
    gateway = await holder.hold(gateway_over(config=config))
    url = await holder.hold(serve_http(gateway))
    opened: Wires = {}
    for era in ("legacy", "modern"):
        for exposed, profile in (("full", None), ("meta", "meta")):
            path = f"{url}/p/{profile}" if profile else url
            opened[f"{era}_stdio", exposed] = await holder.hold(
                raw_lines(gateway.get_endpoint(profile), era)
            )
            opened[f"{era}_http", exposed] = await holder.hold(raw_http(path, era))
    return opened


@pytest.fixture(params=WIRES)
def full(request: pytest.FixtureRequest, wires: Wires) -> RawClient:
    return wires[request.param, "full"]


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest, exposed: str, wires: Wires) -> Wire:
    return Wire(wires[request.param, exposed], exposed)


@pytest.fixture(params=["full", "meta"])
def exposed(request: pytest.FixtureRequest) -> str:
    return request.param


def without_envelope(answered: dict[str, Any], client: RawClient) -> dict[str, Any]:
    """A result without what the modern era wants around it; in the legacy era nothing may be around
    it."""
    if client.era == "legacy":
        return answered
    answered = dict(answered)
    assert answered.pop("resultType") == "complete"
    assert answered["_meta"].pop(SERVER_INFO)["name"] == "portico"
    return (
        answered
        if answered["_meta"]
        else {key: value for key, value in answered.items() if key != "_meta"}
    )


async def test_a_definition_is_listed_as_it_was_given_but_for_its_name(full: RawClient) -> None:
    tools = {tool["name"]: tool for tool in await pages(full, "tools/list", "tools")}
    assert tools["vendor__odd"] == {**vendor.TOOL, "name": "vendor__odd"}
    assert list(tools["vendor__odd"]) == list(vendor.TOOL)


def without_added_annotations(answered: Raw, sent: Raw) -> Raw:
    """The answer of `call_tool` without the annotations of blocks that were sent without."""
    if "content" not in sent:
        return answered
    blocks = list[Any]()
    for block, original in zip(answered["content"], sent["content"], strict=True):
        if "annotations" in block and "annotations" not in original:
            assert block["annotations"] == {"priority": 0.7}
            block = {key: value for key, value in block.items() if key != "annotations"}
        blocks.append(block)
    return {**answered, "content": blocks}


@pytest.mark.parametrize("what", vendor.RESULTS)
async def test_a_result_arrives_unchanged(wire: Wire, what: str) -> None:
    answered = (await wire.call("odd", what=what))["result"]
    if wire.exposed == "meta":
        # The server declares objects and says all sorts of things: that is remarked on, and passed
        # on.
        answered.get("_meta", {}).pop("portico/output_mismatch", None)
        answered = (
            answered
            if answered.get("_meta")
            else {key: answered[key] for key in answered if key != "_meta"}
        )
        answered = without_added_annotations(answered, vendor.RESULTS[what])
    arrived = without_envelope(answered, wire.client)
    assert arrived == vendor.RESULTS[what]
    assert repr(arrived) == repr(vendor.RESULTS[what]), (
        "True is not 1, 1.0 is not 1, and keys keep their order"
    )


@pytest.mark.parametrize("what", vendor.ERRORS)
async def test_an_error_arrives_unchanged(wire: Wire, what: str) -> None:
    answered = await wire.call("refuse", what=what)
    expected: dict[str, Any] = {"code": vendor.CODE, "message": vendor.MESSAGE}
    if what != vendor.NO_DATA:
        expected["data"] = vendor.ERRORS[what]
    if wire.exposed == "full":
        assert repr(answered["error"]) == repr(expected)
    else:
        reported = answered["result"]["_meta"]["portico/error"]
        assert repr(
            {key: reported[key] for key in ("code", "message", "data") if key in reported}
        ) == repr(expected)


async def test_arguments_reach_the_server_unchanged(wire: Wire) -> None:
    arguments = {
        "null": None,
        "big": vendor.HUGE,
        "float": 1.0,
        "ü": "\U0001f600\u2028",
        "deep": [[], {}, [None]],
    }
    answered = (await wire.call("repeat", **arguments))["result"]
    assert repr(json.loads(answered["content"][0]["text"])) == repr(arguments)


@pytest.mark.parametrize(
    "method", ["tools/list", "resources/list", "resources/templates/list", "prompts/list"]
)
async def test_a_listing_wears_what_its_era_knows_and_no_more(wire: Wire, method: str) -> None:
    listed = await result(wire.client, method)
    if wire.client.era == "legacy":
        assert MODERN_ONLY.isdisjoint(listed)
        assert "_meta" not in listed
    else:
        assert listed["resultType"] == "complete"
        assert isinstance(listed["ttlMs"], int)
        assert listed["cacheScope"] in ("private", "public")
        assert listed["_meta"][SERVER_INFO]["name"] == "portico"


async def test_a_meta_tools_answer_wears_what_its_era_knows_and_no_more(wires: Wires) -> None:
    for name in WIRES:
        client = wires[name, "meta"]
        answered = (await call(client, "search_tools", query="odd"))["result"]
        if client.era == "legacy":
            assert MODERN_ONLY.isdisjoint(answered)
        else:
            assert answered["resultType"] == "complete"
            assert answered["_meta"][SERVER_INFO]["name"] == "portico"


async def test_the_description_in_full_has_the_whole_schema(wires: Wires) -> None:
    asked = {"names": ["vendor.odd"], "detail": "full"}
    answered = await call(wires["modern_http", "meta"], "describe_tools", **asked)
    assert str(vendor.HUGE) in answered["result"]["content"][0]["text"]
