"""URI templates (RFC 6570): decides whether a URI can match a template. Pure and bounded.

A URI is scanned once for each part of a template, so the work is at most its length times the
parts; the total is checked before it is spent.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from portico.visibility import MAX_URI_CHARS, has_parent_segment

MAX_TEMPLATES = 1_000
"""Templates per server that are considered."""
MAX_TEMPLATE_CHARS = 2_048
MAX_PARTS = 32
MAX_STEPS = 100_000
"""Characters scanned to match one URI; beyond this it does not match."""
_EXPRESSION = re.compile(r"\{([+#./;?&]?)([^{}]*)\}")
_ANY_CHARACTER = frozenset({"+", "#", "/"})


@dataclass(frozen=True)
class TemplateVariable:
    """An expression of a template, with the characters that end its value."""

    stop_characters: str


@dataclass(frozen=True)
class UriTemplate:
    """A parsed template: literal texts and the variables between them."""

    parts: tuple[str | TemplateVariable, ...]

    @classmethod
    def parse(cls, text: str) -> "UriTemplate | None":
        """Parse a template; None for one too long to be matched."""
        if len(text) > MAX_TEMPLATE_CHARS or text.count("{") > MAX_PARTS:
            return None
        parts: list[str | TemplateVariable] = []
        reached = 0
        for found in _EXPRESSION.finditer(text):
            parts += [text[reached : found.start()], _parse_variable(found[1], found[2])]
            reached = found.end()
        parts.append(text[reached:])
        non_empty = tuple(part for part in parts if part != "")
        return cls(non_empty) if len(non_empty) <= MAX_PARTS else None

    def can_match(self, uri: str) -> bool:
        """Return whether prefix and suffix fit: the cheap part of `matches`."""
        first = self.parts[0]
        last = self.parts[-1]
        if isinstance(first, str) and not uri.startswith(first):
            return False
        return not isinstance(last, str) or uri.endswith(last)

    def matches(self, uri: str) -> bool:
        positions = {0}
        for part in self.parts:
            if isinstance(part, str):
                positions = {
                    start + len(part) for start in positions if uri.startswith(part, start)
                }
            else:
                positions = _find_end_positions(uri, positions, part.stop_characters)
            if not positions:
                return False
        return len(uri) in positions


def parse_templates(texts: Iterable[str]) -> tuple[UriTemplate, ...]:
    """Parse the first templates of a server; those that cannot be matched are left out."""
    parsed = map(UriTemplate.parse, islice(texts, MAX_TEMPLATES))
    return tuple(template for template in parsed if template is not None and template.parts)


def matches_any(templates: Iterable[UriTemplate], uri: str) -> bool:
    """Return whether a URI matches one of the templates; one with a `..` segment never does."""
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
    """Return the positions where a value starting at one of `starts` can end; it may be empty."""
    ends: set[int] = set()
    inside = False
    for position in range(min(starts), len(uri) + 1):
        inside = inside or position in starts
        if inside:
            ends.add(position)
        if position < len(uri) and uri[position] in stop_characters:
            inside = False
    return ends
