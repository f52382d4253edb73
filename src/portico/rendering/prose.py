"""Normalization of server text: without padding, as one sentence, or as sentences. Pure."""

import inspect
import re
from collections.abc import Iterator

from portico.catalog.visible_text import sanitize_text, to_literal
from portico.rendering.token_count import count_tokens

_SENTENCE_TOKENS = 28
_BARE_NAME = re.compile(r"[A-Za-z_$@][\w$@-]*", re.ASCII)

# Repetitions are bounded: an untrusted text of nothing but brackets must not take seconds.
_MARKUP = re.compile(
    r"\*\*|^[ \t]{0,40}<[A-Za-z][\w-]{0,40}>|!?\[([^\]]{0,200})\]\([^)]{0,500}\)", re.MULTILINE
)
_CLOSING_TAG = re.compile(r"</[A-Za-z][\w-]{0,40}>")
_BREAK = re.compile(r"\n[ \t]*\n|\n[ \t]*(?=[-*•#>|`<]|\d+[.)]\s|[A-Z][\w ]{0,30}:)")
_SENTENCE_END = re.compile(r"[.!?][)\"'”’*_`\]]*(?=\s|$)|[。！？]")
_NOT_AN_END = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|cf|approx|incl|esp|no|inc|ltd|st|dr|mr|ms|a\.k\.a|[a-z])|^\d+)\.$",
    re.IGNORECASE,
)


def quote_if_needed(name: str) -> str:
    """Return a parameter's name, quoted if it is not a plain word."""
    if _BARE_NAME.fullmatch(name):
        return name
    return to_literal(name)


def collapse_whitespace(text: str) -> str:
    """Return text as one line."""
    return " ".join(text.split())


def normalize_prose(text: str) -> str:
    """Return text without common indent, blank lines and wrapping inside sentences."""
    text = sanitize_text(text)
    if "\n" not in text:
        return collapse_whitespace(text)
    parts = list[str]()
    fenced = False
    previous = ""
    for line in map(str.rstrip, inspect.cleandoc(text).split("\n")):
        fenced ^= line.lstrip().startswith("```")
        if line:
            wrapped = (
                line[0].islower() and len(previous) >= 60 and previous[0] != " " and not fenced
            )
            parts += (" " if wrapped else "\n", line)
            previous = line
    return "".join(parts[1:])


def strip_markup(text: str) -> str:
    """Return text without bold type, enclosing tags and link targets."""
    return _MARKUP.sub(r"\1", _CLOSING_TAG.sub("\n\n", text))


def split_blocks(text: str) -> list[str]:
    """Return paragraphs and list items, each as one line."""
    return [block for part in _BREAK.split(text) if (block := collapse_whitespace(part))]


def split_sentences(line: str) -> Iterator[str]:
    """Yield the sentences of one line; a very short one is joined with the next."""
    start = 0
    for end in _SENTENCE_END.finditer(line):
        head = line[start : end.end()].lstrip()
        tail = line[end.end() :].lstrip()
        too_short = len(head) < 24 and len(head.split()) < 3 and head.isascii()
        upto = line[max(start, end.start() - 12) : end.start() + 1].lstrip()
        if not (too_short or tail[:1].islower() or _NOT_AN_END.search(upto)):
            yield head
            start = end.end()
    if rest := line[start:].strip():
        yield rest


def extract_first_sentence(text: str, max_tokens: int = _SENTENCE_TOKENS) -> str:
    """Return the first sentence as one line of about `max_tokens` at most, cut at a word."""
    text = strip_markup(sanitize_text(text[:2000])).strip(" \n\t#*-_=")
    return clip_line(
        next(split_sentences(collapse_whitespace(_BREAK.split(text, maxsplit=1)[0])), ""),
        max_tokens,
    )


def clip_line(text: str, max_tokens: int) -> str:
    """Cut one line to about `max_tokens` at most, at a word."""
    if count_tokens(text) <= max_tokens:
        return text
    while (cost := count_tokens(text)) > max_tokens - 1:
        if len(text) > cost:
            shorter = text[: int(len(text) * (max_tokens - 1) / cost)]
        else:
            shorter = text[:-1]
        space = shorter.rfind(" ")
        if space > len(shorter) // 2:
            text = shorter[:space]
        else:
            text = shorter
    return text.rstrip(" ,;:(-–—.\"'`") + "…"
