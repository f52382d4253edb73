"""Models of the routes of approvals."""

from typing import Any, Literal

from pydantic import Field

from portico.api.models import ApiModel, optional


class ApprovalCard(ApiModel):
    """A call that a person has to approve, and what came of it."""

    id: str
    state: Literal["pending", "approved", "denied", "used"] = Field(
        description="`approved`: it may run once; `used`: it did."
    )
    tool: str = Field(description="Address of the tool, resource or prompt.")
    method: str = Field(description="`tools/call`, `resources/read`, `prompts/get` …")
    definition: str = optional("", "Hash of the tool's definition that it holds for.")
    arguments: Any = Field(description="Exactly as they are sent.")
    shown: list[str] = Field(
        description="The arguments one a line, with characters that cannot be seen escaped."
    )
    person: str
    client: str = optional("", "What the client calls itself.")
    profile: str = optional("", "Its profile.")
    via: str = optional("", "`call_tool`, `flat`, `script`, `workflow`, `rest`, `cli` …")
    rule: str = Field(description="The rule that asks.")
    say: str = optional("", "What it says.")
    created: str
    expires: str = Field(description="When it is worth nothing any more, whatever its state.")
    decided_by: str = optional("", "Who approved or denied it.")
    decided_via: str = optional("", "`elicitation`, `rest`, `cli`.")
    reason: str = optional("", "What that person said of it.")
    decided: str = optional("", "When it was decided.")
    used: str = optional("", "When the call was made that it was for.")


class ApprovalList(ApiModel):
    """Approvals that have not expired, the oldest first."""

    approvals: list[ApprovalCard]


class ApprovalDecision(ApiModel):
    """What somebody decides."""

    decision: Literal["approve", "deny"]
    reason: str = Field(
        default="", max_length=400, description="Why; a caller that is denied reads it."
    )
