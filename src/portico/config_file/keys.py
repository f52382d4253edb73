"""Every configurable key, read off the models: help, default, variable; and what a wrong key was meant to be."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel

from portico.config import Config, Section
from portico.config_file.names import nearest


@dataclass(frozen=True, slots=True)
class Key:
    """One configurable key, for reference pages and `--help`."""

    path: tuple[str, ...]
    """`*` stands for the name of a server or profile."""
    type: str
    default: Any
    help: str
    environment: str | None
    """The environment variable that sets it, where there is one."""
    many: bool
    """Whether it takes a list; in an environment variable its items are separated by commas."""

    @property
    def dotted(self) -> str:
        return ".".join(self.path)


def settable(model: type[BaseModel]) -> list[str]:
    """The keys of a section that may stand in a file."""
    return [
        name
        for name, info in model.model_fields.items()
        if not (isinstance(info.json_schema_extra, dict) and info.json_schema_extra.get("internal"))
    ]


def keys(model: type[BaseModel] = Config, path: tuple[str, ...] = ()) -> Iterator[Key]:
    """Every key of the tree, in the models' order."""
    for name in settable(model):
        info = model.model_fields[name]
        here = (*path, name)
        inner, named = section_in(info.annotation)
        if inner is not None:
            yield from keys(inner, (*here, "*") if named else here)
            continue
        text = getattr(info.annotation, "__name__", "") if isinstance(info.annotation, type) else ""
        text = text or str(info.annotation).replace("typing.", "").replace("pathlib._local.", "").replace(
            "pathlib.", ""
        )
        # Servers and profiles are named by their writers, and switches are mappings: no variable reaches those.
        scalar = here[0] not in ("servers", "profiles") and "dict[" not in text
        yield Key(
            here,
            text,
            None if info.default_factory is not None else info.get_default(),
            info.description or "",
            environment_name(here) if scalar else None,
            text.startswith("tuple["),
        )


def section_in(annotation: Any) -> tuple[type[Section] | None, bool]:
    """The section an annotation holds, and whether it holds many, by name."""
    for position, candidate in enumerate((annotation, *get_args(annotation))):
        if isinstance(candidate, type) and issubclass(candidate, Section):
            return candidate, position > 0
    return None, False


def environment_name(path: Sequence[str]) -> str:
    """PORTICO_KEY or PORTICO_SECTION__KEY; the door's keys go without their section (PORTICO_PORT)."""
    return "PORTICO_" + "__".join(path[1:] if path[0] == "gateway" else path).upper()


def section_at(path: Sequence[str | int]) -> type[Section] | None:
    """The section whose keys stand at a path."""
    section: type[Section] = Config
    steps = iter(path)
    for step in steps:
        info = section.model_fields.get(str(step))
        inner, named = section_in(info.annotation) if info is not None else (None, False)
        if inner is None:
            return None
        if named:
            next(steps, None)
        section = inner
    return section


def meant(path: Sequence[str | int]) -> str:
    """Advice for a key that does not exist: the nearest ones, or the section it belongs to."""
    name = str(path[-1])
    section = section_at(path[:-1])
    here = settable(section) if section is not None else []
    near = nearest(name, here)
    elsewhere = [key.dotted for key in keys() if key.path[-1] == name and "*" not in key.path]
    if elsewhere and (not near or near[0] != name):
        return f"Did you mean {elsewhere[0]}?"
    if near:
        return f"Did you mean {near[0]}?" + (f" Also near: {', '.join(near[1:])}." if near[1:] else "")
    return f"Keys here: {', '.join(here)}." if here else ""
