"""One tree of frozen models: everything that can be configured, each field with its help text.

Knows nothing of files, environments or flags (`config_file` does); a `Config` built in Python is as good as a loaded
one. The key in a file is the field's name.

tree (the whole) → backend (one server) → command_tool (a program as a tool) → command_words, command_code;
limits, keeping → section (what every part has in common)
"""

from portico.config.backend import (
    TARGETS,
    BackendConfig,
    CacheConfig,
    Health,
    Kind,
    PromptRules,
    ResourceRules,
    Restart,
    Timeouts,
    ToolRules,
    fingerprint,
    spelled_kind,
)
from portico.config.command_tool import CommandArgument, CommandTool
from portico.config.keeping import Audit, Learning, LearningConfig, Results, Usage
from portico.config.limits import Code, Limits, Workflow
from portico.config.section import Section
from portico.config.tree import (
    LONGEST_NAME,
    META_TOOLS,
    RESERVED_NAMES,
    Budgets,
    Config,
    Exposure,
    Gateway,
    Profile,
    ProfileBudgets,
    View,
    default_data_dir,
)

__all__ = [
    "LONGEST_NAME",
    "META_TOOLS",
    "RESERVED_NAMES",
    "TARGETS",
    "Audit",
    "BackendConfig",
    "Budgets",
    "CacheConfig",
    "Code",
    "CommandArgument",
    "CommandTool",
    "Config",
    "Exposure",
    "Gateway",
    "Health",
    "Kind",
    "Learning",
    "LearningConfig",
    "Limits",
    "Profile",
    "ProfileBudgets",
    "PromptRules",
    "ResourceRules",
    "Restart",
    "Results",
    "Section",
    "Timeouts",
    "ToolRules",
    "Usage",
    "View",
    "Workflow",
    "default_data_dir",
    "fingerprint",
    "spelled_kind",
]
