"""What a contained server was denied, by what it says on stderr. Pure but for looking whether files
exist.

The kernel tells nobody, so this is a guess: a line that complains, and names a file which is there
and not granted, or a network that is not.
"""

import os
import re
from collections.abc import Iterable

from portico.containment.specification import Specification
from portico.upstream.containment.granted_paths import contains

_MAX_DENIALS = 3
_PATH = re.compile(r"(?<![\w/.:])(~?/[^\s'\"`,;:()\[\]<>]+)")
_FORBIDDEN = re.compile(
    r"EACCES|EPERM|EROFS"
    r"|(?i:permission ?denied|not permitted|read-only file system|PermissionError)"
)
_ABSENT = re.compile(r"ENOENT|(?i:no such file|not found|does not exist|cannot find|can't open)")
_NETWORK = re.compile(
    r"EAI_AGAIN|ENOTFOUND|ENETUNREACH|EHOSTUNREACH|ECONNREFUSED|ETIMEDOUT|getaddrinfo|ConnectError"
    r"|connect E(?:ACCES|PERM)|(?i:name resolution|name or service not known|network is unreachable"
    r"|fetch failed|connection refused|dns error|error sending request|failed to fetch)"
)
_NOT_FILES = ("/proc", "/dev", "/sys")


def find_denials(lines: Iterable[str], specification: Specification) -> tuple[str, ...]:
    """Return what was denied and which setting would allow it, at most three."""
    found: dict[str, None] = {}
    for line in lines:
        if _FORBIDDEN.search(line) or _ABSENT.search(line):
            for match in _PATH.finditer(line):
                path = os.path.normpath(os.path.expanduser(match[1].rstrip(".")))
                if key := _find_missing_grant(path, line, specification):
                    found[f"{path}: add it to contain.{key}"] = None
        if specification.network != "all" and _NETWORK.search(line):
            found[f"the network: contain.network is {specification.network}"] = None
    return tuple(found)[:_MAX_DENIALS]


def _find_missing_grant(path: str, line: str, specification: Specification) -> str:
    """Return `read` or `write`, where that would have allowed it; else nothing."""
    own = (*_NOT_FILES, *specification.write, specification.home, specification.temporary)
    if any(contains(folder, path) for folder in own):
        return ""
    if any(contains(folder, path) for folder in specification.read):
        return "write" if _FORBIDDEN.search(line) and os.access(path, os.W_OK) else ""
    if os.path.lexists(path):
        return "read"
    is_new = _FORBIDDEN.search(line) and os.path.isdir(os.path.dirname(path))
    return "write" if is_new else ""
