"""Text: counting, comparing, cleaning and extracting. Only fixed patterns, so none can backtrack
badly.
"""

import difflib
import math
import re
import textwrap
import unicodedata
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from portico.demo import make_tool

MAX_CHARS = 100_000
WORDS_A_MINUTE = 230

Text = Annotated[str, Field(max_length=MAX_CHARS, description="The text.")]
Kind = Literal["email", "url", "number", "date", "hashtag"]

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
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
    "hashtag": re.compile(r"(?<![\w#])#[^\W\d_]\w{0,100}"),
}


def count_text(text: Text) -> dict[str, Any]:
    """Count characters, words, sentences, lines and paragraphs, and estimate the reading time."""
    words = _WORD.findall(text)
    return {
        "characters": len(text),
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
    words = sorted(word for word in _WORD.findall(text.lower()) if len(word) >= min_length)
    return [{"word": word, "count": count} for word, count in Counter(words).most_common(limit)]


def slugify(
    text: Annotated[str, Field(max_length=2_000, description="A title or any other text.")],
    separator: Annotated[Literal["-", "_"], Field(description="Between words.")] = "-",
    max_length: Annotated[
        int, Field(ge=1, le=200, description="Longest slug; cut between words where possible.")
    ] = 80,
) -> str:
    """Make a URL slug from a title: lower case, no accents, words joined by a separator."""
    letters = text.replace("ß", "ss").replace("'", "")
    plain = unicodedata.normalize("NFKD", letters).encode("ascii", "ignore").decode().lower()
    slug = separator.join(re.findall(r"[a-z0-9]+", plain))
    if len(slug) <= max_length:
        return slug
    return slug[: max_length + 1].rpartition(separator)[0] or slug[:max_length]


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


def extract_from_text(
    text: Text,
    kind: Annotated[Kind, Field(description="What to look for.")],
    limit: Annotated[int, Field(ge=1, le=1_000, description="Most finds to return.")] = 100,
) -> list[str]:
    """Extract every e-mail address, URL, number, date or hashtag, each once."""
    found = [match[0] for match in _KINDS[kind].finditer(text)]
    return list(dict.fromkeys(found))[:limit]


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
    make_tool("Count text", count_text),
    make_tool("Frequent words", frequent_words),
    make_tool("Make a slug", slugify),
    make_tool("Diff two texts", diff_texts),
    make_tool("Extract from text", extract_from_text),
    make_tool("Wrap text", wrap_text),
)
