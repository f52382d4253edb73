"""Splits an intent into clauses, one action each, in the order of execution. Pure.

"find the open issues, then post them to slack and email the team" is three. A comma or an `and`
ends a clause only before a verb, or after `and` before a question: "title and body" is one thing,
"the tables and which columns they have" two. Quoted text is never split.
"""

import re
from collections.abc import Iterator

from portico.search.usage_patterns import extract_query_terms
from portico.workflows.planning.vocabulary import ADVERBS, ASKS, VERBS

_THEN = re.compile(
    r"[.;!?]+\s+|\n+|\s*(?:->|=>|→|⇒)\s*|\s+>\s+|[。；！？]"
    r"|(?:,\s*)?\b(?:and\s+)?(?:then|after\s+that|afterwards|next|finally|und\s+dann|dann|danach|puis|ensuite|luego"
    r"|después|poi)\b,?\s+|然后|接着",
    re.IGNORECASE,
)
_PERHAPS = re.compile(r",\s*(?:and\s+|&\s+)?|\s+(?:and|&|und|et|y|e)\s+|，", re.IGNORECASE)
_NUMBERED = re.compile(r"(?:^|(?<=\s))(?:\(?\d{1,2}[.)]|[-*•])\s+")
_QUOTED = re.compile(r"\"[^\"\n]*\"|“[^”\n]*”|`[^`\n]*`|(?<!\w)'[^'\n]*'(?!\w)|https?://\S+")
_FIRST = re.compile(
    r"^(?:after|once|when|as soon as|having)\s+(?P<first>[^,]+),\s*(?P<second>.+)$", re.I | re.S
)
_BEFORE = re.compile(r"^before\s+(?P<second>[^,]+),\s*(?P<first>.+)$", re.I | re.S)
_AFTER = re.compile(r"^(?P<second>.+?\S)\s+(?:after|once)\s+(?P<first>\w+ing\b.+)$", re.I | re.S)
_THEN_BEFORE = re.compile(r"^(?P<first>.+?\S)\s+before\s+(?P<second>\w+ing\b.+)$", re.I | re.S)
_HIDDEN = re.compile("\ue000(\\d+)\ue001")


def split_clauses(intent: str) -> list[str]:
    """The things to do, first to last."""
    kept: list[str] = []

    def hide(found: re.Match[str]) -> str:
        kept.append(found[0])
        return f"\ue000{len(kept) - 1}\ue001"

    text = _QUOTED.sub(hide, intent.replace("\ue000", " ").replace("\ue001", " "))
    text = _NUMBERED.sub("\n", text)
    parts = [
        part
        for sentence in _THEN.split(text)
        for ordered in _reorder_sentence(sentence)
        for part in _split_sentence(ordered)
    ]
    shown = (
        _HIDDEN.sub(lambda found: kept[int(found[1])], part).strip(" ,.;:!?\n\t") for part in parts
    )
    return [part for part in shown if extract_query_terms(part)]


def _reorder_sentence(sentence: str) -> list[str]:
    """A sentence that tells the second thing first is turned round."""
    for form in (_FIRST, _BEFORE, _AFTER, _THEN_BEFORE):
        if found := form.match(sentence.strip()):
            return [found["first"], found["second"]]
    return [sentence]


def _split_sentence(sentence: str) -> Iterator[str]:
    start = 0
    for found in _PERHAPS.finditer(sentence):
        rest = sentence[found.end() :]
        if found.start() > start and (
            _begins_with_a_verb(rest) or (found[0].strip(", ") and _is_question(rest))
        ):
            yield sentence[start : found.start()]
            start = found.end()
    yield sentence[start:]


def _is_question(text: str) -> bool:
    first, _, rest = text.casefold().partition(" ")
    return first in ASKS and bool(extract_query_terms(rest))


def _begins_with_a_verb(text: str) -> bool:
    words = text.casefold().split(maxsplit=4)[:4]
    while words and words[0].strip(",") in ADVERBS:
        words.pop(0)
    if not words:
        return False
    first = words[0].strip(",.;:")
    if first in VERBS:
        # "and order status", "and list price": a verb that stands alone before the end is a noun.
        return len(words) > 1
    return first.endswith("ing") and (first[:-3] in VERBS or f"{first[:-3]}e" in VERBS)
