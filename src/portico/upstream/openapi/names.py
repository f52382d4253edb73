"""What tools and arguments are called, and their texts in reasonable length. Pure."""

import hashlib
import html
import re

LONGEST_NAME = 64
_INLINE = re.compile(r"</?(?:b|i|em|strong|code|span|a|u|sup|sub)(?:\s[^<>]{0,200})?/?>", re.IGNORECASE)
_BLOCK = re.compile(
    r"</?(?:p|br|ul|ol|li|pre|div|h[1-6]|table|thead|tbody|tr|td|th|hr)(?:\s[^<>]{0,200})?/?>", re.IGNORECASE
)
_LINK = re.compile(r"\[([^\[\]]{1,200})\]\([^()\s]{1,500}\)")
_BLANKS = re.compile(r"[^\S\n]+")
_BLANK_LINES = re.compile(r" ?\n(?: ?\n)+ ?")
_LONGEST_READ = 20
"""Times what is kept of a text: more of it is not even looked at."""
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")
_NOT_IN_ARGUMENTS = re.compile(r"[^A-Za-z0-9_.-]+")


class Names:
    """Names that are given out once each."""

    def __init__(self, longest: int = LONGEST_NAME) -> None:
        self._taken: set[str] = set()
        self._last: dict[str, int] = {}
        self._longest = longest

    def take(self, wanted: str) -> str:
        """The name, or one like it."""
        name = stem = fitted(wanted, self._longest)
        # Counted on from the last one: a description in which all are called the same would else take hours.
        number = self._last.get(stem, 1)
        while name in self._taken:
            number += 1
            name = f"{fitted(wanted, self._longest - len(str(number)) - 1)}_{number}"
        self._last[stem] = number
        self._taken.add(name)
        return name

    def __contains__(self, name: str) -> bool:
        return name in self._taken


def tool_name(operation_id: str, method: str, path: str) -> str:
    """What an operation would like to be called: its id, else method and path."""
    wanted = operation_id if _NOT_IN_NAMES.sub("", operation_id) else f"{method.lower()}_{path.lstrip('/')}"
    return _NOT_IN_NAMES.sub("_", wanted).strip("_-") or method.lower()


def argument_name(name: str) -> str:
    """A parameter's name in characters that every client takes: `filter[name]` → `filter_name`."""
    return _NOT_IN_ARGUMENTS.sub("_", name).strip("_") or "value"


def fitted(name: str, longest: int) -> str:
    """A name that is not too long; what is cut off is told apart by a few digits of its hash."""
    if len(name) <= longest:
        return name
    mark = hashlib.blake2b(name.encode(), digest_size=3).hexdigest()
    return f"{name[: longest - len(mark) - 1].rstrip('_-')}_{mark}"


def clipped(text: str, most: int) -> str:
    """A text without HTML and addresses of links, at most so long, cut at the end of a sentence where there is one."""
    text = text[: _LONGEST_READ * most]
    text = html.unescape(_BLOCK.sub(" ", _INLINE.sub("", text))) if "<" in text or "&" in text else text
    text = _LINK.sub(r"\1", text) if "](" in text else text
    text = _BLANK_LINES.sub("\n\n", _BLANKS.sub(" ", text.replace("\r", ""))).strip()
    if len(text) <= most:
        return text
    cut = text[:most]
    ends = [match.end() for match in re.finditer(r"[.!?](?=\s)|\n\n", cut)]
    if ends and ends[-1] > most // 2:
        return cut[: ends[-1]].rstrip()
    return (cut.rpartition(" ")[0] or cut).rstrip(" ,;:") + " …"
