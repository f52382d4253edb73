"""Finds text that looks like a reference of other tools: `{{step.path}}`, `$step.path`. Pure.

Such text is sent unchanged, because it may be a template or a script, but with a warning.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, cast

from portico.workflows.references import TextTemplate

MAX_SEARCHED_CHARS = 100_000
"""Characters of one text that are searched."""
_NAME = (
    r"(?:steps\.)?(?P<{0}>[A-Za-z_][A-Za-z0-9_-]{{0,63}})"
    r"(?P<{0}_way>(?:\.[\w-]{{1,64}}|\[[\w*]{{0,9}}\])*)"
)
_FORMS = re.compile(
    r"\{\{[ \t]{0,9}\$?" + _NAME.format("braced") + r"[ \t]{0,9}\}\}"
    r"|(?<![\w$])\$(?:\.)?" + _NAME.format("marked"),
    re.ASCII,
)


def find_lookalikes(tree: Any, names: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield text that looks like a reference: as written, and as it should be."""
    if isinstance(tree, str):
        yield from _find_in_text(tree, names)
    elif isinstance(tree, TextTemplate):
        for part in tree.parts:
            if isinstance(part, str):
                yield from _find_in_text(part, names)
    elif isinstance(tree, dict | list):
        children = cast("Mapping[str, Any] | list[Any]", tree)
        for item in children.values() if isinstance(children, Mapping) else children:
            yield from find_lookalikes(item, names)


def _find_in_text(text: str, names: Collection[str]) -> Iterator[tuple[str, str]]:
    for found in _FORMS.finditer(text[:MAX_SEARCHED_CHARS]) if "$" in text or "{{" in text else ():
        kind = "braced" if found["braced"] else "marked"
        name = found[kind]
        path = found[f"{kind}_way"]
        # "$price" inside a sentence is money, or a shell variable.
        if name in names and (kind == "braced" or path or found[0] == text.strip()):
            yield found[0], f"${{{name}{path}}}"
