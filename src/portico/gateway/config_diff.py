"""Differences between two configurations, and what they require. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pydantic import BaseModel

from portico.config import ApprovalsConfig, BackendConfig, Config, Section

RECONNECT_FIELDS = {
    *("problem", "type", "command", "args", "env", "env_file", "inherit_env", "cwd", "url"),
    "contain",
    *("headers", "auth", "openapi", "base_url", "query", "commands", "functions", "recorded"),
    *("recorded_slug", "isolation", "max_instances", "protocol", "roots"),
}
"""Fields that a connection was opened with: a change requires a new connection."""
_VIEW_FIELDS = (
    *("exposure", "prefix", "intent", "top_k", "metatools", "profiles", "budgets", "pins"),
    *("list_pins", "apps", "rules", "default", "trust"),
)
"""Fields that decide what clients see."""
_LIVE_LIMITS = (
    *("requests", "waiting", "caller_requests", "caller_waiting", "caller_rate_per_s"),
    *("caller_burst", "wait_s", "drain_s", "elicitation_s", "elicitations"),
)
# Of an env_file only the values it fills in matter, which are compared themselves.
_LIVE_SETTINGS = {
    "env_file",
    "inherit_env",
    "contain",
    "log_level",
    "log_format",
    *(f"limits.{key}" for key in _LIVE_LIMITS),
    *(f"approvals.{field.alias or key}" for key, field in ApprovalsConfig.model_fields.items()),
}
"""Settings of the gateway that can change at any time."""
_IGNORED_KEYS = frozenset({"servers", "written"})


@dataclass(frozen=True)
class ConfigChange:
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    restarted: tuple[str, ...] = ()
    """Servers that need a new connection."""
    adjusted: tuple[str, ...] = ()
    """Servers that keep their connection, with changed names, limits or timeouts."""
    has_view_changes: bool = False
    """Whether clients may see something else."""
    applied_settings: tuple[str, ...] = ()
    """Settings of the gateway that are applied at once."""
    pending_settings: tuple[str, ...] = ()
    """Settings that only take effect with the next start of the gateway."""

    def __bool__(self) -> bool:
        return self != NO_CHANGE

    def __str__(self) -> str:
        names_by_label = {
            "added": self.added,
            "removed": self.removed,
            "restarted": self.restarted,
            "adjusted": self.adjusted,
            "set": self.applied_settings,
            "with the next start of the gateway": self.pending_settings,
        }
        parts = [f"{label}: {', '.join(names)}" for label, names in names_by_label.items() if names]
        if self.has_view_changes:
            parts.append("what clients see")
        return "; ".join(parts) or "nothing"


NO_CHANGE = ConfigChange()


def diff_configs(before: Config, after: Config) -> ConfigChange:
    """Return the change that turns a gateway with `before` into one with `after`."""
    old = get_enabled_servers(before)
    new = get_enabled_servers(after)
    both = [name for name in new if name in old]
    differing = {
        name: set(_list_differing_fields(old[name], new[name])) - {"written"} for name in both
    }
    restarted = tuple(name for name in both if differing[name] & RECONNECT_FIELDS)
    settings = tuple(_list_changed_settings(before, after))
    return ConfigChange(
        added=tuple(name for name in new if name not in old),
        removed=tuple(name for name in old if name not in new),
        restarted=restarted,
        adjusted=tuple(name for name in both if differing[name] and name not in restarted),
        has_view_changes=any(getattr(before, key) != getattr(after, key) for key in _VIEW_FIELDS),
        applied_settings=tuple(key for key in settings if key in _LIVE_SETTINGS),
        pending_settings=tuple(key for key in settings if key not in _LIVE_SETTINGS),
    )


def get_enabled_servers(config: Config) -> Mapping[str, BackendConfig]:
    return {name: server for name, server in config.servers.items() if not server.disabled}


def _list_differing_fields(before: BaseModel, after: BaseModel) -> list[str]:
    fields = type(before).model_fields
    return [key for key in fields if getattr(before, key) != getattr(after, key)]


def _list_changed_settings(before: Config, after: Config) -> Iterable[str]:
    """List changed settings of the gateway by their keys in the file."""
    for key in _list_differing_fields(before, after):
        if key in _IGNORED_KEYS or key in _VIEW_FIELDS:
            continue
        old = getattr(before, key)
        if isinstance(old, Section):
            fields = type(old).model_fields
            yield from (
                f"{key}.{fields[part].alias or part}"
                for part in _list_differing_fields(old, getattr(after, key))
            )
        else:
            yield key
