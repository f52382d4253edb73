"""Runs all checks, on configuration, commands, servers, tools and installation, and makes a
report.
"""

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from portico.catalog.entries import ServerSource, build_entry, build_manifest
from portico.catalog.pinning import DefinitionPins
from portico.catalog.scan_findings import list_open_points
from portico.catalog.snapshot import ServerEntry, Snapshot
from portico.catalog.tool_overrides import apply_overrides
from portico.cli.doctor import (
    configuration_checks,
    containment_checks,
    data_checks,
    installation_checks,
    issuer_checks,
    rule_checks,
    rule_name_checks,
    server_checks,
    server_command_checks,
    tool_checks,
)
from portico.cli.doctor.finding import DoctorFinding, note, sort_findings
from portico.cli.doctor.lenient_config import LenientConfig, read_leniently
from portico.cli.doctor.probe import ServerProbe, probe_servers
from portico.cli.doctor.rule_checks import CatalogCost
from portico.cli.local_gateway.connection import find_gateway
from portico.cli.local_gateway.registration import identify_configuration
from portico.cli.screen import Screen
from portico.cli.setup_commands import DoctorOptions
from portico.config import BackendConfig, Config
from portico.config_file.names import find_nearest
from portico.config_file.secret_values import MIN_SECRET_LENGTH, SecretMask, collect_secret_values
from portico.errors import UnknownName
from portico.gateway import PINS_FILE
from portico.rendering.listing_cost import DefinitionCosts
from portico.rendering.token_budget import get_best_counter
from portico.storage.pin_store import PinStore, PinsUnavailable


@dataclass(frozen=True)
class InstallationFacts:
    """Facts about the installation of the gateway."""

    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions."""
    database: str = ""
    """A description of the database's location."""
    containment: str = ""
    """What this machine can contain servers by."""
    languages: Mapping[str, str] = field(default_factory=dict)
    """Script languages, each with `works` or why it does not."""
    cost: CatalogCost | None = None
    """None if no server was listed."""


@dataclass(frozen=True)
class DoctorReport:
    """The results of an examination."""

    findings: tuple[DoctorFinding, ...]
    servers: Mapping[str, str]
    """Every server that is not switched off, with its kind."""
    probes: Mapping[str, ServerProbe] = field(default_factory=dict)
    exposed_tools: Mapping[str, int] = field(default_factory=dict)
    """Number of tools of each listed server that its rules leave."""
    installation: InstallationFacts = field(default_factory=InstallationFacts)
    config_refused: bool = False
    """Portico would not start with this configuration."""

    def count(self, severity: str) -> int:
        """Count the findings of a severity."""
        return sum(finding.severity == severity for finding in self.findings)

    @property
    def ok(self) -> bool:
        """Whether nothing is broken."""
        return not self.count("broken")


async def examine(options: DoctorOptions, screen: Screen) -> DoctorReport:
    """Run the checks that the options ask for."""
    only = options.server or ()
    files = options.config or ()
    found = await asyncio.to_thread(read_leniently, files, os.environ, Path.cwd())
    found = _use_demo_servers(found)
    _require_known_servers(only, found.config.servers)
    wanted = {
        name: server
        for name, server in found.config.servers.items()
        if not server.disabled and (not only or name in only)
    }
    usable = {name: server for name, server in wanted.items() if server.is_usable}
    findings = [finding for finding in found.findings if not only or finding.server in only]
    with screen.show_spinner("Looking at the configuration …"):
        findings += await asyncio.to_thread(
            lambda: list(_check_statically(found, wanted, include_gateway=not only))
        )
        if not options.offline:
            with_command = {name: server for name, server in usable.items() if server.command}
            findings += await server_command_checks.check_versions(with_command, found.locations)
    probes: dict[str, ServerProbe] = {}
    if not options.offline:
        startable = _select_startable(usable, findings)
        with screen.show_start_progress(list(startable)) as on_probed:
            probes = await probe_servers(found.config, startable, on_probed)
    costs = DefinitionCosts(get_best_counter().count)
    entries = _build_entries(found, probes)
    findings += await asyncio.to_thread(
        lambda: list(_check_probes(found, probes, entries, costs, include_gateway=not only))
    )
    installation = InstallationFacts()
    if not only:
        with screen.show_spinner("Looking at the installation …"):
            installation, more = await _check_installation(found, entries, options)
        findings += more
    mask = SecretMask(_collect_secrets(found.config)).apply
    return DoctorReport(
        tuple(finding.clean(mask) for finding in sort_findings(findings)),
        {name: server.kind for name, server in wanted.items()},
        probes,
        {name: len(entry.tools) for name, entry in entries.items()},
        installation,
        found.refused,
    )


def _collect_secrets(config: Config) -> set[str]:
    """Return every secret value; of headers also the part after any scheme."""
    headers = (value for server in config.servers.values() for value in server.headers.values())
    after_scheme = {value.partition(" ")[2].strip() for value in headers}
    long = {value for value in after_scheme if len(value) >= MIN_SECRET_LENGTH}
    return long | collect_secret_values(config)


def _use_demo_servers(found: LenientConfig) -> LenientConfig:
    """Use the embedded servers if there is no configuration, as every command does."""
    if found.files or found.config.servers or found.findings:
        return found
    from portico.demo import make_demo_servers

    finding = note(
        "config.absent",
        "no configuration was found, so the embedded demo servers are used",
        "`portico adopt` takes over the servers of your clients; --config names a file.",
    )
    config = found.config.model_copy(update={"servers": make_demo_servers()})
    return replace(found, config=config, findings=(finding,))


