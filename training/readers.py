"""Translated files to (English, translation) pairs: one reader for each format that software is
translated in.

A reader takes the text of a translated file and that of its English counterpart (None where there
is none).
"""

import ast
import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from functools import lru_cache

import yaml

Pair = tuple[str, str]
Strings = dict[str, str]
Reader = Callable[[str, str | None], list[Pair]]

UNREADABLE = (ValueError, ElementTree.ParseError, yaml.YAMLError, AttributeError, StopIteration)
"""What a reader raises on a file that is not what its name says: a broken file is left out, not the
source."""

_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_STEP = "\0"
"""Between the keys of a path: no key has it."""


def flatten(value: object, path: str = "") -> Iterator[Pair]:
    """Key path and text of every string in nested mappings and lists."""
    match value:
        case str():
            yield path, value
        case {"message": message, "comment": _}:
            yield from flatten(message, path)
        case {"string": string, **rest} if set(rest) <= {"context", "developer_comment"}:
            yield from flatten(string, path)
        case dict():
            for key, item in value.items():
                yield from flatten(item, f"{path}{_STEP}{key}")
        case list():
            for number, item in enumerate(value):
                match item:
                    case {"id": name, "translation": translation}:
                        yield from flatten(translation, f"{path}{_STEP}{name}")
                    case _:
                        yield from flatten(item, f"{path}{_STEP}{number}")
        case _:
            pass


def json_strings(text: str) -> Strings:
    """Strings of a JSON file by key path; comment lines and trailing commas are allowed."""
    try:
        content = json.loads(text, strict=False)
    except ValueError:
        text = re.sub(r"(?m)^\s*//.*$|^\s*/\*(?:.|\n)*?\*/\s*$", "", text)
        content = json.loads(re.sub(r",(\s*[}\]])", r"\1", text), strict=False)
    return dict(flatten(content))


def yaml_strings(text: str) -> Strings:
    """Strings of a YAML file by key path."""
    return dict(flatten(yaml.load(text, Loader=_LOADER)))


def rooted_yaml_strings(text: str) -> Strings:
    """Strings of a YAML file whose single top key is the language code."""
    return dict(flatten(next(iter(yaml.load(text, Loader=_LOADER).values()))))


def front_matter_strings(text: str) -> Strings:
    """Title and descriptions in the YAML head of a Markdown page."""
    found = re.match(r"---\s*\n(.*?)\n---", text, re.S)
    if not found:
        return {}
    head = yaml.load(found[1], Loader=_LOADER)
    names = ("title", "linkTitle", "short_description", "description")
    return {name: head[name] for name in names if isinstance(head.get(name), str)}


def properties_strings(text: str) -> Strings:
    """Strings of a Java properties file."""
    strings: Strings = {}
    for line in re.sub(r"(?<!\\)((?:\\\\)*)\\\r?\n[ \t]*", r"\1", text).splitlines():
        entry = re.match(r"(?![#!])((?:\\.|[^\\=:\s])+)\s*[=:]?\s*(.*)", line.strip())
        if entry:
            key, value = (_unescape(part) for part in entry.groups())
            strings[key] = value.replace("''", "'")
    return strings


def _unescape(text: str) -> str:
    text = re.sub(r"\\u([0-9a-fA-F]{4})", lambda found: chr(int(found[1], 16)), text)
    return re.sub(
        r"\\(.)", lambda found: {"n": "\n", "t": " ", "r": ""}.get(found[1], found[1]), text
    )


def resx_strings(text: str) -> Strings:
    """Strings of a .resx or .resw file."""
    items = ElementTree.fromstring(text.encode()).iter("data")
    return {
        item.get("name", ""): item.findtext("value") or "" for item in items if not item.get("type")
    }


