"""Sentences are found in whatever servers write, and lines lose only their padding."""

import pytest

from portico.rendering.prose import extract_first_sentence, normalize_prose, split_sentences
from portico.rendering.token_budget import count_tokens


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Search files, e.g. by name. Fast.", "Search files, e.g. by name."),
        (
            "Works with v1.2 of the API, i.e. the old one. More.",
            "Works with v1.2 of the API, i.e. the old one.",
        ),
        ("Fetch https://example.com/a.b.c now. Then stop.", "Fetch https://example.com/a.b.c now."),
        ("Reads config.json etc. and merges. Next.", "Reads config.json etc. and merges."),
        ("\n    Get a page\n\n    Args:\n        url: The page.\n", "Get a page"),
        ("Get a page\nArgs:\n  url: The page.", "Get a page"),
        ("# Heading\n\nBody.", "Heading"),
        ("**Deletes** a [page](https://example.com). Careful!", "Deletes a page."),
        ("<usecase>Lists things.</usecase>\n<notes>x</notes>", "Lists things."),
        ("Get <name> from the list. Or not.", "Get <name> from the list."),
        ("查询天气。返回预报。", "查询天气。"),
        ("A line that was wrapped\nby its author. Next.", "A line that was wrapped by its author."),
        ("List:\n- one\n- two", "List:"),
        ('It says "hello." Then leaves.', 'It says "hello."'),
        ("Beta. Creates a cluster. Slowly.", "Beta. Creates a cluster."),
        ("Is it there? Yes.", "Is it there?"),
        ("", ""),
        (" \n ", ""),
    ],
)
def test_the_first_sentence_is_found(text: str, sentence: str):
    assert extract_first_sentence(text) == sentence


@pytest.mark.parametrize("text", ["word " * 200, "word" * 500, "字" * 500, "a, (b) " * 90])
def test_a_long_sentence_is_cut_and_says_so(text: str):
    cut = extract_first_sentence(text, 20)
    assert cut.endswith("…")
    assert 5 <= count_tokens(cut) <= 21


def test_a_cut_falls_between_words():
    words = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"]
    assert extract_first_sentence(" ".join(words), 8).removesuffix("…").split()[-1] in words


def test_prose_keeps_its_lines_and_loses_its_padding():
    text = (
        "\n        First line.\n\n\n        Args:\n            a:   the\n                "
        " value   \n    "
    )
    assert normalize_prose(text) == "First line.\nArgs:\n    a:   the\n         value"


def test_wrapped_prose_is_joined():
    long = "A sentence that its author wrapped after some seventy characters of"
    assert normalize_prose(f"{long}\ntext. End.\nNew") == f"{long} text. End.\nNew"


def test_a_line_is_its_sentences():
    assert list(
        split_sentences("Beta. Creates it, e.g. so. Costs $1.5 a day! Is it really done? Yes")
    ) == [
        "Beta. Creates it, e.g. so.",
        "Costs $1.5 a day!",
        "Is it really done?",
        "Yes",
    ]
