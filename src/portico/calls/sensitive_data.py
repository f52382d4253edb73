"""Finds personal data and secrets in text by their shape, and replaces them. Pure.

A text is read in windows, so that a large one never holds the interpreter for long. What is written
across two values is not found, nor what is encoded.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache, partial
from itertools import accumulate, cycle
from typing import Any, cast

from portico.calls.presidio_recognizers import PREFIX, find_spans, is_presidio_kind
from portico.config.rules import MaskKind
from portico.upstream.backend import Raw

WINDOW_CHARS = 16_384
OVERLAP_CHARS = 4_096
"""Longest text that is found over the end of a window."""
MAX_DEPTH = 100
"""Levels of nesting that are masked; what is deeper is replaced whole."""
_MIN_BINARY_CHARS = 256
_BINARY_PIECE = 65_536
_BINARY = re.compile(r"[A-Za-z0-9+/_-]*={0,2}")
_BINARY_KEYS = ("data", "blob")
_OPAQUE_KEYS = frozenset({"requestState", "progressToken", "elicitationId"})
"""What a server or a client sends back as it is."""

Span = tuple[int, int]
FindSpans = Callable[[str, int, int], Iterator[Span]]
"""Finds spans in a part of a text."""

_EMAIL = re.compile(
    r"(?<![\w.%+'-])[\w.%+'-]{1,64}(?:@|%40)(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24}(?![\w-])"
)
_DIGITS = re.compile(r"(?<![0-9])(?<![0-9]\.)[0-9](?:[ \u00a0-]?[0-9]){11,}")
_IBAN = re.compile(r"(?<![A-Za-z0-9])(?=([A-Za-z]{2}[0-9]{2}(?:[ \u00a0-]?[A-Za-z0-9]){11,30}))")
_PHONE = re.compile(
    r"(?<![\w+.])(?:(?:\+|00)[1-9](?:[ \u00a0./()-]{0,2}[0-9]){6,14}"
    r"|\(?[2-9][0-9]{2}\)?[ .-][0-9]{3}[ .-][0-9]{4})(?![0-9])"
)
_SECRET = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"(?:sk|pk|rk|xai|gsk|pplx|tvly|ntn|shpat|glpat|hf|npm|pypi|dop_v1|lin_api|figd|sntrys)"
    r"[-_](?=[\w-]{0,40}[0-9])[\w-]{16,300}"
    r"|gh[pousr]_[A-Za-z0-9]{20,300}|github_pat_\w{20,300}|xox[a-z]-[A-Za-z0-9-]{10,300}"
    r"|A[KS]IA[0-9A-Z]{16}(?![0-9A-Z])|AIza[\w-]{35}"
    r"|-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----(?:(?!-----END)[\sA-Za-z0-9+/=:,-]){0,3900}"
    r"(?:-----END [A-Z ]{0,30}PRIVATE KEY-----)?"
    r"|(?<=://)[^/?#\s\"'@:]{0,200}+:[^/?#\s\"'@]{1,200}+(?=@)"
    r")"
)
_JWT = re.compile(
    r"(?<![A-Za-z0-9])eyJ[\w-]{10,1500}+(?:\.[\w-]{10,1500}+(?P<rest>\.[\w-]{0,900})?)?"
)
"""A token, or without `rest` the beginning of something else: so no character is read twice."""
_MIN_CARD_DIGITS = 12
_CARD_PREFIXES: tuple[tuple[range, tuple[int, ...]], ...] = (
    (range(400_000, 500_000), (13, 16, 19)),
    (range(510_000, 560_000), (16,)),
    (range(222_100, 272_100), (16,)),
    (range(340_000, 350_000), (15,)),
    (range(370_000, 380_000), (15,)),
    (range(300_000, 306_000), (14,)),
    (range(360_000, 370_000), (14,)),
    (range(380_000, 400_000), (14,)),
    (range(352_800, 359_000), (16,)),
    (range(500_000, 510_000), tuple(range(12, 20))),
    (range(560_000, 590_000), tuple(range(12, 20))),
    (range(600_000, 700_000), tuple(range(12, 20))),
)
"""First six digits and lengths of the cards in use."""
_PREFIX_DIGITS = 4
"""Of these, the digits that differ."""
_IBAN_LENGTHS = {
    country: int(length)
    for country, length in re.findall(
        r"([A-Z]{2})(\d\d)",
        "AD24AE23AL28AT20AZ28BA20BE16BG22BH22BI27BR29BY28CH21CR22CY28CZ24DE22DJ27DK18DO28EE20EG29"
        "ES24FI18FK18FO18FR27GB22GE22GI23GL18GR27GT28HR21HU28IE22IL23IQ23IS26IT27JO30KW30KZ20LB28"
        "LC32LI21LT20LU20LV21LY25MC27MD24ME22MK19MN20MR27MT31MU30NI28NL18NO15OM23PK24PL28PS29PT25"
        "QA29RO24RS22RU33SA24SC31SD18SE24SI19SK24SM27SO23ST25SV28TL23TN24TR26UA29VA22VG24XK20YE30",
    )
}


def _find_emails(text: str, start: int, end: int) -> Iterator[Span]:
    if text.find("@", start, end) < 0 and text.find("%40", start, end) < 0:
        return
    for match in _EMAIL.finditer(text, start, end):
        yield match.span()


def _find_cards(text: str, start: int, end: int) -> Iterator[Span]:
    for match in _DIGITS.finditer(text, start, end):
        yield from _find_cards_in_run(text, *match.span())


def _find_cards_in_run(text: str, start: int, end: int) -> Iterator[Span]:
    """Find cards in a run of digits in groups; one begins and ends where a group does."""
    run = _DigitRun(text, start, end)
    found: Span | None = None
    for at in range(len(run.places) - _MIN_CARD_DIGITS + 1):
        length = run.find_card_length(at) if run.begins_group(at) else 0
        if not length:
            continue
        begin = run.places[at]
        last = run.places[at + length - 1] + 1
        if found is not None and begin < found[1]:
            # Digits before a card can complete another number by chance.
            found = (found[0], max(found[1], last))
            continue
        if found is not None:
            yield found
        found = (begin, last)
    if found is not None:
        yield found


class _DigitRun:
    """Digits in groups. Sums of digits are made once, so that each check is one subtraction: a text
    of single digits has ten thousand places where a card could begin."""

    def __init__(self, text: str, start: int, end: int) -> None:
        self.places = [at for at in range(start, end) if text[at].isdigit()]
        self._digits = "".join(text[at] for at in self.places)
        values = [int(digit) for digit in self._digits]
        doubled = [2 * value - 9 if value > 4 else 2 * value for value in values]
        # Sums up to each digit, where every second one counts double: the odd ones, the even ones.
        self._sums = (
            [0, *accumulate(map(_choose, values, doubled, cycle((True, False))))],
            [0, *accumulate(map(_choose, values, doubled, cycle((False, True))))],
        )

    def begins_group(self, at: int) -> bool:
        return at == 0 or self.places[at] != self.places[at - 1] + 1

    def find_card_length(self, at: int) -> int:
        """Return how many digits the card has that begins with a digit; 0 if none does."""
        for length in _list_card_lengths().get(self._digits[at : at + _PREFIX_DIGITS], ()):
            last = at + length
            if last > len(self.places) or (last < len(self.places) and not self.begins_group(last)):
                continue
            sums = self._sums[(last - 1) % 2]
            if (sums[last] - sums[at]) % 10 == 0 and len(set(self._digits[at:last])) > 1:
                return length
        return 0


def _choose(value: int, doubled: int, is_single: bool) -> int:
    return value if is_single else doubled


@cache
def _list_card_lengths() -> dict[str, tuple[int, ...]]:
    """Return the lengths of cards by their first digits, the longest first."""
    rest = 10 ** (6 - _PREFIX_DIGITS)
    return {
        str(prefix // rest): tuple(sorted(lengths, reverse=True))
        for prefixes, lengths in _CARD_PREFIXES
        for prefix in prefixes[::rest]
    }


def _find_ibans(text: str, start: int, end: int) -> Iterator[Span]:
    after = start
    for match in _IBAN.finditer(text, start, end):
        length = _IBAN_LENGTHS.get(match[1][:2].upper())
        if match.start() < after or length is None:
            continue
        places = [at for at in range(*match.span(1)) if text[at].isalnum()][:length]
        if len(places) < length or text[places[-1] + 1 : places[-1] + 2].isalnum():
            continue
        if is_iban_valid("".join(text[at] for at in places)):
            after = places[-1] + 1
            yield match.start(), after


def is_iban_valid(iban: str) -> bool:
    """Return whether the check digits of an IBAN without spaces are right (ISO 7064, mod 97)."""
    turned = iban[4:] + iban[:4]
    return int("".join(str(int(letter, 36)) for letter in turned)) % 97 == 1


def _find_phones(text: str, start: int, end: int) -> Iterator[Span]:
    for match in _PHONE.finditer(text, start, end):
        yield match.span()


def _find_secrets(text: str, start: int, end: int) -> Iterator[Span]:
    for match in _SECRET.finditer(text, start, end):
        yield match.span()


def _find_jwts(text: str, start: int, end: int) -> Iterator[Span]:
    for match in _JWT.finditer(text, start, end):
        if match["rest"] is not None:
            yield match.span()


FINDERS: tuple[tuple[str, FindSpans], ...] = (
    ("secrets", _find_jwts),
    ("secrets", _find_secrets),
    ("email", _find_emails),
    ("iban", _find_ibans),
    ("card", _find_cards),
    ("phone", _find_phones),
)
"""In the order in which they are looked for: what one found, none after it sees."""
_REPLACEMENTS: Mapping[str, str] = {
    "secrets": "[secret]", "email": "[email]", "iban": "[iban]", "card": "[card]",
    "phone": "[phone]",
}  # fmt: skip


def mask_text(text: str, kinds: Collection[MaskKind]) -> str:
    """Return a text with what is of these kinds replaced; the same object if nothing is."""
    for find, replacement in _select_finders(kinds):
        text = _replace(text, find, replacement)
    return text


def _select_finders(kinds: Collection[MaskKind]) -> Iterator[tuple[FindSpans, str]]:
    for kind, find in FINDERS:
        if kind in kinds:
            yield find, _REPLACEMENTS[kind]
    for kind in kinds:
        if is_presidio_kind(kind):
            yield partial(find_spans, kind), f"[{kind.removeprefix(PREFIX).lower()}]"


def _replace(text: str, find: FindSpans, replacement: str) -> str:
    parts: list[str] = []
    kept_from = 0
    for begin, end in _find_in_windows(text, find):
        parts += [text[kept_from:begin], replacement]
        kept_from = end
    if not parts:
        return text
    return "".join([*parts, text[kept_from:]])


def _find_in_windows(text: str, find: FindSpans) -> Iterator[Span]:
    start = 0
    while start < len(text):
        limit = start + WINDOW_CHARS
        next_start = limit
        for begin, end in find(text, start, min(len(text), limit + OVERLAP_CHARS)):
            if begin >= limit:
                break
            yield begin, end
            next_start = max(limit, end)
        start = next_start


def mask_value(value: Any, kinds: Collection[MaskKind], depth: int = MAX_DEPTH) -> Any:
    """Return a value of JSON with its texts, keys and card numbers masked; the same object if
    nothing is."""
    if isinstance(value, str):
        return mask_text(value, kinds)
    if isinstance(value, int) and not isinstance(value, bool):
        return _mask_number(value, kinds)
    if not isinstance(value, dict | list) or not value:
        return cast("Any", value)
    if depth <= 0:
        return "[too deep to be masked]"
    if isinstance(value, list):
        items = cast("list[Any]", value)
        joined = _mask_across_blocks(items, kinds)
        masked = [mask_value(item, kinds, depth - 1) for item in joined]
        is_same = all(new is old for new, old in zip(masked, items, strict=True))
        return items if is_same else masked
    return _mask_members(cast("Raw", value), kinds, depth)


def _mask_across_blocks(blocks: list[Any], kinds: Collection[MaskKind]) -> list[Any]:
    """Mask in a list what begins in one block of text and ends in the next, as servers cut it that
    answer in chunks. It is looked for around each border."""
    items = blocks
    for at in range(1, len(items)):
        before, after = items[at - 1], items[at]
        if not (_is_text_block(before) and _is_text_block(after)):
            continue
        head, tail = before["text"], after["text"]
        for find, replacement in _select_finders(kinds):
            near = head[-OVERLAP_CHARS:]
            joined = near + tail[:OVERLAP_CHARS]
            for begin, end in find(joined, 0, len(joined)):
                if begin < len(near) < end:
                    head = head[: len(head) - len(near) + begin] + replacement
                    tail = tail[end - len(near) :]
                    break
        if head is not before["text"]:
            items = [*blocks] if items is blocks else items
            items[at - 1] = {**before, "text": head}
            items[at] = {**after, "text": tail}
    return items


def _is_text_block(item: Any) -> bool:
    return (
        isinstance(item, dict)
        and cast("Raw", item).get("type") == "text"
        and isinstance(cast("Raw", item).get("text"), str)
    )


def _mask_members(members: Raw, kinds: Collection[MaskKind], depth: int) -> Raw:
    masked: Raw = {}
    is_same = True
    for key, item in members.items():
        new_key = mask_text(key, kinds)
        new_item = item if _is_opaque(key, item) else mask_value(item, kinds, depth - 1)
        is_same = is_same and new_key is key and new_item is item
        masked[new_key] = new_item
    return members if is_same else masked


def _is_opaque(key: str, item: Any) -> bool:
    """Return whether a member is no text: a picture in base64, or a server's own state."""
    if key in _OPAQUE_KEYS:
        return True
    if key not in _BINARY_KEYS or not isinstance(item, str) or len(item) < _MIN_BINARY_CHARS:
        return False
    return all(
        _BINARY.fullmatch(item, at, at + _BINARY_PIECE) is not None
        for at in range(0, len(item), _BINARY_PIECE)
    )


def _mask_number(value: int, kinds: Collection[MaskKind]) -> Any:
    if "card" not in kinds or not 10**11 <= value < 10**19:
        return value
    text = str(value)
    return value if mask_text(text, ("card",)) is text else _REPLACEMENTS["card"]