def join_by_key(read: Callable[[str], Strings], *, english_keys: bool = False) -> Reader:
    """A reader that joins an English and a translated file by key.

    With `english_keys` the last part of a key stands for the English text where the English file
    lacks the key.
    """
    # One English file is read with all its translations, one after the other.
    read_english = lru_cache(maxsize=1)(read)

    def pairs(translated: str, english: str | None) -> list[Pair]:
        if english is None and not english_keys:
            return []
        originals = read_english(english) if english else {}
        found: list[Pair] = []
        for key, value in read(translated).items():
            original = originals.get(key)
            if original is None and english_keys:
                last = key.rsplit(_STEP, 1)[-1]
                original = last if re.search(r"\w [\w(]|^[A-Z][a-z]+$", last) else None
            if original:
                found.append((original, value))
        return found

    return pairs


_PO_LINE = re.compile(r'(msgctxt|msgid_plural|msgid|msgstr(?:\[\d+\])?)?\s*(".*")$')


def po_pairs(translated: str, english: str | None) -> list[Pair]:
    """Pairs of a gettext catalogue, fuzzy and obsolete entries left out."""
    pairs: list[Pair] = []
    entry: Strings = {}
    field, fuzzy = "", False
    for line in (*map(str.strip, translated.splitlines()), 'msgid ""'):
        found = _PO_LINE.match(line)
        comment = not line or line.startswith("#")
        if (comment or (found and found[1] in ("msgid", "msgctxt"))) and _is_translated(entry):
            if not fuzzy:
                pairs += _po_pair(entry)
            entry, field, fuzzy = {}, "", False
        if comment:
            fuzzy = fuzzy or (line.startswith("#,") and "fuzzy" in line)
        elif found:
            if found[1]:
                field = found[1]
                entry[field] = ""
            if field:
                entry[field] += _unquote(found[2])
    return pairs


def _is_translated(entry: Strings) -> bool:
    return any(name.startswith("msgstr") for name in entry)


def _po_pair(entry: Strings) -> list[Pair]:
    """The pair of a whole entry; of several plural forms the last."""
    if not entry.get("msgid"):
        return []
    if "msgid_plural" in entry:
        forms = [entry[name] for name in sorted(entry) if name.startswith("msgstr[")]
        return [(entry["msgid_plural"], forms[-1])] if forms else []
    return [(entry["msgid"], entry["msgstr"])] if entry.get("msgstr") else []


def _unquote(literal: str) -> str:
    try:
        return ast.literal_eval(literal)
    except (SyntaxError, ValueError):
        return literal[1:-1].replace('\\"', '"').replace("\\n", "\n")


def xliff_pairs(translated: str, english: str | None) -> list[Pair]:
    """Pairs of an XLIFF file, units still marked as new left out."""
    pairs: list[Pair] = []
    for unit in ElementTree.fromstring(translated.encode()).iter():
        if _bare(unit) not in ("trans-unit", "segment"):
            continue
        parts = {_bare(child): child for child in unit}
        if "source" not in parts or "target" not in parts:
            continue
        if parts["target"].get("state") not in (
            "new",
            "needs-translation",
            "needs-review-translation",
        ):
            pairs.append(("".join(parts["source"].itertext()), "".join(parts["target"].itertext())))
    return pairs


def _bare(element: ElementTree.Element) -> str:
    return element.tag.rsplit("}", 1)[-1]


_LOOK_ALIKES = str.maketrans("ÆßÇÐËÏ£ÑØ§ÜÝæþçðëïñøµÿ", "ABCDEILNOSUYabcdeinouy")


def pseudo_pairs(translated: str, english: str | None) -> list[Pair]:
    """Pairs of a VS Code language file; the English side is a pseudo-localised one.

    The pseudo-language pack replaces letters one to one by accented look-alikes, so that undoing it
    gives the English text back. Keys of a "bundle" are English.
    """
    originals = {
        key: value.translate(_LOOK_ALIKES) for key, value in json_strings(english or "{}").items()
    }
    pairs: list[Pair] = []
    for key, value in json_strings(translated).items():
        _, *steps = key.split(_STEP)
        original = steps[-1] if "bundle" in steps[:-1] else originals.get(key)
        if (
            steps[:1] == ["contents"]
            and original
            and all(ord(sign) < 0x250 for sign in original if sign.isalpha())
        ):
            pairs.append((original, value))
    return pairs


