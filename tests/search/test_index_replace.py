"""An index updated step by step, or dumped and loaded, equals one built at once."""

import json
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.search import Index, SearchDocument, UnreadableIndex, compute_fingerprint
from portico.search.lexical import bm25f
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
def documents(draw: st.DrawFn, group: str) -> list[SearchDocument]:
    names = draw(st.lists(st.sampled_from(_WORDS), unique=True, max_size=5))
    texts = draw(
        st.lists(
            st.lists(st.sampled_from(_WORDS), max_size=8).map(" ".join),
            min_size=len(names),
            max_size=len(names),
        )
    )
    return [
        SearchDocument(
            f"{group}.{name}",
            compute_fingerprint(text),
            group,
            name,
            server=group,
            description=text,
        )
        for name, text in zip(names, texts, strict=True)
    ]


@st.composite
def catalogs(draw: st.DrawFn) -> list[SearchDocument]:
    groups = draw(st.lists(st.sampled_from(("red", "green", "blue", "file")), unique=True))
    return [it for group in groups for it in draw(documents(group))]


def answers(index: Index) -> list[object]:
    return [
        (ranking.hits, ranking.total, ranking.confidence)
        for ranking in (index.search(query, 50) for query in QUERIES)
    ]


@given(st.lists(catalogs(), min_size=1, max_size=5))
@settings(max_examples=60, deadline=None)
def test_an_index_that_followed_every_change_answers_like_a_fresh_one(
    history: list[list[SearchDocument]],
):
    index = Index.build([])
    for catalog in history:
        index = Index.build(catalog, index)
    fresh = Index.build(history[-1])
    assert answers(index) == answers(fresh)
    assert len(index) == len(fresh)
    assert set(index.groups) == set(fresh.groups)


@given(st.lists(catalogs(), min_size=1, max_size=3))
@settings(max_examples=30, deadline=None)
def test_a_dumped_index_is_the_same_index(history: list[list[SearchDocument]]):
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
    # The same hash promises the same text: breaking the promise shows that the document was not
    # read.
    liar = SearchDocument(
        id="b.y", hash=document("b.y", "banana").hash, group="b", name="y", description="cherry"
    )
    index = Index.build([document("a.x", "avocado"), liar], index)
    assert [index.search(word).total for word in ("apple", "avocado", "banana", "cherry")] == [
        0,
        1,
        1,
        0,
    ]


def test_a_group_is_replaced_or_removed_without_touching_the_others():
    index = Index.build(CATALOG)
    smaller = index.replace({"redis": [], "mail": [document("mail.receive", "Receive an e-mail.")]})
    assert "redis" not in smaller.groups
    assert [hit.id for hit in smaller.search("mail").hits] == ["mail.receive"]
    assert index.search("redis key").hits[0].id == "redis.delete"
    assert smaller.has_group(
        "mail", {"mail.receive": document("mail.receive", "Receive an e-mail.").hash}
    )
    assert not smaller.has_group("mail", {})
    assert smaller.has_group("redis", {})


def test_documents_read_one_by_one_give_the_index_of_documents_read_together(
    monkeypatch: pytest.MonkeyPatch,
):
    together = Index.build(CATALOG).dump()
    monkeypatch.setattr(bm25f, "_BATCH_TERMS", 1)
    assert Index.build(CATALOG).dump() == together


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
    monkeypatch.setattr("portico.search.lexical.bm25f.LENGTH_NORMALISATION", 0.123)
    with pytest.raises(UnreadableIndex, match="another version"):
        Index.load(blob)


def test_whatever_single_bit_is_flipped_the_dump_is_refused():
    blob = Index.build(CATALOG).dump()
    header = blob.index(b"}}") + 32
    places = (*range(header), *range(header, len(blob), 997), len(blob) - 1)
    for at in places:
        for bit in range(8):
            flipped = bytearray(blob)
            flipped[at] ^= 1 << bit
            with pytest.raises(UnreadableIndex, match="Build it again"):
                Index.load(bytes(flipped))


_START, _HEAD = 20, 28
"""Where the checksum's reach begins, and the header, in a dump."""


def forged(
    change: Callable[[dict[str, Any]], None], body: Callable[[bytes], bytes] = lambda it: it
) -> bytes:
    """A dump with another header or body, and a checksum that says all is well."""
    blob = Index.build(CATALOG).dump()
    end = _HEAD + int.from_bytes(blob[_START:_HEAD], "little")
    header = json.loads(blob[_HEAD:end])
    rest = body(blob[end + -end % 16 :])
    change(header)
    head = json.dumps(header).encode()
    front = len(head).to_bytes(8, "little") + head
    front += b" " * (-(_START + len(front)) % 16)
    return blob[:16] + zlib.crc32(front + rest).to_bytes(4, "little") + front + rest


