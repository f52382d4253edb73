"""Root of the configuration, and the resolution of profiles."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, get_args

from pydantic import Field, SecretStr, ValidationInfo, field_validator, model_validator

from portico.config.approvals import ApprovalsConfig
from portico.config.auth import EVERY_PROFILE, IssuerConfig
from portico.config.backend import BackendConfig, Trust
from portico.config.containment import ContainmentConfig
from portico.config.limits import (
    AuditConfig,
    CodeConfig,
    LearningConfig,
    LimitsConfig,
    ResultsConfig,
    UsageConfig,
    WorkflowConfig,
)
from portico.config.registry import RegistryConfig
from portico.config.rules import MAX_RULES, Effect, Rule
from portico.config.section import Section, internal, list_names, setting
from portico.errors import UnknownName
from portico.standard_paths import get_user_folder

Exposure = Literal["meta", "full", "semantic", "code"]
Prefix = Literal["always", "never"]
AppsSetting = Literal["listed", "always", "off"]
MetaTool = Literal[
    "search_tools",
    "browse_tools",
    "describe_tools",
    "call_tool",
    "run_code",
    "run_workflow",
    "read_result",
]
LogLevel = Literal["debug", "info", "warning", "error"]

META_TOOLS: tuple[str, ...] = get_args(MetaTool)
_META_TOOLS_WITHOUT_CALLS = frozenset(
    {"search_tools", "browse_tools", "describe_tools", "read_result"}
)
"""Without `call_tool`, scripts and workflows are off too, unless switched on."""
RESERVED_NAMES = frozenset({"portico"})
MAX_SERVER_NAME_LENGTH = 40
MAX_LISTED_TOOLS = 100
MAX_ISSUERS = 16
_MISSING_INTENT = (
    "exposure semantic lists the tools for an intent: write what the clients want to do, as in "
    '`intent: "review pull requests"`'
)


class GatewayConfig(Section):
    """The HTTP endpoint."""

    host: str = setting("127.0.0.1", "Address to listen on; any other than loopback needs a token.")
    port: int = setting(8420, "Port to listen on; 0 picks a free one.", ge=0, le=65535)
    token: SecretStr | None = setting(None, "Bearer token that clients must send.")
    public_url: str | None = setting(
        None,
        "The gateway's address as clients elsewhere write it, without `/mcp`, such as"
        " `https://portico.example.org`. Its host and its own pages are accepted.",
    )
    allowed_hosts: tuple[str, ...] = setting((), "Host headers accepted beside the loopback names.")
    allowed_origins: tuple[str, ...] = setting(
        (), "Origins of web pages that may connect beside the gateway's own."
    )
    api: bool = setting(True, "Serve the REST API under /api, with the same token.")
    console: bool = setting(
        True, "Serve the console for people under /console; it needs the REST API."
    )
    metrics: bool = setting(True, "Serve Prometheus metrics under /metrics, with the same token.")

    @field_validator("public_url")
    @classmethod
    def _check_public_url(cls, value: str | None) -> str | None:
        if value is None:
            return None
        if re.fullmatch(r"https?://[\w.:\[\]-]+(?:/[\w./~-]*)?", value, re.ASCII) is None:
            raise ValueError("write a whole URL without ? and #, as in https://portico.example.org")
        return value.rstrip("/")


class SearchConfig(Section):
    """Search for tools."""

    ranking: str = setting(
        "both",
        "How tools are ranked: by `words` (BM25), by `meaning` (vectors), by `both`, or by"
        " `package.module:function`, a function `(query, tools, words, meaning)` of yours. It gets"
        " the addresses of all tools and their scores by words and by meaning as arrays, and"
        " returns a score of 0 (no match) to 1 for each.",
        pattern=r"^(words|meaning|both|[\w.]+:\w+)$",
    )


class Budgets(Section):
    """Token budgets of answers."""

    discovery: int = setting(2000, "Answers of search, browse and describe.", ge=100)
    result: int = setting(
        8000, "A tool's result; a larger one is stored, summarised and read in parts.", ge=1000
    )
    listing: int = setting(
        4000, "Definitions of the tools listed for an `intent`, or for a query in tools/list.", ge=0
    )
    apps: int = setting(
        2000, "Definitions of the tools with an app that are listed beside the meta-tools.", ge=0
    )


class ProfileBudgets(Section):
    """Budgets of one profile; those not given are the gateway's."""

    discovery: int | None = setting(None, "Answers of search, browse and describe.", ge=100)
    result: int | None = setting(None, "A tool's result.", ge=1000)
    listing: int | None = setting(None, "Definitions listed for an intent or query.", ge=0)
    apps: int | None = setting(None, "Definitions of tools with an app.", ge=0)


