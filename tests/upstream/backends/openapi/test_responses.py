"""What an API replies, as a tool's result."""

import asyncio
import base64
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from portico.errors import METHOD_NOT_FOUND, BackendTimeout, BackendUnavailable, RemoteError
from portico.upstream.backend import Connection, RequestOptions
from portico.upstream.backends.openapi.backend import OpenApiBackend
from tests.upstream.backends.openapi.petstore import (
    FIXTURES,
    PICTURE,
    TOKEN,
    Shop,
    api,
    call,
    description,
    listed,
    shop,
)
from tests.upstream.loopback_server import TEST_TIMEOUT_S, advance_clock

module = pytest.mark.asyncio(loop_scope="module")
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
Open = tuple[Shop, str]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def opened() -> AsyncGenerator[Open, None]:
    async with shop() as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pets(opened: Open) -> AsyncGenerator[Connection, None]:
    async with api(FIXTURES / "petstore.yaml", opened[1], headers=HEADERS) as connection:
        yield connection


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sees(
    opened: Open, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Connection, None]:
    async with api(
        seen(tmp_path_factory.mktemp("api")), opened[1], headers=HEADERS, max_message_bytes=200_000
    ) as found:
        yield found


def seen(folder: Path) -> Path:
    get: dict[str, Any] = {"get": {"security": [{"bearer": []}]}}
    names = [
        "refused",
        "elsewhere",
        "round",
        "blob",
        "latin",
        "broken",
        "large",
        "failing",
        "cookie",
        "never",
    ]
    document = description(nearby={**get, "post": {}}, **dict.fromkeys(names, get))
    (folder / "api.json").write_text(json.dumps(document))
    return folder / "api.json"


@module
async def test_a_pet_is_made_read_and_removed(pets: Connection):
    made = await call(pets, "createPet", {"name": "Tim", "status": "off"})
    assert made["structuredContent"] == {"id": 3, "name": "Tim", "status": "off"}
    assert json.loads(made["content"][0]["text"]) == made["structuredContent"]
    assert made["content"][1]["text"] == "location: /pets/3"
    read = await call(pets, "getPet", {"petId": 3})
    assert read["structuredContent"]["name"] == "Tim"
    gone = await call(pets, "deletePet", {"petId": 3})
    assert gone["content"] == [{"type": "text", "text": "HTTP 204 No Content"}]


@module
async def test_a_list_is_structured_and_says_where_the_next_page_is(pets: Connection):
    result = await call(pets, "listPets", {"limit": 2})
    assert [pet["name"] for pet in result["structuredContent"]["result"]] == ["Rex", "Ada"]
    assert (
        result["content"][1]["text"]
        == 'link: </pets?page=2&api_key=***>; rel="next"\nx-total-count: 2'
    )
    assert result["_meta"]["portico/http"]["headers"]["x-total-count"] == "2"


@module
async def test_a_refusal_is_an_error_with_what_the_api_said_but_not_our_secrets(pets: Connection):
    result = await call(pets, "getPet", {"petId": 99})
    assert result["isError"] is True
    text = result["content"][0]["text"]
    assert text.startswith("HTTP 404 Not Found\n")
    assert "there is no pet 99" in text
    assert TOKEN not in str(result)


@module
async def test_pictures_and_other_bytes_arrive_as_what_they_are(pets: Connection, sees: Connection):
    (picture,) = (await call(pets, "getPhoto", {"petId": 1}))["content"]
    assert (picture["type"], picture["mimeType"], base64.b64decode(picture["data"])) == (
        "image",
        "image/png",
        PICTURE,
    )
    (blob,) = (await call(sees, "get_see_blob"))["content"]
    assert blob["resource"]["mimeType"] == "application/zip"
    assert base64.b64decode(blob["resource"]["blob"]) == b"\x00\x01"


@module
async def test_text_is_read_in_its_own_letters_and_broken_json_is_text(sees: Connection):
    assert (await call(sees, "get_see_latin"))["content"] == [{"type": "text", "text": "é"}]
    broken = await call(sees, "get_see_broken")
    assert broken["content"] == [{"type": "text", "text": "{not json"}]
    assert "structuredContent" not in broken


@module
async def test_what_is_too_large_is_not_read(sees: Connection):
    with pytest.raises(BackendUnavailable, match="over 200000 bytes"):
        await call(sees, "get_see_large")
    text = (await call(sees, "get_see_failing"))["content"][0]["text"]
    assert text.startswith("HTTP 500 Internal Server Error\nxxx")
    assert "12000 more characters" in text
    assert "retry-after: 7" in text


@module
async def test_a_redirect_is_followed_at_home_and_shown_when_it_leads_away(sees: Connection):
    assert (await call(sees, "get_see_nearby"))["structuredContent"] == {
        "method": "GET",
        "token": True,
    }
    assert (await call(sees, "post_see_nearby"))["structuredContent"]["method"] == "POST"
    away = await call(sees, "get_see_elsewhere")
    assert "not followed" in away["content"][0]["text"]
    assert away["content"][1]["text"] == "location: http://127.0.0.1:1/stolen"
    with pytest.raises(BackendUnavailable, match="again and again"):
        await call(sees, "get_see_round")


@module
async def test_no_cookie_of_one_call_is_sent_with_the_next(sees: Connection):
    await call(sees, "get_see_cookie")
    assert (await call(sees, "get_see_cookie"))["structuredContent"] == {}


