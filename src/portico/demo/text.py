"""Text: counting, comparing, cleaning and extracting. Only fixed patterns, so none can backtrack
badly.
"""

import difflib
import math
import re
import textwrap
import unicodedata
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from portico.demo.tool_factory import make_read_only_tool

MAX_CHARS = 100_000
WORDS_A_MINUTE = 230

Text = Annotated[str, Field(max_length=MAX_CHARS, description="The text.")]
Kind = Literal[
    "email", "url", "number", "date", "time", "hashtag", "mention", "ipv4", "hex_color", "quoted"
]
Style = Literal[
    "lower", "upper", "title", "sentence", "camel", "pascal", "snake", "kebab", "constant"
]

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_a-zA-Z]+")
_SENTENCE = re.compile(r"[^.!?…]+[.!?…]*")
_KINDS: Mapping[Kind, re.Pattern[str]] = {
    "email": re.compile(
        r"\b[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}\b"
    ),
    "url": re.compile(r"\bhttps?://[^\s<>\"'`]{1,2000}[^\s<>\"'`.,;:!?)\]}]"),
    "number": re.compile(
        r"(?<![\w.])[-+]?(?:\d{1,3}(?:,\d{3}){1,6}|\d{1,40})(?:\.\d{1,40})?(?!\w|\.\d)"
    ),
    "date": re.compile(r"\b\d{4}-\d{2}-\d{2}\b|\b\d{1,2}[./]\d{1,2}[./]\d{2,4}\b"),
    "time": re.compile(r"\b(?:[01]?\d|2[0-3]):[0-5]\d(?::[0-5]\d)?\b(?:\s?[AaPp][Mm]\b)?"),
    "hashtag": re.compile(r"(?<![\w#])#[^\W\d_]\w{0,100}"),
    "mention": re.compile(r"(?<![\w@])@\w[\w-]{0,50}"),
    "ipv4": re.compile(
        r"(?<![\d.])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?![\d.])"
    ),
    "hex_color": re.compile(r"#(?:[0-9a-fA-F]{8}|[0-9a-fA-F]{6}|[0-9a-fA-F]{3,4})\b"),
    "quoted": re.compile(r"\"[^\"\n]{1,1000}\"|“[^”\n]{1,1000}”|«[^»\n]{1,1000}»"),
}


def count_text(text: Text) -> dict[str, Any]:
    """Count characters, words, sentences, lines and paragraphs, and estimate the reading time."""
    words = _WORD.findall(text)
    return {
        "characters": len(text),
        "characters_without_spaces": sum(not char.isspace() for char in text),
        "words": len(words),
        "unique_words": len({word.lower() for word in words}),
        "sentences": sum(bool(_WORD.search(part)) for part in _SENTENCE.findall(text)),
        "lines": len(text.splitlines()),
        "paragraphs": sum(bool(part.strip()) for part in re.split(r"\n[ \t]*\n", text)),
        "reading_minutes": math.ceil(len(words) / WORDS_A_MINUTE),
    }


def frequent_words(
    text: Text,
    limit: Annotated[int, Field(ge=1, le=100, description="How many words to return.")] = 10,
    min_length: Annotated[int, Field(ge=1, le=30, description="Ignore shorter words.")] = 4,
) -> list[dict[str, Any]]:
    """List the words that occur most often in a text."""
    counts: dict[str, int] = {}
    for word in _WORD.findall(text.lower()):
        if len(word) >= min_length:
            counts[word] = counts.get(word, 0) + 1
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [{"word": word, "count": count} for word, count in ranked[:limit]]


def change_case(text: Text, style: Annotated[Style, Field(description="The case wanted.")]) -> str:
    """Change the case of a text or identifier: lower, UPPER, Title, camelCase, snake_case,
    kebab-case …"""
    if style in ("lower", "upper", "title", "sentence"):
        plain = text.lower()
        if style == "sentence":
            return re.sub(r"(^|[.!?…]\s+)(\w)", lambda found: found[1] + found[2].upper(), plain)
        if style == "title":
            return _WORD.sub(lambda found: found[0][:1].upper() + found[0][1:], plain)
        if style == "lower":
            return plain
        return text.upper()
    parts = [part.lower() for part in _PART.findall(text)]
    match style:
        case "camel":
            return "".join(
                part if index == 0 else part.capitalize() for index, part in enumerate(parts)
            )
        case "pascal":
            return "".join(part.capitalize() for part in parts)
        case "snake":
            return "_".join(parts)
        case "kebab":
            return "-".join(parts)
        case "constant":
            return "_".join(parts).upper()


def slugify(
    text: Annotated[str, Field(max_length=2_000, description="A title or any other text.")],
    separator: Annotated[Literal["-", "_"], Field(description="Between words.")] = "-",
    max_length: Annotated[
        int, Field(ge=1, le=200, description="Longest slug; cut between words where possible.")
    ] = 80,
) -> str:
    """Make a URL slug from a title: lower case, no accents, words joined by a separator."""
    letters = (
        text.replace("ß", "ss")
        .replace("æ", "ae")
        .replace("Æ", "ae")
        .replace("ø", "o")
        .replace("Ø", "o")
    )
    plain = (
        unicodedata.normalize("NFKD", letters)
        .encode("ascii", "ignore")
        .decode()
        .lower()
        .replace("'", "")
    )
    slug = separator.join(re.findall(r"[a-z0-9]+", plain))
    if len(slug) <= max_length:
        return slug
    cut = slug[: max_length + 1]
    if separator in cut:
        return cut.rpartition(separator)[0]
    return slug[:max_length]


