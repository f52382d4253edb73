"""Declarations of `portico approvals`, `approve` and `deny`.

Only what the option parser needs: their work is in `commands/approvals.py`.
"""

from typing import Annotated

from cyclopts import Parameter

from portico.cli.options import CONFIG_DEFAULTS, ConfigOptions

ApprovalId = Annotated[
    str, Parameter(help="Id of an approval, as `portico approvals` lists it; several are allowed.")
]


async def approvals(*, options: ConfigOptions = CONFIG_DEFAULTS) -> int:
    """List the calls that wait for a person, and the latest decisions."""
    from portico.cli.commands.approvals import run_list

    return await run_list(options)


ReasonOption = Annotated[str, Parameter(help="Why; a caller that is denied reads it.")]


async def approve(
    *ids: ApprovalId, reason: ReasonOption = "", options: ConfigOptions = CONFIG_DEFAULTS
) -> int:
    """Approve calls: each may run once, as it was listed."""
    from portico.cli.commands.approvals import run_decide

    return await run_decide(ids, options, approve=True, reason=reason)


async def deny(
    *ids: ApprovalId, reason: ReasonOption = "", options: ConfigOptions = CONFIG_DEFAULTS
) -> int:
    """Deny calls."""
    from portico.cli.commands.approvals import run_decide

    return await run_decide(ids, options, approve=False, reason=reason)
