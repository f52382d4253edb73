"""Lists every configurable key, derived from the models, and suggests keys for unknown ones."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel

from portico.config import Config, Section
from portico.config_file.names import find_nearest


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One configurable key, for reference pages and `--help`."""

    path: tuple[str, ...]
    """`*` stands for the name of a server or profile."""
    type: str
    default: Any
    help: str
    environment_variable: str | None
    """Environment variable that sets it, if there is one."""
    is_list: bool
    """Whether it takes a list; in an environment variable its items are separated by commas."""

    @property
    def dotted_name(self) -> str:
        return ".".join(self.path)


def list_settable_keys(model: type[BaseModel]) -> list[str]:
    """Return the keys of a section that may be set in a file."""
    return [
        name
        for name, info in model.model_fields.items()
        if not (isinstance(info.json_schema_extra, dict) and info.json_schema_extra.get("internal"))
    ]


def iter_keys(model: type[BaseModel] = Config, path: tuple[str, ...] = ()) -> Iterator[ConfigKey]:
    """Yield every key of the configuration, in the models' order."""
    for name in list_settable_keys(model):
        info = model.model_fields[name]
        key_path = (*path, name)
        inner, named = get_section_type(info.annotation)
        if inner is not None:
            yield from iter_keys(inner, (*key_path, "*") if named else key_path)
            continue
        text = ""
        if isinstance(info.annotation, type):
            text = getattr(info.annotation, "__name__", "")
        if not text:
            text = str(info.annotation)
            for module in ("typing.", "pathlib._local.", "pathlib."):
                text = text.replace(module, "")
        # Servers and profiles have user-defined names, and switches are mappings: these have no
        # variable.
        scalar = key_path[0] not in ("servers", "profiles") and "dict[" not in text
        yield ConfigKey(
            key_path,
            text,
            None if info.default_factory is not None else info.get_default(),
            info.description or "",
            to_environment_name(key_path) if scalar else None,
            text.startswith("tuple["),
        )


def get_section_type(annotation: Any) -> tuple[type[Section] | None, bool]:
    """Return the section type in an annotation, and whether it is a mapping of sections by name."""
    for position, candidate in enumerate((annotation, *get_args(annotation))):
        if isinstance(candidate, type) and issubclass(candidate, Section):
            return candidate, position > 0
    return None, False


def to_environment_name(path: Sequence[str]) -> str:
    """Return PORTICO_KEY or PORTICO_SECTION__KEY; keys of `gateway` omit it (PORTICO_PORT)."""
    return "PORTICO_" + "__".join(path[1:] if path[0] == "gateway" else path).upper()


def find_section(path: Sequence[str | int]) -> type[Section] | None:
    """Return the section whose keys are at a path."""
    section: type[Section] = Config
    steps = iter(path)
    for step in steps:
        info = section.model_fields.get(str(step))
        inner, named = get_section_type(info.annotation) if info is not None else (None, False)
        if inner is None:
            return None
        if named:
            next(steps, None)
        section = inner
    return section


def suggest_key(path: Sequence[str | int]) -> str:
    """Return advice for an unknown key: the nearest ones, or the section it belongs to."""
    name = str(path[-1])
    section = find_section(path[:-1])
    here = list_settable_keys(section) if section is not None else []
    near = find_nearest(name, here)
    elsewhere = [
        key.dotted_name for key in iter_keys() if key.path[-1] == name and "*" not in key.path
    ]
    if elsewhere and (not near or near[0] != name):
        return f"Did you mean {elsewhere[0]}?"
    if near:
        return f"Did you mean {near[0]}?" + (
            f" Also near: {', '.join(near[1:])}." if near[1:] else ""
        )
    if here:
        return f"Keys here: {', '.join(here)}."
    return ""
