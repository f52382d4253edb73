"""Patterns of rules: globs over addresses, and who a rule is for. Pure.

A rule that denies or asks ignores case, and takes a URI in every form that a server may read it as;
a rule that allows takes names and URIs as they are.
"""

import re
from collections.abc import Iterable
from fnmatch import translate

from portico.callers import KEY_ISSUER, LOCAL_ISSUER, TOKEN_ISSUER, Caller
from portico.policy.target import Target
from portico.visibility import MAX_URI_CHARS, has_parent_segment, list_uri_forms

WILDCARDS = re.compile(r"[*?\[]")


class AddressPattern:
    """One glob over `server.name`; without a dot it is over the name, of any server."""

    def __init__(self, glob: str, *, is_restrictive: bool) -> None:
        flags = re.IGNORECASE if is_restrictive else 0
        self._is_restrictive = is_restrictive
        self._has_server = "." in glob
        self.matches_all = glob in ("*", "*.*")
        self._match = re.compile(translate(glob), flags).match
        server, dot, name = glob.partition(".")
        self.name_glob = name if dot else glob
        """The part of the glob that is over the name; the part before it may match more than a
        server where a name has dots."""
        self.server = ""
        """The server, where the glob names exactly one; folded."""
        if dot and WILDCARDS.search(server) is None:
            self.server = server.casefold()
        self._is_whole_server = bool(self.server) and name == "*"

    def matches_all_of(self, server: str) -> bool:
        """Return whether it matches everything of a server."""
        return self.matches_all or (self._is_whole_server and self.may_concern(server))

    def may_concern(self, server: str) -> bool:
        """Return whether it may match anything of a server."""
        return not self.server or self.server == server.casefold()

    def matches(self, target: Target) -> bool:
        if self.matches_all:
            return True
        if target.kind == "resource":
            return self._matches_uri(target)
        text = f"{target.server}.{target.name}" if self._has_server else target.name
        return self._match(text) is not None

    def _matches_uri(self, target: Target) -> bool:
        uri = target.name
        prefix = f"{target.server}."
        if not self._is_restrictive:
            return (
                len(uri) <= MAX_URI_CHARS
                and not any(map(has_parent_segment, list_uri_forms(uri)))
                and self._match(f"{prefix}{uri}") is not None
            )
        # What cannot be compared may be what the rule means.
        if len(uri) > MAX_URI_CHARS:
            return self.may_concern(target.server)
        forms = list_uri_forms(uri)
        if any(map(has_parent_segment, forms)):
            return self.may_concern(target.server)
        return any(self._match(f"{prefix}{form}") is not None for form in forms)


class NamePattern:
    """A glob over the names of servers or categories."""

    def __init__(self, glob: str, *, is_restrictive: bool) -> None:
        self.name_glob = glob
        self.matches = re.compile(translate(glob), re.IGNORECASE if is_restrictive else 0).match


class CallerPattern:
    """One entry of `for`."""

    def __init__(self, text: str, *, is_restrictive: bool) -> None:
        self.kind, _, glob = text.partition(":")
        self._match = re.compile(translate(glob), re.IGNORECASE if is_restrictive else 0).match

    def matches(self, caller: Caller) -> bool:
        principal = caller.principal
        if self.kind == "everyone":
            return True
        if self.kind == "local":
            return principal.issuer == LOCAL_ISSUER
        if self.kind == "token":
            return principal.issuer == TOKEN_ISSUER
        return any(self._match(name) is not None for name in self._list_names(caller))

    def _list_names(self, caller: Caller) -> Iterable[str]:
        principal = caller.principal
        if self.kind == "group":
            return principal.groups
        if self.kind == "profile":
            return (caller.profile or "default",)
        if self.kind == "client":
            return (caller.name,)
        if self.kind == "key":
            return (principal.subject,) if principal.issuer == KEY_ISSUER else ()
        if principal.issuer in (KEY_ISSUER, LOCAL_ISSUER, TOKEN_ISSUER):
            return ()
        return (principal.subject, principal.id)
