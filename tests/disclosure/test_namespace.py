"""Resources of many servers under one roof."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.disclosure.namespace import inner_uri, outer_resource, outer_template, outer_uri


@given(st.text("abc-_", min_size=1, max_size=10), st.text(min_size=1))
def test_an_outer_uri_leads_back_to_server_and_uri(server: str, uri: str):
    assert inner_uri(outer_uri(server, uri)) == (server, uri)


def test_a_uri_that_looks_like_ours_inside_is_left_alone():
    nested = outer_uri("a", outer_uri("b", "file:///x"))
    assert inner_uri(nested) == ("a", "portico://backend/b/resource/file:///x")


@pytest.mark.parametrize(
    "uri",
    ["", "file:///x", "portico://backend/", "portico://backend/s", "portico://backend/s/resource/", "portico://x"],
)
def test_any_other_uri_is_nobody_s(uri: str):
    assert inner_uri(uri) is None


def test_only_the_uri_of_a_listed_resource_changes():
    resource = {"uri": "file:///x", "name": "x", "_meta": {"a": 1}, "new": []}
    assert outer_resource("s", resource) == {**resource, "uri": "portico://backend/s/resource/file:///x"}
    assert resource["uri"] == "file:///x"


def test_only_the_template_of_a_listed_template_changes():
    template = {"uriTemplate": "file:///{+path}", "name": "x"}
    assert outer_template("s", template) == {**template, "uriTemplate": "portico://backend/s/resource/file:///{+path}"}
