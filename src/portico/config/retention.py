"""Retention of learned data, large results, usage and the audit log."""

from pathlib import Path
from typing import Any, Literal

from pydantic import ByteSize, Field, field_validator, model_validator

from portico.config.section import Section

LearningMode = Literal["caller", "shared", "off"]


class LearningConfig(Section):
    """Learning from use by search; `learning: off` is short for `learning: {scope: off}`."""

    scope: LearningMode = Field(
        default="caller",
        description="Who shares what is learnt: each client by its name (and profile), all clients"
        " (`shared`), or none (`off`: nothing is learnt). No text of a query is stored, only hashes"
        " of its words and its vector.",
    )
    half_life_days: float = Field(
        default=30, gt=0, description="Days after which a learned weight counts half."
    )
    max_followed: int = Field(
        default=2_000,
        ge=1,
        description="Searches with the tools called after them that each scope stores.",
    )
    max_together: int = Field(
        default=5_000, ge=1, description="Pairs of tools used together that each scope stores."
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
    """Results too large for an answer, stored on disk for the caller that received them."""

    ttl_s: float = Field(default=3600, gt=0, description="Seconds a result is stored.")
    total_bytes: ByteSize = Field(
        default=ByteSize(256 * 1024**2), ge=0, description="Total size; the oldest are deleted."
    )
    result_bytes: ByteSize = Field(
        default=ByteSize(64 * 1024**2), ge=0, description="Largest result that is stored."
    )
    media_bytes: ByteSize = Field(
        default=ByteSize(2 * 1024**2),
        ge=0,
        description="Images and audio up to this size are passed on unchanged.",
    )


class UsageConfig(Section):
    """Retention of recorded calls, without arguments and results; `usage: off` records none."""

    calls_days: float = Field(
        default=30, ge=0, description="Days each call is stored; 0 stores none."
    )
    max_calls: int = Field(
        default=100_000, ge=0, description="Maximum number of stored calls, the latest."
    )
    daily_days: float = Field(
        default=400,
        ge=0,
        description="Days of daily counts per tool, which statistics are based on.",
    )
    sessions_days: float = Field(
        default=90,
        ge=0,
        description="Days that the tokens shown to each client session are stored; totals stay.",
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
    """Log of calls for accountability: caller, tool, arguments and outcome.

    Resources read, prompts fetched, subscriptions and completions are logged too, where they reach
    a server. `audit: off` disables it. Each line is written before its answer is sent.
    """

    enabled: bool = Field(default=True, description="Write the audit log.")
    file: Path | None = Field(
        default=None,
        description="Its path; the default is `audit.jsonl` in `data_dir`. One JSON object a line.",
    )
    arguments: Literal["hash", "redacted", "none"] = Field(
        default="hash",
        description="What is logged of a call's arguments: a keyed hash, the values with secrets"
        " masked, or nothing.",
    )
    max_bytes: ByteSize = Field(
        default=ByteSize(50 * 1024**2),
        ge=1024,
        description="Size of a file at which a new one is started.",
    )
    files: int = Field(
        default=20,
        ge=1,
        description="Number of files, including the current one; by default there is room for about"
        " two million lines. A file that follows a deleted one says so.",
    )
    sync: bool = Field(
        default=False,
        description="Wait until each line is on disk, not only with the operating system.",
    )

    @model_validator(mode="before")
    @classmethod
    def _expand_switch(cls, data: Any) -> Any:
        # YAML reads a bare `off` as false.
        if data in (True, False, "on", "off"):
            return {"enabled": data in (True, "on")}
        return data
