"""WordPiece tokens: English as in the base model, other scripts as runs, any text accepted."""

import tracemalloc
from importlib.resources import files

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.search.dense.wordpiece import WordPieceTokenizer, normalise, split_words

_PIECES = """
    [PAD] [UNK] [CLS] [SEP] create a new issue ' s , . ? _ - $ 5 un ##want ##ed ##able want ##ing cafe
    天 ##天 ##気 ##の 今日 か が 한 ##국
"""  # noqa: E501
PIECES = _PIECES.split()
NUMBERS = {piece: number for number, piece in enumerate(PIECES)}
SMALL = WordPieceTokenizer(NUMBERS)


def read(text: str, limit: int = 64, reader: WordPieceTokenizer = SMALL) -> list[str]:
    """The pieces of a text, without the frame."""
    ids = reader.encode(text, limit)
    assert PIECES[ids[0]] == "[CLS]"
    assert PIECES[ids[-1]] == "[SEP]"
    return [PIECES[number] for number in ids[1:-1]]


@pytest.fixture(scope="module")
def shipped() -> dict[str, int]:
    lines = (
        (files("portico.search.dense") / "model" / "vocabulary.txt")
        .read_text(encoding="utf-8")
        .splitlines()
    )
    return {piece: number for number, piece in enumerate(lines)}


# English


def test_case_and_accents_do_not_matter():
    assert split_words("Create a CAFÉ, naïvely") == ["create", "a", "cafe", ",", "naively"]


def test_every_punctuation_mark_is_a_word_of_its_own():
    assert (
        " ".join(split_words("issue's a_b x-y $5 (v2.0)?!"))
        == "issue ' s a _ b x - y $ 5 ( v2 . 0 ) ? !"
    )


def test_the_longest_piece_comes_first_and_continuations_are_marked():
    assert read("Create a new issue's, unwanted") == [
        "create",
        "a",
        "new",
        "issue",
        "'",
        "s",
        ",",
        "un",
        "##want",
        "##ed",
    ]
    assert read("wanting") == ["want", "##ing"]


def test_a_word_that_cannot_be_cut_whole_is_one_unknown():
    assert read("create unwantedly a") == ["create", "[UNK]", "a"]
    assert read("zzz zzz") == ["[UNK]", "[UNK]"]


SENTENCES = (
    "Create a new issue in a GitHub repository, with labels and assignees.",
    "Retrieve the current weather forecast for a city (temperature, humidity & wind)!",
    "List S3 buckets; e.g. `aws s3 ls --recursive` => prints 1,000 keys per page...",
    "Don't use this tool unless the user's query can't be answered otherwise?",
    "get_HTTP_response2 v2.0 $5 50% a@b.example #42 x^2 ~/path <tag> [list] {json: "
    "true} | pipe \\ back",
    "tabs\tand\nnew\r\nlines   and spaces",
    "Résumé of a naïve café façade",
)


@pytest.mark.parametrize("sentence", SENTENCES)
def test_english_reads_as_in_an_uncased_bert_tokenizer(sentence: str, shipped: dict[str, int]):
    tokenizers = pytest.importorskip(
        "tokenizers", reason="the reference tokenizer is not installed"
    )
    reference = tokenizers.Tokenizer(tokenizers.models.WordPiece(shipped, unk_token="[UNK]"))
    reference.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    reference.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    assert WordPieceTokenizer(shipped).encode(sentence, 128)[1:-1] == reference.encode(sentence).ids


def test_the_shipped_vocabulary_has_the_frame_and_no_piece_twice(shipped: dict[str, int]):
    text = (files("portico.search.dense") / "model" / "vocabulary.txt").read_text(encoding="utf-8")
    assert {"[PAD]", "[UNK]", "[CLS]", "[SEP]"} <= shipped.keys()
    assert len(shipped) == text.count("\n")


# Other scripts


def test_a_script_without_spaces_is_one_run_cut_by_the_longest_pieces():
    assert split_words("今日の天気を教えて。") == ["今日の天気を教えて", "。"]
    assert read("今日の天気") == ["今日", "##の", "##天", "##気"]


def test_a_run_ends_where_another_script_begins():
    assert split_words("GitHubのissueを作成") == ["github", "の", "issue", "を作成"]


