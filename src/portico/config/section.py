"""Common base of all configuration models."""

from typing import Any

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Base model: frozen, without unknown keys, and without values in error messages."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, allow_inf_nan=False
    )


def mark_internal(description: str) -> dict[str, Any]:
    """Return field arguments for values set by Portico, which must not be in a file."""
    return {"description": description, "repr": False, "json_schema_extra": {"internal": True}}
