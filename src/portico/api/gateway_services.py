"""What the API may use of the whole gateway, beside the view of one profile."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from starlette.types import Scope

from portico.api.event_feed import EventFeed
from portico.callers import Caller
from portico.calls.approvals import Approvals
from portico.calls.failed_calls import FailedCalls
from portico.catalog.snapshot import Snapshot
from portico.config import Config
from portico.config_file.config_changes import ConfigDifference, RequestedChange
from portico.events import EventBus
from portico.observability.audit import AuditLog
from portico.policy.definition_change import DefinitionChange
from portico.policy.rules import RuleSet
from portico.storage.key_store import KeyStore
from portico.upstream.backend import Raw
from portico.upstream.lifecycle.supervisor import Upstream
from portico.upstream.oauth.credential import SignInTarget
from portico.upstream.oauth.sign_in_service import SignInService

RunTool = Callable[[str, Any, Caller, str], Awaitable[Raw]]
"""Runs a tool by its address with arguments, for a caller, as the call of an id."""


def _find_no_target(server: str, person: str) -> SignInTarget | None:
    return None


Trust = Callable[[str, Sequence[DefinitionChange], str], Awaitable[None]]
"""Trusts what a person has looked at of a server; takes the id of the person."""


@dataclass(frozen=True)
class RuleServices:
    """The rules of a gateway, and what they show."""

    get_rules: Callable[[], RuleSet]
    get_snapshot: Callable[[str, Caller | None], Snapshot]
    """Returns what a profile has, empty: all; with a caller, what that one sees of it."""


class ConfigEditing(Protocol):
    """Changes the configuration's file, when the very difference was looked at. Blocks."""

    def change(self, change: RequestedChange, seen: str) -> ConfigDifference: ...

    def undo(self, seen: str) -> ConfigDifference: ...


@dataclass(frozen=True)
class ClientCard:
    """A client of this machine, and how it is pointed at the gateway."""

    name: str
    title: str
    file: str
    is_here: bool
    """Whether its file or folder exists."""
    is_installed: bool
    entry: Mapping[str, Any]
    """What its file has where it starts Portico itself."""
    url_entry: Mapping[str, Any]
    """What its file has where it connects over HTTP; empty: it cannot."""
    url_advice: str
    reload_advice: str
    problem: str = ""


@dataclass(frozen=True)
class ClientDifference:
    """What a change does to a client's file."""

    file: str
    diff: Sequence[str]
    has_changes: bool
    seen: str
    is_written: bool
    remarks: Sequence[str]
    advice: str
    backup: str = ""
    """Path of the backup of the file; empty if none was made."""


class ClientInstalling(Protocol):
    """Writes into clients' files, when the very difference was looked at. Blocks."""

    def list_clients(self, url: str) -> list[ClientCard]: ...

    def change(self, name: str, *, remove: bool, seen: str) -> ClientDifference: ...


async def _reload_nothing() -> None:
    return


async def _trust_nothing(server: str, changes: Sequence[DefinitionChange], person: str) -> None:
    return


async def _measure_nothing() -> dict[str, Any]:
    return {"servers": []}


@dataclass(frozen=True)
class ConfigReport:
    """The configuration in use, and where it came from."""

    config: Config = field(default_factory=Config)
    sources: Mapping[str, str] = field(default_factory=dict[str, str])
    """Where each key came from, by its path; keys without one have their default."""
    files: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    problem: str = ""
    """Why what is in the files is not in use; empty if it is."""


@dataclass(frozen=True)
class GatewayServices:
    """Parts of a gateway; each default stands for a gateway without that part."""

    upstreams: Mapping[str, Upstream] = field(default_factory=dict[str, Upstream])
    """Servers that may be restarted, and whose logs can be read."""
    get_audit: Callable[[], AuditLog | None] = lambda: None
    failed_calls: FailedCalls = field(default_factory=FailedCalls)
    """What callers were told of the latest calls that failed or were refused."""
    feed: EventFeed = field(default_factory=lambda: EventFeed(EventBus()))
    run_tool: RunTool | None = None
    measure_load: Callable[[], Awaitable[dict[str, Any]]] = _measure_nothing
    get_listing_costs: Callable[[], Mapping[str, int]] = dict[str, int]
    """Tokens of listing each server's tools; 0 while they are not known."""
    keys: KeyStore | None = None
    reload_keys: Callable[[], Awaitable[None]] = _reload_nothing
    """Takes over a change of the keys at once."""
    trust: Trust = _trust_nothing
    approvals: Approvals | None = None
    rules: RuleServices | None = None
    config_editing: ConfigEditing | None = None
    clients: ClientInstalling | None = None
    sign_ins: SignInService | None = None
    find_sign_in_target: Callable[[str, str], SignInTarget | None] = _find_no_target
    """What a person signs in to of a server, if anything."""
    get_config: Callable[[], ConfigReport] = ConfigReport
    accepts: Callable[[Scope], bool] = lambda _: True
    """Whether a request that was let in would be let in now."""
    is_behind: Callable[[Scope], bool] = lambda _: False
    """Whether a client does not read what was sent to it."""

    @property
    def audit_file(self) -> tuple[Path, int] | None:
        """Path of the audit log and its number of files; None where there is none."""
        if (log := self.get_audit()) is None:
            return None
        return log.path, log.files
