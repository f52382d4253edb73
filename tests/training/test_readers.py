"""Every format that translations come in, by a small file of each."""

from pathlib import Path

import pytest
from training.readers import READERS, UNREADABLE
from training.sources import read_sources

PO = """
msgid ""
msgstr "Language: de"

msgctxt "button"
msgid "Delete"
msgstr "Löschen"

#, fuzzy
msgid "Guess"
msgstr "Raten"

msgid "%d file"
msgid_plural "%d files"
msgstr[0] "%d Datei"
msgstr[1] "%d Dateien"

msgid "Long "
"text \\"quoted\\""
msgstr ""
"Langer "
"Text"
msgid "Untranslated"
msgstr ""
#~ msgid "Gone"
#~ msgstr "Weg"
"""
XLIFF = """<?xml version="1.0" encoding="utf-8"?>
<xliff xmlns="urn:oasis:names:tc:xliff:document:1.2"><file><body>
<trans-unit id="a"><source>Save <x id="1"/>file</source><target>Datei <x id="1"/>sichern</target></trans-unit>
<trans-unit id="b"><source>New one</source><target state="new">New one</target></trans-unit>
<trans-unit id="c"><source>No target</source></trans-unit>
</body></file></xliff>"""  # noqa: E501
RESX = (
    '<root><data name="Open"><value>{}</value></data><data name="Icon" '
    'type="b"><value>x</value></data></root>'
)
TLDR = (
    "# tar\n\n> {}\n> More information: <https://x>.\n\n- {}:\n\n`tar "
    "{{{{[-c|--create]}}}} {{{{{}}}}}`\n"
)

SAMPLES: dict[str, tuple[str, str | None, list[tuple[str, str]]]] = {
    "json": (
        '// a comment\n{"menu": {"open": "Öffnen", "lost": "Verloren"}, "list": '
        '[{"id": "k", "translation": "Ja"}],}',
        '{"menu": {"open": {"message": "Open", "comment": "verb"}}, "list": [{"id": '
        '"k", "translation": "Yes"}]}',
        [("Open", "Öffnen"), ("Yes", "Ja")],
    ),
    "json, English keys": (
        '{"Add user": "Benutzer hinzufügen", "Cancel": "Abbrechen", "some_key": "Nein"}',
        None,
        [("Add user", "Benutzer hinzufügen"), ("Cancel", "Abbrechen")],
    ),
    "json, pseudo-English": (
        '{"contents": {"bundle": {"Run task": "Aufgabe starten"}, "package": {"k": '
        '"Öffnen"}}, "version": "1"}',
        '{"contents": {"package": {"k": "Øpëñ"}}, "version": "1"}',
        [("Run task", "Aufgabe starten"), ("Open", "Öffnen")],
    ),
    "yaml": ("nav:\n  home: Start\n  on: yes\n", "nav:\n  home: Home\n", [("Home", "Start")]),
    "yaml under its language": ("de:\n  day: Tag\n", "en:\n  day: Day\n", [("Day", "Tag")]),
    "properties": (
        "# comment\nsave = Datei \\\n   sichern\nquote: L''heure\numlaut=\\u00dcber\n",
        "save=Save the file\nquote=The hour\numlaut=About\n",
        [("Save the file", "Datei sichern"), ("The hour", "L'heure"), ("About", "Über")],
    ),
    "properties, English keys": (
        "Delete\\ this\\ job=Job löschen\nx.y=z\n",
        None,
        [("Delete this job", "Job löschen")],
    ),
    "resx": (RESX.format("Öffnen"), RESX.format("Open it"), [("Open it", "Öffnen")]),
    "gettext": (
        PO,
        None,
        [("Delete", "Löschen"), ("%d files", "%d Dateien"), ('Long text "quoted"', "Langer Text")],
    ),
    "xliff": (XLIFF, None, [("Save file", "Datei sichern")]),
    "tldr page": (
        TLDR.format("Archivieren", "[A]rchiv erstellen", "pfad"),
        TLDR.format("Archive files.", "[c]reate an archive", "path"),
        [("Archive files.", "Archivieren"), ("create an archive", "Archiv erstellen")],
    ),
    "markdown": (
        "# Titel\n\n* Ein Punkt\n\n```sh\nx\n```\n| a |\n",
        "# Title\n\n- One point\n\n```sh\ny\nz\n```\n| b |\n",
        [("Title", "Titel"), ("One point", "Ein Punkt")],
    ),
    "front matter": (
        "---\ntitle: Knoten\nweight: 3\n---\nText",
        "---\ntitle: Nodes\ndescription: About nodes\n---\nText",
        [("Nodes", "Knoten")],
    ),
}


@pytest.mark.parametrize("form", READERS)
def test_a_file_is_read_into_pairs(form: str) -> None:
    translated, english, pairs = SAMPLES[form]
    assert READERS[form](translated, english) == pairs


@pytest.mark.parametrize(
    "form", ["json", "yaml", "properties", "resx", "tldr page", "front matter", "markdown"]
)
def test_a_translation_without_its_english_gives_nothing(form: str) -> None:
    assert READERS[form](SAMPLES[form][0], None) == []


@pytest.mark.parametrize(("form", "broken"), [("json", "{"), ("xliff", "<a>"), ("yaml", "a: [")])
def test_a_broken_file_is_distinguished_from_a_broken_reader(form: str, broken: str) -> None:
    with pytest.raises(UNREADABLE):
        READERS[form](broken, SAMPLES[form][1])


def test_pages_of_another_structure_are_not_paired() -> None:
    assert READERS["markdown"]("# Titel\n\nText\n", "# Title\n\n- Item\n") == []


def test_every_source_names_a_reader_a_commit_and_a_licence_that_lets_us() -> None:
    sources = read_sources()
    assert len(sources) == len(set(sources)) == 60
    allowed = ("MIT", "Apache-2.0", "BSD-3-Clause", "CC-BY-4.0")
    assert [source.repository for source in sources if not source.licence.startswith(allowed)] == []


def test_the_list_of_sources_that_is_published_is_the_one_that_is_read() -> None:
    published = (Path(__file__).parents[2] / "training" / "SOURCES.md").read_text(encoding="utf-8")
    for source in read_sources():
        files = source.files.replace("|", "\\|")
        row = (
            f"| {source.repository} | {source.licence} | `{files}` | {source.format} | "
            f"{source.commit} |"
        )
        assert row in published
