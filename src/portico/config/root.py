"""Root of the configuration, and the resolution of profiles."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import Field, SecretStr, ValidationInfo, field_validator

from portico.config.backend import BackendConfig
from portico.config.limits import CodeConfig, LimitsConfig, WorkflowConfig
from portico.config.retention import AuditConfig, LearningConfig, ResultsConfig, UsageConfig
from portico.config.section import Section, mark_internal
from portico.errors import UnknownName

Exposure = Literal["meta", "full", "semantic", "code"]
Prefix = Literal["always", "never"]
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
_MISSING_INTENT = (
    "exposure semantic lists the tools for an intent: write what the clients want to do, as in "
    '`intent: "review pull requests"`'
)


class GatewayConfig(Section):
    """The HTTP endpoint."""

    host: str = Field(
        default="127.0.0.1",
        description="Address to listen on; any other than loopback needs a token.",
    )
    port: int = Field(
        default=8420, ge=0, le=65535, description="Port to listen on; 0 picks a free one."
    )
    token: SecretStr | None = Field(
        default=None, description="Bearer token that clients must send."
    )
    allowed_hosts: tuple[str, ...] = Field(
        default=(), description="Host headers accepted beside the loopback names."
    )
    allowed_origins: tuple[str, ...] = Field(
        default=(), description="Origins of web pages that may connect beside the gateway's own."
    )
    api: bool = Field(
        default=True, description="Serve the REST API under /api, with the same token."
    )
    metrics: bool = Field(
        default=True, description="Serve Prometheus metrics under /metrics, with the same token."
    )


class Budgets(Section):
    """Token budgets of answers."""

    discovery: int = Field(
        default=2000, ge=100, description="Answers of search, browse and describe."
    )
    result: int = Field(
        default=8000,
        ge=1000,
        description="A tool's result; a larger one is stored, summarised and read in parts.",
    )
    listing: int = Field(
        default=4000,
        ge=0,
        description="Definitions of the tools listed for an `intent`, or for a query in"
        " tools/list.",
    )


class ProfileBudgets(Section):
    """Budgets of one profile; those not given are the gateway's."""

    discovery: int | None = Field(
        default=None, ge=100, description="Answers of search, browse and describe."
    )
    result: int | None = Field(default=None, ge=1000, description="A tool's result.")
    listing: int | None = Field(
        default=None, ge=0, description="Definitions listed for an intent or query."
    )


class Profile(Section):
    """An endpoint at /mcp/p/{name} and `portico stdio --profile`; defaults: the gateway's."""

    exposure: Exposure | None = Field(default=None, description="What its clients list.")
    intent: str | None = Field(
        default=None, description="What its clients want to do, for `semantic`."
    )
    top_k: int | None = Field(
        default=None, ge=1, le=MAX_LISTED_TOOLS, description="Maximum number of tools for it."
    )
    servers: tuple[str, ...] = Field(
        default=("*",), description="Globs of the servers it contains."
    )
    tools: tuple[str, ...] = Field(
        default=("*",), description="Globs of the tool addresses (`server.tool`) it contains."
    )
    resources: tuple[str, ...] | None = Field(
        default=None,
        description="Globs of the resources and templates (`server.uri`) it contains. Not given:"
        " those of the servers whose tools it contains completely (`*`, `server.*`).",
    )
    prompts: tuple[str, ...] | None = Field(
        default=None,
        description="Globs of the prompts (`server.name`) it contains. Not given: as `resources`.",
    )
    budgets: ProfileBudgets = Field(default=ProfileBudgets(), description="Its token budgets.")
    metatools: dict[MetaTool, bool] = Field(default={}, description="Its meta-tool switches.")


@dataclass(frozen=True, slots=True)
class ResolvedProfile:
    """A profile with all defaults applied."""

    profile: str | None
    exposure: Exposure
    servers: tuple[str, ...]
    tools: tuple[str, ...]
    discovery_budget: int
    result_budget: int
    metatools: frozenset[str]
    """Names of the meta-tools that are switched on."""
    intent: str = ""
    top_k: int = 10
    listing_budget: int = 4_000
    resources: tuple[str, ...] | None = None
    prompts: tuple[str, ...] | None = None


def get_default_data_dir() -> Path:
    """Return this user's data directory on this platform."""
    import platformdirs  # takes milliseconds, and only needed without a configured directory

    return Path(platformdirs.user_data_dir("portico", appauthor=False))


