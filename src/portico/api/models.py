"""Models of the API's answers, for its OpenAPI. Answers are built from cards instead; tests check
that they match."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from portico.usage.ranked_catalog import HotListBasis
from portico.usage.tiers import Tier

_TOOL = {
    "tool": "github.create_issue",
    "params": "owner, repo, title, body?, labels?: string[]",
    "description": "Create a new issue in a repository.",
    "tier": "warm",
    "success_rate": 0.987,
    "p50_ms": 210.0,
    "p95_ms": 480.0,
}
_VERSION = "5b1f0c6d9e7a4382-1760000000.000"


class ApiModel(BaseModel):
    """A key without a value is left out."""

    model_config = ConfigDict(extra="forbid")


def _build_config(value: Any) -> ConfigDict:
    return ConfigDict(extra="forbid", json_schema_extra={"examples": [value]})


class ToolCard(ApiModel):
    """A tool in a line. Its whole description is at `tools/{server}/{tool}`, the address split at
    its first dot."""

    model_config = _build_config(_TOOL)

    tool: str = Field(description="Its address, `server.tool`.")
    params: str = Field(default="", description="Its parameters; `?` marks the optional ones.")
    description: str = Field(default="", description="The first sentence of its description.")
    tier: Tier | None = Field(
        default=None, description="How much it is used here; left out while it was not."
    )
    success_rate: float | None = Field(
        default=None, ge=0, le=1, description="The share of its calls that went well."
    )
    p50_ms: float | None = Field(
        default=None, description="Median latency of its successful calls."
    )
    p95_ms: float | None = Field(default=None, description="95th percentile of the same.")
    also: list[str] = Field(
        default=[], description="Tools of other servers that do the same (search only)."
    )


class Pagination(ApiModel):
    """Where a page is in its list."""

    page: int = Field(description="Counted from 1.")
    page_size: int = Field(description="Items of a page, where the tokens allow.")
    total_count: int = Field(
        description="Items of the list; of a search, the tools that match at all."
    )
    total_pages: int | None = Field(
        default=None,
        description="Left out of a search, where tools that do the same share a place.",
    )


class PaginatedResponse(ApiModel):
    """A page of a list. A page beyond the end is empty."""

    pagination: Pagination
    left_out: int | None = Field(
        default=None, description="Items of this page that `max_tokens` did not allow."
    )
    next: str | None = Field(
        default=None,
        description="The address that goes on exactly after the last item shown; "
        "left out at the end of the list. "
        "It names the list's version: once the list has changed, it answers 409.",
    )
    version: str = Field(description="Changes whenever the list may have.")


class HotTools(ApiModel):
    """T0, the tools to start with: at most 2,000 tokens."""

    model_config = _build_config({"tools": [_TOOL], "grounds": "use", "version": _VERSION})

    tools: list[ToolCard]
    grounds: HotListBasis = Field(
        description="Why these: pins and use, pins alone, or one of each server "
        "while nothing is known of use."
    )
    left_out: int | None = Field(
        default=None, description="How many more there are that did not fit."
    )
    version: str = Field(description="Changes whenever the list may have.")


class CategoryCard(ApiModel):
    """A category. Its tools are at `tools/category/{category}`."""

    category: str = Field(description="Its key.")
    title: str = ""
    description: str = ""
    tools: int = Field(description="How many tools are in it.")
    servers: int = Field(description="How many servers they are of.")
    largest_servers: list[str] = Field(default=[], description="Those with the most tools in it.")
    popular_tools: list[str] = Field(
        default=[], description="The most used tools; unused ones in their order."
    )


class CategoryList(ApiModel):
    """T1, what there is: with T0, at most 4,000 tokens. The more categories, the less is said of
    each."""

    model_config = _build_config(
        {
            "categories": [
                {
                    "category": "version-control",
                    "title": "Version control",
                    "description": "Repositories, commits, branches, reviews.",
                    "tools": 143,
                    "servers": 6,
                    "largest_servers": ["github", "gitlab"],
                    "popular_tools": ["github.create_issue", "github.get_file_contents"],
                }
            ],
            "total_count": 1,
            "version": _VERSION,
        }
    )

    categories: list[CategoryCard] = Field(description="The largest first.")
    total_count: int = Field(description="How many categories there are.")
    left_out: int | None = Field(default=None, description="How many did not fit.")
    next: str | None = Field(default=None, description="The address of those.")
    version: str = Field(description="Changes whenever the list may have.")


class CategoryTools(PaginatedResponse):
    """T2, the tools of a category, hottest first: with T0 and T1, at most 8,000 tokens."""

    model_config = _build_config(
        {
            "category": "version-control",
            "title": "Version control",
            "tools": [_TOOL],
            "pagination": {"page": 1, "page_size": 20, "total_count": 143, "total_pages": 8},
            "next": "/api/v1/tools/category/version-control"
            "?page_size=20&offset=20&max_tokens=4000&version=…",
            "version": _VERSION,
        }
    )

    category: str
    title: str
    tools: list[ToolCard]


class NearestServer(ApiModel):
    """Where to look when nothing fits."""

    server: str
    description: str = ""


class ToolList(PaginatedResponse):
    """Tools that were looked for, best first; or all that pass the filters, hottest first."""

    model_config = _build_config(
        {
            "tools": [_TOOL],
            "fit": "good",
            "pagination": {"page": 1, "page_size": 20, "total_count": 57},
            "version": _VERSION,
        }
    )

    tools: list[ToolCard]
    fit: Literal["good", "unsure", "none"] | None = Field(
        default=None,
        description="How sure it is that the first of these serve the query; "
        "`none`: nothing here does.",
    )
    verdict: str = Field(default="", description="Where nothing fits: that, in words.")
    near_servers: list[NearestServer] = Field(
        default=[], description="Where nothing fits: servers of the nearest tools."
    )
    nearest: list[str] = Field(
        default=[], description="Where nothing fits: tools whose names are spelt alike."
    )
    note: str = Field(default="", description="What the answer could not take into account.")


class ToolUsageSummary(ApiModel):
    """How a tool's calls went."""

    calls: int
    success_rate: float | None = Field(default=None, ge=0, le=1)
    p50_ms: float | None = Field(
        default=None, description="Median latency of the successful calls."
    )
    p95_ms: float | None = None
    last_used: str | None = None
    calls_7d: int | None = None
    calls_30d: int | None = None
    tier: Tier | None = None
    tier_score: float | None = Field(default=None, description="0 … 1, as computed last.")