_MNEMONIC = re.compile(r"\[(\w{1,4})\](?=\w)|(?<=\w)\[(\w{1,4})\]")


def tldr_pairs(translated: str, english: str | None) -> list[Pair]:
    """Pairs of two tldr pages: lines of the description, and examples by their command."""
    if english is None:
        return []
    about_here, examples_here = _tldr_parts(translated)
    about_english, examples_english = _tldr_parts(english)
    count = (
        len(about_here)
        if len(about_here) == len(about_english)
        else min(1, len(about_here), len(about_english))
    )
    pairs = list(zip(about_english[:count], about_here[:count], strict=True))
    by_command = dict(reversed(examples_english))
    same_length = len(examples_here) == len(examples_english)
    for number, (command, explanation) in enumerate(examples_here):
        if command in by_command:
            pairs.append((by_command[command], explanation))
        elif same_length:
            command_there, original = examples_english[number]
            here, there = set(command.split()), set(command_there.split())
            if len(here & there) * 2 > len(here | there):
                pairs.append((original, explanation))
    return [
        (_MNEMONIC.sub(r"\1\2", original), _MNEMONIC.sub(r"\1\2", here)) for original, here in pairs
    ]


def _tldr_parts(text: str) -> tuple[list[str], list[Pair]]:
    """Description lines and (command with its values left out, explanation) of a tldr page."""
    about: list[str] = []
    examples: list[Pair] = []
    explanation = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith(">"):
            if "<http" not in line and "`tldr" not in line:
                about.append(line[1:].strip())
        elif line.startswith("- "):
            explanation = line[2:].rstrip(":： ")
        elif line.startswith("`") and explanation:
            command = re.sub(r"\{\{\[(-[^|\]]*)\|[^\]]*\]\}\}", r"\1", line.strip("`"))
            command = re.sub(r"\{\{.*?\}\}+", "@", command)
            examples.append((" ".join(command.split()), explanation))
            explanation = ""
    return about, examples


_MARKDOWN_LINE = re.compile(r"\s*(#+|[*+-]|\d+\.|>|\|)?\s*(.*)")


def markdown_pairs(translated: str, english: str | None) -> list[Pair]:
    """Pairs of two Markdown files with the same line structure; prose lines only."""
    here, there = _markdown_lines(translated), _markdown_lines(english or "")
    if [kind for kind, _ in here] != [kind for kind, _ in there]:
        return []
    return [
        (original, line)
        for (kind, original), (_, line) in zip(there, here, strict=True)
        if kind != "|" and not original.startswith(("<", "`", "[", "!["))
    ]


def _markdown_lines(text: str) -> list[Pair]:
    """Kind (heading, item, quote, row, prose) and text of every line outside code."""
    prose = re.sub(r"(?ms)^\s*```.*?^\s*```", "", text)
    found: list[Pair] = []
    for line in filter(str.strip, prose.splitlines()):
        parts = _MARKDOWN_LINE.match(line)
        assert parts
        found.append(
            (re.sub(r"\d+", "1", parts[1] or "").replace("+", "*").replace("-", "*"), parts[2])
        )
    return found


READERS: dict[str, Reader] = {
    "json": join_by_key(json_strings),
    "json, English keys": join_by_key(json_strings, english_keys=True),
    "json, pseudo-English": pseudo_pairs,
    "yaml": join_by_key(yaml_strings),
    "yaml under its language": join_by_key(rooted_yaml_strings),
    "properties": join_by_key(properties_strings),
    "properties, English keys": join_by_key(properties_strings, english_keys=True),
    "resx": join_by_key(resx_strings),
    "gettext": po_pairs,
    "xliff": xliff_pairs,
    "tldr page": tldr_pairs,
    "markdown": markdown_pairs,
    "front matter": join_by_key(front_matter_strings),
}
