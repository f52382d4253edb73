"""Resources of many servers under one roof."""

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from portico.rendering.resource_uris import (
    GatewayUri,
    parse_app_uri,
    parse_gateway_uri,
    parse_outer_uri,
    to_app_uri,
    to_outer_uri,
)


@given(st.text("abc-_", min_size=1, max_size=10), st.text(min_size=1))
def test_an_outer_uri_leads_back_to_server_and_uri(server: str, uri: str):
    assert parse_outer_uri(to_outer_uri(server, uri)) == (server, uri)


def test_a_uri_that_looks_like_ours_inside_is_left_alone():
    nested = to_outer_uri("a", to_outer_uri("b", "file:///x"))
    assert parse_outer_uri(nested) == ("a", "portico://backend/b/resource/file:///x")


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "file:///x",
        "portico://backend/",
        "portico://backend/s",
        "portico://backend/s/resource/",
        "portico://x",
    ],
)
def test_any_other_uri_is_not_parsed(uri: str):
    assert parse_outer_uri(uri) is None


@given(st.text("abc-_", min_size=1, max_size=10), st.text(min_size=1))
def test_an_app_uri_leads_back_to_server_and_uri(server: str, rest: str):
    outer = to_app_uri(server, f"ui://{rest}")
    assert outer.startswith("ui://")
    assert parse_app_uri(outer) == (server, f"ui://{rest}")
    assert parse_outer_uri(outer) is None


@pytest.mark.parametrize(
    "uri", ["ui://a/b", "ui://portico+a", "ui://portico+a/", "x://portico+a/b"]
)
def test_other_uris_name_no_server_of_an_app(uri: str):
    assert parse_app_uri(uri) is None


@pytest.mark.parametrize(
    ("uri", "own"),
    [
        ("portico://overview", GatewayUri("overview")),
        ("portico://overview/", GatewayUri("overview")),
        ("portico://tools?cursor=abc-_=", GatewayUri("tools", cursor="abc-_=")),
        ("portico://tool/github.create_issue", GatewayUri("tool", "github.create_issue")),
        ("portico://tool/a%2Fb%20c", GatewayUri("tool", "a/b c")),
        ("portico://tool/s.what?really", GatewayUri("tool", "s.what?really")),
        ("portico://backend/s", GatewayUri("backend", "s")),
        ("portico://backend/s/tools", GatewayUri("backend tools", "s")),
        ("portico://backend/s/tools?cursor=x", GatewayUri("backend tools", "s", "x")),
        ("portico://category/a%20b", GatewayUri("category", "a b")),
    ],
)
def test_a_uri_of_ours_is_taken_apart(uri: str, own: GatewayUri):
    assert parse_gateway_uri(uri) == own


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "portico://",
        "portico://x",
        "portico://tool/",
        "portico://tool",
        "portico://backend/",
        "file:///overview",
        "portico://backend/s/resource/portico://overview",
        "portico://OVERVIEW",
    ],
)
def test_no_other_uri_is_ours(uri: str):
    assert parse_gateway_uri(uri) is None


@given(st.sampled_from(["tool", "backend", "backend tools", "category"]), st.text(min_size=1))
def test_a_name_of_any_kind_comes_back_from_its_uri(kind: Any, name: str):
    assume(name.encode(errors="replace").decode() == name)
    assert parse_gateway_uri(GatewayUri(kind, name).uri) == GatewayUri(kind, name)
