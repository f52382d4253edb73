"""Text to terms: documents and queries alike, independent of spelling."""

import tracemalloc

import pytest

from portico.search.lexical.tokens import extract_terms, extract_word_terms, squash


@pytest.mark.parametrize(
    "spelling",
    [
        "createPullRequest",
        "create_pull_request",
        "create-pull-request",
        "CreatePullRequest",
        "create.pull.request",
    ],
)
def test_an_identifier_gives_the_same_terms_however_it_is_spelt(spelling: str):
    assert extract_word_terms(spelling) == ("creat", "pull", "request", "createpullrequest")


def test_runs_of_capitals_and_numbers_stay_together():
    assert extract_terms("getHTTPResponse EC2Instance") == [
        "get",
        "http",
        "respons",
        "gethttprespons",
        "ec2",
        "instanc",
        "ec2inst",
    ]
    assert extract_terms("k8s K8s s3 S3") == ["k8s", "k8s", "s3", "s3"]
    assert extract_word_terms("OAuth2Token")[:2] == ("oauth2", "oauth")


def test_a_product_is_found_with_or_without_its_humps():
    assert "github" in extract_word_terms("GitHub")
    assert extract_word_terms("github") == ("github",)
    assert set(extract_word_terms("YouTube")) >= set(extract_word_terms("youtube"))


def test_inflected_words_meet_and_words_of_grammar_are_dropped():
    assert extract_terms("What's the status of the issues?") == extract_terms("status issue")


def test_accents_and_width_are_folded():
    assert extract_terms("Café à Ｔｏｋｙｏ") == extract_terms("cafe a tokyo")
    assert extract_terms("cafe\u0301") == extract_terms("café")


def test_scripts_without_spaces_become_pairs_of_characters():
    assert extract_terms("城市天气") == ["城市", "市天", "天气"]
    assert extract_terms("RabbitMQのエラー") == ["rabbit", "mq", "rabbitmq", "のエ", "エラ", "ラー"]
    assert extract_terms("天") == ["天"]


def test_scripts_with_vowel_signs_keep_their_words_whole():
    assert extract_terms("हिन्दी में") == ["हिन्दी", "में"]


def test_a_name_made_of_stop_words_is_still_a_term():
    assert extract_terms("who_am_i") == ["whoami"]


@pytest.mark.parametrize(
    "text", ["", " \t\n", "\x00\x1b", "!!! ???", "\ud800", "a" * 100_000, "_" * 5_000, "-.-.-"]
)
def test_text_that_says_nothing_gives_no_terms(text: str):
    assert extract_terms(text) == []


def test_all_separators_of_an_address_squash_alike():
    spellings = [
        "github.create_issue",
        "github::create_issue",
        "github/createIssue",
        "GitHub__create-issue",
    ]
    assert {squash(spelling) for spelling in spellings} == {"githubcreateissue"}


def test_words_that_are_data_are_read_to_their_end_and_not_remembered():
    tracemalloc.start()
    for number in range(200):
        assert len(extract_terms(f"天{number:03}" + "天气" * 2_000)) > 3_999
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 1_000_000
