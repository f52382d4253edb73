"""What differs between two configurations, and what has to be done about it. Pure."""

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
"""What a conversation with a server was begun with: where one of these is another, it has to begin
anew."""
_VIEW_FIELDS = ("exposure", "prefix", "intent", "top_k", "metatools", "profiles", "budgets", "pins")
"""What decides how the house looks to its clients."""
_LIVE_SETTINGS = frozenset(
    {
        "env_file",  # only what it fills in is anybody's, and that is compared by itself
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
"""What the whole house goes by, and can go by another of at any time."""
_IGNORED_KEYS = frozenset({"servers", "written"})


@dataclass(frozen=True)
class ConfigChange:
    """What a new configuration asks for."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    restarted: tuple[str, ...] = ()
    """Servers that are reached otherwise, or are others, than before."""
    adjusted: tuple[str, ...] = ()
    """Servers that stay as they are, while what is made of them differs: names, limits, timeouts.
    """
    has_view_changes: bool = False
    """What clients see may be another."""
    applied_settings: tuple[str, ...] = ()
    """Settings of the whole house that are taken at once."""
    pending_settings: tuple[str, ...] = ()
    """Settings that only the next start of the gateway takes."""

    def __bool__(self) -> bool:
        return self != NO_CHANGE

    def __str__(self) -> str:
        told = [
            f"{what}: {', '.join(names)}"
            for what, names in (
                ("added", self.added),
                ("removed", self.removed),
                ("started anew", self.restarted),
                ("adjusted", self.adjusted),
                ("set", self.applied_settings),
                ("with the next start of the gateway", self.pending_settings),
            )
            if names
        ]
        return (
            "; ".join([*told, *(["what clients see"] if self.has_view_changes else [])])
            or "nothing"
        )


NO_CHANGE = ConfigChange()


def diff_configs(before: Config, after: Config) -> ConfigChange:
    """What there is to do so that a gateway that runs on `before` runs on `after`."""
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
    """The servers that are not switched off."""
    return {name: server for name, server in config.servers.items() if not server.disabled}


def _list_differing_fields(before: BackendConfig, after: BackendConfig) -> Iterable[str]:
    return (
        key for key in BackendConfig.model_fields if getattr(before, key) != getattr(after, key)
    )


def _list_changed_settings(before: Config, after: Config) -> Iterable[str]:
    """Those of the whole house that differ, in the words of the file."""
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
