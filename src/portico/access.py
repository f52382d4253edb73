"""Who is asking, and what they may see. Pure.

A `Scope` names servers and tools by glob; whatever it does not name does not exist for that caller:
not in search, not in listings, not by its exact name. Resources, templates and prompts go by the
same scope (`sees_resource`,
`sees_prompt`), for whoever lists, reads, watches or completes them.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from urllib.parse import unquote

MAX_URI_CHARS = 4_096
"""Of an address that is matched with globs or templates, subscribed to, remembered as a link, or
read unlisted."""
_SEGMENT_END = r"(?:[/\\?#;]|%(?:25)?(?:2f|5c|3f|23|3b))"
_IGNORED_CHARACTERS = re.compile(r"[\x00-\x20\x7f]")
_REPEATED_SLASHES = re.compile(r"/(?:\.?/)+")
"""Slashes of a path that mean one: `//` and `/./`."""
_MAX_DECODED_FORMS = 4
_PARENT_SEGMENT = re.compile(
    rf"(?:^|{_SEGMENT_END})(?:\.|%(?:25)?2e){{2}}(?:$|{_SEGMENT_END})", re.IGNORECASE
)


@dataclass(frozen=True)
class Caller:
    """One client, as far as the door can tell."""

    session: str = ""
    """The client's session in the handshake era, its connection on stdio; empty where there is
    none."""
    name: str = ""
    """What the client calls itself."""
    profile: str = ""
    """The profile it came by; empty for the front door."""
    identity: str = ""
    """A digest of the token it was let in by and of its name, where it has no session; never the
    token itself. Others may have the same token and claim the same name."""
    handle: str = ""
    """The digest of the handle that this request is about: one that was brought, or one it will be
    told."""

    @property
    def owner(self) -> str:
        """Whom its requests are counted for. Without a session a claim that others can make too: it
        finds nothing."""
        return self.session or self.identity or self.name

    @property
    def state_key(self) -> str:
        """Whose is what is kept for it (stored values, the last run, links); empty: nothing can be
        found for it."""
        return self.session or self.handle

    @property
    def instance_key(self) -> str:
        """Which instance of a server that keeps a state for each client is its own; empty: the one
        nobody owns."""
        return self.handle or self.session


NO_CALLER = Caller()


def choose_entry_to_drop(holders: Mapping[str, str]) -> str:
    """Choose the entry to drop when there are too many: the oldest of the caller that holds most.

    `holders` maps each entry, oldest first, to whom it is counted for; it must not be empty.
    """
    counts = Counter(holders.values())
    most = max(counts, key=counts.__getitem__)
    return next(entry for entry, holder in holders.items() if holder == most)


@dataclass(frozen=True)
class Globs:
    """Names that are kept: `allow` None leaves it to a default."""

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()

    @property
    def is_restrictive(self) -> bool:
        """Whether names are left out, whatever the default is."""
        return bool(self.deny) or (self.allow is not None and "*" not in self.allow)

    def permits(self, *forms: str, default: bool) -> bool:
        """Whether a name is kept, given in every form that it may be read as; `deny` wins, in upper
        or lower case."""
        if self.denies(*forms):
            return False
        if self.allow is None:
            return default
        return _matches(forms, self.allow)

    def denies(self, *forms: str) -> bool:
        """Whether a name is denied in one of its forms, in upper or lower case."""
        if self.deny:
            folded = [form.lower() for form in forms]
        else:
            folded = []
        return any(fnmatchcase(form, glob.lower()) for glob in self.deny for form in folded)


@dataclass(frozen=True)
class OfferRules:
    """What the configuration says of one server's resources and prompts."""

    server: str
    has_hidden_tools: bool = False
    """Some of its tools are left out: then its resources and prompts are, too, unless they are
    named."""
    resources: Globs = Globs()
    prompts: Globs = Globs()
    allows_unlisted: bool = False
    """Addresses that it does not list may be read."""

    @property
    def is_unrestricted(self) -> bool:
        """Whether everything that it lists is kept."""
        return not (
            self.has_hidden_tools or self.resources.is_restrictive or self.prompts.is_restrictive
        )