def diff_texts(
    before: Annotated[str, Field(max_length=20_000, description="The old text.")],
    after: Annotated[str, Field(max_length=20_000, description="The new text.")],
    context: Annotated[
        int, Field(ge=0, le=20, description="Unchanged lines shown around each change.")
    ] = 3,
) -> str:
    """Compare two texts line by line and return a unified diff."""
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), "before", "after", n=context, lineterm=""
    )
    return "\n".join(lines) or "The texts are the same."


def compare_similarity(
    first: Annotated[str, Field(max_length=1_000, description="A text.")],
    second: Annotated[str, Field(max_length=1_000, description="Another text.")],
    ignore_case: Annotated[
        bool, Field(description="Take upper and lower case for the same.")
    ] = True,
) -> dict[str, Any]:
    """Tell how alike two texts are: a ratio from 0 to 1, and the edit distance (Levenshtein)."""
    if ignore_case:
        first = first.casefold()
        second = second.casefold()
    ratio = difflib.SequenceMatcher(None, first, second, autojunk=False).ratio()
    return {
        "ratio": round(ratio, 4),
        "edit_distance": _compute_edit_distance(first, second),
        "equal": first == second,
    }


def _compute_edit_distance(first: str, second: str) -> int:
    row = list(range(len(second) + 1))
    for row_index, char in enumerate(first, 1):
        above, row[0] = row[0], row_index
        for column, other in enumerate(second, 1):
            above, row[column] = (
                row[column],
                min(row[column] + 1, row[column - 1] + 1, above + (char != other)),
            )
    return row[-1]


def extract_from_text(
    text: Text,
    kind: Annotated[Kind, Field(description="What to look for.")],
    unique: Annotated[bool, Field(description="Each find only once.")] = True,
    limit: Annotated[int, Field(ge=1, le=1_000, description="Most finds to return.")] = 100,
) -> list[str]:
    """Extract every e-mail address, URL, number, date, time, hashtag, mention, IP address, colour
    or quotation."""
    found = [match[0] for match in _KINDS[kind].finditer(text)]
    return (list(dict.fromkeys(found)) if unique else found)[:limit]


def replace_text(
    text: Text,
    find: Annotated[
        str,
        Field(min_length=1, max_length=1_000, description="The words to find, taken literally."),
    ],
    replacement: Annotated[
        str, Field(max_length=1_000, description="What to put there, taken literally.")
    ],
    ignore_case: Annotated[bool, Field(description="Find upper and lower case alike.")] = False,
    whole_words: Annotated[
        bool, Field(description="Leave alone what is part of a longer word.")
    ] = False,
) -> dict[str, Any]:
    """Replace words in a text and count the replacements."""
    pattern = re.escape(find)
    if whole_words:
        pattern = rf"(?<!\w){pattern}(?!\w)"
    changed, count = re.subn(
        pattern, lambda _: replacement, text, flags=re.IGNORECASE if ignore_case else 0
    )
    return {"text": changed, "replacements": count}


def sort_lines(
    text: Text,
    order: Annotated[
        Literal["ascending", "descending"], Field(description="Direction.")
    ] = "ascending",
    by: Annotated[Literal["text", "length", "number"], Field(description="What decides.")] = "text",
    unique: Annotated[bool, Field(description="Drop repeated lines.")] = False,
) -> str:
    """Sort the lines of a text, and drop empty or repeated ones."""
    lines = [line for line in text.splitlines() if line.strip()]
    if unique:
        lines = list(dict.fromkeys(lines))
    match by:
        case "length":
            lines.sort(key=lambda line: (len(line), line))
        case "number":
            lines.sort(key=_parse_leading_number)
        case "text":
            lines.sort(key=lambda line: (line.casefold(), line))
    return "\n".join(reversed(lines) if order == "descending" else lines)


def _parse_leading_number(line: str) -> tuple[float, str]:
    found = re.search(r"[-+]?\d{1,300}(?:\.\d{1,300})?", line)
    return (float(found[0]) if found else math.inf, line)


def wrap_text(
    text: Text,
    width: Annotated[int, Field(ge=10, le=400, description="Longest line.")] = 80,
    indent: Annotated[
        str, Field(max_length=20, description="Put before every line, such as '> '.")
    ] = "",
) -> str:
    """Re-wrap paragraphs to a line width, optionally with an indent."""
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n[ \t]*\n", text) if part.strip()]
    wide = max(width, len(indent) + 1)
    return "\n\n".join(
        textwrap.fill(part, wide, initial_indent=indent, subsequent_indent=indent)
        for part in paragraphs
    )


TOOLS = (
    make_read_only_tool("Count text", count_text),
    make_read_only_tool("Frequent words", frequent_words),
    make_read_only_tool("Change case", change_case),
    make_read_only_tool("Make a slug", slugify),
    make_read_only_tool("Diff two texts", diff_texts),
    make_read_only_tool("Similarity of two texts", compare_similarity),
    make_read_only_tool("Extract from text", extract_from_text),
    make_read_only_tool("Find and replace", replace_text),
    make_read_only_tool("Sort lines", sort_lines),
    make_read_only_tool("Wrap text", wrap_text),
)
