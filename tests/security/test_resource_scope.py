"""Resources, templates, prompts, subscriptions and completion obey profiles, denials and what a
server lists."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from portico.config import BackendConfig, Config, Profile
from portico.testing import FakeBackend, gateway_over
from portico.upstream.backend import Era, Raw
from tests.interaction.fake_servers import fake
from tests.interaction.raw_clients import RawLines, pages, raw_lines, result

NOTE, SECRET = "notes://open/1", "notes://secret/1"
LINKED = "notes://made/7"
TEMPLATES = ["notes://open/{number}", "notes://any/{+path}"]
CONFIGURED: Raw = {"functions": "portico.demo.notes:TOOLS"}


def notes() -> FakeBackend:
    backend = fake(
        "read_note",
        "drop_note",
        resources=[{"uri": uri, "name": uri} for uri in (NOTE, SECRET)],
        templates=[{"uriTemplate": uri, "name": uri} for uri in TEMPLATES],
        prompts=[{"name": "review"}, {"name": "hidden"}],
        capabilities={"tools": {}, "resources": {"subscribe": True}, "prompts": {}},
    )
    backend.on(
        "resources/read", lambda params, _: {"contents": [{"uri": params["uri"], "text": "read"}]}
    )
    backend.on("resources/subscribe", lambda params, _: {})
    backend.on("resources/unsubscribe", lambda params, _: {})
    backend.on("prompts/get", lambda params, _: {"messages": []})
    backend.on("completion/complete", lambda params, _: {"completion": {"values": ["x"]}})
    link = {"type": "resource_link", "uri": LINKED, "name": "made"}
    backend.on_call("read_note", lambda _: {"content": [link]})
    return backend


class ProfileClient:
    """A client of one profile, and the server behind it."""

    def __init__(self, client: RawLines, backend: FakeBackend, transparent: bool) -> None:
        self.client, self.backend = client, backend
        self._root = "" if transparent else "portico://backend/notes/resource/"
        self._prefix = "" if transparent else "notes__"

    async def listed(self) -> tuple[list[str], list[str], list[str]]:
        """Resources, templates and prompts of the server, by its own names."""
        resources = [one["uri"] for one in await pages(self.client, "resources/list", "resources")]
        templates = [
            one["uriTemplate"]
            for one in await pages(self.client, "resources/templates/list", "resourceTemplates")
        ]
        prompts = [one["name"] for one in await pages(self.client, "prompts/list", "prompts")]
        own = self._prefix or ("review", "hidden")
        return (
            [uri.removeprefix(self._root) for uri in resources if "notes://" in uri],
            [uri.removeprefix(self._root) for uri in templates if "notes://" in uri],
            [name.removeprefix(self._prefix) for name in prompts if name.startswith(own)],
        )

    async def can(self, method: str, name: str) -> bool:
        """Decide whether a request about one of them is answered; one that is not does not reach
        the
        server."""
        params: Raw = {"uri": self._root + name}
        if method == "prompts/get":
            params = {"name": self._prefix + name}
        elif method == "completion/complete":
            ref = {"type": "ref/resource", "uri": self._root + name}
            if "://" not in name:
                ref = {"type": "ref/prompt", "name": self._prefix + name}
            params = {"ref": ref, "argument": {"name": "number", "value": ""}}
        before = len(self.backend.requests)
        answered = "result" in await self.client.request(method, params)
        assert answered or len(self.backend.requests) == before, "refused, and asked all the same"
        return answered

    async def readable(self, *uris: str) -> list[str]:
        return [uri for uri in uris if await self.can("resources/read", uri)]


@asynccontextmanager
async def open_profile(
    server: Raw | None = None,
    profile: Raw | None = None,
    *,
    transparent: bool = False,
    era: Era = "legacy",
) -> AsyncGenerator[ProfileClient]:
    how: Raw = {"exposure": "full", "prefix": "never"} if transparent else {}
    config = Config(
        servers={"notes": BackendConfig(**CONFIGURED, **(server or {}))},
        profiles={"p": Profile(**(profile or {}))},
        **how,
    )
    backend = notes()
    async with (
        gateway_over({"notes": backend}, config) as gateway,
        raw_lines(gateway.get_endpoint("p"), era) as client,
    ):
        yield ProfileClient(client, backend, transparent)


ALL = ([NOTE, SECRET], TEMPLATES, ["review", "hidden"])
NOTHING: tuple[list[str], list[str], list[str]] = ([], [], [])
NARROWED: dict[str, Any] = {
    "a profile of tools": (None, {"tools": ["notes.read_*"]}),
    "a profile of bare names": (None, {"tools": ["read_*"]}),
    "denied tools": ({"tools": {"deny": ["drop_*"]}}, None),
    "allowed tools": ({"tools": {"allow": ["read_*"]}}, None),
    "a profile of no resources or prompts": (None, {"resources": [], "prompts": []}),
}


@pytest.mark.parametrize("transparent", [False, True], ids=["namespaced", "transparent"])
@pytest.mark.parametrize("how", NARROWED)
async def test_where_tools_are_left_out_so_are_resources_and_prompts(
    how: str, transparent: bool
) -> None:
    server, profile = NARROWED[how]
    async with open_profile(server, profile, transparent=transparent) as profile_client:
        assert await profile_client.listed() == NOTHING
        assert (
            await profile_client.readable(
                NOTE, SECRET, "notes://open/2", "notes://any/x", "notes://else"
            )
            == []
        )
        for method, name in (
            ("resources/subscribe", NOTE),
            ("prompts/get", "review"),
            ("completion/complete", "review"),
            ("completion/complete", TEMPLATES[0]),
        ):
            assert not await profile_client.can(method, name), (method, name)


@pytest.mark.parametrize("transparent", [False, True], ids=["namespaced", "transparent"])
@pytest.mark.parametrize("profile", [{}, {"tools": ["notes.*"]}, {"servers": ["n*"]}])
async def test_where_a_server_is_shown_whole_so_are_they(profile: Raw, transparent: bool) -> None:
    async with open_profile(None, profile, transparent=transparent) as profile_client:
        assert await profile_client.listed() == ALL
        assert await profile_client.readable(NOTE, SECRET) == [NOTE, SECRET]
        for method, name in (
            ("resources/subscribe", NOTE),
            ("prompts/get", "review"),
            ("completion/complete", "review"),
            ("completion/complete", TEMPLATES[0]),
        ):
            assert await profile_client.can(method, name), (method, name)


@pytest.mark.parametrize(
    ("server", "profile"),
    [
        (None, {"resources": ["notes.notes://open/*"], "prompts": ["notes.review"]}),
        (None, {"tools": ["read_*"], "resources": ["*.notes://open/*"], "prompts": ["*.review"]}),
        (
            {"resources": {"deny": ["*secret*", "notes://any/*"]}, "prompts": {"deny": ["hid*"]}},
            None,
        ),
        (
            {
                "tools": {"deny": ["*"]},
                "resources": {"allow": ["notes://open/*"]},
                "prompts": {"allow": ["review"]},
            },
            None,
        ),
    ],
)
async def test_what_is_named_is_shown_and_nothing_beside_it(
    server: Raw | None, profile: Raw | None
) -> None:
    async with open_profile(server, profile) as profile_client:
        assert await profile_client.listed() == ([NOTE], TEMPLATES[:1], ["review"])
        asked = (
            NOTE,
            "notes://open/2",
            SECRET,
            "notes://any/x",
            "notes://open/..%2Fsecret%2F1",
            "notes://open/../x",
        )
        assert await profile_client.readable(*asked) == [NOTE, "notes://open/2"]
        assert not await profile_client.can("resources/subscribe", SECRET)
        assert not await profile_client.can("prompts/get", "hidden")
        assert not await profile_client.can("completion/complete", TEMPLATES[1])


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_an_address_that_a_server_neither_lists_nor_has_a_template_for_is_refused(
    era: Era,
) -> None:
    async with open_profile(era=era) as profile_client:
        unlisted = (
            "notes://else",
            "notes://open/1/2",
            "notes://open",
            "file:///etc/passwd",
            "notes://any/../../etc/passwd",
            "notes://any/%2e%2e/%2e%2e/etc",
            "notes://any/%252e%252e/etc",
        )
        assert await profile_client.readable(*unlisted) == []
        assert await profile_client.readable("notes://open/22", "notes://any/a/b%20c") == [
            "notes://open/22",
            "notes://any/a/b%20c",
        ]
        if era == "legacy":
            assert not await profile_client.can("resources/subscribe", "notes://else")
            assert not await profile_client.can("resources/unsubscribe", "notes://else")
        refused = await profile_client.client.request(
            "resources/read", {"uri": "portico://backend/notes/resource/notes://else"}
        )
        assert "resources.unlisted" in refused["error"]["message"]


@pytest.mark.parametrize(
    "uri",
    [
        "file:///srv/./secret/b",
        "file:///srv//secret/b",
        "file:////srv/.//secret/b",
        "file:///srv\\secret/b",
        "file:///srv/sec\tret/b",
        "file:///srv/%252573ecret/b",
        "file:///srv/%2E/secret/b",
        "file:///srv/%2fsecret/b",
        "file:///srv/open/..;/secret/b",
        "file:///srv/open/.%00./secret/b",
    ],
)
async def test_a_denied_address_is_denied_however_its_path_is_written(uri: str) -> None:
    async with open_profile(
        {"resources": {"unlisted": True, "deny": ["file:///srv/secret/*"]}}
    ) as profile_client:
        assert await profile_client.readable(uri, "file:///srv/open//b") == ["file:///srv/open//b"]


@pytest.mark.parametrize("uri", ["notes://%73ecret/1", "notes://%2573ecret/1", "NOTES://Secret/1"])
async def test_a_denied_address_is_denied_however_it_is_spelt(uri: str) -> None:
    async with open_profile(
        {"resources": {"unlisted": True, "deny": ["notes://secret/*"]}}
    ) as profile_client:
        assert await profile_client.readable(uri, "notes://s%65t") == ["notes://s%65t"]


async def test_an_endless_address_is_refused() -> None:
    async with open_profile() as profile_client:
        assert await profile_client.readable("notes://any/" + "%41" * 100_000) == []


async def test_unlisted_addresses_are_passed_on_where_the_configuration_says_so() -> None:
    async with open_profile(
        {"resources": {"unlisted": True, "deny": ["notes://secret/*"]}}
    ) as profile_client:
        assert await profile_client.readable("notes://else", SECRET, "notes://secret/2") == [
            "notes://else"
        ]


@pytest.mark.parametrize(
    ("server", "profile", "readable"),
    [
        (None, None, True),
        (None, {"tools": ["read_*"]}, True),
        ({"tools": {"deny": ["drop_*"]}}, None, True),
        ({"resources": {"deny": ["notes://made/*"]}}, None, False),
        (None, {"resources": ["notes.notes://open/*"]}, False),
    ],
)
async def test_a_link_in_a_tools_result_can_be_read_by_who_got_it(
    server: Raw | None, profile: Raw | None, readable: bool
) -> None:
    async with open_profile(server, profile) as profile_client:
        assert await profile_client.readable(LINKED) == []
        await result(
            profile_client.client,
            "tools/call",
            {"name": "call_tool", "arguments": {"name": "notes.read_note"}},
        )
        assert (await profile_client.readable(LINKED) == [LINKED]) is readable
        direct = await profile_client.client.request("resources/read", {"uri": LINKED})
        assert ("result" in direct) is readable


async def test_a_subscriber_can_stop_when_the_resource_is_no_longer_listed() -> None:
    async with open_profile() as profile_client:
        assert await profile_client.can("resources/subscribe", NOTE)
        profile_client.backend.listing["resources"] = profile_client.backend.listing[
            "resourceTemplates"
        ] = []
        profile_client.backend.say("notifications/resources/list_changed")
        await profile_client.client.wait_for(
            lambda message: message.get("method") == "notifications/resources/list_changed"
        )
        assert await profile_client.can("resources/unsubscribe", NOTE)
        assert ("resources/unsubscribe", {"uri": NOTE}) in profile_client.backend.requests
