"""Differences between two configurations, and what they require. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from portico.config import BackendConfig, Config

RECONNECT_FIELDS = frozenset(
    {
        "problem",
        "type",
        "command",
        "args",
        "env",
        "env_file",
        "inherit_env",
        "cwd",
        "url",
        "headers",
        "openapi",
        "base_url",
        "query",
        "commands",
        "functions",
        "recorded",
        "recorded_slug",
        "isolation",
        "max_instances",
        "protocol",
        "roots",
    }
)
"""Fields that a connection was opened with: a change requires a new connection."""
_VIEW_FIELDS = ("exposure", "prefix", "intent", "top_k", "metatools", "profiles", "budgets", "pins")
"""Fields that decide what clients see."""
_LIVE_SETTINGS = frozenset(
    {
        "env_file",  # only the values it fills in matter, which are compared themselves
        "log_level",
        "log_format",
        *(
            f"limits.{key}"
            for key in (
                "requests",
                "waiting",
                "caller_requests",
                "caller_waiting",
                "caller_rate_per_s",
                "caller_burst",
                "wait_s",
                "drain_s",
                "question_s",
                "questions",
            )
        ),
    }
)
"""Settings of the gateway that can change at any time."""
_IGNORED_KEYS = frozenset({"servers", "written"})


@dataclass(frozen=True)
class ConfigChange:
    """Changes that a new configuration requires."""

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
            "started anew": self.restarted,
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
    """Return the servers that are not disabled."""
    return {name: server for name, server in config.servers.items() if not server.disabled}


def _list_differing_fields(before: BackendConfig, after: BackendConfig) -> Iterable[str]:
    return (
        key for key in BackendConfig.model_fields if getattr(before, key) != getattr(after, key)
    )


def _list_changed_settings(before: Config, after: Config) -> Iterable[str]:
    """List changed settings of the gateway by their keys in the file."""
    for key in Config.model_fields:
        if (
            key in _IGNORED_KEYS
            or key in _VIEW_FIELDS
            or (old := getattr(before, key)) == (new := getattr(after, key))
        ):
            continue
        parts = getattr(type(old), "model_fields", None)
        if parts is None or type(old) is not type(new):
            yield key
        else:
            yield from (
                f"{key}.{part}" for part in parts if getattr(old, part) != getattr(new, part)
            )