@module
async def test_refused_access_says_what_to_configure(
    opened: Open, sees: Connection, tmp_path: Path
):
    known = (await call(sees, "get_see_refused"))["content"][0]["text"]
    assert "credentials configured for shop were not accepted" in known
    assert TOKEN not in known
    async with api(seen(tmp_path), opened[1]) as bare:
        unknown = (await call(bare, "get_see_refused"))["content"][0]["text"]
    assert (
        '`headers: {Authorization: "Bearer ${TOKEN}"}`. Put that in the configuration '
        "of the server shop."
    ) in unknown


@module
async def test_an_operation_on_another_host_is_not_called(tmp_path: Path, opened: Open):
    document = description(refused={"get": {"servers": [{"url": "http://127.0.0.1:1"}]}})
    (tmp_path / "api.json").write_text(json.dumps({**document, "servers": [{"url": opened[1]}]}))
    async with api(tmp_path / "api.json", headers=HEADERS) as connection:
        result = await call(connection, "get_see_refused")
    assert result["isError"] is True
    assert "base_url: http://127.0.0.1:1" in result["content"][0]["text"]


@module
async def test_an_api_that_does_not_answer_in_time_times_out(opened: Open, sees: Connection):
    opened[0].hung_up.clear()
    opened[0].asked.clear()
    waiting = asyncio.create_task(call(sees, "get_see_never", ask=RequestOptions(timeout=20)))
    await asyncio.wait_for(opened[0].asked.wait(), TEST_TIMEOUT_S)
    advance_clock(20)
    with pytest.raises(BackendTimeout, match="GET /see/never"):
        await waiting
    await asyncio.wait_for(opened[0].hung_up.wait(), TEST_TIMEOUT_S)


@module
async def test_a_caller_that_gives_up_hangs_up(opened: Open, sees: Connection):
    opened[0].hung_up.clear()
    opened[0].asked.clear()
    waiting = asyncio.create_task(call(sees, "get_see_never"))
    await asyncio.wait_for(opened[0].asked.wait(), TEST_TIMEOUT_S)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await asyncio.wait_for(opened[0].hung_up.wait(), TEST_TIMEOUT_S)


async def test_an_api_that_is_not_there_says_so():
    async with api(FIXTURES / "petstore.yaml", "http://127.0.0.1:1") as connection:
        with pytest.raises(
            BackendUnavailable, match=r"shop \(http://127.0.0.1:1/pets/1\) cannot be reached"
        ) as caught:
            await call(connection, "getPet", {"petId": 1})
    assert caught.value.was_sent is False


async def test_there_are_tools_and_nothing_else():
    async with api(FIXTURES / "petstore.yaml") as connection:
        assert connection.initialize_info.capabilities == {"tools": {}}
        assert (connection.initialize_info.server_info,
            connection.initialize_info.instructions) == (
            {"name": "Petstore", "version": "1.2.0"}, "A shop for animals.",
        )  # fmt: skip
        for method in ("resources/list", "prompts/get"):
            with pytest.raises(RemoteError) as caught:
                await connection.request(method)
            assert caught.value.code == METHOD_NOT_FOUND
        with pytest.raises(RemoteError, match="Unknown tool"):
            await call(connection, "sellPet")
    with pytest.raises(BackendUnavailable, match="closed"):
        await connection.request("tools/list")


async def test_a_file_that_changes_is_read_again_and_one_that_does_not_is_not(tmp_path: Path):
    place = tmp_path / "api.json"
    place.write_text(json.dumps({**description(one={"get": {}}), "servers": [{"url": "http://x"}]}))
    async with api(place) as connection:
        assert list(await listed(connection)) == ["get_see_one"]
        place.write_text(
            json.dumps(
                {
                    **description(two={"get": {}}, three={"get": {}}),
                    "servers": [{"url": "http://x"}],
                }
            )
        )
        assert list(await listed(connection)) == ["get_see_two", "get_see_three"]
        place.write_text("{broken")
        assert list(await listed(connection)) == ["get_see_two", "get_see_three"]
    backend = OpenApiBackend("shop", str(FIXTURES / "split" / "api.yaml"))
    assert await backend.load_current() is await backend.load_current()


@module
async def test_a_description_on_the_web_knows_where_its_api_is(opened: Open):
    backend = OpenApiBackend("shop", f"{opened[1]}/moved.yaml")
    found = await backend.load_current()
    assert found.server == f"{opened[1]}/api"
    assert await backend.load_current() is found
    assert backend.diagnostics()["operations"] == len(found.plans)
    missing = OpenApiBackend("shop", f"{opened[1]}/nothing.yaml")
    with pytest.raises(BackendUnavailable, match="HTTP 404"):
        await missing.load_current()


@module
async def test_references_on_the_web_stay_on_their_host(opened: Open):
    found = await OpenApiBackend("shop", f"{opened[1]}/specs/split/api.yaml").load_current()
    tools = {tool["name"]: tool for tool in found.load_definitions()}
    assert list(tools["makeThing"]["inputSchema"]["properties"]) == [
        "size",
        "name",
        "inside",
        "maker",
    ]
    stolen = tools["steal"]["inputSchema"]["properties"]
    assert stolen["above"] == {"$ref": "#/$defs/Pet"}
    assert (stolen["elsewhere"], stolen["passwords"]) == ({}, {})
    assert "2 references lead nowhere" in found.warnings[0]


@module
async def test_a_description_is_fetched_with_credentials_only_from_the_api_itself(opened: Open):
    for base_url, expected in (
        (None, False),
        (f"{opened[1]}/api", True),
        ("http://127.0.0.1:1", False),
    ):
        await OpenApiBackend("shop", f"{opened[1]}/echo.yaml", base_url, HEADERS).load_current()
        assert opened[0].fetched[-1] is expected