class BudgetedResponse(ApiModel):
    """What is left out because of `max_tokens`."""

    left_out: list[str] = Field(default=[], description="Keys that did not fit.")
    whole: str | None = Field(default=None, description="The address that has them.")


class ToolDetails(BudgetedResponse):
    """T3, everything that is known of a tool."""

    model_config = _build_config(
        {
            "tool": "github.create_issue",
            "server": "github",
            "name": "create_issue",
            "category": "version-control",
            "usage": {"calls": 0},
            "hash": "5b1f0c6d9e7a4382",
            "listed": "2026-01-31T12:00:00Z",
            "state": "ready",
            "schema": "github.create_issue — Create a new issue in a repository.\n"
            "  owner: string, required …",
            "example": {"owner": "octo", "repo": "hello", "title": "Example"},
            "left_out": ["input_schema"],
            "whole": "/api/v1/tools/github/create_issue?max_tokens=100000",
        }
    )

    tool: str = Field(description="Its address.")
    server: str
    name: str = Field(description="Its name on its server, as it is called here.")
    title: str = ""
    category: str = ""
    tier: Tier = Field(default="cold")
    usage: ToolUsageSummary
    hash: str = Field(description="Changes whenever its definition does.")
    listed: str | None = Field(default=None, description="When its server last listed it.")
    state: str = Field(description="Its server's state.")
    params: str = Field(
        default="", description="Its parameters in brief, where `schema` did not fit."
    )
    summary: str = Field(
        default="", description="What it does in a sentence, where `schema` did not fit."
    )
    schema_text: str = Field(
        default="",
        alias="schema",
        description="The typed form: every parameter with all that a caller needs.",
    )
    example: dict[str, Any] = Field(default={}, description="Arguments of a plausible call.")
    annotations: dict[str, Any] = Field(
        default={}, description="What its server says of it: read-only and the like."
    )
    tags: list[str] = []
    warnings: list[str] = Field(default=[], description="What is wrong with its definition.")
    description: str = Field(default="", description="Its own description, every word.")
    input_schema: Any = Field(default=None, description="Its JSON Schema as its server sent it.")
    output_schema: Any = Field(
        default=None, description="That of its results, where its server has one."
    )
    more: dict[str, Any] = Field(default={}, description="Every other key that its server sent.")


