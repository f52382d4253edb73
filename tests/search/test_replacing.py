"""An index made step by step answers exactly like one made at once, and one that was dumped like the one before."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.search import Document, Index, UnreadableIndex, fingerprint
from tests.search.catalog import CATALOG, document

_WORDS = (
    "create",
    "delete",
    "issue",
    "file",
    "repo",
    "getWeather",
    "pull_request",
    "天气",
    "café",
    "s3",
    "remove",
    "list",
)
QUERIES = (
    *_WORDS,
    "create issue",
    "delete a file in the repo",
    "get weather. Then remove the issue from s3, and list it",
)


@st.composite
def documents(draw: st.DrawFn, group: str) -> list[Document]:
    names = draw(st.lists(st.sampled_from(_WORDS), unique=True, max_size=5))
    texts = draw(
        st.lists(st.lists(st.sampled_from(_WORDS), max_size=8).map(" ".join), min_size=len(names), max_size=len(names))
    )
    return [
        Document(f"{group}.{name}", fingerprint(text), group, name, server=group, description=text)
        for name, text in zip(names, texts, strict=True)
    ]


@st.composite
def catalogs(draw: st.DrawFn) -> list[Document]:
    groups = draw(st.lists(st.sampled_from(("red", "green", "blue", "file")), unique=True))
    return [it for group in groups for it in draw(documents(group))]


def answers(index: Index) -> list[object]:
    return [(ranking.hits, ranking.total, ranking.best) for ranking in (index.search(query, 50) for query in QUERIES)]


@given(st.lists(catalogs(), min_size=1, max_size=5))
@settings(max_examples=60, deadline=None)
def test_an_index_that_followed_every_change_answers_like_a_fresh_one(history: list[list[Document]]):
    index = Index.build([])
    for catalog in history:
        index = Index.build(catalog, index)
    fresh = Index.build(history[-1])
    assert answers(index) == answers(fresh)
    assert len(index) == len(fresh)
    assert set(index.groups) == set(fresh.groups)


@given(st.lists(catalogs(), min_size=1, max_size=3))
@settings(max_examples=30, deadline=None)
def test_a_dumped_index_is_the_same_index(history: list[list[Document]]):
    index = Index.build([])
    for catalog in history:
        index = Index.build(catalog, index)
    loaded = Index.load(index.dump())
    assert loaded.dump() == index.dump()
    assert answers(loaded) == answers(index)
    assert answers(Index.build(history[0], loaded)) == answers(Index.build(history[0]))


def test_an_unchanged_catalog_gives_the_same_index_back():
    index = Index.build(CATALOG)
    assert Index.build(reversed(CATALOG), index) is index


def test_a_changed_hash_is_read_again_and_an_unchanged_one_is_not():
    index = Index.build([document("a.x", "apple"), document("b.y", "banana")])
    # The same hash promises the same text: breaking the promise shows that the document was not read.
    liar = Document(id="b.y", hash=document("b.y", "banana").hash, group="b", name="y", description="cherry")
    index = Index.build([document("a.x", "avocado"), liar], index)
    assert [index.search(word).total for word in ("apple", "avocado", "banana", "cherry")] == [0, 1, 1, 0]


def test_a_group_is_replaced_or_removed_without_touching_the_others():
    index = Index.build(CATALOG)
    smaller = index.replace({"redis": [], "mail": [document("mail.receive", "Receive an e-mail.")]})
    assert "redis" not in smaller.groups
    assert [hit.id for hit in smaller.search("mail").hits] == ["mail.receive"]
    assert index.search("redis key").hits[0].id == "redis.delete"
    assert smaller.holds("mail", {"mail.receive": document("mail.receive", "Receive an e-mail.").hash})
    assert not smaller.holds("mail", {})
    assert smaller.holds("redis", {})


def test_rarity_counts_all_groups_after_a_change():
    few = Index.build([document("a.x", "kiwi"), document("b.y", "melon"), document("b.z", "melon")])
    many = few.replace({"c": [document(f"c.t{at}", "kiwi") for at in range(20)]})
    assert few.search("kiwi melon").hits[0].id == "a.x"
    assert many.search("kiwi melon").hits[0].id in {"b.y", "b.z"}


def test_replacing_again_and_again_does_not_make_an_index_grow():
    index = Index.build(CATALOG)
    first = index.replace({"redis": [document("redis.get", "Version 0")]})
    for version in range(50):
        index = index.replace({"redis": [document("redis.get", f"Version {version}")]})
    assert len(index.dump()) < len(first.dump()) + 2_000


SPOILT: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda blob: b"",
    "header cut": lambda blob: blob[:40],
    "end missing": lambda blob: blob[:-16],
    "something before": lambda blob: b"x" + blob,
    "one byte wrong": lambda blob: blob[:-1] + b"\x01",
}


@pytest.mark.parametrize("how", SPOILT)
def test_a_damaged_dump_is_refused_with_advice(how: str):
    with pytest.raises(UnreadableIndex, match="Build it again"):
        Index.load(SPOILT[how](Index.build(CATALOG).dump()))


def test_a_dump_of_another_recipe_is_refused(monkeypatch: pytest.MonkeyPatch):
    blob = Index.build(CATALOG).dump()
    monkeypatch.setattr("portico.search.lexical.fields.LENGTH", 0.123)
    with pytest.raises(UnreadableIndex, match="another version"):
        Index.load(blob)
