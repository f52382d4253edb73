"""What the configuration says of a server's tools in place of what the server says."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Self, cast

from pydantic import field_validator, model_validator

from portico.config.section import Section, setting

MAX_PARAMETERS = 200
MAX_PARAMETER_NAME = 256
_MARK = "\0"
"""In a loaded configuration a reference to a secret stands between two of these."""


class ParameterOverride(Section):
    """One parameter of a tool."""

    name: str | None = setting(None, "The name that callers use in place of the server's.")
    description: str | None = setting(None, "Its description.")
    default: Any = setting(
        None, "Value that is sent where a caller gives none; every caller sees it."
    )
    fixed: Any = setting(
        None,
        "Value that is always sent: callers neither see the parameter nor may give it. May hold"
        " references to secrets.",
    )

    @field_validator("default", "fixed")
    @classmethod
    def _check_json(cls, value: Any) -> Any:
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError):
            raise ValueError("it is no value of JSON") from None
        return value

    @model_validator(mode="after")
    def _check_value(self) -> Self:
        if not self.is_fixed:
            if self.has_default and _contains_reference(self.default):
                raise ValueError("every caller sees a default: give a secret as `fixed`")
            return self
        others = [key for key in ("name", "description", "default") if key in self.model_fields_set]
        if others:
            raise ValueError(f"callers do not see what is `fixed`: take {' and '.join(others)} out")
        return self

    @field_validator("name")
    @classmethod
    def _check_name(cls, value: str | None) -> str | None:
        if value is not None and not 1 <= len(value) <= MAX_PARAMETER_NAME:
            raise ValueError(f"a parameter's name has 1 to {MAX_PARAMETER_NAME} characters")
        return value

    @property
    def is_fixed(self) -> bool:
        """Whether a fixed value is given; `null` is one."""
        return "fixed" in self.model_fields_set

    @property
    def has_default(self) -> bool:
        """Whether a default is given; `null` is one."""
        return "default" in self.model_fields_set


class ToolOverride(Section):
    """What is said of the tools that a name or pattern stands for."""

    title: str | None = setting(None, "Title.")
    description: str | None = setting(None, "Description.")
    idempotent: bool | None = setting(
        None, "Whether a second call with the same arguments changes nothing more."
    )
    open_world: bool | None = setting(None, "Whether it reaches beyond its own data.")
    parameters: dict[str, ParameterOverride] = setting(
        {}, "Its parameters, by the server's names of them.", max_length=MAX_PARAMETERS
    )

    @field_validator("parameters")
    @classmethod
    def _check_names(cls, value: dict[str, ParameterOverride]) -> dict[str, ParameterOverride]:
        taken: dict[str, str] = {}
        for own, override in value.items():
            name = override.name
            if name is None:
                continue
            if name in taken:
                raise ValueError(f"{taken[name]!r} and {own!r} would both be named {name!r}")
            other = value.get(name)
            if name != own and other is not None and other.name in (None, name):
                raise ValueError(f"{own!r} would be named {name!r}, the name of another parameter")
            taken[name] = own
        return value


def merge_overrides(overrides: Iterable[ToolOverride]) -> ToolOverride:
    """Return one override of several: for each setting, the first that gives it counts."""
    found: dict[str, Any] = {}
    parameters: dict[str, dict[str, Any]] = {}
    for one in overrides:
        for key in one.model_fields_set - {"parameters"}:
            found.setdefault(key, getattr(one, key))
        for name, parameter in one.parameters.items():
            known = parameters.setdefault(name, {})
            has_value = "fixed" in known or "default" in known
            for key in parameter.model_fields_set:
                if not (has_value and key in ("fixed", "default")):
                    known.setdefault(key, getattr(parameter, key))
    for known in parameters.values():
        if "fixed" in known:
            known.pop("name", None)
            known.pop("description", None)
    made = {
        name: ParameterOverride.model_construct(set(known), **known)
        for name, known in parameters.items()
    }
    return ToolOverride.model_construct({*found, "parameters"}, **found, parameters=made)


def _contains_reference(value: Any) -> bool:
    if isinstance(value, str):
        return _MARK in value
    if isinstance(value, Mapping):
        return any(map(_contains_reference, cast("Mapping[str, Any]", value).values()))
    return isinstance(value, list) and any(map(_contains_reference, cast("list[Any]", value)))