class Profile(Section):
    """An endpoint at /mcp/p/{name} and `portico stdio --profile`; defaults: the gateway's."""

    exposure: Exposure | None = setting(None, "What its clients list.")
    intent: str | None = setting(None, "What its clients want to do, for `semantic`.")
    top_k: int | None = setting(None, "Maximum number of tools for it.", ge=1, le=MAX_LISTED_TOOLS)
    servers: tuple[str, ...] = setting(("*",), "Globs of the servers it contains.")
    tools: tuple[str, ...] = setting(
        ("*",), "Globs of the tool addresses (`server.tool`) it contains."
    )
    resources: tuple[str, ...] | None = setting(
        None,
        "Globs of the resources and templates (`server.uri`) it contains. Not given: those of"
        " the servers whose tools it contains completely (`*`, `server.*`).",
    )
    prompts: tuple[str, ...] | None = setting(
        None, "Globs of the prompts (`server.name`) it contains. Not given: as `resources`."
    )
    budgets: ProfileBudgets = setting(ProfileBudgets(), "Its token budgets.")
    metatools: dict[MetaTool, bool] = setting({}, "Its meta-tool switches.")
    apps: AppsSetting | None = setting(None, "Whether its clients list tools with an app.")


@dataclass(frozen=True)
class ResolvedProfile:
    """A profile with all defaults applied."""

    profile: str = ""
    """Its name; empty for the default endpoint."""
    exposure: Exposure = "meta"
    servers: tuple[str, ...] = ("*",)
    tools: tuple[str, ...] = ("*",)
    resources: tuple[str, ...] | None = None
    prompts: tuple[str, ...] | None = None
    meta_tools: frozenset[str] = frozenset(META_TOOLS)
    """Names of the meta-tools that are switched on."""
    discovery_budget: int = 2_000
    result_budget: int = 8_000
    listing_budget: int = 4_000
    """Tokens for the definitions selected by an intent, or by a query in `tools/list`."""
    apps: AppsSetting = "listed"
    apps_budget: int = 2_000
    """Tokens for the definitions of tools with an app, beside the meta-tools."""
    splits_calls: bool = False
    """Whether three meta-tools stand in place of `call_tool`, by what the tools do."""
    intent: str = ""
    """Task description by which the `semantic` exposure selects tools."""
    top_k: int = 10


def get_default_data_dir() -> Path:
    """Return this user's data directory on this platform."""
    return Path(get_user_folder("data", os.environ))