class ServerCard(ApiModel):
    """A server in a line."""

    server: str
    title: str = ""
    description: str = ""
    category: str = Field(default="", description="The category that most of its tools are in.")
    tools: int | None = Field(
        default=None, description="How many; left out while it has not been listed."
    )
    state: str = Field(
        description="configured, known, starting, ready, degraded, down, quarantined or disabled."
    )
    reason: str = Field(default="", description="Why it cannot be used now.")
    since: str | None = None
    version: str = ""


class ServerList(PaginatedResponse):
    """The servers, by name."""

    servers: list[ServerCard]


class ServerDetails(ServerCard, BudgetedResponse):
    """A server with what it says of itself. Its tools are at `tools?server={server}`."""

    tags: list[str] = []
    resources: int = 0
    resource_templates: int = 0
    prompts: int = 0
    protocol: str = ""
    instructions: str = ""
    listed: str | None = None
    warnings: list[str] = []


class ServerRestart(ApiModel):
    """A server that was started anew."""

    server: str
    state: str = Field(description="How it is now: ready, if it was.")
    since: str
    restarts: int = Field(
        description="How often it was started again after something was wrong, or somebody asked."
    )


class CallEntry(ApiModel):
    """A call. What it was given and what came of it is not kept."""

    id: int
    at: str
    tool: str
    ok: bool
    ms: float
    cancelled: bool | None = None
    client: str = ""
    profile: str = ""


class CallList(ApiModel):
    """Calls, the latest first."""

    calls: list[CallEntry]
    next: str | None = Field(default=None, description="The address of earlier ones.")


class GatewayStats(ApiModel):
    """The house in figures."""

    servers: int
    tools: int
    categories: int
    states: dict[str, int] = Field(description="How many servers are in each state.")
    tiers: dict[str, int] = Field(description="How many tools are in each tier.")
    tiers_computed: str | None = Field(
        default=None, description="When; left out while they never were."
    )
    tools_used: int = Field(description="Tools that were ever called.")
    calls: int
    success_rate: float | None = None
    calls_7d: int
    calls_30d: int
    most_used: list[ToolCard] = Field(description="By the calls of the last 30 days.")
    version: str


class TokenCounts(ApiModel):
    """Tokens that clients were shown, and would have been."""

    listing: int = Field(description="What listing every tool to every session would have cost.")
    shown: int = Field(description="What they were shown instead.")
    saved: int
    answers: int


class SessionTokenCounts(TokenCounts):
    """The same of one client's session."""

    client: str = ""
    profile: str = ""
    started: str
    last: str


class TotalTokenCounts(TokenCounts):
    """The same of all."""

    sessions: int


class TokenLedgerReport(ApiModel):
    """The token ledger."""

    total: TotalTokenCounts
    sessions: list[SessionTokenCounts] = Field(description="The latest.")