class Config(Section):
    """The complete configuration."""

    servers: dict[str, BackendConfig] = Field(
        default={}, description="The servers behind the gateway, by name."
    )
    gateway: GatewayConfig = Field(default=GatewayConfig(), description="The HTTP endpoint.")
    intent: str | None = Field(
        default=None,
        description="`semantic`: what clients want to do, in plain words; matching tools are"
        " listed.",
    )
    exposure: Exposure = Field(
        default="meta",
        description="What clients list: the meta-tools, every tool, the meta-tools with the tools"
        " for the `intent`, or only search, describe and scripts.",
    )
    top_k: int = Field(
        default=10,
        ge=1,
        le=MAX_LISTED_TOOLS,
        description="Maximum number of tools listed for an intent, or for a query in tools/list.",
    )
    prefix: Prefix = Field(
        default="always",
        description="Names in `full`: `always` server__tool; `never` leaves those of a single"
        " server unchanged.",
    )
    metatools: dict[MetaTool, bool] = Field(
        default={},
        description="Switches: `call_tool: false` disables it, and scripts and workflows unless"
        " switched on.",
    )
    profiles: dict[str, Profile] = Field(default={}, description="Profiles, by name.")
    budgets: Budgets = Field(default=Budgets(), description="Token budgets of answers.")
    limits: LimitsConfig = Field(default=LimitsConfig(), description="Limits of the gateway.")
    learning: LearningConfig = Field(
        default=LearningConfig(), description="What search learns from use."
    )
    pins: tuple[str, ...] = Field(
        default=(),
        description="Addresses (`server.tool`) of tools at the top of the hot list, whatever their"
        " use.",
    )
    results: ResultsConfig = Field(default=ResultsConfig(), description="Large results.")
    code: CodeConfig = Field(default=CodeConfig(), description="Scripts.")
    workflow: WorkflowConfig = Field(default=WorkflowConfig(), description="Workflows.")
    usage: UsageConfig = Field(default=UsageConfig(), description="Recorded calls.")
    audit: AuditConfig = Field(default=AuditConfig(), description="The audit log of calls.")
    watch: bool = Field(
        default=True,
        description="Apply configuration changes while running; only changed servers restart.",
    )
    database_url: SecretStr | None = Field(
        default=None,
        description="PostgreSQL to share with other gateways"
        " (`postgresql://user:password@host/name`): catalog, usage, tiers. Without it, a SQLite"
        " file in `data_dir` is used.",
    )
    env_file: str | None = Field(
        default=None,
        description="A file of KEY=VALUE lines for ${VAR}, relative to the file; the environment"
        " takes precedence. `portico adopt` stores secrets there.",
    )
    data_dir: Path = Field(
        default_factory=get_default_data_dir,
        description="Directory for everything Portico stores.",
    )
    log_level: LogLevel = Field(
        default="warning", description="Least severe messages that are logged (to stderr)."
    )
    log_format: Literal["text", "json"] = Field(
        default="text", description="Format of log lines: for people, or one JSON object a line."
    )
    written: dict[str, str] = Field(
        default={}, **mark_internal("As in a server, for keys outside servers.")
    )

    @field_validator("log_level", mode="before")
    @classmethod
    def _lower_log_level(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"warn": "warning"}.get(value.lower(), value.lower())
        return value

    @field_validator("profiles")
    @classmethod
    def _check_profile_names(cls, value: dict[str, Profile]) -> dict[str, Profile]:
        for name in value:
            if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
                raise ValueError(
                    f"{name!r} cannot be part of a URL: use 1 to 64 of A-Z a-z 0-9 _ -"
                )
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

    @field_validator("exposure")
    @classmethod
    def _check_intent(cls, value: Exposure, info: ValidationInfo) -> Exposure:
        if value == "semantic" and not (info.data.get("intent") or "").strip():
            raise ValueError(_MISSING_INTENT)
        return value

    @field_validator("profiles")
    @classmethod
    def _check_profile_intents(
        cls, value: dict[str, Profile], info: ValidationInfo
    ) -> dict[str, Profile]:
        for name, profile in value.items():
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
        switches: dict[str, bool] = {**self.metatools, **own.metatools}
        return ResolvedProfile(
            profile,
            own.exposure or self.exposure,
            own.servers,
            own.tools,
            own.budgets.discovery or self.budgets.discovery,
            own.budgets.result or self.budgets.result,
            frozenset(
                name
                for name in META_TOOLS
                if switches.get(
                    name, switches.get("call_tool", True) or name in _META_TOOLS_WITHOUT_CALLS
                )
            ),
            (own.intent or self.intent or "").strip(),
            own.top_k or self.top_k,
            self.budgets.listing if own.budgets.listing is None else own.budgets.listing,
            own.resources,
            own.prompts,
        )
