"""Configuration models: one tree of frozen pydantic models, each field with its help text.

Knows nothing of files, environments or flags (`config_file` does); a `Config` built in Python is
equivalent to a loaded one. The key in a file is the field's name.

root: the whole tree, profiles · backend: one server · command_tool, command_words,
command_injection: a program as a tool · limits, retention: limits and stored data
section: the common base class
"""

from portico.config.backend import (
    TARGETS,
    BackendConfig,
    BackendKind,
    CacheConfig,
    HealthConfig,
    PromptRules,
    ResourceRules,
    RestartConfig,
    Timeouts,
    ToolRules,
    compute_fingerprint,
    parse_kind,
)
from portico.config.command_tool import CommandArgument, CommandTool
from portico.config.limits import CodeConfig, LimitsConfig, WorkflowConfig
from portico.config.retention import (
    AuditConfig,
    LearningConfig,
    LearningMode,
    ResultsConfig,
    UsageConfig,
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
from portico.config.section import Section

__all__ = [
    "MAX_SERVER_NAME_LENGTH",
    "META_TOOLS",
    "RESERVED_NAMES",
    "TARGETS",
    "AuditConfig",
    "BackendConfig",
    "BackendKind",
    "Budgets",
    "CacheConfig",
    "CodeConfig",
    "CommandArgument",
    "CommandTool",
    "Config",
    "Exposure",
    "GatewayConfig",
    "HealthConfig",
    "LearningConfig",
    "LearningMode",
    "LimitsConfig",
    "Profile",
    "ProfileBudgets",
    "PromptRules",
    "ResolvedProfile",
    "ResourceRules",
    "RestartConfig",
    "ResultsConfig",
    "Section",
    "Timeouts",
    "ToolRules",
    "UsageConfig",
    "WorkflowConfig",
    "compute_fingerprint",
    "get_default_data_dir",
    "parse_kind",
]
