"""Condensed descriptions: the sentences that a caller needs most, in their original order. Pure.

What the typed form says anyway (optional, the default, the values, the name again) is dropped
first; then examples, praise and return values. Units, formats, limits, the origin of ids and
obligations stay longest.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

from portico.catalog.schema_outline import ABSENT, SchemaParameter
from portico.catalog.tool import sanitize_text, to_literal
from portico.rendering.prose import (
    clip_line,
    collapse_whitespace,
    split_blocks,
    split_sentences,
    strip_markup,
)
from portico.rendering.token_budget import count_tokens

_MAX_READ_CHARS = 12_000
"""Characters of a description that are scored; what follows is rarely worth more."""
_MAX_TRIMMED_CHARS = 600
"""Sentences longer than this, in characters, are not trimmed clause by clause."""
_MIN_MARKED_TOKENS = 6
"""Tokens lost without an ellipsis, as for headings and list marks."""

# Repetitions are bounded, as in `prose`.
_FENCED = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_STRONG = re.compile(
    r"\b(?:(?i:must|mandatory|required?|requires|cannot|can't|never|do not|don't|unless|only|"
    r"either|before|first|"
    r"at least|at most|max|maximum|one of|important|warning)|NOT)\b|必须|必填|不要|不能|禁止|只能|"
    r"仅"
)
"""Words of obligation and restriction: ignoring such a sentence makes a call fail or do harm."""
_MUST = re.compile(
    r"\b(?:must|MUST|Must|required|REQUIRED|IMPORTANT|CRITICAL|WARNING|never|NEVER|cannot)\b|必须|"
    r"不要|禁止"
)
_FORMAT = re.compile(
    r"\b(?:ISO[ -]?\d{4}|ISO format|RFC ?\d{3,5}|E\.164|YYYY\S{0,40}|HH:MM|\d{4}-\d\d-\d\d|"
    r"[Uu]nix time|epoch|[Bb]ase64|(?:comma|semicolon)[- ]separated|JSON string)\b"
)
"""How a value is written: one in another format makes a call fail."""
_USEFUL = re.compile(
    r"\b(?:always|not|no|without|instead|both|exclusive|ignored|after|irreversible|permanent\w*|"
    r"delet\w+|overwrit\w+|"
    r"formats?|formatted|ISO|RFC|UTC|GMT|YYYY\S*|[Uu]nix|epoch|timestamps?|timezone|milliseconds|"
    r"ms|seconds|minutes|"
    r"hours|days|bytes|KB|MB|pixels|percent|minimum|min|up to|limit|limited|between|range|comma|"
    r"separated|base64|JSON|"
    r"regex|glob|case|prefix|suffix|encoded|absolute|relative|[Oo]mit|omitted|empty|null|[Ii]f|"
    r"[Ww]hen|[01]-based|index|"
    r"indexed|from|returned|obtain\w*|ids?|IDs?|[a-z]+_[a-z_]+|[a-z]+[A-Z]\w+)\b|[<>≤≥]=?\s?\d|"
    r"\d{1,9}\s?-\s?\d{1,9}|格式|单位"
)
"""Units, formats, limits, conditions, and the origin of values."""
_FILLER_SENTENCE = re.compile(
    r"[-*•#>|\d.) ]{0,12}(?:returns?\b|response|output|examples?\b|e\.g|for example|use cases?|"
    r"raises?\b|see also|useful|"
    r"ideal|perfect|this (?:tool|is|function|endpoint|api|will)|use (?:this|when|it)\b|when to use|"
    r"\W{0,8}\w{1,60}\(|common|"
    r"key trigger|tips?\b|learn more|see https?|https?:|\"|“|typical|works (?:well|great)|workflow|"
    r"best for|provides|"
    r"error responses|the (?:tool|response) (?:returns|includes|contains)|"
    r"(?:a )?dict(?:ionary)? (?:with|containing))",
    re.IGNORECASE,
)
"""Beginnings of sentences that praise, give examples, or describe the result."""
_TAG_LINE = re.compile(r"^[ \t]*<(/?)([A-Za-z][\w -]{0,40})>[ \t]*$", re.MULTILINE)
_QUOTED = re.compile(r"[`\"']([\w.-]+)(?:=[^`\"']*)?[`\"']|\b(\w+)=")
_ITEM = re.compile(r"(?:[-*•+]|\d{1,9}[.)])\s+")
_WORD = re.compile(r"[A-Za-z0-9]+|[^\x00-\x7f]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_OPTIONAL = re.compile(
    r"^[\[(]?(?:optional|required)[\])]?(?:[\s:.,;–—-]+|$)|\s*[\[(](?:optional|required)[\])]",
    re.IGNORECASE,
)
_ARTICLE = re.compile(r"^(?:the|an?)\s+", re.IGNORECASE)
_ASIDE = re.compile(r"\s*(?:\([^()]*\)|\[[^\[\]]*\])")
_TAIL = re.compile(r"[,;:.]\s|\s[-–—]+\s")
_DEFAULT_WORDS = frozenset(
    ("default", "defaults", "to", "is", "value", "if", "not", "provided", "specified", "omitted",
     "set", "given", "none", "the", "by")
)  # fmt: skip
_VALUE_WORDS = frozenset(
    ("one", "of", "any", "the", "following", "options", "option", "possible", "allowed", "valid",
     "available", "supported", "accepted", "value", "values", "types", "type", "are", "is",
     "include", "includes", "must", "can", "should", "may", "be", "either", "or", "and")
)  # fmt: skip
_LIMIT_WORDS = frozenset(
    ("min", "max", "minimum", "maximum", "between", "and", "to", "range", "from", "up", "at",
     "most", "least", "length", "long", "characters", "chars", "items", "inclusive", "is", "value",
     "must", "be")
)  # fmt: skip
_FILLER_WORDS = frozenset(
    ("the", "a", "an", "of", "to", "for", "in", "on", "is", "this", "that", "it", "its", "with",
     "by", "as", "value", "string", "number", "integer", "boolean", "object", "array", "parameter",
     "param", "argument", "field", "input", "optional", "required", "s")
)  # fmt: skip
_FILLER_WORD_FORMS = (
    _FILLER_WORDS
    | {word.removesuffix("s") for word in _FILLER_WORDS}
    | {f"{word}s" for word in _FILLER_WORDS}
)


@dataclass(frozen=True)
class _TokenAllowance:
    """Token limit of a text: a share of its cost, within bounds."""

    min_tokens: int
    share: float
    max_tokens: int

    def compute_limit(self, cost: int) -> int:
        return min(max(self.min_tokens, int(cost * self.share)), self.max_tokens)


# Tuned by inspection: nine of ten parameter descriptions stay whole, and a tool costs about half.
_TOOL_ALLOWANCE = _TokenAllowance(80, 0.45, 220)
_PARAM_ALLOWANCE = _TokenAllowance(40, 0.7, 80)
_MUST_EXTRA_TOKENS = 30
"""Tokens beyond the limit for a sentence that a call must heed, as one that gives a format."""
_UNTYPED_ALLOWANCE = _TokenAllowance(40, 1.0, 160)


@dataclass(frozen=True)
class CondensedText:
    """Text as it is shown, and about how many tokens were left out."""

    text: str
    omitted_tokens: int = 0


def condense_description(text: str, parameter_names: Collection[str] = ()) -> CondensedText:
    """Condense a tool's description: its first sentence, then what callers must know.

    Sentences that name one of `parameter_names` are preferred.
    """
    plain = _FENCED.sub("\n", sanitize_text(text)[:_MAX_READ_CHARS])
    plain = strip_markup(_TAG_LINE.sub(lambda tag: "\n" if tag[1] else f"\n# {tag[2]}\n\n", plain))
    cost = count_tokens(collapse_whitespace(sanitize_text(text)))
    condensed = _select_sentences(
        list(_split_statements(plain)), _TOOL_ALLOWANCE.compute_limit(cost), cost, parameter_names
    )
    lost = cost - count_tokens(condensed.text)
    if condensed.text and not condensed.omitted_tokens and lost > _MIN_MARKED_TOKENS:
        return CondensedText(f"{condensed.text} …", lost)
    return condensed


def condense_note(param: SchemaParameter, text: str) -> CondensedText:
    """Condense a parameter's description, without what its type, name and default say."""
    plain = collapse_whitespace(
        strip_markup(_FENCED.sub(" ", sanitize_text(text)[:_MAX_READ_CHARS]))
    )
    plain = _ARTICLE.sub("", _remove_repetition(plain, param)).strip(" -–—:;,")
    if not plain or is_redundant(plain, param):
        return CondensedText("")
    cost = count_tokens(plain)
    return _select_sentences(
        list(split_sentences(plain)),
        (_UNTYPED_ALLOWANCE if _is_untyped(param) else _PARAM_ALLOWANCE).compute_limit(cost),
        cost,
    )


