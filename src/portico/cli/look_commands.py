"""Declarations of the commands that look at tools and call them.

Only what the option parser needs: the work of each is in `commands/`, and is imported when a
command runs, so that help is shown without loading the gateway.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter, validators

from portico.cli.options import (
    PROFILE_DEFAULTS,
    ConfigOptions,
    LimitOption,
    ListedOptions,
    ProfileOptions,
    ServerOption,
)

DescribeDetail = Literal["brief", "schema", "full"]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SearchOptions(ListedOptions):
    """Options of the command line."""

    server: ServerOption = None
    """Only this server."""
    category: str | None = None
    """Only this category; `portico browse` lists them."""
    tag: Annotated[list[str] | None, Parameter(name=["--tag", "-t"])] = None
    """Only servers with this tag; repeat it to allow others."""
    max_latency_ms: Annotated[float | None, Parameter(validator=validators.Number(gte=0))] = None
    """Leave out tools that were slower so far."""
    min_success_rate: Annotated[
        float | None, Parameter(validator=validators.Number(gte=0, lte=1))
    ] = None
    """Leave out tools that failed more often (0 … 1)."""
    limit: Annotated[
        int | None, Parameter(name=["--limit", "-n"], validator=validators.Number(gte=1))
    ] = None
    """How many tools to show. Default 8; 3 where nothing fits."""
    detail: Annotated[Literal["brief", "schema"], Parameter(show_default=True)] = "brief"
    """One line a tool, or its typed parameters."""
    explain: bool = False
    """Say why each tool ranks where it does."""
    tool: list[str] | None = None
    """With --explain: where this tool stands, and why; repeat it for more."""
    forget: bool = False
    """Forget what searches and calls have taught; with --server or --profile, only that one's."""

    @property
    def shows_reasons(self) -> bool:
        return self.explain or bool(self.tool)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class BrowseOptions(ListedOptions):
    """Options of `browse`."""

    category: str | None = None
    """List the tools of this category."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class CallOptions(ProfileOptions):
    """Options of `call`."""

    explain: bool = False
    """Say which rule decided, and which came close."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class StatusOptions(ConfigOptions):
    """Options of the command line."""

    offline: bool = False
    """Start nothing: answer from what is known from last time."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TokensOptions(ListedOptions):
    """Options of the command line."""

    verify: bool = False
    """Fail (exit code 1) when a tier is over its budget."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class UsageOptions(ProfileOptions):
    """Options of the command line."""

    calls: bool = False
    """List the latest calls."""
    days: Annotated[float | None, Parameter(validator=validators.Number(gt=0))] = None
    """Only what was used in the last so many days."""
    limit: LimitOption = 20
    """How many to show."""
    forget: bool = False
    """Forget every call; with --server, those of that server's tools."""
    server: ServerOption = None
    """Only this server."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TiersOptions(ListedOptions):
    """Options of the command line."""

    recompute: bool = False
    """Compute them now, and say what moved."""
    limit: LimitOption = 20
    """How many to show."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TrustOptions(ConfigOptions):
    """Options of the command line."""

    diff: bool = False
    """Show what differs, field by field, and trust nothing."""
    tool: Annotated[list[str] | None, Parameter(name=["--tool", "-t"])] = None
    """Only this tool, prompt or template; repeat it for more."""
    seen: str | None = None
    """What --diff has named: trust only if nothing has changed since."""
    alone: Annotated[bool, Parameter(group="Common options")] = False
    """Do not ask the running gateway: load the configuration and open its servers here."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class AuditOptions(ConfigOptions):
    """Options of the command line."""

    tail: Annotated[
        int,
        Parameter(name=["--tail", "-n"], validator=validators.Number(gte=1), show_default=True),
    ] = 20
    """How many to show."""
    tool: str | None = None
    """Only this tool: server.tool, a tool's name, or a pattern: git.*"""
    client: str | None = None
    """Only this client, as it calls itself."""
    failed: bool = False
    """Only what did not succeed."""
    verify: bool = False
    """Check that no line was changed or taken out, and show none."""


