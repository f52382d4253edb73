"""Arguments of a tool as the API receives them."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import parse_qsl, unquote

import pytest
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.upstream.backend import Connection, Raw
from tests.upstream.backends.openapi.petstore import FIXTURES, Shop, api, call, shop

ROOT = "/api"
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
NASTY = st.sampled_from(
    (
        "../x",
        "..",
        ".",
        "a/b",
        "a?b=c",
        "a#b",
        "%2e%2e",
        "a%2fb",
        "a&b=c",
        "a;b",
        "\\..\\",
        "a\r\nX: y",
        " a ",
        "@h",
    )
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def echo() -> AsyncGenerator[tuple[Shop, Connection], None]:
    async with (
        shop() as (opened, url),
        api(f"{url}/echo.yaml", query={"api_key": "k&y"}) as connection,
    ):
        yield opened, connection


async def sent(echo: tuple[Shop, Connection], tool: str, **arguments: Any) -> Raw:
    """What the API received."""
    opened, connection = echo
    result = await call(connection, tool, arguments)
    assert not result.get("isError"), result
    return opened.received[-1]


async def refused(echo: tuple[Shop, Connection], tool: str, **arguments: Any) -> str:
    opened, connection = echo
    before = len(opened.received)
    result = await call(connection, tool, arguments)
    assert result["isError"] is True
    assert len(opened.received) == before
    return result["content"][0]["text"]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("tool", "value", "path"),
    [
        ("simple", "a", "/simple/a"),
        ("simple", 5, "/simple/5"),
        ("simple", True, "/simple/true"),
        ("simple", ["a", "b/c"], "/simple/a,b%2Fc"),
        ("simple", {"r": 1, "g": 2}, "/simple/r,1,g,2"),
        ("simple", "a/b?c#d", "/simple/a%2Fb%3Fc%23d"),
        ("label", "a", "/label/.a"),
        ("label", ["a", "b"], "/label/.a,b"),
        ("label_exploded", ["a", "b"], "/label-exploded/.a.b"),
        ("label_exploded", {"r": 1, "g": 2}, "/label-exploded/.r=1.g=2"),
        ("matrix", "a", "/matrix/;value=a"),
        ("matrix", ["a", "b"], "/matrix/;value=a,b"),
        ("matrix_exploded", ["a", "b"], "/matrix-exploded/;value=a;value=b"),
        ("matrix_exploded", {"r": 1, "g": 2}, "/matrix-exploded/;r=1;g=2"),
    ],
)
async def test_path_styles(echo: tuple[Shop, Connection], tool: str, value: Any, path: str):
    assert (await sent(echo, tool, value=value))["path"] == ROOT + path


@pytest.mark.asyncio(loop_scope="module")
async def test_a_path_of_its_own_keeps_its_slashes_and_climbs_nowhere(
    echo: tuple[Shop, Connection],
):
    assert (await sent(echo, "segments", path="src/a b.py"))["path"] == f"{ROOT}/files/src/a%20b.py"
    assert "another path" in await refused(echo, "segments", path="src/../../admin")


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    "value", ["..", ".", "../admin", "a/../../b", "..\\admin", "", [], None, ["a", ".."]]
)
async def test_what_would_be_another_path_is_not_sent(echo: tuple[Shop, Connection], value: Any):
    assert "value" in await refused(echo, "simple", value=value)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("arguments", "query"),
    [
        ({"plain": ["a", "b&c"]}, "plain=a&plain=b%26c"),
        ({"plain": {"r": 1, "g": "x y"}}, "r=1&g=x%20y"),
        ({"plain": False}, "plain=false"),
        ({"plain": None}, ""),
        ({"plain": ""}, "plain="),
        ({"joined": ["a", "b,c"]}, "joined=a,b%2Cc"),
        ({"joined": {"r": 1}}, "joined=r,1"),
        ({"spaced": ["a", "b"]}, "spaced=a%20b"),
        ({"piped": ["a", "b"]}, "piped=a%7Cb"),
        (
            {"deep": {"a": 1, "b": {"c": [1, 2]}}},
            "deep%5Ba%5D=1&deep%5Bb%5D%5Bc%5D%5B%5D=1&deep%5Bb%5D%5Bc%5D%5B%5D=2",
        ),
        ({"reserved": "a/b:c?d&e=f#g"}, "reserved=a/b:c?d%26e%3Df%23g"),
        ({"json": {"a": [1]}}, "json=%7B%22a%22%3A%5B1%5D%7D"),
        ({"filter_name": "x"}, "filter%5Bname%5D=x"),
    ],
)
async def test_query_styles(echo: tuple[Shop, Connection], arguments: Raw, query: str):
    received = (await sent(echo, "query", **arguments))["query"]
    # What the configuration gives comes last, escaped as everything else.
    assert received == "&".join(part for part in (query, "api_key=k%26y") if part)


@pytest.mark.asyncio(loop_scope="module")
async def test_an_object_cannot_pass_for_a_parameter_that_is_configured(
    echo: tuple[Shop, Connection],
):
    assert "api_key" in await refused(echo, "query", plain={"api_key": "mine"})


@pytest.mark.asyncio(loop_scope="module")
async def test_headers_and_cookies(echo: tuple[Shop, Connection]):
    headers = dict(
        (await sent(echo, "head", **{"X-Text": ["a", 1], "X-Exploded": {"r": 1}, "crumb": "a;b"}))[
            "headers"
        ]
    )
    assert (headers["x-text"], headers["x-exploded"], headers["cookie"]) == (
        b"a,1",
        b"r=1",
        b"crumb=a%3Bb",
    )
    assert (headers["user-agent"], headers["accept-encoding"]) == (b"portico", b"identity")


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "a\x00b", ["a", "\r\n"]])
async def test_a_header_ends_where_its_line_ends(echo: tuple[Shop, Connection], value: Any):
    assert "line breaks" in await refused(echo, "head", **{"X-Text": value})


@pytest.mark.asyncio(loop_scope="module")
async def test_bodies(echo: tuple[Shop, Connection]):
    received = await sent(echo, "same", id="p", id_query="q", body={"id": "b", "note": None})
    assert (received["path"], received["query"]) == (f"{ROOT}/same/p", "id=q&api_key=k%26y")
    assert json.loads(received["body"]) == {"id": "b", "note": None}
    assert (await sent(echo, "list", body=[1, 2**70]))["body"] == b"[1,%d]" % 2**70
    assert (
        dict((await sent(echo, "text", body="héllo"))["headers"])["content-type"] == b"text/plain"
    )
    assert (await sent(echo, "text", body="héllo"))["body"] == "héllo".encode()
    assert (await sent(echo, "text"))["body"] == b""
    assert (await sent(echo, "bytes", body={"base64": "AAH/", "media_type": "image/png"}))[
        "body"
    ] == b"\x00\x01\xff"
    assert "base64" in await refused(echo, "bytes", body={"base64": "!"})
    assert "media type" in await refused(
        echo, "bytes", body={"base64": "", "media_type": "a/b\r\nX: y"}
    )


@pytest.mark.asyncio(loop_scope="module")
async def test_an_argument_that_is_none_is_refused(echo: tuple[Shop, Connection]):
    assert "no argument colour" in await refused(echo, "simple", value="a", colour="red")


async def test_a_form_and_parts_reach_the_api():
    async with shop() as (_, url), api(FIXTURES / "petstore.yaml", url) as connection:
        form = await call(
            connection, "login", {"user": "a b&c", "scopes": ["x", "y"], "device": {"name": "é"}}
        )
        assert parse_qsl(form["content"][0]["text"]) == [
            ("user", "a b&c"), ("scopes", "x"), ("scopes", "y"), ("device[name]", "é"),
        ]  # fmt: skip
        arguments = {
            "petId": 1,
            "file": {"base64": "AAE=", "filename": 'a"\r\nX: y.png', "media_type": "image/png"},
            "caption": "a\r\nb",
            "labels": ["x", "y"],
            "place": {"x": 1},
        }
        told = (await call(connection, "uploadPhoto", arguments))["structuredContent"]
    assert told["type"] == "multipart/form-data"
    (name, kind, content), form = told["form"].pop("file")[0], told["form"]
    assert (kind, content) == ("image/png", "0001")
    assert "\r" not in name
    assert form == {"caption": ["a\r\nb"], "labels": ["x", "y"], "place": ['{"x":1}']}


async def test_swagger_2_sends_as_it_says():
    async with (
        shop() as (opened, url),
        api(FIXTURES / "petstore-2.0.json", f"{url}/api") as connection,
    ):
        result = await call(
            connection,
            "listPets",
            {"limit": 3, "tags": ["a", "b"], "colours": ["r", "g"], "sizes": [1, 2]},
        )
        assert (
            result["structuredContent"]["query"] == "limit=3&tags=a&tags=b&colours=r%7Cg&sizes=1,2"
        )
        await call(connection, "updatePetWithForm", {"petId": 1, "name": "Rex", "tags": ["a", "b"]})
        assert opened.received[-1]["body"] == b"name=Rex&tags=a%2Cb"


def test_whatever_is_given_is_what_is_received():
    """The fuzz: one server for all examples."""

    async def run() -> None:
        async with (
            shop() as (opened, url),
            api(f"{url}/echo.yaml", query={"api_key": "k"}) as connection,
        ):
            loop = asyncio.get_running_loop()

            @settings(max_examples=120)
            @given(
                path=TEXT | NASTY,
                query=TEXT | NASTY,
                key=TEXT | NASTY,
                header=TEXT | NASTY,
                crumb=TEXT | NASTY,
            )
            def check(path: str, query: str, key: str, header: str, crumb: str) -> None:
                def go(tool: str, **arguments: Any) -> tuple[Raw, Raw | None]:
                    before = len(opened.received)
                    made = asyncio.run_coroutine_threadsafe(call(connection, tool, arguments), loop)
                    result = made.result(30)
                    fresh = opened.received[before:]
                    assert len(fresh) == (0 if result.get("isError") else 1)
                    return result, fresh[0] if fresh else None

                _, received = go("simple", value=path)
                if received is not None:
                    assert received["path"].startswith(f"{ROOT}/simple/")
                    rest = received["path"].removeprefix(f"{ROOT}/simple/")
                    assert "/" not in rest
                    assert unquote(rest, errors="strict") == path
                    assert received["query"] == "api_key=k"
                else:
                    assert not path or {".", ".."} & set(path.replace("\\", "/").split("/"))
                _, received = go("query", plain=query, deep={key: query})
                assert received is not None
                assert parse_qsl(received["query"], keep_blank_values=True) == [
                    ("plain", query), (f"deep[{key}]", query), ("api_key", "k"),
                ]  # fmt: skip
                _, received = go("head", **{"X-Text": header, "crumb": crumb})
                if received is not None:
                    headers = received["headers"]
                    assert dict(headers)["x-text"] == header.strip().encode()
                    assert unquote(dict(headers)["cookie"].decode().removeprefix("crumb=")) == crumb
                    assert [name for name, _ in headers if name.startswith("x")] == ["x-text"]

            await asyncio.to_thread(check)

    asyncio.run(run())
