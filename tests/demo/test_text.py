"""Text tools count, compare and extract what a reader would."""

import pytest

from portico.demo import text


def test_counting() -> None:
    found = text.count_text("It's fine. Really!\n\nSecond paragraph, no end")
    assert (found["words"], found["sentences"], found["paragraphs"], found["lines"]) == (7, 3, 2, 3)
    assert found["reading_minutes"] == 1
    assert text.count_text("")["reading_minutes"] == 0


def test_frequent_words() -> None:
    assert text.frequent_words("tea Tea coffee tea coffee a a a a", limit=2, min_length=3) == [
        {"word": "tea", "count": 3},
        {"word": "coffee", "count": 2},
    ]


def test_slugs_are_ascii_and_cut_between_words() -> None:
    assert text.slugify("Ça va? Größe & Ångström's") == "ca-va-grosse-angstroms"
    assert text.slugify("one two three", max_length=9) == "one-two"
    assert text.slugify("one two three", max_length=7) == "one-two"
    assert text.slugify("abcdefghij", max_length=4) == "abcd"


def test_diffs() -> None:
    assert text.diff_texts("a\nb\nc", "a\nB\nc").splitlines()[2:] == [
        "@@ -1,3 +1,3 @@",
        " a",
        "-b",
        "+B",
        " c",
    ]
    assert text.diff_texts("same", "same") == "The texts are the same."


@pytest.mark.parametrize(
    ("kind", "source", "found"),
    [
        ("email", "Write to a.b+c@example.co.uk, not @home.", ["a.b+c@example.co.uk"]),
        (
            "url",
            "See https://example.org/a?b=c. And (http://x.yz/q)!",
            ["https://example.org/a?b=c", "http://x.yz/q"],
        ),
        ("number", "1,234.5 and -7, not v2 or 1.2.3", ["1,234.5", "-7"]),
        ("date", "2024-02-29 or 1.2.2024", ["2024-02-29", "1.2.2024"]),
        ("hashtag", "#one two#three #4", ["#one"]),
    ],
)
def test_extraction(kind: text.Kind, source: str, found: list[str]) -> None:
    assert text.extract_from_text(source, kind) == found


@pytest.mark.parametrize("kind", list(text._KINDS))  # pyright: ignore[reportPrivateUsage]
def test_no_pattern_runs_away_on_hostile_text(kind: text.Kind) -> None:
    for hostile in (
        "a" * 20_000,
        "a.a@" * 5_000,
        "1,111" * 4_000,
        '"' + "x" * 20_000,
        "http://" * 3_000,
        "1." * 10_000,
    ):
        text.extract_from_text(hostile, kind)


def test_wrapping_keeps_paragraphs() -> None:
    assert text.wrap_text("aaa bbb ccc\nddd\n\neee", 10, "> ") == "> aaa bbb\n> ccc ddd\n\n> eee"
