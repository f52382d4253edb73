"""JSON Schema references: resolves, counts and renders `$ref` pointers. Pure."""

import re
from typing import Any, Final
from urllib.parse import unquote

from portico.catalog.visible_text import sanitize_text

ABSENT: Final = object()
"""Marks a missing default, as `None` is a valid one."""

_STEP_IN_PLACE = re.compile(
    r"/properties/([^/]*)|/(items|additionalProperties)(?=/|$)|/(?:any|one|all)Of/\d+"
)


def resolve_pointer(pointer: str, root: Any) -> Any:
    """Return what `#/a/b` points to in `root`, or ABSENT."""
    if pointer != "#" and not pointer.startswith("#/"):
        return ABSENT
    node = root
    for step in pointer.split("/")[1:]:
        step = unescape_step(step)
        if isinstance(node, dict) and step in node:
            node = node[step]
        elif isinstance(node, list) and step.isascii() and step.isdigit() and int(step) < len(node):
            node = node[int(step)]
        else:
            return ABSENT
    return node


def to_parameter_path(pointer: str) -> str:
    """Render a pointer into the parameters as a path (`filter.items[].name`); "" for any other."""
    path = _STEP_IN_PLACE.sub(_render_step, pointer[1:])
    if "/" in path:
        return ""
    return " ".join(sanitize_text(path).split()).lstrip(".") or "root"


def _render_step(match: re.Match[str]) -> str:
    if match[1]:
        return f".{unescape_step(match[1])}"
    return "[]" if match[2] else ""


def unescape_step(step: str) -> str:
    """Decode one step of a pointer to its key."""
    return unquote(step).replace("~1", "/").replace("~0", "~")


def count_references(root: Any) -> dict[str, int]:
    """Count how often each pointer is used."""
    counts: dict[str, int] = {}
    stack = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            if isinstance(ref := node.get("$ref"), str):
                counts[ref] = counts.get(ref, 0) + 1
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)
    return counts
