"""A server's words in few: the sentences that a caller needs most, in their order. Pure.

What the typed form says anyway (optional, the default, the values, the name again) goes first; then
examples, praise and what comes back. Units, formats, limits, where an id comes from and what must
be done stay longest.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

from portico.catalog.schema_outline import ABSENT, SchemaParameter
from portico.catalog.visible_text import sanitize_text, to_literal
from portico.rendering.prose import (
    clip_line,
    collapse_whitespace,
    split_blocks,
    split_sentences,
    strip_markup,
)
from portico.rendering.token_count import count_tokens

_MAX_READ_CHARS = 12_000
"""Characters of one description that are weighed: beyond them nothing is worth more than what came
before."""
_MAX_TRIMMED_CHARS = 600
"""Longer sentences are not tried at each of their joints."""
_MIN_MARKED_TOKENS = 6
"""Headings and list marks that went need no sign; lists and examples do."""

_FENCED = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_STRONG = re.compile(
    r"\b(?:(?i:must|mandatory|required?|requires|cannot|can't|never|do not|don't|unless|only|either|before|first|"
    r"at least|at most|max|maximum|one of|important|warning)|NOT)\b|必须|必填|不要|不能|禁止|只能|仅"
)
"""What is said with these words makes a call fail, or do harm, when it is not heeded."""
_MUST = re.compile(
    r"\b(?:must|MUST|Must|required|REQUIRED|IMPORTANT|CRITICAL|WARNING|never|NEVER|cannot)\b|必须|不要|禁止"
)
_USEFUL = re.compile(
    r"\b(?:always|not|no|without|instead|both|exclusive|ignored|after|irreversible|permanent\w*|delet\w+|overwrit\w+|"
    r"formats?|formatted|ISO|RFC|UTC|GMT|YYYY\S*|[Uu]nix|epoch|timestamps?|timezone|milliseconds|ms|seconds|minutes|"
    r"hours|days|bytes|KB|MB|pixels|percent|minimum|min|up to|limit|limited|between|range|comma|separated|base64|JSON|"
    r"regex|glob|case|prefix|suffix|encoded|absolute|relative|[Oo]mit|omitted|empty|null|[Ii]f|[Ww]hen|[01]-based|index|"
    r"indexed|from|returned|obtain\w*|ids?|IDs?|[a-z]+_[a-z_]+|[a-z]+[A-Z]\w+)\b|[<>≤≥]=?\s?\d|\d+\s?-\s?\d+|格式|单位"
)
"""Units, formats, limits, conditions, and where a value comes from."""
_FILLER_SENTENCE = re.compile(
    r"[-*•#>|\d.) ]*(?:returns?\b|response|output|examples?\b|e\.g|for example|use cases?|raises?\b|see also|useful|"
    r"ideal|perfect|this (?:tool|is|function|endpoint|api|will)|use (?:this|when|it)\b|when to use|\W*\w+\(|common|"
    r"key trigger|tips?\b|learn more|see https?|https?:|\"|“|typical|works (?:well|great)|workflow|best for|provides|"
    r"error responses|the (?:tool|response) (?:returns|includes|contains)|(?:a )?dict(?:ionary)? (?:with|containing))",
    re.IGNORECASE,
)
"""How sentences begin that praise, give examples, or say what comes back."""
_TAG_LINE = re.compile(r"^[ \t]*<(/?)([A-Za-z][\w -]{0,40})>[ \t]*$", re.MULTILINE)
_QUOTED = re.compile(r"[`\"']([\w.-]+)(?:=[^`\"']*)?[`\"']|\b(\w+)=")
_ITEM = re.compile(r"(?:[-*•+]|\d+[.)])\s+")
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
    ("default", "defaults", "to", "is", "value", "if", "not", "provided", "specified", "omitted", "set", "given",
     "none", "the", "by")
)  # fmt: skip
_VALUE_WORDS = frozenset(
    ("one", "of", "any", "the", "following", "options", "option", "possible", "allowed", "valid", "available",
     "supported", "accepted", "value", "values", "types", "type", "are", "is", "include", "includes", "must", "can",
     "should", "may", "be", "either", "or", "and")
)  # fmt: skip
_LIMIT_WORDS = frozenset(
    ("min", "max", "minimum", "maximum", "between", "and", "to", "range", "from", "up", "at", "most", "least", "length",
     "long", "characters", "chars", "items", "inclusive", "is", "value", "must", "be")
)  # fmt: skip
_FILLER_WORDS = frozenset(
    ("the", "a", "an", "of", "to", "for", "in", "on", "is", "this", "that", "it", "its", "with", "by", "as", "value",
     "string", "number", "integer", "boolean", "object", "array", "parameter", "param", "argument", "field", "input",
     "optional", "required", "s")
)  # fmt: skip
_FILLER_WORD_FORMS = (
    _FILLER_WORDS
    | {one.removesuffix("s") for one in _FILLER_WORDS}
    | {f"{one}s" for one in _FILLER_WORDS}
)


@dataclass(frozen=True)
class _TokenAllowance:
    """How many tokens words may cost: a share of what they did, within bounds."""

    min_tokens: int
    share: float
    max_tokens: int

    def compute_limit(self, cost: int) -> int:
        return min(max(self.min_tokens, int(cost * self.share)), self.max_tokens)


# Chosen by reading: so that nine of ten descriptions of parameters stay whole, and every tool costs
# about half.
_TOOL_ALLOWANCE = _TokenAllowance(80, 0.45, 220)
_PARAM_ALLOWANCE = _TokenAllowance(40, 0.7, 80)
_MUST_EXTRA_TOKENS = 30
"""What one more sentence may cost beyond that, if a call fails that does not heed it."""
_UNTYPED_ALLOWANCE = _TokenAllowance(40, 1.0, 160)


@dataclass(frozen=True)
class CondensedText:
    """Words as they are shown, and about how many tokens of them are not."""

    text: str
    omitted_tokens: int = 0


def condense_description(text: str, parameter_names: Collection[str] = ()) -> CondensedText:
    """What a tool does: its first sentence, then what a caller must know, above all of the
    parameters `names`."""
    plain = _FENCED.sub("\n", sanitize_text(text)[:_MAX_READ_CHARS])
    plain = strip_markup(_TAG_LINE.sub(lambda tag: "\n" if tag[1] else f"\n# {tag[2]}\n\n", plain))
    cost = count_tokens(collapse_whitespace(sanitize_text(text)))
    words = _select_sentences(
        list(_split_statements(plain)), _TOOL_ALLOWANCE.compute_limit(cost), cost, parameter_names
    )
    lost = cost - count_tokens(words.text)
    if words.text and not words.omitted_tokens and lost > _MIN_MARKED_TOKENS:
        return CondensedText(f"{words.text} …", lost)
    return words


def condense_note(param: SchemaParameter, text: str) -> CondensedText:
    """What a parameter means, without what its type, name and default say."""
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
    """Whether only words say what is inside."""
    while param.type == "array" and param.items:
        param = param.items
    parts = param.variants or (param,)
    return any(
        one.type in ("object", "any", "array") and not (one.children or one.items or one.ref)
        for one in parts
    )


def _split_statements(text: str) -> Iterator[str]:
    """The sentences of a description; headings go, and with an idle one the list below it."""
    idle = False
    for block in split_blocks(text):
        is_item = bool(_ITEM.match(block))
        if is_item and idle:
            continue
        if is_item:
            body = _ITEM.sub("", block, count=1)
        else:
            body = block.strip(" #*_=")
        if not is_item:
            idle = body.endswith(":") and bool(_FILLER_SENTENCE.search(body))
            if (block.startswith("#") or body.endswith(":")) and len(body.split()) < 6:
                idle = bool(_FILLER_SENTENCE.match(body))
                continue
        if _WORD.search(body):
            yield from split_sentences(body)


def is_redundant(text: str, param: SchemaParameter) -> bool:
    """Whether a text only repeats the name and the type of what it is about."""
    named = _collect_words(_CAMEL.sub(" ", param.name)) | {param.type}
    known = named | {one.removesuffix("s") for one in named} | {f"{one}s" for one in named}
    return all(
        word in _FILLER_WORD_FORMS or word in known
        for word in _iterate_words(_CAMEL.sub(" ", text))
    )


def _select_sentences(
    sentences: list[str], max_tokens: int, total_tokens: int, names: Collection[str] = ()
) -> CondensedText:
    """The first unit, then the most needed ones that still fit, in their own order."""
    if not sentences:
        return CondensedText("")
    if len(sentences) == 1 and total_tokens <= max_tokens:
        return CondensedText(sentences[0])
    costs = [count_tokens(unit) + 1 for unit in sentences]
    if sum(costs) <= max_tokens:
        needed = [
            unit for place, unit in enumerate(sentences) if not place or not _is_filler(unit, names)
        ]
        text = _join_sentences(needed)
        cut = len(needed) < len(sentences)
        return CondensedText(
            f"{text} …" if cut and not text.endswith("…") else text,
            max(0, total_tokens - count_tokens(text)) if cut else 0,
        )
    first = clip_line(sentences[0], max_tokens)
    kept = {0: first}
    left = max_tokens - count_tokens(first)
    worth = {
        place: _score_sentence(sentences[place], names) / costs[place] ** 0.5
        for place in range(1, len(sentences))
    }
    for place in sorted(worth, key=lambda place: -worth[place]):
        if worth[place] > 0 and costs[place] <= left + (
            _MUST_EXTRA_TOKENS if _MUST.search(sentences[place]) else 0
        ):
            kept[place], left = sentences[place], left - costs[place]
    text = _join_sentences(kept[place] for place in sorted(kept))
    cut = len(kept) < len(sentences) or first is not sentences[0]
    return CondensedText(
        f"{text} …" if cut and not text.endswith("…") else text,
        max(0, total_tokens - count_tokens(text)) if cut else 0,
    )


def _join_sentences(sentences: Iterable[str]) -> str:
    """Sentences in a row; those that were lines of their own get the full stop that they lacked."""
    *before, last = sentences
    return " ".join(
        [*(unit if unit[-1] in ".!?;:。！？…)" else f"{unit}." for unit in before), last]
    )


def _score_sentence(sentence: str, names: Collection[str]) -> float:
    strong, named = _count_signals(sentence, names)
    if _FILLER_SENTENCE.match(sentence):
        return strong + named - 1
    return 0.5 + len(_USEFUL.findall(sentence)) + 3 * strong + 2 * named


def _is_filler(sentence: str, names: Collection[str]) -> bool:
    """Whether a unit is worth nothing."""
    return bool(_FILLER_SENTENCE.match(sentence)) and sum(_count_signals(sentence, names)) <= 1


def _count_signals(sentence: str, names: Collection[str]) -> tuple[int, int]:
    """How often a unit warns, and how many parameters it names."""
    if names:
        named = {name for pair in _QUOTED.findall(sentence) for name in pair if name in names}
    else:
        named = ()
    return len(_STRONG.findall(sentence)), len(named)


def _remove_repetition(text: str, param: SchemaParameter) -> str:
    """Text without "(optional)", "default: 5" and lists of the values, where the type says the
    same."""
    text = _OPTIONAL.sub("", text).strip()
    known = {"optional", "required"}
    signs = {"optional", "required"}
    if param.default is not ABSENT:
        known |= _DEFAULT_WORDS | _collect_words(to_literal(param.default))
        signs |= {"default", "defaults"}
    if param.constraints:
        limits = _collect_words(" ".join(param.constraints))
        known |= _LIMIT_WORDS | limits
        signs |= {one for one in limits if one.isdigit()}
    values = frozenset(_collect_words(" ".join(map(to_literal, param.enum))))
    if values:
        known |= _VALUE_WORDS | values

    def is_repetition(piece: str) -> bool:
        said = set[str]()
        # Nearly every piece says something new in its first words.
        for word in _iterate_words(piece):
            if word not in known:
                return False
            said.add(word)
        return bool(said) and (not said.isdisjoint(signs) or (bool(values) and values <= said))

    text = _ASIDE.sub(lambda aside: "" if is_repetition(aside[0]) else aside[0], text)
    return " ".join(
        _drop_repeated_tail(one, is_repetition)
        for one in split_sentences(text)
        if not is_repetition(one)
    )


def _drop_repeated_tail(sentence: str, is_repetition: Callable[[str], bool]) -> str:
    """A sentence without its last clause, where that repeats."""
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
