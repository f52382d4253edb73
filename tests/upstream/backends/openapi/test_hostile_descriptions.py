"""Descriptions and replies that were made to do harm."""

import asyncio
import gzip
import json
import socket
import zlib
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from portico.errors import BackendUnavailable
from portico.upstream.backends.openapi import loader
from portico.upstream.backends.openapi import schemas as schemas_module
from portico.upstream.backends.openapi.backend import OpenApiBackend
from portico.upstream.backends.openapi.connection import BoundedDecompressor, DecompressionError
from portico.upstream.backends.openapi.documents import parse_yaml
from portico.upstream.backends.openapi.loader import ApiDescription, load_description
from portico.upstream.backends.openapi.names import NameAllocator, clip_text
from portico.upstream.backends.openapi.reader import DescriptionSource
from portico.upstream.backends.openapi.responses import ApiResponse, to_tool_result
from portico.upstream.backends.openapi.schema_keywords import convert_enum
from portico.upstream.backends.openapi.schemas import MAX_SCHEMA_BYTES
from portico.upstream.backends.openapi.tools import ConfiguredParameters
from tests.upstream.backends.openapi.petstore import api, call, description, listed
from tests.upstream.loopback_server import TEST_TIMEOUT_S, serve

HEAD: dict[str, Any] = {"openapi": "3.1.0", "servers": [{"url": "http://x"}]}


def read(tmp_path: Path, text: str | dict[str, Any]) -> ApiDescription:
    place = tmp_path / "api.yaml"
    place.write_text(text if isinstance(text, str) else json.dumps(text))
    return load_description(DescriptionSource("shop", str(place)), ConfiguredParameters((), ()))


@pytest.mark.parametrize(
    "nested", ["[" * 100_000, "{a: " * 100_000, "- " * 100_000, '{"a":' * 100_000]
)
def test_a_text_nested_without_end_is_refused_and_takes_nothing_down(tmp_path: Path, nested: str):
    with pytest.raises(BackendUnavailable, match=r"nested deeper|no JSON"):
        read(tmp_path, nested)


def test_merge_keys_of_merge_keys_bring_in_no_more_than_there_is():
    lines = ["a0: &a0 {k: 1, l: 2}"]
    lines += [
        f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 20)}], own{n}: 1}}" for n in range(1, 12)
    ]
    found = parse_yaml("\n".join(lines).encode())
    assert found["a11"] == {"k": 1, "l": 2} | {f"own{n}": 1 for n in range(1, 12)}
    wide = "{" + ", ".join(f"k{n}: 1" for n in range(2_000)) + "}"
    with pytest.raises(ValueError, match="too much"):
        parse_yaml(f"a: &a {wide}\nb: {{<<: [{', '.join(['*a'] * 600)}]}}".encode())


def test_values_are_read_as_yaml_1_2_has_them():
    text = (
        "[on, 2024-01-01, 0o7, 1_000, 22:22, .5, -1, +2, 1e3, .inf, Null, ~, '1', !!str "
        "1, !!int '3', <<, <, 'x<<']"
    )
    assert parse_yaml(text.encode()) == [
        "on", "2024-01-01", "0o7", "1_000", "22:22", 0.5, -1, 2, 1000.0, float("inf"), None, None,
            "1", "1", 3,
        "<<", "<", "x<<",
    ]  # fmt: skip
    assert parse_yaml(b"{'<<': {a: 1}, b: }") == {"<<": {"a": 1}, "b": None}
    assert parse_yaml(b"- &a {x: &b [1]}\n- *b\n- {<<: *a, y: 2}") == [
        {"x": [1]},
        [1],
        {"x": [1], "y": 2},
    ]
    for wrong in (
        "*nothing",
        "{<<: 1}",
        "!!python/object:os.system x",
        "{[a]: b}",
        "{{a: b}: c}",
        "a: b: c",
    ):
        with pytest.raises(ValueError, match="line 1"):
            parse_yaml(wrong.encode())


@pytest.mark.parametrize("key", ["default", "enum", "example", "const"])
def test_a_value_made_of_aliases_is_left_out_where_it_would_be_enormous(tmp_path: Path, key: str):
    lines = ["openapi: 3.1.0", "servers: [{url: 'http://x'}]", "a0: &a0 [lol, lol]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    lines.append(
        f"paths: {{/x: {{get: {{parameters: [{{in: query, name: q, schema: {{{key}: *a29}}}}]}}}}}}"
    )
    (tool,) = read(tmp_path, "\n".join(lines)).load_definitions()
    assert tool["inputSchema"]["properties"] == {"q": {}}


