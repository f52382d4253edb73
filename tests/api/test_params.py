"""Following `next` shows every item once, and pages fit their budget."""

from typing import Any
from urllib.parse import parse_qs, urlsplit

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.api.params import (
    UNLIMITED_TOKENS,
    PagedList,
    PageRequest,
    fit_parts,
    render_list_page,
)
from portico.rendering.token_budget import count_tokens

words = st.lists(st.text(alphabet="abc é日🎉_", min_size=1, max_size=40), max_size=40)


@settings(max_examples=60, deadline=None)
@given(
    items=words, size=st.integers(1, 100), tokens=st.integers(300, 1_000), page=st.integers(1, 4)
)
def test_following_next_shows_every_item_once(items: list[str], size: int, tokens: int, page: int):
    listing = PagedList(
        "/list", "v1", {"page_size": size, "query": "a b&c", "tags": ["x", "y"], "none": None}
    )
    place, seen = PageRequest(size, page, None, tokens), list[str]()
    for _ in range(len(items) + 1):
        body = render_list_page("items", items, lambda item: {"item": item}, place, listing, {})
        seen += [card["item"] for card in body["items"]]
        if len(body["items"]) > 1:
            assert count_tokens(orjson.dumps(body).decode()) <= tokens
        if (address := body.get("next")) is None:
            break
        asked = parse_qs(urlsplit(address).query)
        assert (asked["tags"], asked["query"], asked["version"]) == (["x", "y"], ["a b&c"], ["v1"])
        place = PageRequest(
            int(asked["page_size"][0]), 1, int(asked["offset"][0]), int(asked["max_tokens"][0])
        )
    assert seen == items[(page - 1) * size :]


@settings(max_examples=60, deadline=None)
@given(
    parts=st.dictionaries(st.sampled_from("abcdefgh"), st.text(max_size=4_000), max_size=8),
    tokens=st.integers(300, 3_000),
)
def test_what_does_not_fit_is_named(parts: dict[str, Any], tokens: int):
    body = fit_parts({"tool": "s.t"}, parts, tokens, "/whole")
    there = {key for key, value in parts.items() if value}
    missing = set(body.get("left_out", ()))
    assert missing | (body.keys() & there) == there
    assert not missing & body.keys()
    assert count_tokens(orjson.dumps(body).decode()) <= tokens
    assert fit_parts({"tool": "s.t"}, parts, UNLIMITED_TOKENS, "/whole").keys() == {"tool", *there}
