"""The page of configuration keys, from the models: type, default, variable and help."""

import re
from collections.abc import Iterator
from typing import Any

from pydantic_core import PydanticUndefined

from docs.generate.markdown import join_paragraphs
from portico.config_file.names import ConfigKey, iter_keys

_WORDS = {
    "str": "text",
    "int": "whole number",
    "float": "number",
    "bool": "true or false",
    "Any": "any value",
}


def page() -> str:
    """Render the keys section by section, a heading for each."""
    sections: dict[str, list[ConfigKey]] = {"": []}
    for key in iter_keys():
        sections.setdefault(".".join(key.path[:-1]), []).append(key)
    return join_paragraphs(
        part for section, found in sections.items() for part in _section(section, found)
    )


def _section(name: str, found: list[ConfigKey]) -> Iterator[str]:
    yield f"### `{name}`" if name else "### Top level"
    for key in found:
        facts = [_type(key.type), f"default {_default(key)}"]
        if key.environment_variable:
            facts.append(f"variable `{key.environment_variable}`")
        yield f"#### `{key.dotted_name}`"
        yield f"{key.help}\n\n{' · '.join(facts)}"


def _type(text: str) -> str:
    plain = re.sub(r"\b(?:[a-z_]+\.)+(?=\w)", "", text).replace(" | None", "")
    plain = re.sub(r"^Optional\[(.*)\]$", r"\1", plain)
    plain = plain.replace("SecretStr", "str").replace("ByteSize", "size").replace("Path", "path")
    if choices := re.fullmatch(r"Literal\[(.*)\]", plain):
        return f"one of {choices[1].replace(chr(39), '`')}"
    if listed := re.fullmatch(r"tuple\[(.*), \.\.\.\]", plain):
        return f"list of {_type(listed[1]).removeprefix('one of ')}"
    if " | " in plain:
        return " or ".join(map(_type, plain.split(" | ")))
    if plain.startswith("dict["):
        return "`name: value`"
    return _WORDS.get(plain, plain)


def _default(key: ConfigKey) -> str:
    value: Any = key.default
    if key.dotted_name == "data_dir":
        return "this user's data folder"
    if value is PydanticUndefined:
        return "none: it must be given"
    if value is None or value in ("", (), {}):
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return f"`[{', '.join(repr(item) for item in value)}]`"
    return f"`{value}`"
