"""What is kept of what happened: what was learnt, large results, use, and the audit log."""

from pathlib import Path
from typing import Any, Literal

from pydantic import ByteSize, Field, field_validator, model_validator

from portico.config.section import Section

LearningMode = Literal["caller", "shared", "off"]


class LearningConfig(Section):
    """What search learns from use; `learning: off` is short for `learning: {scope: off}`."""

    scope: LearningMode = Field(
        default="caller",
        description="Who learns together: each client by its name (and profile), all clients (`shared`), or nobody "
        "(`off`: nothing is learnt). No text of a query is kept, only hashes of its words and its vector.",
    )
    half_life_days: float = Field(
        default=30, gt=0, description="After so many days, what was learnt counts half."
    )
    max_followed: int = Field(
        default=2_000,
        ge=1,
        description="Searches and the tools called after them that each scope remembers.",
    )
    max_together: int = Field(
        default=5_000, ge=1, description="Pairs of tools used together that each scope remembers."
    )

    @model_validator(mode="before")
    @classmethod
    def _expand_short_form(cls, data: Any) -> Any:
        if isinstance(data, str | bool):
            return {"scope": data}
        return data

    @field_validator("scope", mode="before")
    @classmethod
    def _convert_boolean_scope(cls, value: Any) -> Any:
        # YAML reads a bare `off` as false, and `on` as true.
        if isinstance(value, bool):
            return {False: "off", True: "caller"}[value]
        return value


class ResultsConfig(Section):
    """Results that were too large for an answer, kept on disk for the caller that got them."""

    ttl_s: float = Field(default=3600, gt=0, description="How long one is kept.")
    total_bytes: ByteSize = Field(
        default=ByteSize(256 * 1024**2), ge=0, description="All together; the oldest go."
    )
    result_bytes: ByteSize = Field(
        default=ByteSize(64 * 1024**2), ge=0, description="The largest that is kept."
    )
    media_bytes: ByteSize = Field(
        default=ByteSize(2 * 1024**2),
        ge=0,
        description="Images and sounds up to this size pass as they are.",
    )


class UsageConfig(Section):
    """How long the record of calls is kept, never with arguments or results; `usage: off` keeps
    none of it."""

    calls_days: float = Field(
        default=30, ge=0, description="Days each call is kept for; 0 keeps none."
    )
    max_calls: int = Field(
        default=100_000, ge=0, description="Calls that are kept at most, the latest."
    )
    daily_days: float = Field(
        default=400,
        ge=0,
        description="Days that the counts of each tool, and so its statistics, reach back.",
    )
    sessions_days: float = Field(
        default=90,
        ge=0,
        description="Days that the tokens shown to each client session are kept for; totals stay.",
    )

    @model_validator(mode="before")
    @classmethod
    def _expand_switch(cls, data: Any) -> Any:
        # YAML reads a bare `off` as false.
        if data in (False, "off"):
            return dict.fromkeys(cls.model_fields, 0)
        if data is True:
            return {}
        return data


class AuditConfig(Section):
    """The log of calls, for whoever must answer for them: who, which tool, with what, how it ended.

    Resources read, prompts got, subscriptions and completions are in it too, where they reach a
    server.

    `audit: off` keeps none. Each line is written before its answer leaves.
    """

    enabled: bool = Field(default=True, description="Keep it.")
    file: Path | None = Field(
        default=None,
        description="Where; the default is `audit.jsonl` in `data_dir`. An object of JSON a line.",
    )
    arguments: Literal["hash", "redacted", "none"] = Field(
        default="hash",
        description="What is kept of a call's arguments: a keyed hash, the values with everything secret masked, "
        "or nothing.",
    )
    max_bytes: ByteSize = Field(
        default=ByteSize(50 * 1024**2),
        ge=1024,
        description="How large the file grows before a new one is begun.",
    )
    files: int = Field(
        default=20,
        ge=1,
        description="How many are kept, the one that is written included; by default there is room for about two "
        "million lines. A file that follows one that was dropped says so.",
    )
    sync: bool = Field(
        default=False,
        description="Wait until each line is on the disk, not only with the operating system.",
    )

    @model_validator(mode="before")
    @classmethod
    def _expand_switch(cls, data: Any) -> Any:
        # YAML reads a bare `off` as false.
        if data in (True, False, "on", "off"):
            return {"enabled": data in (True, "on")}
        return data
