"""What every part of the tree has in common."""

from typing import Any

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A part of the tree: frozen, closed, and silent about the values it refuses (they may be
    secrets)."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, allow_inf_nan=False
    )


def mark_internal(description: str) -> dict[str, Any]:
    """Field arguments of what Portico finds out itself and nobody may write in a file."""
    return {"description": description, "repr": False, "json_schema_extra": {"internal": True}}
