"""What is a value in the words of an intent is found before any tool is known."""

import re

import pytest

from portico.workflows.planning.said_values import (
    MAX_VALUES,
    SaidValue,
    ValueKind,
    find_said_values,
)

WORD = re.compile(r"\w+|[^\w\s]")


def find(intent: str) -> tuple[SaidValue, ...]:
    return find_said_values(intent, [match.span() for match in WORD.finditer(intent)])


@pytest.mark.parametrize(
    ("intent", "found"),
    [
        ('call it "Before launch", please', [("quoted", "Before launch")]),
        ("qui dit «Su pedido está listo».", [("quoted", "Su pedido está listo")]),
        ("don't say that it's 'nearly done'", [("quoted", "nearly done")]),
        ("open https://acme.io/a?b=1, then stop", [("url", "https://acme.io/a?b=1")]),
        ("mail ops@acme.io.", [("email", "ops@acme.io")]),
        ("the role arn:aws:iam::4820:role/writer may", [("arn", "arn:aws:iam::4820:role/writer")]),
        ("read /var/log/app.log again", [("path", "/var/log/app.log")]),
        ("close ENG-482 in acme/web-store", [("name", "ENG-482"), ("name", "acme/web-store")]),
        ("raise it by 3.5 for -9.1393", [("number", "3.5"), ("number", "-9.1393")]),
        ("keep it for another two hours", [("duration", "2h")]),
        ("with three replicas", [("number", "3")]),
        ("give it the tag reviewed=yes", [("name", "reviewed"), ("name", "yes")]),
        ("nothing to see here", []),
    ],
)
def test_values_are_found_by_their_form(intent: str, found: list[tuple[str, str]]):
    assert [(value.kind.value, value.text) for value in find(intent)] == found


@pytest.mark.parametrize(
    ("intent", "dates"),
    [
        ("due 1 December 2026", ["2026-12-01"]),
        ("on December 1, 2026", ["2026-12-01"]),
        ("am 3. März 2027", ["2027-03-03"]),
        ("on 2026-12-01.", ["2026-12-01"]),
        ("from 4 to 29 January 2027", ["2027-01-04", "2027-01-29"]),
        ("vom 12. bis 19. Februar 2027", ["2027-02-12", "2027-02-19"]),
        ("from 30 November to 11 December 2026", ["2026-11-30", "2026-12-11"]),
        ("the sales of February 2028", ["2028-02-01", "2028-02-29"]),
        ("on 25 November 2026 at 08:00 UTC", ["2026-11-25T08:00:00Z"]),
        (
            "il 24 dicembre 2026, dalle 19:30 alle 22:00.",
            ["2026-12-24T19:30:00", "2026-12-24T22:00:00"],
        ),
        ("the run manual__2026-11-17T06:00:00+00:00", []),
        ("version 31.2.2026 of it", []),
    ],
)
def test_dates_periods_and_times_are_read(intent: str, dates: list[str]):
    found = [value for value in find(intent) if value.kind is ValueKind.DATE]
    assert [value.text for value in found] == dates


def test_values_have_the_places_of_their_words():
    intent = 'Send "Your order is ready" to C04T9ZK2L1M'
    text, channel = find(intent)
    words = WORD.findall(intent)
    assert words[text.first : text.last + 1] == ["Your", "order", "is", "ready"]
    assert words[channel.first : channel.last + 1] == ["C04T9ZK2L1M"]


def test_values_of_one_kind_side_by_side_are_a_list_too():
    *single, both = find("take 3xKd81abQ and 9pLm20cdR off the site")
    assert [value.text for value in single] == ["3xKd81abQ", "9pLm20cdR"]
    assert both.items == ("3xKd81abQ", "9pLm20cdR")
    assert (both.first, both.last) == (single[0].first, single[1].last)


def test_a_value_that_another_word_parts_from_the_next_is_no_list():
    assert not any(value.items for value in find("replace v1.2 with v1.3, strikes from 400 to 450"))


def test_the_number_of_values_is_bounded():
    assert len(find(" ".join(f"of x{number}" for number in range(100)))) == MAX_VALUES
