"""Approvals: what a rule that asks needs of the gateway.

Plug one in by `CallPipeline.enforcement.approver`; it is asked for the call as it would be sent.
"""

from typing import TYPE_CHECKING, Protocol

from portico.errors import ApprovalUnavailable
from portico.policy.decision import Decision

if TYPE_CHECKING:
    from portico.calls.call import Call, ServerRequest


class Approver(Protocol):
    async def approve(self, call: "Call | ServerRequest", decision: Decision) -> None:
        """Return once a person has approved this very call; raises PorticoError if it is refused.

        `call.arguments` are those that would be sent.
        """
        ...


class NoApprover:
    """Refuses everything: nobody can be asked."""

    async def approve(self, call: "Call | ServerRequest", decision: Decision) -> None:
        raise ApprovalUnavailable(
            f"a person has to approve this ({decision.say or decision.rule}), and nobody can be"
            " asked here",
            advice="Do without it, or ask the person who keeps this gateway's rules.",
        )
