"""Rules: who may do what. The first rule that fits a request decides it."""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from portico.config.section import Section, list_names, setting

Effect = Literal["allow", "ask", "deny"]
"""What a rule decides. `ask`: a person approves the very call before it runs."""
MaskKind = (
    Literal["secrets", "email", "card", "iban", "phone"]
    | Annotated[str, Field(pattern=r"^presidio:[A-Z][A-Z0-9_]{0,59}$")]
)
"""What is replaced in arguments and answers; `presidio:` and an entity that presidio-analyzer finds
by a pattern."""
MAX_RULES = 1_000
MAX_PATTERNS = 100
"""Patterns in one list of a rule."""
MAX_PATTERN_CHARS = 400
CALLER_KINDS = ("person", "group", "key", "profile", "client")
SPECIAL_CALLERS = ("everyone", "local", "token")
_CALLER = re.compile(rf"(?:{'|'.join(SPECIAL_CALLERS)})|(?:{'|'.join(CALLER_KINDS)}):\S.{{0,399}}")


class RuleLimit(Section):
    """How much one caller may do by a rule."""

    calls_per_minute: int | None = setting(
        None, "Calls and other requests of one caller a minute.", ge=1, le=1_000_000
    )
    tokens_per_day: int | None = setting(
        None,
        "Tokens of the arguments and results of one caller a day (UTC), four characters each."
        " The call that exceeds it is still answered.",
        ge=1,
        le=10**12,
    )

    @model_validator(mode="after")
    def _check_any(self) -> Self:
        if self.calls_per_minute is None and self.tokens_per_day is None:
            raise ValueError("name calls_per_minute, tokens_per_day, or both")
        return self


class Rule(Section):
    """One rule. What it does not name, it does not restrict itself to."""

    callers: tuple[str, ...] = Field(
        default=("everyone",),
        alias="for",
        description="Whom it concerns, any of: `person:`, `group:`, `key:`, `profile:` or"
        " `client:` and a name or glob; `local` (the user whose gateway it is), `token` (holders"
        " of `gateway.token`), `everyone`. A client's name is only a claim, so no rule allows"
        " anything for it.",
    )
    tools: tuple[str, ...] | None = setting(
        None, "Globs of tools it concerns: `server.tool`, or the name of a tool of any server."
    )
    resources: tuple[str, ...] | None = setting(
        None, "Globs of resources and templates it concerns: `server.uri`."
    )
    prompts: tuple[str, ...] | None = setting(
        None, "Globs of prompts it concerns: `server.prompt`."
    )
    servers: tuple[str, ...] = setting((), "Globs of servers; by default it concerns all.")
    categories: tuple[str, ...] = setting((), "Only tools of these categories.")
    read_only: bool | None = setting(
        None, "Only tools that are known to be read-only; `false`: only those that are not."
    )
    destructive: bool | None = setting(
        None, "Only tools that are marked as destructive; `false`: only those that are not."
    )
    when: dict[str, Any] = setting(
        {},
        "Only calls whose arguments fit: argument → its JSON Schema, its value, or a list of"
        " values. Each must be given.",
    )
    may: Effect = setting(
        "allow", "What it decides; `ask`: a person approves the very call before it runs."
    )
    limit: RuleLimit | None = setting(
        None, "How much each caller may do by this rule; what is beyond it is refused."
    )
    mask: tuple[MaskKind, ...] = setting(
        (),
        "What is replaced in what the server answers: `secrets` (configured ones, and by their"
        " shape), `email`, `card`, `iban`, `phone`, or `presidio:` and an entity such as `US_SSN`"
        " (needs the extra `presidio`).",
    )
    mask_arguments: tuple[MaskKind, ...] = setting(
        (), "What is replaced in arguments before they are sent to the server; kinds as in `mask`."
    )
    say: str = setting("", "What a caller is told that is denied, or has to wait.")
    visible: bool = setting(
        False, "What it denies is still listed and described; otherwise it does not exist."
    )

    @field_validator(
        *("callers", "tools", "resources", "prompts", "servers", "categories"),
        *("mask", "mask_arguments"),
        mode="before",
    )
    @classmethod
    def _list_patterns(cls, value: Any) -> Any:
        return list_names(value)

    @field_validator("tools", "resources", "prompts", "servers", "categories")
    @classmethod
    def _check_patterns(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if value is not None and len(value) > MAX_PATTERNS:
            raise ValueError(f"at most {MAX_PATTERNS} patterns: make several rules of it")
        if any(not pattern or len(pattern) > MAX_PATTERN_CHARS for pattern in value or ()):
            raise ValueError(f"a pattern has 1 to {MAX_PATTERN_CHARS} characters")
        return value

    @field_validator("resources")
    @classmethod
    def _check_resources(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for pattern in value or ():
            if pattern != "*" and "." not in pattern.partition(":")[0]:
                raise ValueError(
                    f"{pattern!r} names no server: write SERVER.URI, as in *.{pattern}"
                )
        return value

    @field_validator("callers")
    @classmethod
    def _check_callers(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value or len(value) > MAX_PATTERNS:
            raise ValueError(f"name 1 to {MAX_PATTERNS}, or leave it out for everyone")
        for caller in value:
            if _CALLER.fullmatch(caller) is None:
                known = [*(f"{kind}:NAME" for kind in CALLER_KINDS), *SPECIAL_CALLERS]
                raise ValueError(f"{caller!r} is nobody: write one of {', '.join(known)}")
        return value

    @model_validator(mode="after")
    def _check_claims(self) -> Self:
        if self.may == "allow" and any(one.startswith("client:") for one in self.callers):
            raise ValueError(
                "a client's name is only a claim: no rule may allow something for it. Deny or ask"
                " for it, or allow for a person, group, key or profile"
            )
        if self.visible and self.may != "deny":
            raise ValueError("visible is for what a rule denies")
        if self.limit is not None and self.may != "allow":
            raise ValueError("limit is for what a rule allows")
        if (self.mask or self.mask_arguments) and self.may == "deny":
            raise ValueError("mask and mask_arguments are for what a rule allows or asks about")
        return self