def _is_untyped(param: SchemaParameter) -> bool:
    """Return whether the schema leaves the inner structure to the description."""
    while param.type == "array" and param.items:
        param = param.items
    parts = param.variants or (param,)
    return any(
        part.type in ("object", "any", "array") and not (part.children or part.items or part.ref)
        for part in parts
    )


def _split_statements(text: str) -> Iterator[str]:
    """Yield the sentences of a description, without headings and filler lists."""
    is_filler = False
    for block in split_blocks(text):
        is_item = bool(_ITEM.match(block))
        if is_item and is_filler:
            continue
        body = _ITEM.sub("", block, count=1)
        if not is_item:
            body = block.strip(" #*_=")
            is_filler = body.endswith(":") and bool(
                _FILLER_SENTENCE.search(body[:_MAX_TRIMMED_CHARS])
            )
            if (block.startswith("#") or body.endswith(":")) and len(body.split()) < 6:
                is_filler = bool(_FILLER_SENTENCE.match(body))
                continue
        if _WORD.search(body):
            yield from split_sentences(body)


def is_redundant(text: str, param: SchemaParameter) -> bool:
    """Return whether a text only repeats the name and the type of its parameter."""
    named = _collect_words(_CAMEL.sub(" ", param.name)) | {param.type}
    known = named | {word.removesuffix("s") for word in named} | {f"{word}s" for word in named}
    return all(
        word in _FILLER_WORD_FORMS or word in known
        for word in _iterate_words(_CAMEL.sub(" ", text))
    )


