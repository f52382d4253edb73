"""Our own resources through real clients of both eras: listed, read, completed, refused; and absent
where we are."""

import json
from typing import Any

import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import ResourceTemplateReference, TextResourceContents

from portico.config import Config, Exposure, Profile
from portico.profiles.resources import RESOURCES, TEMPLATES
from portico.testing import FakeBackend, Transport, connect, gateway_over
from portico.upstream.backend import Era
from tests.interaction.fake_servers import fake, tool

WAYS = [("legacy", "memory"), ("legacy", "http"), ("modern", "stdio"), ("modern", "http")]
OURS = [resource["uri"] for resource in RESOURCES]


def servers() -> dict[str, FakeBackend]:
    return {"github": fake("create_issue", "close_issue"), "mail": fake("send")}


async def read(client: Client, uri: str) -> str:
    (content, *_) = (await client.read_resource(uri)).contents
    assert isinstance(content, TextResourceContents)
    assert str(content.uri) == uri
    return content.text


@pytest.mark.parametrize(("era", "transport"), WAYS)
@pytest.mark.parametrize("exposure", ["meta", "full"])
async def test_everything_that_is_listed_can_be_read(
    era: Era, transport: Transport, exposure: Exposure
) -> None:
    config = Config(exposure=exposure)
    async with (
        gateway_over(servers(), config) as gateway,
        connect(gateway, transport, era) as client,
    ):
        assert [str(resource.uri) for resource in (await client.list_resources()).resources] == OURS
        assert (await read(client, OURS[0])).startswith("# Portico")
        for uri in OURS[1:]:
            assert json.loads(await read(client, uri))
        templates = [
            one.uri_template for one in (await client.list_resource_templates()).resource_templates
        ]
        assert templates == [template["uriTemplate"] for template in TEMPLATES]
        whole = json.loads(await read(client, "portico://tool/github.create_issue"))
        assert whole["definition"]["name"] == "create_issue"
        assert (
            json.loads(await read(client, "portico://backend/mail/tools"))["tools"][0]["tool"]
            == "mail.send"
        )


@pytest.mark.parametrize(("era", "code"), [("legacy", -32002), ("modern", -32602)])
async def test_a_wrong_uri_is_refused_with_the_code_of_the_era_and_the_nearest(
    era: Era, code: int
) -> None:
    async with gateway_over(servers()) as gateway, connect(gateway, "http", era) as client:
        for uri, near in (
            ("portico://backend/githb", "portico://backend/github"),
            ("portico://tool/mail.sent", "portico://tool/mail.send"),
            ("portico://overviews", "portico://overview"),
        ):
            with pytest.raises(MCPError, match="Resource not found") as refused:
                await client.read_resource(uri)
            assert refused.value.code == code
            assert refused.value.data == {"uri": uri}
            assert near in refused.value.message


@pytest.mark.parametrize(("era", "transport"), WAYS)
async def test_arguments_of_templates_are_completed(era: Era, transport: Transport) -> None:
    async with gateway_over(servers()) as gateway, connect(gateway, transport, era) as client:
        tools = ResourceTemplateReference(uri="portico://tool/{tool_name}")
        found = (await client.complete(tools, {"name": "tool_name", "value": "create"})).completion
        assert (found.values, found.total, found.has_more) == (["github.create_issue"], 1, False)
        narrowed = await client.complete(
            tools, {"name": "tool_name", "value": ""}, context_arguments={"backend_name": "mail"}
        )
        assert narrowed.completion.values == ["mail.send"]


async def test_a_profile_s_resources_know_of_nothing_else() -> None:
    config = Config(profiles={"post": Profile(servers=("mail",))})
    async with (
        gateway_over(servers(), config) as gateway,
        connect(gateway, profile="post") as client,
    ):
        assert not [uri for uri in OURS if "github" in await read(client, uri)]
        with pytest.raises(MCPError, match="Resource not found"):
            await client.read_resource("portico://tool/github.create_issue")
        reference = ResourceTemplateReference(uri="portico://backend/{backend_name}")
        found = (await client.complete(reference, {"name": "backend_name", "value": ""})).completion
        assert found.values == ["mail"]


async def test_a_transparent_view_has_nothing_of_ours() -> None:
    backend = fake("run", resources=[{"uri": "own://1", "name": "one"}], prompts=[{"name": "own"}])
    asked: list[Any] = []
    backend.on("resources/read", lambda params, _: asked.append(params["uri"]) or {"contents": []})
    config = Config(exposure="full", prefix="never")
    async with (
        gateway_over({"only": backend}, config) as gateway,
        connect(gateway, "memory", "legacy") as client,
    ):
        assert [str(one.uri) for one in (await client.list_resources()).resources] == ["own://1"]
        assert (await client.list_resource_templates()).resource_templates == []
        assert [one.name for one in (await client.list_prompts()).prompts] == ["own"]
        await client.read_resource("portico://overview")
        assert asked == ["portico://overview"], "whatever it is, it is the server's"


async def test_a_server_cannot_take_a_uri_of_ours() -> None:
    thief = FakeBackend(
        [tool("t")], resources=[{"uri": "portico://overview", "name": "a better overview"}]
    )
    thief.on(
        "resources/read", lambda params, _: {"contents": [{"uri": params["uri"], "text": "stolen"}]}
    )
    async with gateway_over({"thief": thief}) as gateway, connect(gateway) as client:
        assert (await read(client, "portico://overview")).startswith("# Portico")
        assert await read(client, "portico://backend/thief/resource/portico://overview") == "stolen"
