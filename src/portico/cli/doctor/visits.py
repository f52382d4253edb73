"""What meeting a server showed: why it failed, what it prints, what it promises and does not have. Pure."""

from collections.abc import Iterable, Iterator

from portico.catalog.listing import Listing
from portico.cli.doctor.finding import Finding, Places, several
from portico.cli.doctor.remedies import guess
from portico.cli.doctor.visiting import Visit
from portico.cli.ending import overheard
from portico.config import BackendConfig
from portico.disclosure.lines import counted
from portico.errors import BackendTimeout, PorticoError
from portico.upstream.backend import Hello
from portico.upstream.envelope import LEGACY_VERSIONS
from portico.upstream.http_refusal import HttpRefusal
from portico.upstream.openapi.backend import OriginRefused

SLOW_S = 10.0
CUT_AT = 2_048
"""Characters of instructions and descriptions after which a client cuts."""
_UNREACHED = {
    "refused": "server.unreachable",
    "network": "server.unreachable",
    "dns": "server.dns",
    "tls": "server.tls",
}
_LAST_LINES = 6
_LINE_CHARS = 300


def check(visit: Visit, server: BackendConfig, places: Places) -> Iterator[Finding]:
    """What one meeting showed."""
    if visit.error is not None:
        yield _failure(visit, visit.error, server, places)
    at = places.server(visit.server)
    if visit.noise:
        yield Finding(
            "server.noise",
            "warning",
            f"it prints to stdout what is no protocol ({counted(visit.noise, 'line')}); stricter clients break on it",
            "Let it log to stderr (look for a --quiet or log option), or report it to its author.",
            details=tuple(f"stdout: {line}" for line in _lines(visit.noise_samples[:2])),
            **at,
        )
    if visit.signalled:
        yield Finding(
            "server.ignores_stdin",
            "note",
            "it does not end when its input is closed, and must be ended by a signal",
            "Nothing need be done: Portico does that. Clients that do not may leave it running.",
            **at,
        )
    if visit.hello is None or visit.listing is None:
        return
    if visit.seconds > SLOW_S and visit.seconds > 0.25 * server.timeouts.start_s:
        yield Finding(
            "server.slow_start",
            "warning" if visit.seconds > 0.7 * server.timeouts.start_s else "note",
            f"it took {visit.seconds:.0f} s to start; it is given up after {server.timeouts.start_s:g} s",
            "Install it instead of fetching it at each start, raise timeouts.start_s, or keep it up: start: boot, "
            "idle_s: 0.",
            **at,
        )
    if visit.hello.era == "legacy" and visit.hello.protocol_version not in LEGACY_VERSIONS:
        yield Finding(
            "server.version_unknown",
            "note",
            f"it answers with the protocol version {overheard(visit.hello.protocol_version)[:40]!r}, which nobody "
            "published",
            "Report it to its author; Portico talks to it as to any older server.",
            **at,
        )
    yield from _offer(visit, visit.hello, visit.listing, places)


def _offer(visit: Visit, hello: Hello, listing: Listing, places: Places) -> Iterator[Finding]:
    at = places.server(visit.server)
    absent = [warning for warning in listing.warnings if warning.startswith("declares ")]
    twice = [warning for warning in listing.warnings if "more than once" in warning]
    other = [warning for warning in listing.warnings if warning not in (*absent, *twice)]
    mend = "Report it to its author; Portico goes on without what is missing."
    for kind, remarks in (("server.declares_absent", absent), ("tool.duplicate", twice), ("server.listing", other)):
        if remarks:
            yield Finding(kind, "warning", _said(remarks), mend, **at)
    offers = listing.offers
    if not (listing.tools or offers.resources or offers.templates or offers.prompts):
        yield Finding(
            "server.offers_nothing",
            "warning",
            "it offers no tool, no resource and no prompt",
            "Many servers offer nothing until they have credentials or arguments: check env and args.",
            details=tuple(f"stderr: {line}" for line in _lines(visit.stderr[-2:])),
            **at,
        )
    if listing.tools and "tools" not in hello.capabilities:
        yield Finding(
            "server.undeclared",
            "note",
            "it has tools but does not declare them; clients that go by the declaration see none",
            "Report it to its author; Portico lists them all the same.",
            **at,
        )
    if len(hello.instructions) > CUT_AT:
        yield Finding(
            "server.instructions_long",
            "note",
            f"its instructions are {len(hello.instructions):,} characters long; clients cut them at {CUT_AT:,}",
            "Report it to its author; through Portico the beginning is shown.",
            **at,
        )


def _failure(visit: Visit, error: PorticoError, server: BackendConfig, places: Places) -> Finding:
    message = overheard(_without_stderr(error.message, visit))
    kind, remedy = guess([*visit.stderr[-20:], error.message])
    details = tuple(f"stderr: {line}" for line in _lines(visit.stderr[-_LAST_LINES:]))
    if isinstance(error, HttpRefusal) and error.status in (401, 403, 407):
        where = ("headers", "Authorization") if server.headers else ("url",)
        sent = several(server.headers) or "no header"
        return Finding(
            "credential.refused",
            "broken",
            message,
            f"{error.advice} (Sent: {sent}.)",
            details=details,
            **places.server(visit.server, *where),
        )
    if isinstance(error, BackendTimeout):
        name = "server.timeout"
        remedy = (
            (remedy if visit.stderr and kind else "") or error.advice or "Raise timeouts.list_s if it is only slow."
        )
    elif isinstance(error, OriginRefused):
        at = places.server(visit.server, "openapi")
        return Finding("openapi.origin_refused", "broken", message, error.advice, **at)
    elif visit.stage == "list":
        name = "server.list_failed"
    elif server.url and kind in _UNREACHED:
        name = _UNREACHED[kind]
    else:
        name = "server.failed"
        if not remedy and not visit.stderr and "exited with code 0" in error.message:
            remedy = "It ended without a word: it may need an argument (stdio, serve, --stdio), or be no MCP server."
    how = "listed" if visit.stage == "list" else "started" if server.command else "reached"
    advice = remedy or error.advice or "Run its command by hand, and look at what it says."
    where = ("command",) if server.command else ("url",) if server.url else ()
    said = message if "cannot be" in message else f"cannot be {how}: {message}"
    at = places.server(visit.server, *where)
    return Finding(name, "broken", said, advice, details=details, **at)


def _without_stderr(message: str, visit: Visit) -> str:
    """What happened, without the last words, which stand below it, and the name, which stands above."""
    text = " ".join(message.split()).removeprefix(f"{visit.server}: ")
    return text.partition(" (stderr: ")[0] if visit.stderr else text


def _lines(lines: Iterable[str]) -> list[str]:
    return [overheard(line)[:_LINE_CHARS] for line in lines]


def _said(remarks: list[str]) -> str:
    return overheard("; ".join(remarks[:3])) + (f" and {len(remarks) - 3} more" if len(remarks) > 3 else "")
