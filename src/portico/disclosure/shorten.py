"""A server's words in few: the sentences that a caller needs most, in their order. Pure.

What the typed form says anyway (optional, the default, the values, the name again) goes first; then examples, praise
and what comes back. Units, formats, limits, where an id comes from and what must be done stay longest.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

from portico.catalog.schema import ABSENT, Param
from portico.catalog.visible import literal, shown
from portico.disclosure.prose import blocks, clipped, flat, sentences, unmarked
from portico.disclosure.tokens import count

_MOST_READ = 12_000
"""Characters of one description that are weighed: beyond them nothing is worth more than what came before."""
_SHORN_CHARS = 600
"""Longer sentences are not tried at each of their joints."""
_MARKED_FROM = 6
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
_IDLE = re.compile(
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
    r"^[\[(]?(?:optional|required)[\])]?(?:[\s:.,;–—-]+|$)|\s*[\[(](?:optional|required)[\])]", re.IGNORECASE
)
_ARTICLE = re.compile(r"^(?:the|an?)\s+", re.IGNORECASE)
_ASIDE = re.compile(r"\s*(?:\([^()]*\)|\[[^\[\]]*\])")
_TAIL = re.compile(r"[,;:.]\s|\s[-–—]+\s")
_OF_DEFAULTS = frozenset(
    ("default", "defaults", "to", "is", "value", "if", "not", "provided", "specified", "omitted", "set", "given",
     "none", "the", "by")
)  # fmt: skip
_OF_VALUES = frozenset(
    ("one", "of", "any", "the", "following", "options", "option", "possible", "allowed", "valid", "available",
     "supported", "accepted", "value", "values", "types", "type", "are", "is", "include", "includes", "must", "can",
     "should", "may", "be", "either", "or", "and")
)  # fmt: skip
_OF_LIMITS = frozenset(
    ("min", "max", "minimum", "maximum", "between", "and", "to", "range", "from", "up", "at", "most", "least", "length",
     "long", "characters", "chars", "items", "inclusive", "is", "value", "must", "be")
)  # fmt: skip
_FILLER = frozenset(
    ("the", "a", "an", "of", "to", "for", "in", "on", "is", "this", "that", "it", "its", "with", "by", "as", "value",
     "string", "number", "integer", "boolean", "object", "array", "parameter", "param", "argument", "field", "input",
     "optional", "required", "s")
)  # fmt: skip
_FILLERS = _FILLER | {one.removesuffix("s") for one in _FILLER} | {f"{one}s" for one in _FILLER}


@dataclass(frozen=True)
class _Allowance:
    """How many tokens words may cost: a share of what they did, within bounds."""

    least: int
    share: float
    most: int

    def of(self, cost: int) -> int:
        return min(max(self.least, int(cost * self.share)), self.most)


# Chosen by reading: so that nine of ten descriptions of parameters stay whole, and every tool costs about half.
_TOOL = _Allowance(80, 0.45, 220)
_PARAM = _Allowance(40, 0.7, 80)
_HEEDED = 30
"""What one more sentence may cost beyond that, if a call fails that does not heed it."""
_UNTYPED = _Allowance(40, 1.0, 160)


@dataclass(frozen=True)
class Words:
    """Words as they are shown, and about how many tokens of them are not."""

    text: str
    left_out: int = 0


def described(text: str, names: Collection[str] = ()) -> Words:
    """What a tool does: its first sentence, then what a caller must know, above all of the parameters `names`."""
    plain = _FENCED.sub("\n", shown(text)[:_MOST_READ])
    plain = unmarked(_TAG_LINE.sub(lambda tag: "\n" if tag[1] else f"\n# {tag[2]}\n\n", plain))
    cost = count(flat(shown(text)))
    words = _chosen(list(_statements(plain)), _TOOL.of(cost), cost, names)
    lost = cost - count(words.text)
    return Words(f"{words.text} …", lost) if words.text and not words.left_out and lost > _MARKED_FROM else words


def noted(param: Param, text: str) -> Words:
    """What a parameter means, without what its type, name and default say."""
    plain = flat(unmarked(_FENCED.sub(" ", shown(text)[:_MOST_READ])))
    plain = _ARTICLE.sub("", _without_repetition(plain, param)).strip(" -–—:;,")
    if not plain or says_nothing(plain, param):
        return Words("")
    cost = count(plain)
    return _chosen(list(sentences(plain)), (_UNTYPED if _is_untyped(param) else _PARAM).of(cost), cost)


def _is_untyped(param: Param) -> bool:
    """Whether only words say what is inside."""
    while param.type == "array" and param.items:
        param = param.items
    parts = param.variants or (param,)
    return any(one.type in ("object", "any", "array") and not (one.children or one.items or one.ref) for one in parts)


def _statements(text: str) -> Iterator[str]:
    """The sentences of a description; headings go, and with an idle one the list below it."""
    idle = False
    for block in blocks(text):
        is_item = bool(_ITEM.match(block))
        if is_item and idle:
            continue
        body = _ITEM.sub("", block, count=1) if is_item else block.strip(" #*_=")
        if not is_item:
            idle = body.endswith(":") and bool(_IDLE.search(body))
            if (block.startswith("#") or body.endswith(":")) and len(body.split()) < 6:
                idle = bool(_IDLE.match(body))
                continue
        if _WORD.search(body):
            yield from sentences(body)


def says_nothing(text: str, param: Param) -> bool:
    """Whether a text only repeats the name and the type of what it is about."""
    named = _words(_CAMEL.sub(" ", param.name)) | {param.type}
    known = named | {one.removesuffix("s") for one in named} | {f"{one}s" for one in named}
    return all(word in _FILLERS or word in known for word in _each_word(_CAMEL.sub(" ", text)))


def _chosen(units: list[str], limit: int, whole: int, names: Collection[str] = ()) -> Words:
    """The first unit, then the most needed ones that still fit, in their own order."""
    if not units:
        return Words("")
    if len(units) == 1 and whole <= limit:
        return Words(units[0])
    costs = [count(unit) + 1 for unit in units]
    if sum(costs) <= limit:
        needed = [unit for place, unit in enumerate(units) if not place or not _is_idle(unit, names)]
        text, cut = _joined(needed), len(needed) < len(units)
        return Words(f"{text} …" if cut and not text.endswith("…") else text, max(0, whole - count(text)) if cut else 0)
    first = clipped(units[0], limit)
    kept, left = {0: first}, limit - count(first)
    worth = {place: _worth(units[place], names) / costs[place] ** 0.5 for place in range(1, len(units))}
    for place in sorted(worth, key=lambda place: -worth[place]):
        if worth[place] > 0 and costs[place] <= left + (_HEEDED if _MUST.search(units[place]) else 0):
            kept[place], left = units[place], left - costs[place]
    text = _joined(kept[place] for place in sorted(kept))
    cut = len(kept) < len(units) or first is not units[0]
    return Words(f"{text} …" if cut and not text.endswith("…") else text, max(0, whole - count(text)) if cut else 0)


def _joined(units: Iterable[str]) -> str:
    """Sentences in a row; those that were lines of their own get the full stop that they lacked."""
    *before, last = units
    return " ".join([*(unit if unit[-1] in ".!?;:。！？…)" else f"{unit}." for unit in before), last])


def _worth(unit: str, names: Collection[str]) -> float:
    strong, named = _weight(unit, names)
    return strong + named - 1 if _IDLE.match(unit) else 0.5 + len(_USEFUL.findall(unit)) + 3 * strong + 2 * named


def _is_idle(unit: str, names: Collection[str]) -> bool:
    """Whether a unit is worth nothing."""
    return bool(_IDLE.match(unit)) and sum(_weight(unit, names)) <= 1


def _weight(unit: str, names: Collection[str]) -> tuple[int, int]:
    """How often a unit warns, and how many parameters it names."""
    named = {name for pair in _QUOTED.findall(unit) for name in pair if name in names} if names else ()
    return len(_STRONG.findall(unit)), len(named)


def _without_repetition(text: str, param: Param) -> str:
    """Text without "(optional)", "default: 5" and lists of the values, where the type says the same."""
    text = _OPTIONAL.sub("", text).strip()
    known, signs = {"optional", "required"}, {"optional", "required"}
    if param.default is not ABSENT:
        known |= _OF_DEFAULTS | _words(literal(param.default))
        signs |= {"default", "defaults"}
    if param.constraints:
        limits = _words(" ".join(param.constraints))
        known |= _OF_LIMITS | limits
        signs |= {one for one in limits if one.isdigit()}
    values = frozenset(_words(" ".join(map(literal, param.enum))))
    if values:
        known |= _OF_VALUES | values

    def repeats(piece: str) -> bool:
        said = set[str]()
        # Nearly every piece says something new in its first words.
        for word in _each_word(piece):
            if word not in known:
                return False
            said.add(word)
        return bool(said) and (not said.isdisjoint(signs) or (bool(values) and values <= said))

    text = _ASIDE.sub(lambda aside: "" if repeats(aside[0]) else aside[0], text)
    return " ".join(_shorn(one, repeats) for one in sentences(text) if not repeats(one))


def _shorn(sentence: str, repeats: Callable[[str], bool]) -> str:
    """A sentence without its last clause, where that repeats."""
    if len(sentence) > _SHORN_CHARS:
        return sentence
    for joint in _TAIL.finditer(sentence):
        if repeats(sentence[joint.end() :]):
            return sentence[: joint.start()] + ("." if sentence.endswith(".") else "")
    return sentence


def _words(text: str) -> set[str]:
    return set(_each_word(text))


def _each_word(text: str) -> Iterator[str]:
    return (word[0].casefold() for word in _WORD.finditer(text))
