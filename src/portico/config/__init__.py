"""Configuration models: one tree of frozen pydantic models, each field with its help text.

Knows nothing of files, environments or flags (`config_file` does); a `Config` built in Python is
equivalent to a loaded one. The key in a file is the field's name.

root: the whole tree, profiles · rules: who may do what · approvals: who may approve what they ask
auth, auth_proxy: identity providers · backend, server_rules: one server
containment: what a contained server may reach · limits: limits and retention
command_tool, command_words: a program as a tool
inherited_environment: which variables a server process gets · section: the common base class
"""

from portico.config.approvals import ApprovalsConfig
from portico.config.auth import IntrospectionConfig, IssuerConfig
from portico.config.auth_proxy import ProxyConfig
from portico.config.backend import (
    TARGETS,
    BackendConfig,
    BackendKind,
    Trust,
    compute_fingerprint,
    parse_kind,
)
from portico.config.command_tool import CommandArgument, CommandTool
from portico.config.containment import ContainmentConfig
from portico.config.limits import (
    AuditConfig,
    CodeConfig,
    LearningConfig,
    LearningMode,
    LimitsConfig,
    ResultsConfig,
    UsageConfig,
    WorkflowConfig,
)
from portico.config.root import (
    MAX_SERVER_NAME_LENGTH,
    META_TOOLS,
    RESERVED_NAMES,
    Budgets,
    Config,
    Exposure,
    GatewayConfig,
    Profile,
    ProfileBudgets,
    ResolvedProfile,
    get_default_data_dir,
)
from portico.config.rules import Effect, Rule
from portico.config.section import Section
from portico.config.server_rules import (
    CacheConfig,
    HealthConfig,
    PromptRules,
    ResourceRules,
    RestartConfig,
    RetryConfig,
    ServerLimits,
    Timeouts,
    ToolRules,
)
from portico.config.tool_overrides import ParameterOverride, ToolOverride

__all__ = [
    "MAX_SERVER_NAME_LENGTH",
    "META_TOOLS",
    "RESERVED_NAMES",
    "TARGETS",
    "ApprovalsConfig",
    "AuditConfig",
    "BackendConfig",
    "BackendKind",
    "Budgets",
    "CacheConfig",
    "CodeConfig",
    "CommandArgument",
    "CommandTool",
    "Config",
    "ContainmentConfig",
    "Effect",
    "Exposure",
    "GatewayConfig",
    "HealthConfig",
    "IntrospectionConfig",
    "IssuerConfig",
    "LearningConfig",
    "LearningMode",
    "LimitsConfig",
    "ParameterOverride",
    "Profile",
    "ProfileBudgets",
    "PromptRules",
    "ProxyConfig",
    "ResolvedProfile",
    "ResourceRules",
    "RestartConfig",
    "ResultsConfig",
    "RetryConfig",
    "Rule",
    "Section",
    "ServerLimits",
    "Timeouts",
    "ToolOverride",
    "ToolRules",
    "Trust",
    "UsageConfig",
    "WorkflowConfig",
    "compute_fingerprint",
    "get_default_data_dir",
    "parse_kind",
]
