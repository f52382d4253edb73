"""Maps error output of a server to the most likely remedy. Pure."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

Trouble = Literal[
    "module",
    "package",
    "network",
    "permission",
    "port",
    "version",
    "file",
    "docker",
    "variable",
    "arguments",
    "tls",
    "dns",
    "refused",
    "",
]

_PIP = r"Install it where the server runs: pip install \1"
_PACKAGE = "There is no such package or version: correct its name in args."
_PERMISSIONS = "Give this user the right to what it names, or correct the path."
_PATH = r"\1 does not exist: correct the path in args or env."
_SET = r"Set \1 in the server's `env`, as \1: ${\1}."
_VARIABLE = r"\b([A-Z][A-Z0-9]+_[A-Z0-9_]+)\b"


@dataclass(frozen=True, slots=True)
class Remedy:
    r"""A recognised error and its remedy; `\\1` is the text that the pattern captured."""

    pattern: str
    trouble: Trouble
    advice: str


_REMEDIES: Sequence[Remedy] = (
    # Specific patterns first: a server with a missing module may also report a missing file.
    Remedy(r"No module named '?([\w.]+)", "module", _PIP),
    Remedy(
        r"Cannot find (?:module|package) '([^']+)'",
        "module",
        r"Run npm install in the server's folder (it misses \1), and build it.",
    ),
    Remedy(r"npm (?:ERR!|error)(?: code)? (?:E404|404)", "package", _PACKAGE),
    Remedy(
        r"npm (?:ERR!|error).*(?:ENOTFOUND|EAI_AGAIN|ETIMEDOUT|ECONNREFUSED)",
        "network",
        "npm cannot reach its registry: check the network, or install the package first.",
    ),
    Remedy(
        r"No solution found when resolving|not found in the package registry|No matching "
        r"distribution",
        "package",
        _PACKAGE,
    ),
    Remedy(
        r"Unable to find image|pull access denied|manifest unknown",
        "package",
        f"{_PACKAGE} Or: docker login",
    ),
    Remedy(
        r"Cannot connect to the Docker daemon|docker daemon running",
        "docker",
        "Start Docker Desktop, or: sudo systemctl start docker",
    ),
    Remedy(
        r"EADDRINUSE|[Aa]ddress already in use",
        "port",
        "It opens a port that is taken: end the other program, or give it another port.",
    ),
    Remedy(
        r"Unsupported engine|requires? Node|ERR_REQUIRE_ESM|SyntaxError: Unexpected token",
        "version",
        "It needs a newer Node.js: install version 20 or newer.",
    ),
    Remedy(
        r"[Rr]equires-[Pp]ython|requires a different Python",
        "version",
        "It needs another Python: name a newer interpreter in `command`.",
    ),
    Remedy(r"EACCES|PermissionError|[Pp]ermission denied", "permission", _PERMISSIONS),
    Remedy(r"ENOENT[^\n]*'([^']+)'", "file", _PATH),
    Remedy(r"can't open file '([^']+)'", "file", _PATH),
    Remedy(r"FileNotFoundError: .*'([^']+)'", "file", _PATH),
    Remedy(
        r"(?:[Mm]issing|[Rr]equired?|[Nn]ot set|[Mm]ust (?:be "
        rf")?(?:set|provide))[^\n]{{0,40}}?{_VARIABLE}",
        "variable",
        _SET,
    ),
    Remedy(
        rf"{_VARIABLE}[^\n]{{0,40}}(?:is required|(?:is )?not "
        r"(?:set|found|provided|defined)|is missing|must be)",
        "variable",
        _SET,
    ),
    Remedy(
        r"(?i)\busage: |unrecognized arguments|unknown option|missing required argument",
        "arguments",
        "It does not understand its arguments: correct args (run the command with --help).",
    ),
    Remedy(
        r"(?i)certificate|\bTLS\b|\bSSL\b|WRONG_VERSION_NUMBER",
        "tls",
        "The connection cannot be secured: check http:// or https:// in url, and the certificate; "
        "SSL_CERT_FILE names a private authority.",
    ),
    Remedy(
        r"(?i)host name is not known|name or service not known|nodename nor "
        r"servname|getaddrinfo|name resolution",
        "dns",
        "The host in url has no address: correct its spelling, or check the network (VPN?).",
    ),
    Remedy(
        r"(?i)refused|connect call failed",
        "refused",
        "Nothing listens there: start the server, or correct host and port in url.",
    ),
    Remedy(
        r"(?i)no route to host|network is unreachable|no connection within",
        "network",
        "The host cannot be reached from here: check the network, VPN and proxy.",
    ),
)


def guess_remedy(texts: Iterable[str]) -> tuple[Trouble, str]:
    """Return the kind of trouble and its remedy; empty if nothing is recognised."""
    output = "\n".join(texts)
    for known in _REMEDIES:
        if match := re.search(known.pattern, output):
            return known.trouble, match.expand(known.advice) if match.groups() else known.advice
    return "", ""
