"""Common base of all configuration models."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Section(BaseModel):
    """Base model: frozen, without unknown keys, and without values in error messages."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, allow_inf_nan=False
    )


def setting(default: Any, description: str, **options: Any) -> Any:
    """Return a field with its default and help text; `options` are its limits, as of `Field`."""
    return Field(default=default, description=description, **options)


def list_names(value: Any) -> Any:
    """Return a single name as a list of it; anything else unchanged."""
    return [value] if isinstance(value, str) else value


def internal(default: Any, description: str) -> Any:
    """Return a field for a value that Portico sets itself, which must not be in a file."""
    return setting(default, description, repr=False, json_schema_extra={"internal": True})
