"""Names folded in bulk equal names folded one by one, and are found by line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.catalog.address import AddressResolver, PackedNames, fold
from portico.errors import UnknownName

NAMES = st.lists(
    st.text(st.sampled_from("aZ9 _-.é发\x1b[m\n\r\x00"), max_size=8) | st.text(max_size=8),
    min_size=1,
)


@given(NAMES)
def test_names_folded_together_are_what_each_is_alone(names: list[str]):
    assert PackedNames.pack_folded(names).unpack() == [fold(name) for name in names]


@given(NAMES, st.data())
def test_a_line_is_found_wherever_it_stands(names: list[str], data: st.DataObject):
    lines = PackedNames.pack_folded(names)
    wanted = fold(data.draw(st.sampled_from(names)))
    assert list(lines.find_positions(wanted)) == [
        at for at, name in enumerate(names) if wanted and fold(name) == wanted
    ]


def test_a_part_of_a_line_and_lines_side_by_side_are_not_that_line():
    lines = PackedNames.pack(["read", "read", "reader", "", "a\nread", "read"])
    assert list(lines.find_positions("read")) == [0, 1, 5]
    assert list(lines.find_positions("rea")) == []
    assert list(lines.find_positions("read\nreader")) == []
    assert list(lines.find_positions("")) == []


def test_where_there_are_no_tools_no_name_is_near():
    with pytest.raises(UnknownName) as refused:
        AddressResolver({}).resolve("anything")
    assert refused.value.nearest == ()