_SEARCH_DEFAULTS = SearchOptions()
_BROWSE_DEFAULTS = BrowseOptions()
_CALL_DEFAULTS = CallOptions()
_STATUS_DEFAULTS = StatusOptions()
_TOKENS_DEFAULTS = TokensOptions()
_USAGE_DEFAULTS = UsageOptions()
_TIERS_DEFAULTS = TiersOptions()
_TRUST_DEFAULTS = TrustOptions()
_AUDIT_DEFAULTS = AuditOptions()


async def search(
    *query: Annotated[
        str, Parameter(help="What you want to do, in your own words, or a tool's name.")
    ],
    options: SearchOptions = _SEARCH_DEFAULTS,
) -> int:
    """Show ranked tools."""
    from portico.cli.commands.search import run_search

    return await run_search(query, options)


async def browse(
    server: Annotated[
        str | None, Parameter(help="The server whose tools to list; without it, every server.")
    ] = None,
    /,
    *,
    options: BrowseOptions = _BROWSE_DEFAULTS,
) -> int:
    """Show servers and categories, or tools."""
    from portico.cli.commands.browse import run_browse

    return await run_browse(server, options)


async def describe(
    name: Annotated[str, Parameter(help="A tool, as search shows it: server.tool")],
    /,
    *names: Annotated[str, Parameter(help="More tools.")],
    detail: Annotated[
        DescribeDetail,
        Parameter(help="One line, typed parameters, or everything.", show_default=True),
    ] = "schema",
    original: Annotated[
        bool, Parameter(negative=(), help="As its server has it, without the overrides of yours.")
    ] = False,
    options: ProfileOptions = PROFILE_DEFAULTS,
) -> int:
    """Show what each tool takes."""
    from portico.cli.commands.browse import run_describe

    return await run_describe((name, *names), detail, options, original=original)


async def call(
    name: Annotated[str, Parameter(help="The tool: server.tool")],
    /,
    *arguments: Annotated[
        str,
        Parameter(
            allow_leading_hyphen=True,
            help="key=value (read by the tool's types), key:=JSON, one JSON object, or - to "
            "read that from stdin.",
        ),
    ],
    options: CallOptions = _CALL_DEFAULTS,
) -> int:
    """Run a tool."""
    from portico.cli.commands.call import run_call

    return await run_call(name, arguments, options)


async def status(*, options: StatusOptions = _STATUS_DEFAULTS) -> int:
    """Show how the servers do."""
    from portico.cli.commands.status import run_status

    return await run_status(options)


async def tokens(*, options: TokensOptions = _TOKENS_DEFAULTS) -> int:
    """Measure and show costs."""
    from portico.cli.commands.tokens import run_tokens

    return await run_tokens(options)


async def usage(
    name: Annotated[
        str | None, Parameter(help="A tool or a server; without it, everything that was used.")
    ] = None,
    /,
    *,
    options: UsageOptions = _USAGE_DEFAULTS,
) -> int:
    """Show statistics or the latest calls, or forget them."""
    from portico.cli.commands.usage import run_usage

    return await run_usage(name, options)


async def tiers(*, options: TiersOptions = _TIERS_DEFAULTS) -> int:
    """Show every used tool with its tier."""
    from portico.cli.commands.tiers import run_tiers

    return await run_tiers(options)


async def trust(
    name: Annotated[
        str | None, Parameter(help="The server; without it, every server with changes is shown.")
    ] = None,
    /,
    *,
    options: TrustOptions = _TRUST_DEFAULTS,
) -> int:
    """Show what servers say differently than before, or trust it."""
    from portico.cli.commands.trust import run_trust

    return await run_trust(name, options)


def audit(*, options: AuditOptions = _AUDIT_DEFAULTS) -> int:
    """Show the latest lines, or verify that the log is unchanged."""
    from portico.cli.commands.audit import run_audit

    return run_audit(options)
