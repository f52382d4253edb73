"""URI templates (RFC 6570) as far as a gateway needs them: can an address be one of a template's?
Pure and bounded.

An address is walked once for each part of a template, so that the work is at most its length times
the parts; how much that may be in all is counted before it is done.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from portico.access import MAX_URI_CHARS, has_parent_segment

MAX_TEMPLATES = 1_000
"""Templates of one server that are looked at."""
MAX_TEMPLATE_CHARS = 2_048
MAX_PARTS = 32
MAX_STEPS = 100_000
"""Characters that are looked at to answer for one address; what would take more is no match."""
_EXPRESSION = re.compile(r"\{([+#./;?&]?)([^{}]*)\}")
_ANY_CHARACTER = frozenset({"+", "#", "/"})


@dataclass(frozen=True)
class TemplateVariable:
    """An expression of a template, and the characters that end its value."""

    stop_characters: str


@dataclass(frozen=True)
class UriTemplate:
    """A template taken apart: literal texts, and variables between them."""

    parts: tuple[str | TemplateVariable, ...]

    @classmethod
    def parse(cls, text: str) -> "UriTemplate | None":
        """Take a template apart; None for one that is too long to be matched."""
        if len(text) > MAX_TEMPLATE_CHARS or text.count("{") > MAX_PARTS:
            return None
        parts: list[str | TemplateVariable] = []
        reached = 0
        for found in _EXPRESSION.finditer(text):
            parts += [text[reached : found.start()], _parse_variable(found[1], found[2])]
            reached = found.end()
        parts.append(text[reached:])
        kept = tuple(part for part in parts if part != "")
        if len(kept) <= MAX_PARTS:
            return cls(kept)
        return None

    def can_match(self, uri: str) -> bool:
        """Whether the ends of an address are those of the template: the cheap part of `matches`."""
        first = self.parts[0]
        last = self.parts[-1]
        return not (isinstance(first, str) and not uri.startswith(first)) and not (
            isinstance(last, str) and not uri.endswith(last)
        )

    def matches(self, uri: str) -> bool:
        """Whether an address can be made from the template."""
        reached = {0}
        for part in self.parts:
            if isinstance(part, str):
                reached = {start + len(part) for start in reached if uri.startswith(part, start)}
            else:
                reached = _find_end_positions(uri, reached, part.stop_characters)
            if not reached:
                return False
        return len(uri) in reached


def parse_templates(texts: Iterable[str]) -> tuple[UriTemplate, ...]:
    """Take the first templates of a server apart; those that cannot be matched are left out."""
    found: list[UriTemplate] = []
    for text, _ in zip(texts, range(MAX_TEMPLATES), strict=False):
        template = UriTemplate.parse(text)
        if template is not None and template.parts:
            found.append(template)
    return tuple(found)


def matches_any(templates: Iterable[UriTemplate], uri: str) -> bool:
    """Whether an address can be made from one of the templates; one that climbs (`..`) is made from
    none."""
    if len(uri) > MAX_URI_CHARS or has_parent_segment(uri):
        return False
    steps = 0
    for template in templates:
        if not template.can_match(uri):
            continue
        steps += len(uri) * len(template.parts)
        if steps > MAX_STEPS:
            return False
        if template.matches(uri):
            return True
    return False


def _parse_variable(operator: str, names: str) -> TemplateVariable:
    if operator in _ANY_CHARACTER or names.endswith("*"):
        return TemplateVariable("")
    if operator in ("?", "&"):
        return TemplateVariable("#")
    return TemplateVariable("/")


def _find_end_positions(uri: str, starts: set[int], stop_characters: str) -> set[int]:
    """The places that a value which begins at one of these can end at; it may be empty."""
    reached: set[int] = set()
    inside = False
    for place in range(min(starts), len(uri) + 1):
        inside = inside or place in starts
        if inside:
            reached.add(place)
        if place < len(uri) and uri[place] in stop_characters:
            inside = False
    return reached