@dataclass(frozen=True)
class Scope:
    """What a profile shows."""

    servers: tuple[str, ...] = ("*",)
    tools: tuple[str, ...] = ("*",)
    resources: tuple[str, ...] | None = None
    """Globs of `server.uri`; None: all of the servers whose tools it shows whole."""
    prompts: tuple[str, ...] | None = None
    """Globs of `server.name`; None: as resources."""
    rules: tuple[OfferRules, ...] = ()
    """Of the servers that have any."""

    @property
    def is_unrestricted(self) -> bool:
        """Whether nothing is left out."""
        offers = all(globs is None or "*" in globs for globs in (self.resources, self.prompts))
        unruled = all(rule.is_unrestricted for rule in self.rules)
        return "*" in self.servers and "*" in self.tools and offers and unruled

    def can_see_server(self, server: str) -> bool:
        """Whether a server is shown."""
        return any(fnmatchcase(server, pattern) for pattern in self.servers)

    def can_see_tool(self, address: str) -> bool:
        """Whether a tool is shown; a pattern may be `server.tool`, or a bare tool name."""
        server, _, name = address.partition(".")
        return self.can_see_server(server) and any(
            fnmatchcase(address if "." in pattern else name, pattern) for pattern in self.tools
        )

    def can_see_resource(self, server: str, uri: str, *, linked: bool = False) -> bool:
        """Whether a resource, or a template by its text, is shown.

        `linked` says that a tool which is shown gave its caller this address: that is enough, unless the address is
        denied or others are named. Where addresses are named, one that climbs (`..`) or is too long
        is not among them; a percent-encoded one is matched as what it stands for, too. One that a
        server may read as a denied one is denied.
        """
        rules = self._find_rules(server)
        forms: tuple[str, ...] = (uri,)
        if rules.resources.is_restrictive or (
            self.resources is not None and "*" not in self.resources
        ):
            if len(uri) > MAX_URI_CHARS:
                return False
            forms = _decode_repeatedly(uri)
            plain = tuple(map(_normalize_uri, forms))
            if any(map(has_parent_segment, (*forms, *plain))) or rules.resources.denies(*plain):
                return False
        return rules.resources.permits(
            *forms, default=linked or not rules.has_hidden_tools
        ) and self._is_included(server, forms, self.resources, default=linked)

    def can_see_prompt(self, server: str, name: str) -> bool:
        """Whether a prompt is shown."""
        rules = self._find_rules(server)
        return rules.prompts.permits(
            name, default=not rules.has_hidden_tools
        ) and self._is_included(server, (name,), self.prompts)

    def can_read_unlisted(self, server: str) -> bool:
        """Whether addresses that a server does not list may be read."""
        return self._find_rules(server).allows_unlisted

    def _is_included(
        self,
        server: str,
        forms: tuple[str, ...],
        globs: tuple[str, ...] | None,
        *,
        default: bool = False,
    ) -> bool:
        if not self.can_see_server(server):
            return False
        if globs is None:
            return default or self._can_see_all_tools(server)
        return _matches(tuple(f"{server}.{form}" for form in forms), globs)

    def _can_see_all_tools(self, server: str) -> bool:
        """Whether every tool of a server is shown, whatever it is called."""
        return any(
            pattern == "*" or (pattern.endswith(".*") and fnmatchcase(server, pattern[:-2]))
            for pattern in self.tools
        )

    def _find_rules(self, server: str) -> OfferRules:
        return next((rule for rule in self.rules if rule.server == server), _NO_RULES)


_NO_RULES = OfferRules("")
UNRESTRICTED_SCOPE = Scope()


def has_parent_segment(uri: str) -> bool:
    """Whether an address has a segment `..`, percent-encoded or not: it may lead out of what it
    seems to be in."""
    return _PARENT_SEGMENT.search(uri) is not None


def _decode_repeatedly(uri: str) -> tuple[str, ...]:
    """An address as it is, and percent-decoded again and again."""
    forms = [uri]
    while "%" in forms[-1] and len(forms) < _MAX_DECODED_FORMS:
        forms.append(unquote(forms[-1]))
    return tuple(forms)


def _normalize_uri(uri: str) -> str:
    """An address as a server may read it: without blanks and control characters, its slashes made
    plain."""
    scheme, sign, path = _IGNORED_CHARACTERS.sub("", uri).replace("\\", "/").partition("://")
    if not sign:
        return _REPEATED_SLASHES.sub("/", scheme)
    return f"{scheme}://{_REPEATED_SLASHES.sub('/', path)}"


def _matches(forms: tuple[str, ...], globs: tuple[str, ...]) -> bool:
    return any(fnmatchcase(form, glob) for glob in globs for form in forms)