def _require_known_servers(names: Sequence[str], servers: Mapping[str, BackendConfig]) -> None:
    for name in names:
        if name not in servers:
            near = find_nearest(name, servers)
            advice = f"Servers: {', '.join(servers) or 'none'}."
            if near:
                advice = f"Did you mean {near[0]}?"
            raise UnknownName(f"there is no server {name!r} here", nearest=near, advice=advice)


def _check_statically(
    found: LenientConfig, wanted: Mapping[str, BackendConfig], *, include_gateway: bool
) -> Iterator[DoctorFinding]:
    """Yield what can be found without starting anything."""
    config = found.config
    locations = found.locations
    for name, server in wanted.items():
        yield from configuration_checks.check_credentials(name, server, locations)
        yield from configuration_checks.check_variables(
            name, server, os.environ, locations, config.inherit_env
        )
        if server.is_usable and server.command:
            yield from server_command_checks.check(name, server, locations)
        if server.is_usable and server.commands:
            yield from tool_checks.check_command_tools(name, server, locations)
        if server.is_usable and server.openapi:
            yield from configuration_checks.check_openapi(name, server, locations)
    plain_secrets = list(configuration_checks.check_plain_text(config, locations))
    yield from (finding for finding in plain_secrets if include_gateway or finding.server in wanted)
    if include_gateway:
        yield from data_checks.check_config_files(found.files, plain_secrets)
        yield from data_checks.check_env_files(config, locations)
        yield from configuration_checks.check(config, locations)


def _select_startable(
    usable: Mapping[str, BackendConfig], findings: Sequence[DoctorFinding]
) -> dict[str, BackendConfig]:
    """Select the servers worth starting: not those whose command is known to be broken."""
    broken = {
        finding.server
        for finding in findings
        if finding.id.startswith("command.") and finding.severity == "broken"
    }
    return {name: server for name, server in usable.items() if name not in broken}


def _build_entries(
    found: LenientConfig, probes: Mapping[str, ServerProbe]
) -> dict[str, ServerEntry]:
    entries: dict[str, ServerEntry] = {}
    for name, probe in probes.items():
        if probe.listing is not None:
            source = ServerSource(name, "", rules=found.config.servers[name].tools)
            entries[name] = build_entry(
                source, probe.listing, build_manifest(source, probe.listing)
            )
    return entries


def _review_entries(
    config: Config, entries: Mapping[str, ServerEntry]
) -> Mapping[str, ServerEntry]:
    """Compare what servers say now with what was trusted; nothing is trusted here."""
    path = config.data_dir / PINS_FILE
    store = PinStore(path if path.exists() else None)
    try:
        pins = DefinitionPins(store)
        return {
            name: pins.review(entry, config.servers[name].get_trust(config.trust), remember=False)
            for name, entry in entries.items()
        }
    except PinsUnavailable:
        return entries
    finally:
        store.close()


def _check_probes(
    found: LenientConfig,
    probes: Mapping[str, ServerProbe],
    entries: Mapping[str, ServerEntry],
    costs: DefinitionCosts,
    *,
    include_gateway: bool,
) -> Iterator[DoctorFinding]:
    """Yield findings about the servers' answers and listings."""
    config = found.config
    locations = found.locations
    lists_all_tools = any(
        config.resolve_profile(name).exposure in ("full", "semantic")
        for name in (None, *config.profiles)
    )
    reviewed = _review_entries(config, entries)
    snapshot = Snapshot(reviewed)
    for name, probe in probes.items():
        server = config.servers[name]
        yield from server_checks.check(probe, server, locations)
        yield from containment_checks.check_denials(probe, locations)
        yield from configuration_checks.check_environment(probe, server, os.environ, locations)
        if probe.listing is not None:
            yield from tool_checks.check(entries[name], locations, full=lists_all_tools)
            points = list_open_points(snapshot, reviewed[name])
            yield from tool_checks.check_trust(entries[name], points, locations)
            yield from rule_checks.check_overrides(apply_overrides(reviewed[name]), locations)
            yield from rule_checks.check_server_rules(
                name, server, (entry.name for entry in probe.listing.tools), locations
            )
    if include_gateway:
        yield from rule_checks.check_gateway_rules(config, entries, locations)
        yield from rule_checks.check_budgets(config, entries, costs, locations)
        yield from rule_name_checks.check_rule_names(config, entries, locations)


async def _check_installation(
    found: LenientConfig,
    entries: Mapping[str, ServerEntry],
    options: DoctorOptions,
) -> tuple[InstallationFacts, list[DoctorFinding]]:
    """Check the gateway's own endpoint, folders, database, sandbox and machine."""
    config = found.config
    locations = found.locations
    findings = [
        *installation_checks.check_token(config, locations),
        *data_checks.check_data_folder(config, locations),
        *data_checks.check_audit_file(config, locations),
        *installation_checks.check_open_file_limit(len(config.servers)),
        *await installation_checks.check_search_model(),
        *installation_checks.check_port(
            config, locations, find_gateway(identify_configuration(options.config or ()))
        ),
    ]
    (
        (database_name, database_findings),
        (languages, script_findings),
        (containment, containment_findings),
        issuer_findings,
    ) = await asyncio.gather(
        data_checks.check_database(config, locations, offline=options.offline),
        installation_checks.check_scripts(config, locations),
        containment_checks.check_support(config.servers, locations),
        issuer_checks.check_issuers(config, locations, offline=options.offline),
    )
    cost = None
    if entries:
        cost = await asyncio.to_thread(
            rule_checks.measure_catalog, Snapshot(entries), get_best_counter()
        )
    facts = InstallationFacts(
        installation_checks.collect_versions(), database_name, containment, languages, cost
    )
    findings += [*issuer_findings, *database_findings, *script_findings, *containment_findings]
    return facts, findings
