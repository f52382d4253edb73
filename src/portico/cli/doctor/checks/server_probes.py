"""Evaluates probes: why a server failed, what it prints, what it declares but lacks. Pure."""

from collections.abc import Iterable, Iterator

from portico.catalog.listing import ServerListing
from portico.cli.doctor.finding import ConfigLocations, DoctorFinding, join_names
from portico.cli.doctor.probe import ServerProbe
from portico.cli.doctor.remedies import guess_remedy
from portico.cli.exit import sanitize_server_text
from portico.config import BackendConfig
from portico.errors import BackendTimeout, PorticoError
from portico.rendering.lines import format_count
from portico.upstream.backend import InitializeInfo
from portico.upstream.backends.openapi.backend import OriginRefused
from portico.upstream.protocol.envelope import LEGACY_VERSIONS
from portico.upstream.transports.http_errors import HttpStatusError

SLOW_S = 10.0
CLIENT_CUT_CHARS = 2_048
"""Length in characters at which a client cuts instructions and descriptions."""
_ID_BY_TROUBLE = {
    "refused": "server.unreachable",
    "network": "server.unreachable",
    "dns": "server.dns",
    "tls": "server.tls",
}
_LAST_LINES = 6
_LINE_CHARS = 300


def check(
    probe: ServerProbe, server: BackendConfig, locations: ConfigLocations
) -> Iterator[DoctorFinding]:
    """Yield the findings of one probe."""
    if probe.error is not None:
        yield _make_failure_finding(probe, probe.error, server, locations)
    at = locations.locate_server(probe.server)
    if probe.noise:
        yield DoctorFinding(
            "server.noise",
            "warning",
            f"it prints to stdout what is no protocol ({format_count(probe.noise, 'line')}); "
            "stricter clients break on it",
            "Let it log to stderr (look for a --quiet or log option), or report it to its author.",
            details=tuple(f"stdout: {line}" for line in _sanitize_lines(probe.noise_samples[:2])),
            **at,
        )
    if probe.needed_signal:
        yield DoctorFinding(
            "server.ignores_stdin",
            "note",
            "it does not end when its input is closed, and must be ended by a signal",
            "Nothing need be done: Portico does that. Clients that do not may leave it running.",
            **at,
        )
    if probe.initialize_info is None or probe.listing is None:
        return
    if probe.seconds > SLOW_S and probe.seconds > 0.25 * server.timeouts.start_s:
        yield DoctorFinding(
            "server.slow_start",
            "warning" if probe.seconds > 0.7 * server.timeouts.start_s else "note",
            f"it took {probe.seconds:.0f} s to start; it is given up after "
            f"{server.timeouts.start_s:g} s",
            "Install it instead of fetching it at each start, raise timeouts.start_s, or keep it "
            "up: start: boot, idle_s: 0.",
            **at,
        )
    if (
        probe.initialize_info.era == "legacy"
        and probe.initialize_info.protocol_version not in LEGACY_VERSIONS
    ):
        version = sanitize_server_text(probe.initialize_info.protocol_version)[:40]
        yield DoctorFinding(
            "server.version_unknown",
            "note",
            f"it answers with the protocol version {version!r}, which nobody published",
            "Report it to its author; Portico talks to it as to any older server.",
            **at,
        )
    yield from _check_listing(probe, probe.initialize_info, probe.listing, locations)


