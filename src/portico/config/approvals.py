"""Approvals: who may approve what a rule asks for, and how long it may take."""

import re
from typing import Any

from pydantic import Field, field_validator, model_validator

from portico.config.section import Section, list_names, setting

MAX_APPROVERS = 100
_APPROVER = re.compile(r"(?:everyone|local|token)|(?:person|group|key):\S.{0,399}")


class ApprovalsConfig(Section):
    """Approvals of calls for which a rule says `ask`; `approvals: split` sets that alone."""

    split: bool = setting(
        False,
        "List `call_tool_read`, `call_tool_write` and `call_tool_destructive` in place of"
        " `call_tool`, for clients that approve by name.",
    )

    by: tuple[str, ...] = setting(
        (),
        "Who may approve, any of: `person:`, `group:` or `key:` and a name or glob, `local`,"
        " `token`. Not given: everybody but holders of keys for certain profiles. A read-only key"
        " approves nothing.",
    )
    by_caller: bool = Field(
        default=True,
        alias="self",
        description="A caller may approve its own calls, and is asked by its client where that"
        " can ask. `false`: somebody else approves, by another key or token.",
    )
    wait_s: float = setting(
        20,
        "Seconds that a call waits for somebody who is not asked by its client; then it is"
        " answered with the id of the approval, and can be repeated.",
        ge=0,
        le=600,
    )
    valid_s: float = setting(
        600, "Seconds that a request waits for its decision, and a decision for its call.", gt=0
    )

    @field_validator("by", mode="before")
    @classmethod
    def _list_approvers(cls, value: Any) -> Any:
        return list_names(value)

    @field_validator("by")
    @classmethod
    def _check_approvers(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(value) > MAX_APPROVERS:
            raise ValueError(f"name at most {MAX_APPROVERS}")
        for one in value:
            if _APPROVER.fullmatch(one) is None:
                raise ValueError(
                    f"{one!r} can approve nothing: write one of person:NAME, group:NAME, key:NAME,"
                    " local, token"
                )
        return value

    @model_validator(mode="before")
    @classmethod
    def _expand_switch(cls, data: Any) -> Any:
        return {"split": True} if data == "split" else data
