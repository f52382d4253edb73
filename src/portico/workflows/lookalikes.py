"""Texts that look like references as other tools write them: `{{step.path}}`, `$step.path`. Pure.

They are sent as the texts they are, for a text may be a template or a script; but only with a
warning.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, cast

from portico.workflows.references import TextTemplate

MAX_SEARCHED_CHARS = 100_000
"""Characters of one text that are looked through."""
_NAME = r"(?:steps\.)?(?P<{0}>[A-Za-z_][A-Za-z0-9_-]{{0,63}})(?P<{0}_way>(?:\.[\w-]{{1,64}}|\[[\w*]{{0,9}}\])*)"
_FORMS = re.compile(
    r"\{\{[ \t]{0,9}\$?" + _NAME.format("braced") + r"[ \t]{0,9}\}\}"
    r"|(?<![\w$])\$(?:\.)?" + _NAME.format("marked"),
    re.ASCII,
)


def find_lookalikes(tree: Any, names: Collection[str]) -> Iterator[tuple[str, str]]:
    """What in a prepared value looks like a reference to one of these names: as it is written, as
    it should be."""
    if isinstance(tree, str | TextTemplate):
        for text in (
            (tree,)
            if isinstance(tree, str)
            else (part for part in tree.parts if isinstance(part, str))
        ):
            yield from _find_in_text(text, names)
    elif isinstance(tree, dict | list):
        given = cast("Mapping[str, Any] | list[Any]", tree)
        for item in given.values() if isinstance(given, Mapping) else given:
            yield from find_lookalikes(item, names)


def _find_in_text(text: str, names: Collection[str]) -> Iterator[tuple[str, str]]:
    for found in _FORMS.finditer(text[:MAX_SEARCHED_CHARS]) if "$" in text or "{{" in text else ():
        if found["braced"]:
            kind = "braced"
        else:
            kind = "marked"
        name = found[kind]
        way = found[f"{kind}_way"]
        # "$price" inside a sentence is money, or a shell's.
        if name in names and (kind == "braced" or way or found[0] == text.strip()):
            yield found[0], f"${{{name}{way}}}"
