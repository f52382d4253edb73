"""What a profile's clients may see: servers, tools, resources and prompts. Pure.

A `Scope` selects servers and tools by glob; what it does not select does not exist for its clients:
not in search, not in listings, not by its exact name. Resources, templates and prompts follow the
same scope (`can_see_resource`, `can_see_prompt`) for listing, reading, subscribing and completion.
"""

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from urllib.parse import unquote

MAX_URI_CHARS = 4_096
"""Maximum length of a URI that is matched with globs or templates, subscribed to, remembered as a
link, or read unlisted."""
_SEGMENT_END = r"(?:[/\\?#;]|%(?:25)?(?:2f|5c|3f|23|3b))"
_IGNORED_CHARACTERS = re.compile(r"[\x00-\x20\x7f]")
_REPEATED_SLASHES = re.compile(r"/(?:\.?/)+")
"""Slashes of a path that are equivalent to one: `//` and `/./`."""
_MAX_DECODED_FORMS = 4
_PARENT_SEGMENT = re.compile(
    rf"(?:^|{_SEGMENT_END})(?:\.|%(?:25)?2e){{2}}(?:$|{_SEGMENT_END})", re.IGNORECASE
)


@dataclass(frozen=True)
class Globs:
    """Allowed and denied names; with `allow` None the default applies to names not denied."""

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()

    @property
    def is_restrictive(self) -> bool:
        """Whether names are excluded, whatever the default is."""
        return bool(self.deny) or (self.allow is not None and "*" not in self.allow)

    def permits(self, *forms: str, default: bool) -> bool:
        """Return whether a name is allowed, given in every form that a server may read it as.

        `deny` wins, and ignores case.
        """
        if self.denies(*forms):
            return False
        if self.allow is None:
            return default
        return _matches(forms, self.allow)

    def denies(self, *forms: str) -> bool:
        """Return whether one form of a name is denied, ignoring case."""
        if not self.deny:
            return False
        folded = [form.lower() for form in forms]
        return any(fnmatchcase(form, glob.lower()) for glob in self.deny for form in folded)


@dataclass(frozen=True)
class OfferRules:
    """Configured rules for one server's resources and prompts."""

    server: str
    has_hidden_tools: bool = False
    """Some of its tools are excluded: then its resources and prompts are too, unless allowed by
    name."""
    resources: Globs = Globs()
    prompts: Globs = Globs()
    allows_unlisted: bool = False
    """URIs that it does not list may be read."""

    @property
    def is_unrestricted(self) -> bool:
        """Whether everything that the server lists is allowed."""
        return not (
            self.has_hidden_tools or self.resources.is_restrictive or self.prompts.is_restrictive
        )


@dataclass(frozen=True)
class Scope:
    """Visible servers, tools, resources and prompts of a profile."""

    servers: tuple[str, ...] = ("*",)
    tools: tuple[str, ...] = ("*",)
    resources: tuple[str, ...] | None = None
    """Globs of `server.uri`; None: all resources of servers whose tools are all shown."""
    prompts: tuple[str, ...] | None = None
    """Globs of `server.name`; None: as for resources."""
    rules: tuple[OfferRules, ...] = ()
    """Rules of the servers that have any."""

    @property
    def is_unrestricted(self) -> bool:
        """Whether nothing is excluded."""
        shows_all_offers = all(
            globs is None or "*" in globs for globs in (self.resources, self.prompts)
        )
        has_no_rules = all(rule.is_unrestricted for rule in self.rules)
        return "*" in self.servers and "*" in self.tools and shows_all_offers and has_no_rules

    def can_see_server(self, server: str) -> bool:
        """Return whether a server is shown."""
        return any(fnmatchcase(server, pattern) for pattern in self.servers)

    def can_see_tool(self, address: str) -> bool:
        """Return whether a tool is shown; a pattern may be `server.tool`, or a bare tool name."""
        server, _, name = address.partition(".")
        if not self.can_see_server(server):
            return False
        return any(
            fnmatchcase(address if "." in pattern else name, pattern) for pattern in self.tools
        )

    def can_see_resource(self, server: str, uri: str, *, linked: bool = False) -> bool:
        """Return whether a resource, or a template by its text, is shown.

        `linked` says that a visible tool returned this URI to its caller: that suffices, unless the
        URI is denied or others are allowed by name. Where URIs are restricted, one with a parent
        segment (`..`) or over `MAX_URI_CHARS` is never shown; a percent-encoded one is matched in
        its decoded forms too. One that a server may read as a denied one is denied.
        """
        rules = self._find_rules(server)
        forms: tuple[str, ...] = (uri,)
        if rules.resources.is_restrictive or (
            self.resources is not None and "*" not in self.resources
        ):
            if len(uri) > MAX_URI_CHARS:
                return False
            forms = _decode_repeatedly(uri)
            normalized = tuple(map(_normalize_uri, forms))
            if any(map(has_parent_segment, (*forms, *normalized))) or rules.resources.denies(
                *normalized
            ):
                return False
        default = linked or not rules.has_hidden_tools
        if not rules.resources.permits(*forms, default=default):
            return False
        return self._is_included(server, forms, self.resources, default=linked)

    def can_see_prompt(self, server: str, name: str) -> bool:
        """Return whether a prompt is shown."""
        rules = self._find_rules(server)
        if not rules.prompts.permits(name, default=not rules.has_hidden_tools):
            return False
        return self._is_included(server, (name,), self.prompts)

    def can_read_unlisted(self, server: str) -> bool:
        """Return whether URIs that a server does not list may be read."""
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
        """Return whether every tool of a server is shown, whatever its name."""
        return any(
            pattern == "*" or (pattern.endswith(".*") and fnmatchcase(server, pattern[:-2]))
            for pattern in self.tools
        )

    def _find_rules(self, server: str) -> OfferRules:
        return next((rule for rule in self.rules if rule.server == server), _NO_RULES)


_NO_RULES = OfferRules("")
UNRESTRICTED_SCOPE = Scope()


def has_parent_segment(uri: str) -> bool:
    """Return whether a URI has a segment `..`, percent-encoded or not, which may leave its
    folder."""
    return _PARENT_SEGMENT.search(uri) is not None


def list_uri_forms(uri: str) -> tuple[str, ...]:
    """Return every form that a server may read a URI as: itself, percent-decoded, normalized."""
    forms = _decode_repeatedly(uri)
    return tuple(dict.fromkeys((*forms, *map(_normalize_uri, forms))))


def _decode_repeatedly(uri: str) -> tuple[str, ...]:
    """Return a URI as it is, and percent-decoded repeatedly."""
    forms = [uri]
    while "%" in forms[-1] and len(forms) < _MAX_DECODED_FORMS:
        forms.append(unquote(forms[-1]))
    return tuple(forms)


def _normalize_uri(uri: str) -> str:
    """Return a URI as a server may read it: without whitespace and control characters, slashes
    merged."""
    scheme, sign, path = _IGNORED_CHARACTERS.sub("", uri).replace("\\", "/").partition("://")
    if not sign:
        return _REPEATED_SLASHES.sub("/", scheme)
    return f"{scheme}://{_REPEATED_SLASHES.sub('/', path)}"


def _matches(forms: tuple[str, ...], globs: tuple[str, ...]) -> bool:
    return any(fnmatchcase(form, glob) for glob in globs for form in forms)
