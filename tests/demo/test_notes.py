"""The notebook keeps notes, and finds them."""

import pytest

from portico.demo import notes


@pytest.fixture
def notebook() -> notes.Notebook:
    book = notes.Notebook()
    book.create_note("Milk and eggs", "From the market", ["shopping"])
    book.create_note("Call Ann", "about the market stall", ["Todo"])
    return book


def test_notes_are_listed_newest_first(notebook: notes.Notebook) -> None:
    assert [note["id"] for note in notebook.list_notes()] == [2, 1]
    assert [note["id"] for note in notebook.list_notes(tag="todo")] == [2]


def test_every_word_must_occur(notebook: notes.Notebook) -> None:
    assert [note["id"] for note in notebook.search_notes("market")] == [2, 1]
    assert [note["id"] for note in notebook.search_notes("MARKET milk")] == [1]
    assert notebook.search_notes("market cheese") == []


def test_an_update_leaves_the_rest_as_it_was(notebook: notes.Notebook) -> None:
    changed = notebook.update_note(1, body="")
    assert (changed["title"], changed["body"], changed["tags"]) == (
        "Milk and eggs",
        "",
        ["shopping"],
    )


def test_a_deleted_note_is_gone_and_its_number_is_not_used_again(notebook: notes.Notebook) -> None:
    assert notebook.delete_note(2) == {"deleted": "Call Ann", "notes": 1}
    with pytest.raises(ValueError, match="there is no note 2; there are: 1"):
        notebook.read_note(2)
    assert notebook.create_note("New")["id"] == 3


def test_a_full_notebook_says_so() -> None:
    book = notes.Notebook()
    for number in range(notes.MAX_NOTES):
        book.create_note(str(number))
    with pytest.raises(ValueError, match="full"):
        book.create_note("one more")


def test_long_notes_are_listed_by_their_first_words() -> None:
    book = notes.Notebook()
    book.create_note("Long", "word " * 100)
    assert len(book.list_notes()[0]["excerpt"]) == notes.EXCERPT_CHARS + 1
