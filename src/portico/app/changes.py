"""What differs between two configurations, and what has to be done about it. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from portico.config import BackendConfig, Config

CONVERSATION = frozenset(
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
"""What a conversation with a server was begun with: where one of these is another, it has to begin anew."""
_FACES = ("exposure", "prefix", "intent", "top_k", "metatools", "profiles", "budgets", "pins")
"""What decides how the house looks to its clients."""
_AT_ONCE = frozenset(
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
_NOT_SETTINGS = frozenset({"servers", "written"})


@dataclass(frozen=True)
class Change:
    """What a new configuration asks for."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    restarted: tuple[str, ...] = ()
    """Servers that are reached otherwise, or are others, than before."""
    adjusted: tuple[str, ...] = ()
    """Servers that stay as they are, while what is made of them differs: names, limits, timeouts."""
    faces: bool = False
    """What clients see may be another."""
    house: tuple[str, ...] = ()
    """Settings of the whole house that are taken at once."""
    later: tuple[str, ...] = ()
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
                ("set", self.house),
                ("with the next start of the gateway", self.later),
            )
            if names
        ]
        return "; ".join([*told, *(["what clients see"] if self.faces else [])]) or "nothing"


NO_CHANGE = Change()


def changes(before: Config, after: Config) -> Change:
    """What there is to do so that a gateway that runs on `before` runs on `after`."""
    old, new = in_use(before), in_use(after)
    both = [name for name in new if name in old]
    differing = {name: set(_differing(old[name], new[name])) - {"written"} for name in both}
    restarted = tuple(name for name in both if differing[name] & CONVERSATION)
    settings = tuple(_settings(before, after))
    return Change(
        added=tuple(name for name in new if name not in old),
        removed=tuple(name for name in old if name not in new),
        restarted=restarted,
        adjusted=tuple(name for name in both if differing[name] and name not in restarted),
        faces=any(getattr(before, key) != getattr(after, key) for key in _FACES),
        house=tuple(key for key in settings if key in _AT_ONCE),
        later=tuple(key for key in settings if key not in _AT_ONCE),
    )


def in_use(config: Config) -> Mapping[str, BackendConfig]:
    """The servers that are not switched off."""
    return {name: server for name, server in config.servers.items() if not server.disabled}


def _differing(before: BackendConfig, after: BackendConfig) -> Iterable[str]:
    return (key for key in BackendConfig.model_fields if getattr(before, key) != getattr(after, key))


def _settings(before: Config, after: Config) -> Iterable[str]:
    """Those of the whole house that differ, in the words of the file."""
    for key in Config.model_fields:
        if key in _NOT_SETTINGS or key in _FACES or (old := getattr(before, key)) == (new := getattr(after, key)):
            continue
        parts = getattr(type(old), "model_fields", None)
        if parts is None or type(old) is not type(new):
            yield key
        else:
            yield from (f"{key}.{part}" for part in parts if getattr(old, part) != getattr(new, part))
