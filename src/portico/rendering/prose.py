"""Normalization of server text: without padding, as one sentence, or as sentences. Pure.

Many servers document parameters only in an "Args" section of the description, as in a docstring.
These notes are split off, to be shown beside the parameter's type, where a caller looks for them.
"""

import inspect
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from portico.catalog.tool import sanitize_text, to_literal
from portico.rendering.token_budget import count_tokens, cut_at_space

SENTENCE_TOKENS = 28
_MAX_CHARS_PER_TOKEN = 20
"""What is longer is too long, whatever it says."""
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
_HEADING = re.compile(
    r"[ \t]{0,40}[#*_< ]{0,8}(?:args|arguments|(?:input )?parameters|params|inputs|"
    r"hints for arguments)"
    r"[#*_:> ]{0,8}(?:\([^()]{0,80}\))?:?[ \t]{0,8}$",
    re.IGNORECASE,
)
_NEXT_HEADING = re.compile(
    r"[ \t]{0,40}(?:#|</?[A-Za-z_]{1,40}>|\*\*[^*]{1,80}\*\*|"
    r"\*{0,2}[A-Z][A-Za-z ]{1,30}\*{0,2}:\*{0,2}[ \t]{0,8}$)"
)
_FIELD = re.compile(
    r"[ \t]{0,40}(?P<mark>[-*•+][ \t]{1,8}|\d{1,3}[.)][ \t]{1,8}|[:@]param[ \t]{1,8})?"
    r"[*_`\"']{0,4}(?P<name>[A-Za-z_$@][\w$@.-]{0,100}?)[*_`\"']{0,4}+"
    r"[ \t]{0,8}+(?:[(\[][^)\]\n]{0,80}[)\]])?[*_`]{0,4}+[ \t]{0,8}+(?::|[–—]|"
    r"-[ \t])[*_]{0,4}[ \t]{0,8}(?P<text>.*)$"
)


def quote_if_needed(name: str) -> str:
    """Return a parameter's name, quoted if it is not a plain word."""
    if _BARE_NAME.fullmatch(name):
        return name
    return to_literal(name)


def collapse_whitespace(text: str) -> str:
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


def extract_first_sentence(text: str, max_tokens: int = SENTENCE_TOKENS) -> str:
    """Return the first sentence as one line of about `max_tokens` at most, cut at a word."""
    text = strip_markup(sanitize_text(text[:2000])).strip(" \n\t#*-_=")
    return clip_line(
        next(split_sentences(collapse_whitespace(_BREAK.split(text, maxsplit=1)[0])), ""),
        max_tokens,
    )


def clip_line(text: str, max_tokens: int) -> str:
    """Cut one line to about `max_tokens` at most, at a word."""
    full_length = len(text)
    text = text[: max_tokens * _MAX_CHARS_PER_TOKEN]
    if len(text) == full_length and count_tokens(text) <= max_tokens:
        return text
    while (cost := count_tokens(text)) > max_tokens - 1:
        end = int(len(text) * (max_tokens - 1) / cost)
        text = cut_at_space(text[:end])
    return text.rstrip(" ,;:(-–—.\"'`") + "…"


@dataclass(frozen=True)
class ParsedDocstring:
    """A description without its parameter list, and the note on each parameter."""

    description: str
    notes: Mapping[str, str]


def parse_docstring(text: str, parameter_names: Collection[str]) -> ParsedDocstring:
    """Split the parameter notes off a description; the rest is returned unchanged."""
    if not parameter_names or "\n" not in text:
        return ParsedDocstring(text, {})
    description_lines = list[str]()
    notes = dict[str, list[str]]()
    in_list = False
    current = ""
    current_depth = 0
    for line in text.split("\n"):
        depth = len(line) - len(line.lstrip())
        found = _FIELD.match(line)
        if (
            found
            and found["name"] in parameter_names
            and (in_list or found["mark"])
            and not (current and depth > current_depth)
        ):
            current = found["name"]
            current_depth = depth
            notes.setdefault(current, []).append(found["text"])
            if description_lines and _HEADING.match(description_lines[-1]):
                description_lines.pop()
        elif current and line.strip() and depth > current_depth and not _NEXT_HEADING.match(line):
            notes[current].append(line.strip())
        else:
            in_list = bool(_HEADING.match(line)) or (in_list and not line.strip())
            if not in_list or line.strip():
                current = ""
            description_lines.append(line)
    return ParsedDocstring(
        "\n".join(description_lines),
        {name: " ".join(filter(None, parts)) for name, parts in notes.items()},
    )