def test_an_unknown_character_costs_a_run_only_itself():
    assert read("今日龘の天気") == ["今日", "[UNK]", "##の", "##天", "##気"]
    assert read("龘天気") == ["[UNK]", "##天", "##気"]


def test_a_run_without_an_end_is_read_to_its_end():
    assert [piece for piece in read("天" * 100, 200) if piece in ("天", "##天")] == read(
        "天" * 100, 200
    )
    assert len(read("天" * 100, 200)) == 100


def test_marks_that_make_another_letter_stay():
    assert read("か が") == ["か", "が"]
    assert normalise("が") == "が"
    assert normalise("한국어") == "한국어"
    assert split_words("हिन्दी में") == ["हिन्दी", "में"]
    assert split_words("שָׁלוֹם") == [normalise("שָׁלוֹם")]


def test_marks_of_latin_greek_and_cyrillic_letters_are_dropped():
    assert normalise("Ångström ΑΘΉΝΑ ЙОГА") == "angstrom αθηνα иога"


def test_what_looks_the_same_is_the_same():
    assert normalise("ｆｉｌｅ ﬁle ①") == "file file 1"
    assert read("한국") == read("한국") == ["한", "##국"]


@pytest.mark.parametrize(
    "text",
    [
        "根据城市名称查询指定城市的天气",
        "今日の東京の天気を教えてください",
        "ขอทราบสภาพอากาศวันนี้",
        "서울 날씨 알려줘",
        "Какая погода в Москве",
        "ما هو الطقس اليوم",
        "आज का मौसम",
        "מה מזג האוויר",
        "Wie ist das Wetter in München",
    ],
)
def test_the_shipped_vocabulary_knows_other_languages(text: str, shipped: dict[str, int]):
    assert shipped["[UNK]"] not in WordPieceTokenizer(shipped).encode(text, 64)


# Limits, and whatever may come


def test_a_text_is_cut_at_the_limit_and_always_framed():
    for limit in (2, 3, 7, 64):
        ids = SMALL.encode("create a new issue " * 100, limit)
        assert len(ids) == limit
        assert (ids[0], ids[-1]) == (NUMBERS["[CLS]"], NUMBERS["[SEP]"])


def test_an_empty_text_is_the_frame_alone():
    for text in ("", "  \n\t", "\x00\x07"):
        assert read(text) == []


def test_what_cannot_be_seen_does_not_count():
    assert read("cre\x00ate\ufeff a\u200b new\ud83d") == ["create", "a", "new"]


def test_a_word_that_is_data_is_read_by_its_beginning():
    assert read("un" + "ed" * 1_000 + " a") == ["un", *["##ed"] * 23, "a"]


def test_of_a_word_that_is_data_no_more_is_remembered_than_was_read():
    tracemalloc.start()
    for number in range(500):
        read(f"{number}" + "x" * 3_900)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 1_000_000


@pytest.mark.parametrize(
    "text",
    [
        "word " * 2_000,
        "x" * 10_000,
        "天" * 10_000,
        "ﷺ" * 10_000,
        "e" + "\u0301" * 10_000,
        bytes(range(256)).decode("latin-1") * 40,
        "\ud800 \udfff \ud83d",
        "😀👩‍👩‍👧❤️🏳️‍🌈",
        "_" * 10_000,
    ],
    ids=[
        "words",
        "letters",
        "run",
        "expanding",
        "marks",
        "binary",
        "half characters",
        "emoji",
        "punctuation",
    ],
)
def test_any_text_is_read(text: str, shipped: dict[str, int]):
    ids = WordPieceTokenizer(shipped).encode(text, 128)
    assert 2 <= len(ids) <= 128
    assert all(0 <= number < len(shipped) for number in ids)


@given(st.text(st.characters(), max_size=300), st.integers(2, 40))
@settings(max_examples=200, deadline=None)
def test_whatever_is_typed_gives_known_numbers_within_the_limit(text: str, limit: int):
    ids = SMALL.encode(text, limit)
    assert 2 <= len(ids) <= limit
    assert set(ids) <= set(NUMBERS.values())
    assert ids == SMALL.encode(text, limit)