def test_a_text_of_nothing_but_blanks_takes_no_longer_than_any_other():
    # The time is in the number of characters, not in its square: this would else take the better
    # part of a day.
    assert clip_text("a" + " " * 5_000_000 + "\n" + " \t" * 5_000_000 + "b", 1_000_000) == "a \n b"
    assert clip_text("x" * 50, 10) == "x" * 10 + " …"
    assert clip_text("One.\r\n \t\n\n  Two  three.\nFour.", 100) == "One.\n\nTwo three.\nFour."


def test_names_that_are_all_the_same_are_counted_on():
    names = NameAllocator()
    taken = [names.allocate("x" * 70) for _ in range(20_000)]
    assert len(set(taken)) == len(taken)
    assert max(map(len, taken)) <= 64
    assert [names.allocate(name) for name in ("a", "a", "a_2", "a")] == ["a", "a_2", "a_2_2", "a_3"]


def test_many_choices_are_told_apart_without_comparing_each_with_each():
    values = [f"v{number}" for number in range(9_000)]
    assert convert_enum({"enum": [*values, *values]}, ("string",)) == values
    assert convert_enum({"enum": [1, 1.5, True, "1", None, 1]}, ()) == [1, 1.5, True, "1", None]


def test_a_schema_that_cannot_be_made_smaller_is_not_shown(tmp_path: Path):
    schema = {"type": "string", "enum": [f"{number:0100}" for number in range(9_000)]}
    parameter = {"in": "query", "name": "q", "schema": schema}
    (tool,) = read(
        tmp_path, {**HEAD, "paths": {"/x": {"get": {"parameters": [parameter]}}}}
    ).load_definitions()
    assert tool["inputSchema"]["properties"]["q"]["type"] == "string"
    assert len(json.dumps(tool)) < MAX_SCHEMA_BYTES


def test_texts_have_a_length_and_tools_together_a_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    paths = {f"/{n}/{'x' * 90_000}": {"get": {"summary": "y" * 90_000}} for n in range(3)}
    api = read(
        tmp_path, {**HEAD, "info": {"title": "t" * 90_000, "version": "1" * 90_000}, "paths": paths}
    )
    assert len(json.dumps(api.load_definitions())) < 6_000
    assert len(api.title + api.version) < 1_000
    monkeypatch.setattr(
        loader, "MAX_DEFINITIONS_BYTES", len(json.dumps(api.load_definitions()[0])) + 1
    )
    small = read(tmp_path, {**HEAD, "paths": paths})
    assert len(small.plans) == len(small.load_definitions()) == 2
    assert "first 2 operations" in small.warnings[0]


def test_a_description_that_takes_too_long_times_out_in_the_middle_of_an_operation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # Each pattern takes a hundredth of a second to be understood, and all of them stand in one
    # operation.
    schemas = [{"pattern": rf"[^a]{{300}}{number}"} for number in range(2_000)]
    parameter = {"in": "query", "name": "q", "schema": {"anyOf": schemas}}
    monkeypatch.setattr(loader, "MAX_CPU_S", 0.1)
    monkeypatch.setattr(schemas_module, "_CLOCK_CHECK_INTERVAL", 3)
    with pytest.raises(BackendUnavailable, match="too long"):
        read(tmp_path, {**HEAD, "paths": {"/x": {"get": {"parameters": [parameter]}}}})


@pytest.mark.parametrize(
    "document",
    [
        {"swagger": "2.0", "host": "x", "schemes": True, "paths": {"/x": {"get": {}}}},
        {
            **HEAD,
            "paths": {
                "/x": {
                    "get": {
                        "parameters": [{"in": "query", "name": "q", "schema": {"required": [{}]}}]
                    }
                }
            },
        },
        {
            **HEAD,
            "paths": {
                "/x": {
                    "get": {"security": [{"a": []}]},
                    "additionalOperations": {"CONNECT": {}, "É": {}},
                }
            },
        },
    ],
)
def test_what_is_of_the_wrong_kind_costs_only_itself(tmp_path: Path, document: dict[str, Any]):
    assert list(read(tmp_path, document).plans) == ["get_x"]


@pytest.mark.parametrize(
    "charset", ["punycode", "idna", "unicode_escape", "rot13", "zlib_codec", "utf-7", "nothing"]
)
def test_a_charset_that_no_text_of_the_web_is_in_is_read_as_utf_8(charset: str):
    answer = ApiResponse(
        "http://x",
        200,
        {"content-type": f"text/plain; charset={charset}"},
        "é\\ud800-".encode() * 100_000,
    )
    assert to_tool_result(answer)["content"][0]["text"] == "é\\ud800-" * 100_000


