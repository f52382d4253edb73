"""The text of a document that the encoder reads."""

from dataclasses import replace

import pytest

from portico.search import SearchDocument, compose_document_text, compute_text_key
from portico.search.document import compose_text, to_words


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("createPullRequest", "create Pull Request"),
        ("create-pull_request", "create pull request"),
        ("getHTTPResponse", "get HTTP Response"),
        ("a.b/c:d", "a b c d"),
        ("__x__", "x"),
        ("S3", "S3"),
        ("", ""),
        ("查询天气", "查询天气"),
    ],
)
def test_a_name_becomes_words(name: str, words: str):
    assert to_words(name) == words


def test_server_name_and_description_stand_in_one_line():
    document = SearchDocument(
        "g.create_issue", "h", "g", "create_issue", server="git-hub", description="Makes\n one.\t "
    )
    assert compose_document_text(document) == "git hub: create issue. Makes one."


def test_a_title_is_shown_only_if_it_says_more_than_the_name():
    assert compose_text("s", "read_file", "D.", "Read File") == "s: read file. D."
    assert compose_text("s", "rf", "D.", "Read a file") == "s: rf (Read a file). D."


def test_only_the_beginning_of_a_long_description_is_read():
    long = compose_text("s", "t", "word " * 5_000)
    assert len(long) < 3_000
    assert long == compose_text("s", "t", "word " * 50_000)


def test_nothing_at_all_is_still_a_text():
    assert isinstance(compose_text("", "", ""), str)


def test_a_key_tells_texts_apart_and_fits_the_file():
    texts = ["a", "b", "", "a ", "é", "\ud83d", "x" * 10_000]
    keys = [compute_text_key(text) for text in texts]
    assert len(set(keys)) == len(texts)
    assert all(len(key) == 16 and key.isascii() for key in keys)
    assert keys == [compute_text_key(text) for text in texts]


def test_what_the_encoder_does_not_read_does_not_change_the_key():
    one = SearchDocument(
        "s.t", "1", "s", "t", server="s", description="D.", parameters=("a",), server_text="One"
    )
    other = replace(one, hash="2", enums=("b",), tags=("x",), category="c", server_text="Other")
    assert compute_text_key(compose_document_text(one)) == compute_text_key(
        compose_document_text(other)
    )
