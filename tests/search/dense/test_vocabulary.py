"""The vocabulary finds what a dict of the same lines would."""

from hypothesis import given
from hypothesis import strategies as st

from portico.search.dense.wordpiece import Vocabulary

LINES = st.lists(
    st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), min_size=1),
    unique=True,
)


@given(LINES, st.lists(st.text(max_size=4)))
def test_it_is_a_dictionary_of_its_lines(pieces: list[str], others: list[str]) -> None:
    wanted = {piece: number for number, piece in enumerate(pieces)}
    found = Vocabulary("".join(f"{piece}\n" for piece in pieces).encode())
    assert dict(found) == wanted
    assert len(found) == len(wanted)
    for piece in (*pieces, *others):
        assert (piece in found) == (piece in wanted)
        assert found.get(piece) == wanted.get(piece)


def test_the_last_line_may_end_without_a_break_and_lines_as_on_windows() -> None:
    assert dict(Vocabulary("the\r\n##ing\r\n天".encode())) == {"the": 0, "##ing": 1, "天": 2}
