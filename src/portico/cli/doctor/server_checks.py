"""Evaluates probes: why a server failed, what it prints, what it declares but lacks. Pure."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence

from portico.catalog.listing import ServerListing
from portico.cli.doctor.finding import (
    ConfigLocation,
    ConfigLocations,
    DoctorFinding,
    broken,
    join_names,
    note,
    warning,
)
from portico.cli.doctor.probe import ServerProbe
from portico.cli.exit import sanitize_server_text
from portico.config import BackendConfig
from portico.errors import BackendTimeout, PorticoError, SignInNeeded
from portico.rendering.token_budget import format_count
from portico.upstream.backend import InitializeInfo
from portico.upstream.backends.openapi.backend import OriginRefused
from portico.upstream.protocol.envelope import LEGACY_VERSIONS
from portico.upstream.transports.http_errors import HttpStatusError
from portico.upstream.transports.process import pick_telling_line

SLOW_S = 10.0
CLIENT_CUT_CHARS = 2_048
_FETCHING_PROGRAMS = {"npx", "npm", "bunx", "pnpm", "yarn", "deno", "uvx", "uv", "pipx", "docker"}
"""Length in characters at which a client cuts instructions and descriptions."""
_ID_BY_TROUBLE = {
    "refused": "server.unreachable",
    "network": "server.unreachable",
    "dns": "server.dns",
    "tls": "server.tls",
}
_LINE_CHARS = 300
_PIP = r"Install it where the server runs: pip install \1"
_PACKAGE = "There is no such package or version: correct its name in args."
_PERMISSIONS = "Give this user the right to what it names, or correct the path."
_PATH = r"\1 does not exist: correct the path in args or env."
_SET = r"Set \1 in the server's `env`, as \1: ${\1}."
_VARIABLE = r"\b([A-Z][A-Z0-9]+_[A-Z0-9_]+)\b"
_REMEDIES: Sequence[tuple[str, str, str]] = (
    # Specific patterns first: a server with a missing module may also report a missing file.
    (r"No module named '?([\w.]+)", "module", _PIP),
    (
        r"Cannot find (?:module|package) '([^']+)'",
        "module",
        r"Run npm install in the server's folder (it misses \1), and build it.",
    ),
    (r"npm (?:ERR!|error)(?: code)? (?:E404|404)", "package", _PACKAGE),
    (
        r"npm (?:ERR!|error).*(?:ENOTFOUND|EAI_AGAIN|ETIMEDOUT|ECONNREFUSED)",
        "network",
        "npm cannot reach its registry: check the network, or install the package first.",
    ),
    (
        r"No solution found when resolving|not found in the package registry|No matching "
        r"distribution",
        "package",
        _PACKAGE,
    ),
    (
        r"Unable to find image|pull access denied|manifest unknown",
        "package",
        f"{_PACKAGE} Or: docker login",
    ),
    (
        r"Cannot connect to the Docker daemon|docker daemon running",
        "docker",
        "Start Docker Desktop, or: sudo systemctl start docker",
    ),
    (
        r"(?i)(?:postgres|psycopg|\bpq:|mysql|mariadb|redis|mongo|sqlserver|clickhouse|database)"
        r".{0,200}(?:refused|ECONNREFUSED|timed? ?out|unreachable|not running|could not connect)"
        r"|(?:ECONNREFUSED|refused|connect call failed).{0,80}\b(?:5432|3306|6379|27017|1433)\b",
        "database",
        "The database that it uses does not answer: start it, or correct its address in env or "
        "args.",
    ),
    (
        r"(?i)(?:password|access) (?:authentication failed|denied) for user",
        "database",
        "The database refuses this user: correct user and password in env or args.",
    ),
    (
        r"(?i)SIGKILL|out of memory|heap limit",
        "memory",
        "Memory ran out, or somebody killed it: give it more memory, or run fewer servers at once.",
    ),
    (
        r"EADDRINUSE|[Aa]ddress already in use",
        "port",
        "It opens a port that is taken: end the other program, or give it another port.",
    ),
    (
        r"Unsupported engine|requires? Node|ERR_REQUIRE_ESM|SyntaxError: Unexpected token",
        "version",
        "It needs a newer Node.js: install version 20 or newer.",
    ),
    (
        r"[Rr]equires-[Pp]ython|requires a different Python",
        "version",
        "It needs another Python: name a newer interpreter in `command`.",
    ),
    (r"EACCES|PermissionError|[Pp]ermission denied", "permission", _PERMISSIONS),
    (r"ENOENT[^\n]*'([^']+)'", "file", _PATH),
    (r"can't open file '([^']+)'", "file", _PATH),
    (r"FileNotFoundError: .*'([^']+)'", "file", _PATH),
    (
        r"(?:[Mm]issing|[Rr]equired?|[Nn]ot set|[Mm]ust (?:be "
        rf")?(?:set|provide))[^\n]{{0,40}}?{_VARIABLE}",
        "variable",
        _SET,
    ),
    (
        rf"{_VARIABLE}[^\n]{{0,40}}(?:is required|(?:is )?not "
        r"(?:set|found|provided|defined)|is missing|must be)",
        "variable",
        _SET,
    ),
    (
        r"(?i)\busage: |unrecognized arguments|unknown option|missing required argument",
        "arguments",
        "It does not understand its arguments: correct args (run the command with --help).",
    ),
    (
        r"(?i)certificate|\bTLS\b|\bSSL\b|WRONG_VERSION_NUMBER",
        "tls",
        "The connection cannot be secured: check http:// or https:// in url, and the certificate; "
        "SSL_CERT_FILE names a private authority.",
    ),
    (
        r"(?i)host name is not known|name or service not known|nodename nor "
        r"servname|getaddrinfo|name resolution",
        "dns",
        "The host in url has no address: correct its spelling, or check the network (VPN?).",
    ),
    (
        r"(?i)refused|connect call failed",
        "refused",
        "Nothing listens there: start it, or correct host and port (url; or env and args, where "
        "the server itself connects).",
    ),
    (
        r"(?i)no route to host|network is unreachable|no connection within",
        "network",
        "The host cannot be reached from here: check the network, VPN and proxy.",
    ),
)
r"""Pattern, kind of trouble, remedy; `\1` is the text that the pattern captured."""


def check(
    probe: ServerProbe, server: BackendConfig, locations: ConfigLocations
) -> Iterator[DoctorFinding]:
    if probe.error is not None:
        yield _make_failure_finding(probe, probe.error, server, locations)
    at = locations.locate_server(probe.server)
    if probe.noise:
        yield warning(
            "server.noise",
            f"it prints to stdout what is no protocol ({format_count(probe.noise, 'line')}); "
            "stricter clients break on it",
            "Let it log to stderr (look for a --quiet or log option), or report it to its author.",
            at,
            details=tuple(f"stdout: {line}" for line in _sanitize_lines(probe.noise_samples[:2])),
        )
    if probe.needed_signal:
        yield note(
            "server.ignores_stdin",
            "it does not end when its input is closed, and must be ended by a signal",
            "Nothing need be done: Portico does that. Clients that do not may leave it running.",
            at,
        )
    info = probe.initialize_info
    if info is None or probe.listing is None:
        return
    if probe.seconds > SLOW_S and probe.seconds > 0.25 * server.timeouts.start_s:
        fetches = ""
        if os.path.basename(server.command or "") in _FETCHING_PROGRAMS:
            fetches = "Install it instead of fetching it at each start. "
        yield DoctorFinding(
            "server.slow_start",
            "warning" if probe.seconds > 0.7 * server.timeouts.start_s else "note",
            f"it took {probe.seconds:.0f} s to start; it is given up after "
            f"{server.timeouts.start_s:g} s",
            f"{fetches}Raise timeouts.start_s, or keep it up: start: boot, idle_s: 0.",
            at,
        )
    if info.era == "legacy" and info.protocol_version not in LEGACY_VERSIONS:
        version = sanitize_server_text(info.protocol_version)[:40]
        yield note(
            "server.version_unknown",
            f"it answers with the protocol version {version!r}, which nobody published",
            "Report it to its author; Portico talks to it as to any older server.",
            at,
        )
    yield from _check_listing(probe, info, probe.listing, at)


def _check_listing(
    probe: ServerProbe, info: InitializeInfo, listing: ServerListing, at: ConfigLocation
) -> Iterator[DoctorFinding]:
    absent: list[str] = []
    duplicates: list[str] = []
    other: list[str] = []
    for remark in listing.warnings:
        if remark.startswith("declares "):
            absent.append(remark)
        elif "more than once" in remark:
            duplicates.append(remark)
        else:
            other.append(remark)
    _, guessed = guess_remedy([*listing.warnings, *probe.stderr[-20:]])
    remedy = guessed or "Report it to its author; Portico goes on without what is missing."
    for kind, remarks in (
        ("server.declares_absent", absent),
        ("tool.duplicate", duplicates),
        ("server.listing", other),
    ):
        if remarks:
            more = f" and {len(remarks) - 3} more" if len(remarks) > 3 else ""
            yield warning(kind, sanitize_server_text("; ".join(remarks[:3])) + more, remedy, at)
    offers = listing.offers
    if not (listing.tools or offers.resources or offers.templates or offers.prompts):
        yield warning(
            "server.offers_nothing",
            "it offers no tool, no resource and no prompt",
            "Many servers offer nothing until they have credentials or arguments: check env "
            "and args.",
            at,
            details=tuple(f"stderr: {line}" for line in _sanitize_lines(probe.stderr[-2:])),
        )
    if listing.tools and "tools" not in info.capabilities:
        yield note(
            "server.undeclared",
            "it has tools but does not declare them; clients that go by the declaration see none",
            "Report it to its author; Portico lists them all the same.",
            at,
        )
    if len(info.instructions) > CLIENT_CUT_CHARS:
        yield note(
            "server.instructions_long",
            f"its instructions are {len(info.instructions):,} characters long; clients cut "
            f"them at {CLIENT_CUT_CHARS:,}",
            "Report it to its author; through Portico the beginning is shown.",
            at,
        )


def _make_failure_finding(
    probe: ServerProbe, error: PorticoError, server: BackendConfig, locations: ConfigLocations
) -> DoctorFinding:
    message = sanitize_server_text(_strip_stderr(error.message, probe))
    trouble, remedy = guess_remedy([*probe.stderr[-20:], error.message])
    line = pick_telling_line(probe.stderr)
    details = tuple(f"stderr: {one}" for one in _sanitize_lines([line] if line else []))
    if isinstance(error, SignInNeeded):
        at = locations.locate_server(probe.server, "url")
        return broken("server.sign_in", message, error.advice, at)
    if isinstance(error, HttpStatusError) and error.status in (401, 403, 407):
        where = ("headers", "Authorization") if server.headers else ("url",)
        at = locations.locate_server(probe.server, *where)
        remedy = f"{error.advice} (Sent: {join_names(server.headers) or 'no header'}.)"
        return broken("credential.refused", message, remedy, at, details)
    if isinstance(error, OriginRefused):
        at = locations.locate_server(probe.server, "openapi")
        return broken("openapi.origin_refused", message, error.advice, at)
    if isinstance(error, BackendTimeout):
        id = "server.timeout"
        if not probe.stderr or not trouble:
            remedy = error.advice or "Raise timeouts.list_s if it is only slow."
    elif probe.stage == "list":
        id = "server.list_failed"
    elif server.url and trouble in _ID_BY_TROUBLE:
        id = _ID_BY_TROUBLE[trouble]
    else:
        id = "server.failed"
        if not remedy and not probe.stderr and "exited with code 0" in error.message:
            remedy = (
                "It ended without a word: it may need an argument (stdio, serve, --stdio), or "
                "be no MCP server."
            )
    if "cannot be" not in message:
        attempt = "started" if server.command else "reached"
        if probe.stage == "list":
            attempt = "listed"
        message = f"cannot be {attempt}: {message}"
    remedy = remedy or error.advice or "Run its command by hand, and look at what it says."
    where = [key for key in ("command", "url") if getattr(server, key)][:1]
    return broken(id, message, remedy, locations.locate_server(probe.server, *where), details)


def _strip_stderr(message: str, probe: ServerProbe) -> str:
    """Return the message without stderr and server name, which the report shows separately."""
    text = " ".join(message.split()).removeprefix(f"{probe.server}: ")
    if probe.stderr:
        return text.partition(" (stderr: ")[0]
    return text


def _sanitize_lines(lines: Iterable[str]) -> list[str]:
    return [sanitize_server_text(line)[:_LINE_CHARS] for line in lines]


def guess_remedy(texts: Iterable[str]) -> tuple[str, str]:
    """Return the kind of trouble and its remedy; empty if nothing is recognised."""
    # Options that a usage text lists say nothing about the trouble.
    lines = (line for text in texts for line in text.splitlines())
    output = "\n".join(line for line in lines if not line.lstrip().startswith("-"))
    for pattern, trouble, advice in _REMEDIES:
        if match := re.search(pattern, output):
            return trouble, match.expand(advice) if match.groups() else advice
    return "", ""