class Config(Section):
    """The complete configuration."""

    servers: dict[str, BackendConfig] = setting({}, "The servers behind the gateway, by name.")
    gateway: GatewayConfig = setting(GatewayConfig(), "The HTTP endpoint.")
    intent: str | None = setting(
        None, "`semantic`: what clients want to do, in plain words; matching tools are listed."
    )
    exposure: Exposure = setting(
        "meta",
        "What clients list: the meta-tools, every tool, the meta-tools with the tools for the"
        " `intent`, or only search, describe and scripts.",
    )
    top_k: int = setting(
        10,
        "Maximum number of tools listed for an intent, or for a query in tools/list.",
        ge=1,
        le=MAX_LISTED_TOOLS,
    )
    prefix: Prefix = setting(
        "always",
        "Names in `full`: `always` server__tool; `never` leaves those of a single server"
        " unchanged.",
    )
    metatools: dict[MetaTool, bool] = setting(
        {},
        "Switches: `call_tool: false` disables it, and scripts and workflows unless switched on.",
    )
    apps: AppsSetting = setting(
        "listed",
        "Whether tools with an app (MCP Apps) are listed beside the meta-tools, so that hosts"
        " render their apps: `listed`, to clients that declare the extension; `always`, to every"
        " client; `off`, to none.",
    )
    profiles: dict[str, Profile] = setting({}, "Profiles, by name.")
    rules: tuple[Rule, ...] = setting(
        (),
        "Who may do what: the first rule that fits a request decides it.",
        max_length=MAX_RULES,
    )
    default: Effect = setting("allow", "What is decided where no rule fits.")
    approvals: ApprovalsConfig = setting(
        ApprovalsConfig(), "Approvals of calls for which a rule says `ask`."
    )
    trust: Trust = setting(
        "first",
        "What is held back of what servers say of their tools, prompts and themselves until"
        " somebody has looked at it: `first`, what changes after it was first listed; `ask`,"
        " everything; `always`, nothing.",
    )
    auth: tuple[IssuerConfig, ...] = setting(
        (),
        "Identity providers whose tokens open the gateway over HTTP: one, or a list of them.",
        max_length=MAX_ISSUERS,
    )
    registry: RegistryConfig = setting(
        RegistryConfig(), "Registries: where servers are found, and what is listed as one."
    )
    budgets: Budgets = setting(Budgets(), "Token budgets of answers.")
    search: SearchConfig = setting(SearchConfig(), "Search for tools.")
    limits: LimitsConfig = setting(LimitsConfig(), "Limits of the gateway.")
    learning: LearningConfig = setting(LearningConfig(), "What search learns from use.")
    pins: tuple[str, ...] = setting(
        (), "Addresses (`server.tool`) of tools at the top of the hot list, whatever their use."
    )
    list_pins: bool = setting(
        False, "List the tools in `pins` beside the meta-tools, to be called directly."
    )
    results: ResultsConfig = setting(ResultsConfig(), "Large results.")
    code: CodeConfig = setting(CodeConfig(), "Scripts.")
    workflow: WorkflowConfig = setting(WorkflowConfig(), "Workflows.")
    usage: UsageConfig = setting(UsageConfig(), "Recorded calls.")
    audit: AuditConfig = setting(AuditConfig(), "The audit log of calls.")
    watch: bool = setting(
        True, "Apply configuration changes while running; only changed servers restart."
    )
    database_url: SecretStr | None = setting(
        None,
        "PostgreSQL to share with other gateways (`postgresql://user:password@host/name`):"
        " catalog, usage, tiers. Without it, a SQLite file in `data_dir` is used.",
    )
    credentials_key: SecretStr | None = setting(
        None,
        "What the tokens of servers are encrypted with where gateways share a database: 32"
        " characters or more, the same for all. Without it, a key is made and kept in the keychain"
        " or in `data_dir`.",
        min_length=32,
    )
    inherit_env: tuple[str, ...] = setting(
        (),
        "Variables of the gateway passed on to every server it starts, beside the default ones"
        " and the server's own `inherit_env`: names, patterns (`AWS_*`) or `all`.",
    )
    contain: ContainmentConfig | bool = setting(
        False,
        "Contain every server with a `command` that does not say otherwise (Linux): `true`, or what"
        " all of them may reach.",
    )
    env_file: str | None = setting(
        None,
        "A file of KEY=VALUE lines for ${VAR}, relative to the file; the environment takes"
        " precedence. `portico adopt` stores secrets there.",
    )
    data_dir: Path = Field(
        default_factory=get_default_data_dir,
        description="Directory for everything Portico stores.",
    )
    log_level: LogLevel = setting("warning", "Least severe messages that are logged (to stderr).")
    log_format: Literal["text", "json"] = setting(
        "text", "Format of log lines: for people, or one JSON object a line."
    )
    written: dict[str, str] = internal({}, "As in a server, for keys outside servers.")

    @field_validator("log_level", mode="before")
    @classmethod
    def _lower_log_level(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"warn": "warning"}.get(value.lower(), value.lower())
        return value

    @field_validator("servers")
    @classmethod
    def _check_server_names(cls, value: dict[str, BackendConfig]) -> dict[str, BackendConfig]:
        for name in value:
            if (
                not re.fullmatch(f"[A-Za-z0-9_-]{{1,{MAX_SERVER_NAME_LENGTH}}}", name)
                or name.lower() in RESERVED_NAMES
            ):
                raise ValueError(
                    f"{name!r} is no server name: use up to {MAX_SERVER_NAME_LENGTH} of A-Z a-z 0-9"
                    " _ -, not portico"
                )
        return value

    @model_validator(mode="after")
    def _pass_defaults_to_servers(self) -> Self:
        for name, server in self.servers.items():
            inheriting = server.add_inherited(self.inherit_env)
            self.servers[name] = inheriting.add_containment(self.contain)
        return self

    @field_validator("auth", mode="before")
    @classmethod
    def _list_issuers(cls, value: Any) -> Any:
        return [value] if isinstance(value, dict | IssuerConfig) else value

    @model_validator(mode="after")
    def _check_auth(self) -> Self:
        issuers = [one.issuer for one in self.auth]
        if len(set(issuers)) < len(issuers):
            raise ValueError("auth: an issuer is named twice")
        if sum(one.introspection is not None for one in self.auth) > 1:
            raise ValueError(
                "auth: only one issuer may have introspection: a token would be shown to others"
                " than its own"
            )
        proxied = [one for one in self.auth if one.proxy is not None]
        if len(proxied) > 1:
            raise ValueError("auth: only one issuer may have proxy")
        if proxied and self.gateway.public_url is None:
            raise ValueError("auth: proxy needs gateway.public_url: clients are sent there")
        for one in self.auth:
            if not one.audience and self.gateway.public_url is None:
                raise ValueError(
                    f"auth: nothing says which tokens of {one.issuer} are meant for this gateway:"
                    " set gateway.public_url, or its audience"
                )
            for profile in one.profiles:
                if profile != EVERY_PROFILE and profile not in self.profiles:
                    raise ValueError(f"auth: {one.issuer} opens a profile {profile!r} that is none")
        return self

    @field_validator("inherit_env", mode="before")
    @classmethod
    def _list_inherited(cls, value: Any) -> Any:
        return list_names(value)

    @field_validator("exposure")
    @classmethod
    def _check_intent(cls, value: Exposure, info: ValidationInfo) -> Exposure:
        if value == "semantic" and not (info.data.get("intent") or "").strip():
            raise ValueError(_MISSING_INTENT)
        return value

    @field_validator("profiles")
    @classmethod
    def _check_profiles(cls, value: dict[str, Profile], info: ValidationInfo) -> dict[str, Profile]:
        for name, profile in value.items():
            if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
                raise ValueError(
                    f"{name!r} cannot be part of a URL: use 1 to 64 of A-Z a-z 0-9 _ -"
                )
            intent = profile.intent or info.data.get("intent") or ""
            if profile.exposure == "semantic" and not intent.strip():
                raise ValueError(f"{name}: {_MISSING_INTENT}")
        return value

    def resolve_profile(self, profile: str | None = None) -> ResolvedProfile:
        """Apply defaults to `profile` (None: the default endpoint); raises UnknownName."""
        if profile is not None and profile not in self.profiles:
            raise UnknownName(
                f"There is no profile {profile!r}.",
                nearest=tuple(self.profiles),
                advice=f"Profiles: {', '.join(self.profiles) or 'none is configured'}.",
            )
        own = self.profiles[profile] if profile is not None else Profile()
        budgets = self.budgets.model_copy(update=own.budgets.model_dump(exclude_none=True))
        switches: dict[str, bool] = {**self.metatools, **own.metatools}
        calls = switches.get("call_tool", True)
        return ResolvedProfile(
            profile=profile or "",
            exposure=own.exposure or self.exposure,
            servers=own.servers,
            tools=own.tools,
            resources=own.resources,
            prompts=own.prompts,
            meta_tools=frozenset(
                name
                for name in META_TOOLS
                if switches.get(name, calls or name in _META_TOOLS_WITHOUT_CALLS)
            ),
            discovery_budget=budgets.discovery,
            result_budget=budgets.result,
            listing_budget=budgets.listing,
            apps=own.apps or self.apps,
            apps_budget=budgets.apps,
            splits_calls=self.approvals.split,
            intent=(own.intent or self.intent or "").strip(),
            top_k=own.top_k or self.top_k,
        )
