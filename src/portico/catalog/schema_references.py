"""`$ref`: what a pointer points to, how often it is used, and how to say it to a reader. Pure."""

import re
from typing import Any, Final
from urllib.parse import unquote

from portico.catalog.visible_text import sanitize_text

ABSENT: Final = object()
"""No default was given; `None` is a default like any other."""

_STEP_IN_PLACE = re.compile(
    r"/properties/([^/]*)|/(items|additionalProperties)(?=/|$)|/(?:any|one|all)Of/\d+"
)


def resolve_pointer(pointer: str, root: Any) -> Any:
    """What `#/a/b` points to in `root`, or ABSENT."""
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
    """A pointer into the parameters themselves as a path people read (`filter.items[].name`); ""
    for any other."""
    path = _STEP_IN_PLACE.sub(
        lambda m: f".{unescape_step(m[1])}" if m[1] else "[]" if m[2] else "", pointer[1:]
    )
    if "/" in path:
        return ""
    return " ".join(sanitize_text(path).split()).lstrip(".") or "root"


def unescape_step(step: str) -> str:
    """One step of a pointer as the key it stands for."""
    return unquote(step).replace("~1", "/").replace("~0", "~")


def count_references(root: Any) -> dict[str, int]:
    """How often each pointer is used."""
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