def test_what_is_compressed_is_unpacked_up_to_a_limit_and_through_one_layer():
    bomb = gzip.compress(bytes(50_000_000))
    unpacking = BoundedDecompressor("gzip", 1_000)
    assert len(unpacking.decompress(bomb)) == 1_001
    assert unpacking.is_over_limit
    for encoding, packed in (
        ("", b"ab"),
        ("GZIP", gzip.compress(b"ab")),
        ("deflate", zlib.compress(b"ab")),
    ):
        whole = BoundedDecompressor(encoding, 2)
        assert b"".join(whole.decompress(packed[n : n + 1]) for n in range(len(packed))) == b"ab"
        assert not whole.is_over_limit
    for encoding in ("gzip, gzip", "br", "zstd"):
        with pytest.raises(DecompressionError, match="compressed"):
            BoundedDecompressor(encoding, 1_000)
    with pytest.raises(DecompressionError, match="cannot be unpacked"):
        BoundedDecompressor("gzip", 1_000).decompress(b"plain text")


async def _replies(request: Request) -> Response:
    match request.url.path.rpartition("/")[2]:
        case "packed":
            return Response(
                gzip.compress(b"[1]"),
                headers={"content-encoding": "gzip"},
                media_type="application/json",
            )
        case "bomb":
            twice = gzip.compress(gzip.compress(bytes(10_000_000)))
            return Response(
                twice, headers={"content-encoding": "gzip, gzip"}, media_type="text/plain"
            )
        case "headers":
            return JSONResponse(
                [value for name, value in request.headers.items() if name == "cookie"]
            )
        case _:
            return PlainTextResponse("here")


async def test_a_compressed_reply_is_read_and_a_bomb_is_not(tmp_path: Path):
    place = tmp_path / "api.json"
    place.write_text(json.dumps(description(packed={"get": {}}, bomb={"get": {}})))
    async with (
        serve(_app) as url,
        api(place, url) as connection,
    ):
        assert (await call(connection, "get_see_packed"))["structuredContent"] == {"result": [1]}
        with pytest.raises(BackendUnavailable, match="compressed"):
            await call(connection, "get_see_bomb")


async def test_a_callers_cookie_stands_beside_the_configured_one(tmp_path: Path):
    place = tmp_path / "api.json"
    crumb = {"in": "cookie", "name": "crumb", "schema": {"type": "string"}}
    place.write_text(json.dumps(description(headers={"get": {"parameters": [crumb]}})))
    async with (
        serve(_app) as url,
        api(place, url, headers={"Cookie": "session=secret-of-ours"}) as connection,
    ):
        found = await call(connection, "get_see_headers", {"crumb": "c"})
    # What comes back is masked; that there is one header, with both, is what counts.
    (cookie,) = found["structuredContent"]["result"]
    assert cookie.endswith("; crumb=c")


async def test_credentials_do_not_follow_a_description_that_moves_to_another_host(tmp_path: Path):
    place = tmp_path / "api.json"
    async with serve(_app) as url:
        place.write_text(json.dumps({**description(plain={"get": {}}), "servers": [{"url": url}]}))
        async with api(place, headers={"Authorization": "Bearer secret-of-ours"}) as connection:
            assert (await call(connection, "get_see_plain"))["content"][0]["text"] == "here"
            moved = {
                **description(plain={"get": {"summary": "New."}}),
                "servers": [{"url": "http://127.0.0.1:1"}],
            }
            await listed(connection)
            place.write_text(json.dumps(moved))
            await listed(connection)
            refused = await call(connection, "get_see_plain")
    assert refused["isError"] is True
    assert "that `base_url` if the whole API has moved" in refused["content"][0]["text"]


async def _app(scope: Any, receive: Any, send: Any) -> None:
    await (await _replies(Request(scope, receive)))(scope, receive, send)


async def test_hosts_that_do_not_answer_take_no_thread_from_others():
    with socket.create_server(("127.0.0.1", 0), backlog=100) as silent:
        place = f"http://127.0.0.1:{silent.getsockname()[1]}/api.json"
        reading = [
            asyncio.create_task(OpenApiBackend(f"s{n}", place).load_current()) for n in range(40)
        ]
        try:
            assert (
                await asyncio.wait_for(asyncio.to_thread(lambda: "here"), TEST_TIMEOUT_S) == "here"
            )
            assert not any(one.done() for one in reading)
        finally:
            for one in reading:
                one.cancel()
            await asyncio.wait(reading, timeout=TEST_TIMEOUT_S)