def _check_listing(
    probe: ServerProbe, hello: InitializeInfo, listing: ServerListing, locations: ConfigLocations
) -> Iterator[DoctorFinding]:
    at = locations.locate_server(probe.server)
    absent = [warning for warning in listing.warnings if warning.startswith("declares ")]
    duplicates = [warning for warning in listing.warnings if "more than once" in warning]
    other = [warning for warning in listing.warnings if warning not in (*absent, *duplicates)]
    remedy = "Report it to its author; Portico goes on without what is missing."
    for kind, remarks in (
        ("server.declares_absent", absent),
        ("tool.duplicate", duplicates),
        ("server.listing", other),
    ):
        if remarks:
            yield DoctorFinding(kind, "warning", _join_remarks(remarks), remedy, **at)
    offers = listing.offers
    if not (listing.tools or offers.resources or offers.templates or offers.prompts):
        yield DoctorFinding(
            "server.offers_nothing",
            "warning",
            "it offers no tool, no resource and no prompt",
            "Many servers offer nothing until they have credentials or arguments: check env "
            "and args.",
            details=tuple(f"stderr: {line}" for line in _sanitize_lines(probe.stderr[-2:])),
            **at,
        )
    if listing.tools and "tools" not in hello.capabilities:
        yield DoctorFinding(
            "server.undeclared",
            "note",
            "it has tools but does not declare them; clients that go by the declaration see none",
            "Report it to its author; Portico lists them all the same.",
            **at,
        )
    if len(hello.instructions) > CLIENT_CUT_CHARS:
        yield DoctorFinding(
            "server.instructions_long",
            "note",
            f"its instructions are {len(hello.instructions):,} characters long; clients cut "
            f"them at {CLIENT_CUT_CHARS:,}",
            "Report it to its author; through Portico the beginning is shown.",
            **at,
        )


def _make_failure_finding(
    probe: ServerProbe, error: PorticoError, server: BackendConfig, locations: ConfigLocations
) -> DoctorFinding:
    message = sanitize_server_text(_strip_stderr(error.message, probe))
    kind, remedy = guess_remedy([*probe.stderr[-20:], error.message])
    details = tuple(f"stderr: {line}" for line in _sanitize_lines(probe.stderr[-_LAST_LINES:]))
    if isinstance(error, HttpStatusError) and error.status in (401, 403, 407):
        if server.headers:
            where = ("headers", "Authorization")
        else:
            where = ("url",)
        sent = join_names(server.headers) or "no header"
        return DoctorFinding(
            "credential.refused",
            "broken",
            message,
            f"{error.advice} (Sent: {sent}.)",
            details=details,
            **locations.locate_server(probe.server, *where),
        )
    if isinstance(error, BackendTimeout):
        name = "server.timeout"
        remedy = (
            (remedy if probe.stderr and kind else "")
            or error.advice
            or "Raise timeouts.list_s if it is only slow."
        )
    elif isinstance(error, OriginRefused):
        at = locations.locate_server(probe.server, "openapi")
        return DoctorFinding("openapi.origin_refused", "broken", message, error.advice, **at)
    elif probe.stage == "list":
        name = "server.list_failed"
    elif server.url and kind in _ID_BY_TROUBLE:
        name = _ID_BY_TROUBLE[kind]
    else:
        name = "server.failed"
        if not remedy and not probe.stderr and "exited with code 0" in error.message:
            remedy = (
                "It ended without a word: it may need an argument (stdio, serve, --stdio), or "
                "be no MCP server."
            )
    if probe.stage == "list":
        attempt = "listed"
    elif server.command:
        attempt = "started"
    else:
        attempt = "reached"
    advice = remedy or error.advice or "Run its command by hand, and look at what it says."
    if server.command:
        where = ("command",)
    elif server.url:
        where = ("url",)
    else:
        where = ()
    if "cannot be" not in message:
        message = f"cannot be {attempt}: {message}"
    at = locations.locate_server(probe.server, *where)
    return DoctorFinding(name, "broken", message, advice, details=details, **at)


def _strip_stderr(message: str, probe: ServerProbe) -> str:
    """Return the message without stderr and server name, which the report shows separately."""
    text = " ".join(message.split()).removeprefix(f"{probe.server}: ")
    if probe.stderr:
        return text.partition(" (stderr: ")[0]
    return text


def _sanitize_lines(lines: Iterable[str]) -> list[str]:
    return [sanitize_server_text(line)[:_LINE_CHARS] for line in lines]


def _join_remarks(remarks: list[str]) -> str:
    return sanitize_server_text("; ".join(remarks[:3])) + (
        f" and {len(remarks) - 3} more" if len(remarks) > 3 else ""
    )
