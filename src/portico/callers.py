"""Who makes a request, and on whose behalf: a `Caller`, with the `Principal` that its credential
stands for. Pure."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

PRINCIPAL_KEY = "portico.principal"
"""Key in the ASGI scope: the principal of the request."""
SESSION_KEY = "portico.console_session"
"""Key in the ASGI scope: the id of the console session by which a request came."""
LOCAL_ISSUER = "local"
"""Issuer of the user whose gateway it is: over stdio, from the command line and the library, and on
loopback where no credential is required."""
TOKEN_ISSUER = "gateway"  # noqa: S105 - not a token
"""Issuer of all that have the token of the configuration (`gateway.token`)."""
KEY_ISSUER = "key"
"""Issuer of the holders of keys (`portico keys`)."""


@dataclass(frozen=True)
class Principal:
    """A person or a program: the same over sessions, restarts, replicas and renewed credentials."""

    issuer: str
    """What vouches for the subject; without spaces."""
    subject: str
    name: str = ""
    """Name for people."""
    credential: str = ""
    """Id of the key or token by which it came; never the key or token itself."""
    profiles: tuple[str, ...] = ()
    """Profiles that the credential opens; empty: every profile and the default endpoint."""
    is_read_only: bool = False
    """Whether it may call only tools that are known to be read-only."""
    groups: tuple[str, ...] = ()
    """Groups that its issuer says it belongs to."""
    expires_at: float | None = field(default=None, compare=False)
    """Unix time at which its credential ends by itself; None: never, or not known."""
    id: str = field(init=False, compare=False)
    """Issuer and subject: what everything that belongs to it is keyed by."""
    is_shared: bool = field(init=False, compare=False)
    """Whether several clients that do not belong together may come as this principal."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", f"{self.issuer} {self.subject}")
        object.__setattr__(self, "is_shared", self.issuer in (LOCAL_ISSUER, TOKEN_ISSUER))


LOCAL_USER = Principal(LOCAL_ISSUER, "user", "local user")
TOKEN_HOLDER = Principal(TOKEN_ISSUER, "token", "gateway.token", credential="gateway.token")


@dataclass(frozen=True)
class Caller:
    """The maker of a request, as far as the endpoint can tell."""

    session: str = ""
    """The client's session in the handshake era, its connection on stdio; else empty."""
    name: str = ""
    """The name that the client claims."""
    profile: str = ""
    """The profile of the endpoint; empty for the default one."""
    principal: Principal = LOCAL_USER
    """On whose behalf the request is made."""
    handle: str = ""
    """Digest of the state handle of this request: one that it carried, or one that will be
    issued."""
    owner: str = field(init=False, repr=False, compare=False)
    """Key of the limits and statistics that the request counts against, and of the results and runs
    that only it finds by their id: the principal, or where several clients are behind one, the
    session or the claimed name. It gives access to no state by itself."""
    state_key: str = field(init=False, repr=False, compare=False)
    """Owner of stored state (values, the last run, links); empty: there is none."""
    link_owner: str = field(init=False, repr=False, compare=False)
    """Owner of the links in results that it received; empty: it shares those of others."""
    instance_key: str = field(init=False, repr=False, compare=False)
    """Owner of an isolated server instance; empty: the instance without an owner."""

    def __post_init__(self) -> None:
        set_field = partial(object.__setattr__, self)
        owner = self.principal.id
        if self.principal.is_shared:
            owner = self.session or f"{self.principal.id}\n{self.name}"
        set_field("owner", owner)
        set_field("state_key", self.session or self.handle)
        set_field("link_owner", self.state_key)
        if not self.state_key and not self.principal.is_shared:
            set_field("link_owner", self.principal.id)
        set_field("instance_key", self.handle or self.session)


NO_CALLER = Caller()


def choose_entry_to_drop(holders: Mapping[str, str]) -> str:
    """Choose the entry to drop when there are too many: the oldest of the owner with most entries.

    `holders` maps each entry, oldest first, to its owner; it must not be empty.
    """
    counts = Counter(holders.values())
    largest = max(counts, key=counts.__getitem__)
    return next(entry for entry, holder in holders.items() if holder == largest)
