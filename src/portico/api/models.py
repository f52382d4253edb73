"""Models of the API's answers. Cards of tools, categories and servers are plain dicts; tests check
that they match."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from portico.usage.tool_tiers import HotListBasis, Tier

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


def optional(default: Any, description: str, **limits: Any) -> Any:
    """Return a field that is left out of an answer while it has its default."""
    return Field(default=default, description=description, **limits)


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
    identifier: str = optional("", "Its name in scripts, where that is another.")
    params: str = optional("", "Its parameters; `?` marks the optional ones.")
    description: str = optional("", "The first sentence of its description.")
    returns: str = optional("", "What it returns, declared or learned; not in the hot list.")
    tags: list[str] = optional([], "The tags of its server.")
    tier: Tier | None = optional(None, "How much it is used here; left out while it was not.")
    success_rate: float | None = optional(
        None, "The share of its calls that succeeded.", ge=0, le=1
    )
    p50_ms: float | None = optional(None, "Median latency of its successful calls.")
    p95_ms: float | None = optional(None, "95th percentile of the same.")
    also: list[str] = optional([], "Tools of other servers that do the same (search only).")
    why: list[str] = optional([], "Why it ranks here, signal by signal (with `explain`).")


class Pagination(ApiModel):
    """Where a page is in its list."""

    page: int = Field(description="Counted from 1.")
    page_size: int = Field(description="Items of a page, where the tokens allow.")
    total_count: int = Field(
        description="Items of the list; of a search, the tools that match at all."
    )
    total_pages: int | None = optional(
        None, "Left out of a search, where tools that do the same share a place."
    )


class PaginatedResponse(ApiModel):
    """A page of a list. A page beyond the end is empty."""

    pagination: Pagination
    left_out: int | None = optional(None, "Items of this page that `max_tokens` did not allow.")
    next: str | None = optional(
        None,
        "The address that goes on exactly after the last item shown; left out at the end of"
        " the list. It names the list's version: once the list has changed, it answers 409.",
    )
    version: str = Field(description="Changes whenever the list may have.")


class HotTools(ApiModel):
    """The hot list, the tools to start with: at most 2,000 tokens."""

    model_config = _build_config({"tools": [_TOOL], "grounds": "use", "version": _VERSION})

    tools: list[ToolCard]
    grounds: HotListBasis = Field(
        description="Why these: pins and use, pins alone, or some of each server "
        "while nothing is known of use."
    )
    left_out: int | None = optional(None, "How many more there are that did not fit.")
    version: str = Field(description="Changes whenever the list may have.")


class CategoryCard(ApiModel):
    """A category. Its tools are at `tools/category/{category}`."""

    category: str = Field(description="Its key.")
    title: str = ""
    description: str = ""
    tools: int = Field(description="How many tools are in it.")
    servers: int = Field(description="How many servers they are of.")
    largest_servers: list[str] = optional([], "Those with the most tools in it.")
    popular_tools: list[str] = optional([], "The most used tools; unused ones in their order.")


class CategoryList(ApiModel):
    """The categories: with the hot list, at most 4,000 tokens. The more categories, the less
    detail of each."""

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
    left_out: int | None = optional(None, "How many did not fit.")
    next: str | None = optional(None, "The address of those.")
    version: str = Field(description="Changes whenever the list may have.")


class CategoryTools(PaginatedResponse):
    """The tools of a category, most used first: with hot list and categories, at most 8,000
    tokens."""

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
    """A server to look at when nothing fits."""

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
    fit: Literal["good", "unsure", "none"] | None = optional(
        None,
        "How certain it is that the first of these serve the query; `none`: nothing here does.",
    )
    verdict: str = optional("", "Where nothing fits: that, in words.")
    near_servers: list[NearestServer] = optional(
        [], "Where nothing fits: servers of the nearest tools."
    )
    nearest: list[str] = optional([], "Where nothing fits: tools whose names are spelt alike.")
    unlisted: list[str] = optional([], "Servers that were not searched: not listed yet.")
    note: str = optional("", "What the answer could not take into account.")
    explanation: str = optional("", "What was compared, and how certain it is (with `explain`).")
    expected: list[str] = optional([], "Where the expected tool ranks, and why (with `expect`).")


class ToolUsageSummary(ApiModel):
    """Calls of a tool and their outcome."""

    calls: int
    success_rate: float | None = Field(default=None, ge=0, le=1)
    p50_ms: float | None = optional(None, "Median latency of the successful calls.")
    p95_ms: float | None = None
    last_used: str | None = None
    calls_7d: int | None = None
    calls_30d: int | None = None
    tier: Tier | None = None
    tier_score: float | None = optional(None, "0 … 1, as computed last.")


class BudgetedResponse(ApiModel):
    """What is left out because of `max_tokens`."""

    left_out: list[str] = optional([], "Keys that did not fit.")
    whole: str | None = optional(None, "The address that has them.")


class ToolExample(ApiModel):
    """A plausible call of a tool."""

    arguments: dict[str, Any]
    description: str = Field(description="Which call it is.")


class ToolDetails(BudgetedResponse):
    """Everything that is known of a tool."""

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
    listed: str | None = optional(None, "When its server last listed it.")
    state: str = Field(description="Its server's state.")
    params: str = optional("", "Its parameters in brief, where `schema` did not fit.")
    summary: str = optional("", "What it does in a sentence, where `schema` did not fit.")
    schema_text: str = optional(
        "", "The typed form: every parameter with all that a caller needs.", alias="schema"
    )
    example: dict[str, Any] = optional({}, "Arguments of a plausible call.")
    examples: list[ToolExample] = optional([], "One to three plausible calls.")
    annotations: dict[str, Any] = optional({}, "The hints of its server: read-only and the like.")
    tags: list[str] = []
    warnings: list[str] = optional([], "What is wrong with its definition.")
    notes: list[str] = optional([], "Notes on it in the configuration.")
    references: list[str] = optional([], "Addresses to read on at, from the configuration.")
    description: str = optional("", "Its own description, every word.")
    input_schema: Any = optional(None, "Its JSON Schema as its server sent it.")
    output_schema: Any = optional(None, "That of its results, where its server has one.")
    more: dict[str, Any] = optional({}, "Every other key that its server sent.")


class ServerCard(ApiModel):
    """A server in a line."""

    server: str
    identifier: str = Field(description="Its name in scripts.")
    title: str = ""
    description: str = ""
    type: str = optional("", "How it is reached: stdio, http, openapi …")
    category: str = optional("", "The category that most of its tools are in.")
    tools: int | None = optional(None, "How many; left out while it has not been listed.")
    state: str = Field(
        description="configured, known, starting, ready, degraded, down, quarantined,"
        " needs sign-in or disabled."
    )
    reason: str = optional("", "Why it cannot be used now.")
    since: str | None = None
    version: str = ""


class ServerList(PaginatedResponse):
    """The servers, by name."""

    servers: list[ServerCard]


class ServerDetails(ServerCard, BudgetedResponse):
    """A server with its own instructions. Its tools are at `tools?server={server}`."""

    tags: list[str] = []
    resources: int = 0
    resource_templates: int = 0
    prompts: int = 0
    protocol: str = ""
    instructions: str = ""
    listed: str | None = None
    tokens: int = Field(
        default=0, description="What its tools would cost a client that listed them directly."
    )
    warnings: list[str] = []


class ServerRestart(ApiModel):
    """A server that was restarted."""

    server: str
    state: str = Field(description="Its state now: ready, if the restart succeeded.")
    since: str
    restarts: int = Field(description="Number of restarts, after failures or on request.")


class CacheCounts(ApiModel):
    """Requests of a tier, and how many were answered from the cache."""

    requests: int
    hits: int
    hit_rate: float = Field(ge=0, le=1)


class GatewayStats(ApiModel):
    """Statistics of the gateway."""

    servers: int
    tools: int
    categories: int
    states: dict[str, int] = Field(description="How many servers are in each state.")
    tiers: dict[str, int] = Field(description="How many tools are in each tier.")
    tiers_computed: str | None = optional(None, "When; left out while they never were.")
    tools_used: int = Field(description="Number of tools that were ever called.")
    calls: int
    success_rate: float | None = None
    calls_7d: int
    calls_30d: int
    most_used: list[ToolCard] = Field(description="By the calls of the last 30 days.")
    tier_caches: dict[str, CacheCounts] = optional(
        {}, "Of `hot`, `categories`, `category` and `tool`, as far as they were requested."
    )
    version: str


class TokenCounts(ApiModel):
    """Tokens that clients were shown, and would have been."""

    listing: int = Field(description="What listing every tool to every session would have cost.")
    shown: int = Field(description="What they were shown instead.")
    saved: int
    answers: int


class SessionTokenCounts(TokenCounts):
    """The same of one client's session."""

    client: str
    profile: str
    started: str
    last: str


class TotalTokenCounts(TokenCounts):
    """The same of all."""

    sessions: int


class TokenLedgerReport(ApiModel):
    """The token ledger."""

    total: TotalTokenCounts
    sessions: list[SessionTokenCounts] = Field(description="The latest.")