def _select_sentences(
    sentences: list[str], max_tokens: int, total_tokens: int, names: Collection[str] = ()
) -> CondensedText:
    """Select the first sentence, then the most useful ones that fit, in their original order."""
    if not sentences:
        return CondensedText("")
    if len(sentences) == 1 and total_tokens <= max_tokens:
        return CondensedText(sentences[0])
    costs = [count_tokens(sentence) + 1 for sentence in sentences]
    first = sentences[0]
    if sum(costs) <= max_tokens:
        rest = [sentence for sentence in sentences[1:] if not _is_filler(sentence, names)]
    else:
        first = clip_line(first, max_tokens)
        left = max_tokens - count_tokens(first)
        worth = {
            position: _score_sentence(sentences[position], names) / costs[position] ** 0.5
            for position in range(1, len(sentences))
        }
        selected: set[int] = set()
        for position in sorted(worth, key=lambda position: -worth[position]):
            sentence = sentences[position]
            is_needed = _MUST.search(sentence) or _FORMAT.search(sentence)
            extra = _MUST_EXTRA_TOKENS if is_needed else 0
            if worth[position] > 0 and costs[position] <= left + extra:
                selected.add(position)
                left -= costs[position]
        rest = [sentences[position] for position in sorted(selected)]
    text = _join_sentences([first, *rest])
    if len(rest) + 1 == len(sentences) and first is sentences[0]:
        return CondensedText(text)
    omitted = max(0, total_tokens - count_tokens(text))
    return CondensedText(text if text.endswith("…") else f"{text} …", omitted)


def _join_sentences(sentences: Iterable[str]) -> str:
    """Join sentences; those that were separate lines get the full stop that they lacked."""
    *before, last = sentences
    ended = [text if text[-1] in ".!?;:。！？…)" else f"{text}." for text in before]
    return " ".join([*ended, last])


def _score_sentence(sentence: str, names: Collection[str]) -> float:
    strong, named = _count_signals(sentence, names)
    strong += bool(_FORMAT.search(sentence))
    if _FILLER_SENTENCE.match(sentence):
        return strong + named - 1
    return 0.5 + len(_USEFUL.findall(sentence)) + 3 * strong + 2 * named


def _is_filler(sentence: str, names: Collection[str]) -> bool:
    """Return whether a sentence carries no information for a caller."""
    return bool(_FILLER_SENTENCE.match(sentence)) and sum(_count_signals(sentence, names)) <= 1


def _count_signals(sentence: str, names: Collection[str]) -> tuple[int, int]:
    """Return how often a sentence warns, and how many parameters it names."""
    named: set[str] = set()
    if names:
        named.update(name for pair in _QUOTED.findall(sentence) for name in pair if name in names)
    return len(_STRONG.findall(sentence)), len(named)


def _remove_repetition(text: str, param: SchemaParameter) -> str:
    """Remove "(optional)", "default: 5" and value lists that the type states already."""
    text = _OPTIONAL.sub("", text).strip()
    known = {"optional", "required"}
    signs = {"optional", "required"}
    if param.default is not ABSENT:
        known |= _DEFAULT_WORDS | _collect_words(to_literal(param.default))
        signs |= {"default", "defaults"}
    if param.constraints:
        limits = _collect_words(" ".join(param.constraints))
        known |= _LIMIT_WORDS | limits
        signs |= {word for word in limits if word.isdigit()}
    values = frozenset(_collect_words(" ".join(map(to_literal, param.enum))))
    if values:
        known |= _VALUE_WORDS | values

    def is_repetition(piece: str) -> bool:
        words = set[str]()
        # Stops early: nearly every piece has a new word at its beginning.
        for word in _iterate_words(piece):
            if word not in known:
                return False
            words.add(word)
        return bool(words) and (not words.isdisjoint(signs) or (bool(values) and values <= words))

    text = _ASIDE.sub(lambda aside: "" if is_repetition(aside[0]) else aside[0], text)
    return " ".join(
        _drop_repeated_tail(sentence, is_repetition)
        for sentence in split_sentences(text)
        if not is_repetition(sentence)
    )


def _drop_repeated_tail(sentence: str, is_repetition: Callable[[str], bool]) -> str:
    """Remove the last clause of a sentence if it is a repetition."""
    if len(sentence) > _MAX_TRIMMED_CHARS:
        return sentence
    for joint in _TAIL.finditer(sentence):
        if is_repetition(sentence[joint.end() :]):
            return sentence[: joint.start()] + ("." if sentence.endswith(".") else "")
    return sentence


def _collect_words(text: str) -> set[str]:
    return set(_iterate_words(text))


def _iterate_words(text: str) -> Iterator[str]:
    return (word[0].casefold() for word in _WORD.finditer(text))
