"""Who is asking, and what they may see. Pure.

A `Scope` names servers and tools by glob; whatever it does not name does not exist for that caller: not in search, not
in listings, not by its exact name.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True)
class Caller:
    """One client, as far as the door can tell."""

    session: str = ""
    """The client's session in the handshake era, its connection on stdio; empty where there is none."""
    name: str = ""
    """What the client calls itself."""
    profile: str = ""
    """The profile it came by; empty for the front door."""
    identity: str = ""
    """A digest of the token it was let in by and of its name, where it has no session; never the token itself. Others
    may have the same token and claim the same name."""
    handle: str = ""
    """The digest of the handle that this request is about: one that was brought, or one it will be told."""

    @property
    def owner(self) -> str:
        """Whom its requests are counted for. Without a session a claim that others can make too: it finds nothing."""
        return self.session or self.identity or self.name

    @property
    def state(self) -> str:
        """Whose is what is kept for it (stored values, the last run, links); empty: nothing can be found for it."""
        return self.session or self.handle

    @property
    def instance(self) -> str:
        """Which instance of a server that keeps a state for each client is its own; empty: the one nobody owns."""
        return self.handle or self.session


NO_CALLER = Caller()


def next_to_drop(holders: Mapping[str, str]) -> str:
    """Choose the entry to drop when there are too many: the oldest of the caller that holds most.

    `holders` maps each entry, oldest first, to whom it is counted for; it must not be empty.
    """
    counts = Counter(holders.values())
    most = max(counts, key=counts.__getitem__)
    return next(entry for entry, holder in holders.items() if holder == most)


@dataclass(frozen=True)
class Scope:
    """What a profile shows."""

    servers: tuple[str, ...] = ("*",)
    tools: tuple[str, ...] = ("*",)

    @property
    def everything(self) -> bool:
        """Whether nothing is left out."""
        return "*" in self.servers and "*" in self.tools

    def sees_server(self, server: str) -> bool:
        """Whether a server is shown."""
        return any(fnmatchcase(server, pattern) for pattern in self.servers)

    def sees(self, address: str) -> bool:
        """Whether a tool is shown; a pattern may be `server.tool`, or a bare tool name."""
        server, _, name = address.partition(".")
        return self.sees_server(server) and any(
            fnmatchcase(address if "." in pattern else name, pattern) for pattern in self.tools
        )


EVERYTHING = Scope()
