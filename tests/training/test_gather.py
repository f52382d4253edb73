"""From repositories to pairs: cleaned, without doubles, thinned fairly, and what came from
where."""

import gzip
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from training.cleaning import acceptable, clean
from training.gather import gather_pairs, level, thin_pool, write
from training.languages import in_its_script, language
from training.sources import Source

COMMIT = "0" * 40


def _source(name: str, weight: float = 1.0, commit: str = COMMIT) -> Source:
    return Source(
        name, "MIT", commit, r"i18n/(?P<lang>[\w-]+)\.json", "json", "i18n/en.json", weight
    )


@pytest.mark.parametrize(
    ("locale", "code"),
    [
        ("de_DE", "de"),
        ("deDE", "de"),
        ("pt-BR", "pt"),
        ("zh-Hans", "zh"),
        ("zh_TW", "zh-tw"),
        ("zh-Hant-HK", "zh-tw"),
        ("jp", "ja"),
        ("sr@latin", "sr"),
        ("en-GB", None),
        ("qps-ploc", None),
        ("template", None),
        ("x", None),
    ],
)
def test_a_language_has_one_code(locale: str, code: str | None) -> None:
    assert language(locale) == code


@pytest.mark.parametrize(
    ("raw", "cleaned"),
    [
        ("Delete <b>{count}</b> files…", "Delete files…"),
        ("&Save as", "Save as"),
        ("See [the docs](https://example.org/x)", "See the docs"),
        ("Hello %(name)s, %1$s and ${other}!", "Hello, and!"),
        ("{count, plural, one {file} other {files}}", ""),
        ("Fish &amp; chips:", "Fish & chips"),
    ],
)
def test_placeholders_and_markup_are_taken_out(raw: str, cleaned: str) -> None:
    assert clean(raw) == cleaned


@pytest.mark.parametrize(
    ("code", "english", "translation", "kept"),
    [
        ("de", "Delete file", "Datei löschen", True),
        ("de", "Docker", "docker", False),
        ("ru", "Delete file", "Delete the file", False),
        ("de", "some.dotted.key", "Wert", False),
        ("de", "A sentence of some length", "Ein", False),
        ("zh", "A sentence of some length", "一句话而已", True),
        ("de", "", "Datei", False),
    ],
)
def test_a_pair_must_look_like_a_translation(
    code: str, english: str, translation: str, kept: bool
) -> None:
    assert acceptable(code, english, translation) is kept


def test_a_language_of_latin_letters_asks_for_no_script() -> None:
    assert in_its_script("de", "abc")
    assert not in_its_script("ko", "abc")


def test_a_large_source_gives_way_to_small_ones_and_to_weight() -> None:
    small, large, heavy = _source("a/small"), _source("a/large"), _source("a/heavy", weight=3.0)
    share = level({small: 10, large: 1_000, heavy: 1_000}, limit=410)
    assert share == 100
    assert level({small: 10}, limit=50) == float("inf")


def test_thinning_keeps_the_same_pairs_whatever_their_order() -> None:
    source = _source("a/b")
    pairs = [(f"word {number}", f"Wort {number}") for number in range(100)]
    kept = [list(thin_pool({"de": {source: order}}, 10, 10)) for order in (pairs, pairs[::-1])]
    assert kept[0] == kept[1]
    assert len(kept[0][0][2]) == 10


def test_a_rare_language_nobody_asked_for_is_left_out() -> None:
    assert list(thin_pool({"eo": {_source("a/b"): [("Yes please", "Jes bonvolu")]}}, 10, 10)) == []


@pytest.mark.skipif(shutil.which("git") is None, reason="reading repositories needs git")
def test_a_repository_is_read_at_its_commit(tmp_path: Path) -> None:
    work, bare = tmp_path / "work", tmp_path / "repositories" / "owner+name.git"
    (work / "i18n").mkdir(parents=True)
    (work / "i18n" / "en.json").write_text(
        '{"a": "Delete file", "b": "Add user", "c": "Delete file"}'
    )
    german = '{"a": "Datei löschen", "b": "Benutzer hinzufügen", "c": "Datei löschen"}'
    (work / "i18n" / "de.json").write_text(german, encoding="utf-16")
    (work / "i18n" / "fr.json").write_text("{ not json")
    _git(work, "init", "-q")
    _git(work, "add", ".")
    _git(work, "-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "-q", "-m", "first")
    commit = _git(work, "rev-parse", "HEAD").strip()
    bare.mkdir(parents=True)
    _git(bare, "init", "-q", "--bare")
    _git(bare, "fetch", "-q", "--depth", "1", work.as_uri(), commit)

    here, elsewhere = _source("owner/name", commit=commit), _source("owner/other")
    pool, read = gather_pairs(tmp_path / "repositories", [here, elsewhere])
    write(thin_pool(pool, 100, 100), read, tmp_path)

    assert read == [here]
    lines = gzip.decompress((tmp_path / "pairs.tsv.gz").read_bytes()).decode().splitlines()
    assert lines == [
        "de\tDelete file\tDatei löschen\towner/name",
        "de\tAdd user\tBenutzer hinzufügen\towner/name",
    ]
    assert f"| {commit} | 2 |" in (tmp_path / "SOURCES.md").read_text()


def _git(folder: Path, *arguments: str) -> str:
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    ran = subprocess.run(
        ["git", *arguments],
        cwd=folder,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
        timeout=240,
    )
    return ran.stdout
