"""Names of tools and arguments, and shortened texts. Pure."""

import hashlib
import html
import re

MAX_NAME_CHARS = 64
_INLINE = re.compile(
    r"</?(?:b|i|em|strong|code|span|a|u|sup|sub)(?:\s[^<>]{0,200})?/?>", re.IGNORECASE
)
_BLOCK = re.compile(
    r"</?(?:p|br|ul|ol|li|pre|div|h[1-6]|table|thead|tbody|tr|td|th|hr)(?:\s[^<>]{0,200})?/?>",
    re.IGNORECASE,
)
_LINK = re.compile(r"\[([^\[\]]{1,200})\]\([^()\s]{1,500}\)")
_BLANKS = re.compile(r"[^\S\n]+")
_BLANK_LINES = re.compile(r" ?\n(?: ?\n)+ ?")
_READ_FACTOR = 20
"""Multiple of the kept length that is read of a text; the rest is ignored."""
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")
_NOT_IN_ARGUMENTS = re.compile(r"[^A-Za-z0-9_.-]+")


class NameAllocator:
    def __init__(self, max_chars: int = MAX_NAME_CHARS) -> None:
        self._used: set[str] = set()
        self._last_numbers: dict[str, int] = {}
        self._max_chars = max_chars

    def allocate(self, wanted: str) -> str:
        name = stem = shorten_name(wanted, self._max_chars)
        # Continue from the last number: thousands of equal names would take hours otherwise.
        number = self._last_numbers.get(stem, 1)
        while name in self._used:
            number += 1
            name = f"{shorten_name(wanted, self._max_chars - len(str(number)) - 1)}_{number}"
        self._last_numbers[stem] = number
        self._used.add(name)
        return name

    def __contains__(self, name: str) -> bool:
        return name in self._used


def make_tool_name(operation_id: str, method: str, path: str) -> str:
    """Return the preferred tool name: the operation id, else method and path."""
    if _NOT_IN_NAMES.sub("", operation_id):
        name = operation_id
    else:
        name = f"{method.lower()}_{path.lstrip('/')}"
    return _NOT_IN_NAMES.sub("_", name).strip("_-") or method.lower()


def make_argument_name(name: str) -> str:
    """Return a name in characters that every client accepts: `filter[name]` → `filter_name`."""
    return _NOT_IN_ARGUMENTS.sub("_", name).strip("_") or "value"


def shorten_name(name: str, max_chars: int) -> str:
    """Shorten a name; a few digits of its hash keep shortened names distinct."""
    if len(name) <= max_chars:
        return name
    digest = hashlib.blake2b(name.encode(), digest_size=3).hexdigest()
    return f"{name[: max_chars - len(digest) - 1].rstrip('_-')}_{digest}"


def clip_text(text: str, max_chars: int) -> str:
    """Remove HTML and link targets and clip the text, at the end of a sentence if possible."""
    text = text[: _READ_FACTOR * max_chars]
    if "<" in text or "&" in text:
        text = html.unescape(_BLOCK.sub(" ", _INLINE.sub("", text)))
    if "](" in text:
        text = _LINK.sub(r"\1", text)
    text = _BLANK_LINES.sub("\n\n", _BLANKS.sub(" ", text.replace("\r", ""))).strip()
    if len(text) <= max_chars:
        return text
    cut = text[:max_chars]
    ends = [match.end() for match in re.finditer(r"[.!?](?=\s)|\n\n", cut)]
    if ends and ends[-1] > max_chars // 2:
        return cut[: ends[-1]].rstrip()
    return (cut.rpartition(" ")[0] or cut).rstrip(" ,;:") + " …"
