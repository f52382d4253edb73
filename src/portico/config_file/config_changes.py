"""Changes of the configuration that may come over the network, as facts. Pure.

Nothing here adds a command, a server, a secret or an address, and nothing opens the gateway to
others or turns its audit log off: that stays with the command line and the file itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from portico.errors import InvalidArguments

ChangeKind = Literal["set", "reset", "enable", "disable", "add_rule", "remove_rule"]
EDITABLE_KEYS = frozenset(
    {
        *("approvals", "apps", "budgets", "default", "exposure", "intent", "learning", "limits"),
        *("list_pins", "log_format", "log_level", "metatools", "pins", "profiles", "results"),
        *("rules", "search", "top_k", "trust", "usage"),
    }
)
_SERVER_KEYS = ("category", "description", "tags", "tools")
EDITABLE_SERVER_KEYS = tuple(f"servers.*.{key}" for key in _SERVER_KEYS)


@dataclass(frozen=True)
class RequestedChange:
    """One change of the configuration."""

    kind: ChangeKind
    key: str = ""
    """Dotted, of `set` and `reset`."""
    value: Any = None
    server: str = ""
    """Of `enable` and `disable`."""
    rule: Mapping[str, Any] | None = None
    position: int = 0
    """Of a rule."""


@dataclass(frozen=True)
class ConfigDifference:
    """What a change does to the file."""

    file: str
    diff: Sequence[str]
    has_changes: bool
    seen: str
    """Stands for exactly this change."""
    is_written: bool = False
    undoes: str = ""
    """What is undone."""


def split_key(key: str) -> tuple[str, ...]:
    """Return the parts of a dotted key; raises InvalidArguments for one that is not changed
    here."""
    parts = tuple(key.split("."))
    if is_editable(parts):
        return parts
    raise InvalidArguments(
        f"{key} is not changed from here",
        advice="Change it in the file, or with `portico add`, `portico rename` and so on:"
        " commands, secrets, addresses and sign-ins stay there.",
    )


def is_editable(parts: Sequence[str]) -> bool:
    """Return whether a key may be changed over the network."""
    if not all(parts):
        return False
    if parts[0] == "servers":
        return len(parts) > 2 and parts[2] in _SERVER_KEYS
    return parts[0] in EDITABLE_KEYS
