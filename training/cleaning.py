"""Which pairs are worth learning from: placeholders and markup taken out, misfits refused."""

import html
import re
from functools import lru_cache

from training.languages import in_its_script

LONGEST = 300
"""Characters of a text that is kept."""

_ICU = re.compile(
    r"\{\s*[\w.$]+\s*,\s*(plural|select|selectordinal|number|date|time|duration)\b|\[%key|\{% "
)
_RULES: list[tuple[re.Pattern[str], str]] = [
    (re.compile(r"!?\[([^\[\]]+)\]\([^()\s]*(?:\s+\"[^\"]*\")?\)"), r"\1"),
    (re.compile(r"\[([^\[\]]+)\]\[[\w -]*\]"), r"\1"),
    (re.compile(r"<(?:script|style)\b.*?</(?:script|style)>", re.S), " "),
    (re.compile(r"</?[A-Za-z0-9][^<>]{0,200}>|<>|</>"), " "),
    (re.compile(r"https?://\S+"), " "),
    (
        re.compile(
            r"\{\{\{?[^{}]*\}?\}\}|\$\{[^{}]*\}|%\{[^{}]*\}|#\{[^{}]*\}|\{[\w.$:,# "
            r"@|-]*\}|\{\$.*?\$\}"
        ),
        " ",
    ),
    (re.compile(r"\$\([\w~-]+\)|\$t\([^()]*\)|@:[\w.]+|\b__[\w.]+__\b"), " "),
    (
        re.compile(
            r"%\([\w.]+\)[sdifr]?|%(?:\d+\$)?[-+0]?(?:\.\d+)?[sdfivqxr@](?![A-Za-z])|%\d+\b(?!%)|%%"
        ),
        " ",
    ),
    (re.compile(r"\s*\(&{1,2}\w\)"), ""),
    (re.compile(r"&{1,2}(?=\w)"), ""),
    (re.compile(r"`+|\*\*+|(?<!\w)__(?=\w)|(?<=\w)__(?!\w)"), ""),
    (re.compile(r"\\[nrt](?![a-z])"), " "),
    (
        re.compile(
            r"\(\s*\)|\[\s*\]|\"\s*\"|“\s*”|„\s*“|«\s*»|「\s*」|'\s*'|‘\s*’|（\s*）|\{\s*\}"
        ),
        " ",
    ),
    (re.compile(r"[\x00-\x1f\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]"), " "),
    (re.compile(r"\s+"), " "),
    (re.compile(r" (?=[.,;!?…。、，！？](?:\s|$))|(?<=[(（]) | (?=[)）])"), ""),
]
_EDGES = " \t:：-–—|·•/=,;，、；>*#\"'“”"
_LETTER = re.compile(r"[^\W\d_]")


@lru_cache(maxsize=200_000)
def clean(text: str) -> str:
    """The text without placeholders, markup and accelerator marks; empty where ICU syntax rules
    it."""
    if len(text) > 4 * LONGEST or _ICU.search(text):
        return ""
    text = html.unescape(text)
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text.strip(_EDGES)


def acceptable(code: str, english: str, translation: str) -> bool:
    """Decide whether a cleaned pair looks like English text and its translation."""
    if not english or not translation or len(english) > LONGEST or len(translation) > LONGEST:
        return False
    letters = _LETTER.findall(english)
    if len(letters) < 2 or not _LETTER.search(translation):
        return False
    if sum(letter.isascii() for letter in letters) < 0.8 * len(letters) or len(letters) * 2 < len(
        english
    ):
        return False
    if english.casefold().strip(".…!?: ") == translation.casefold().strip(".…!?: 。"):
        return False
    if re.search(r"[a-z]\.[a-z]+\.[a-z]|\w_\w+_\w|\s\|\s|\|\||\(0x[0-9a-f]+\)|[{}]", english):
        return False
    if " " not in english and re.search(r"[a-z][A-Z].*[a-z][A-Z]|[_\\/=<>{}]", english):
        return False
    if not in_its_script(code, translation):
        return False
    shorter = 8 if code in ("zh", "zh-tw", "ja", "ko") else 4
    return len(english) <= 15 or len(english) / shorter <= len(translation) <= len(english) * 4