def shorter(name: str) -> Callable[[dict[str, Any]], None]:
    def change(header: dict[str, Any]) -> None:
        header["counts"][name] -= 1

    return change


def overwritten(name: str, with_: bytes) -> bytes:
    """A dump in which the first numbers of a part are others."""
    sizes: dict[str, int] = {}
    forged(lambda header: sizes.update(header["sizes"]))
    at = sum(list(sizes.values())[: list(sizes).index(name)])
    return forged(lambda _: None, lambda body: body[:at] + with_ + body[at + len(with_) :])


def without(id_: str) -> Callable[[bytes], bytes]:
    listed = f'"{id_}",'.encode()
    return lambda body: body.replace(listed, b" " * len(listed), 1)


LIES: dict[str, Callable[[], bytes]] = {
    **{
        f"{name} is shorter": lambda name=name: forged(shorter(name))
        for name in (
            "starts",
            "slots",
            "strengths",
            "fields",
            "name_keys",
            "id_keys",
            "copy_keys",
            "vectors",
        )
    },
    "a part is missing": lambda: forged(lambda header: header["sizes"].pop("slots")),
    "no sizes": lambda: forged(lambda header: header.pop("sizes")),
    "a size is a word": lambda: forged(lambda header: header["sizes"].update(ids="many")),
    "a size is huge": lambda: forged(lambda header: header["sizes"].update(ids=10**30)),
    "a count is huge": lambda: forged(lambda header: header["counts"].update(slots=10**12)),
    "a count is negative": lambda: forged(lambda header: header["counts"].update(slots=-5)),
    "parts are shifted": lambda: forged(
        lambda header: header["sizes"].update(terms=header["sizes"]["terms"] + 16)
    ),
    "an id is missing": lambda: forged(lambda _: None, without(CATALOG[0].id)),
    "no body": lambda: forged(lambda _: None, lambda _: b""),
    "lists do not begin at the beginning": lambda: overwritten("starts", b"\1\0\0\0"),
    "a list ends before it begins": lambda: overwritten("starts", b"\0\0\0\0\xff\0\0\0\0\0\0\0"),
    "a slot that is not there": lambda: overwritten("slots", b"\xff\xff\0\0"),
}


@pytest.mark.parametrize("how", LIES)
def test_parts_that_do_not_fit_together_are_refused_though_the_checksum_fits(how: str):
    with pytest.raises(UnreadableIndex, match="Build it again"):
        Index.load(LIES[how]())


def test_a_forgery_that_changes_nothing_is_read():
    assert Index.load(forged(lambda _: None)).search("create an issue") == Index.build(
        CATALOG
    ).search("create an issue")


def churned(version: int, words: int = 2_000) -> SearchDocument:
    return document("redis.get", " ".join(f"w{version}x{at}" for at in range(words)))


def test_words_that_no_document_has_any_more_are_forgotten():
    index = Index.build(CATALOG)
    once = index.replace({"redis": [churned(0)]})
    for version in range(12):
        index = index.replace({"redis": [churned(version)]})
    terms = len(index._postings.vocabulary)  # pyright: ignore[reportPrivateUsage]
    assert terms < 3 * len(once._postings.vocabulary)  # pyright: ignore[reportPrivateUsage]
    assert len(index.dump()) < len(once.dump()) + 5_000
    fresh = Index.build([*(it for it in CATALOG if it.group != "redis"), churned(11)])
    for query in (*QUERIES, "w11x7", "w3x7", "send an e-mail"):
        assert index.search(query, 50).hits == fresh.search(query, 50).hits
    loaded = Index.load(index.dump())
    for query in ("w11x7", "w3x7", "send an e-mail"):
        assert loaded.search(query) == index.search(query)
    assert loaded.replace({"redis": [churned(3)]}).search("w3x7").hits[0].id == "redis.get"


def test_a_dump_holds_no_word_of_a_document_that_is_gone():
    index = Index.build(CATALOG).replace({"vault": [document("vault.open", "Confidentialword")]})
    assert b"confidentialword" in index.dump()
    assert b"confidentialword" not in index.replace({"vault": []}).dump()
