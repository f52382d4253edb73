"""The configuration reference, written from the models: `python -m portico.config_file.reference` fills it in anew.

What stands above the mark in docs/configuration.md is written by hand; below it every key has its entry.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from portico.config_file.keys import Key, keys

MARK = "<!-- Written by `python -m portico.config_file.reference docs/configuration.md` from here on. -->"


def reference() -> str:
    """Every key, section by section, as Markdown."""
    sections: dict[str, list[Key]] = {"": []}
    for key in keys():
        sections.setdefault(".".join(key.path[:-1]), []).append(key)
    parts = [_listed(f"`{section}`" if section else "Top level", rows) for section, rows in sections.items()]
    return "\n\n".join(parts) + "\n"


def filled_in(text: str) -> str:
    """A page with everything below its mark written anew."""
    head, mark, _ = text.partition(MARK)
    if not mark:
        raise ValueError(f"the page has no line {MARK}")
    return f"{head}{MARK}\n\n{reference()}"


def _listed(title: str, rows: list[Key]) -> str:
    return "\n".join([f"## {title}", "", *(line for key in rows for line in _entry(key))]).rstrip()


def _entry(key: Key) -> Iterator[str]:
    facts = [_type(key.type), f"default {_default(key)}"]
    if key.environment:
        facts.append(f"`{key.environment}`")
    yield f"- **`{key.dotted}`** ({', '.join(facts)}):"
    yield f"  {key.help}"


def _type(text: str) -> str:
    plain = text.replace(" | None", "").replace("SecretStr", "str").replace("ByteSize", "size").replace("Path", "path")
    if choices := re.fullmatch(r"Literal\[(.*)\]", plain):
        return f"one of {choices[1].replace(chr(39), '`')}"
    if listed := re.fullmatch(r"tuple\[(\w+), \.\.\.\]", plain):
        return f"list of {_WORDS.get(listed[1], listed[1])}"
    if plain.startswith("dict["):
        return "`name: value`"
    return _WORDS.get(plain, plain)


_WORDS = {"str": "text", "int": "whole number", "float": "number", "bool": "true or false"}


def _default(key: Key) -> str:
    value: Any = key.default
    if key.dotted == "data_dir":
        return "this user's data folder"
    if value is None or value in ("", (), {}):
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return f"`[{', '.join(repr(item) for item in value)}]`"
    return f"`{value}`"


if __name__ == "__main__":
    page = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/configuration.md")
    page.write_text(filled_in(page.read_text(encoding="utf-8")), encoding="utf-8")
