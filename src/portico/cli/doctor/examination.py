"""Runs all checks, on configuration, commands, servers, tools and installation, and makes a
report.
"""

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from portico.catalog.entries import ServerSource, build_entry, build_manifest
from portico.catalog.snapshot import ServerEntry
from portico.cli.doctor.checks import (
    budgets,
    command_tools,
    configuration,
    credentials,
    database,
    folders,
    listen_port,
    machine,
    openapi,
    rules,
    sandbox,
    secrets,
    server_commands,
    server_probes,
    tools,
)
from portico.cli.doctor.checks.budgets import CatalogCost
from portico.cli.doctor.finding import DoctorFinding, sort_findings
from portico.cli.doctor.lenient_config import LenientConfig, read_leniently
from portico.cli.doctor.probe import ServerProbe, probe_servers
from portico.cli.screen import Screen
from portico.config import BackendConfig
from portico.config_file.names import find_nearest
from portico.errors import UnknownName
from portico.rendering.listing_cost import DefinitionCosts
from portico.rendering.token_count import get_best_counter


@dataclass(frozen=True)
class DoctorOptions:
    """Options of the command line."""

    files: Sequence[str] = ()
    servers: Sequence[str] = ()
    """Only these servers, and no checks of the installation; empty is everything."""
    offline: bool = False
    """Start and contact no server, nor PostgreSQL."""


@dataclass(frozen=True)
class InstallationFacts:
    """Facts about the installation of the gateway."""

    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions."""
    database: str = ""
    """A description of the database's location."""
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
    found = await asyncio.to_thread(read_leniently, options.files, os.environ, Path.cwd())
    found = _use_demo_servers(found, options)
    _require_known_servers(options.servers, found.config.servers)
    wanted = {
        name: server
        for name, server in found.config.servers.items()
        if not server.disabled and (not options.servers or name in options.servers)
    }
    include_gateway = not options.servers
    findings = [
        finding
        for finding in found.findings
        if include_gateway or finding.server in options.servers
    ]
    with screen.show_spinner("Looking at the configuration …"):
        findings += await asyncio.to_thread(
            lambda: list(_check_statically(found, wanted, include_gateway=include_gateway))
        )
        usable = {name: server for name, server in wanted.items() if server.is_usable}
        if not options.offline:
            with_command = {name: server for name, server in usable.items() if server.command}
            findings += await server_commands.check_versions(with_command, found.locations)
    probes: dict[str, ServerProbe] = {}
    if not options.offline:
        startable = _select_startable(usable, findings)
        with screen.show_start_progress(list(startable)) as on_probed:
            probes = await probe_servers(found.config, startable, on_probed)
    costs = DefinitionCosts(get_best_counter().count)
    entries = _build_entries(found, probes)
    findings += await asyncio.to_thread(
        lambda: list(_check_probes(found, probes, entries, costs, include_gateway=include_gateway))
    )
    installation = InstallationFacts()
    if include_gateway:
        with screen.show_spinner("Looking at the house …"):
            installation, installation_findings = await _check_installation(
                found, entries, costs, options
            )
        findings += installation_findings
    secret_values = secrets.collect_secrets(found.config)
    return DoctorReport(
        tuple(finding.mask_secrets(secret_values) for finding in sort_findings(findings)),
        {name: server.kind for name, server in wanted.items()},
        probes,
        installation,
        found.refused,
    )


def _use_demo_servers(found: LenientConfig, options: DoctorOptions) -> LenientConfig:
    """Use the embedded servers if there is no configuration, as every command does."""
    if found.files or found.config.servers or found.findings:
        return found
    from portico.demo import make_demo_servers

    finding = DoctorFinding(
        "config.absent",
        "note",
        "no configuration was found, so the embedded demo servers are used",
        "Write a portico.yaml here, or name a file with --config.",
    )
    config = found.config.model_copy(update={"servers": make_demo_servers()})
    return replace(found, config=config, findings=(finding,))


def _require_known_servers(names: Sequence[str], servers: Mapping[str, BackendConfig]) -> None:
    for name in names:
        if name not in servers:
            near = find_nearest(name, servers)
            if near:
                advice = f"Did you mean {near[0]}?"
            else:
                advice = f"Servers: {', '.join(servers) or 'none'}."
            raise UnknownName(f"there is no server {name!r} here", nearest=near, advice=advice)


def _check_statically(
    found: LenientConfig, wanted: Mapping[str, BackendConfig], *, include_gateway: bool
) -> Iterator[DoctorFinding]:
    """Yield what can be found without starting anything."""
    config = found.config
    locations = found.locations
    for name, server in wanted.items():
        yield from credentials.check(name, server, locations)
        yield from configuration.check_variables(name, server, os.environ, locations)
        if server.is_usable and server.command:
            yield from server_commands.check(name, server, locations)
        if server.is_usable and server.commands:
            yield from command_tools.check(name, server, locations)
        if server.is_usable and server.openapi:
            yield from openapi.check(name, server, locations)
    plain_secrets = list(secrets.check_plain_text(config, locations))
    yield from (finding for finding in plain_secrets if include_gateway or finding.server in wanted)
    if include_gateway:
        yield from folders.check_config_files(found.files, plain_secrets)
        yield from folders.check_env_files(config, locations)
        yield from configuration.check(config, locations)


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
    for name, probe in probes.items():
        server = config.servers[name]
        yield from server_probes.check(probe, server, locations)
        if probe.listing is not None:
            yield from tools.check(entries[name], locations, full=lists_all_tools)
            yield from rules.check_server_rules(
                name, server, (entry.name for entry in probe.listing.tools), locations
            )
    if include_gateway:
        yield from rules.check_gateway_rules(config, entries, locations)
        yield from budgets.check(config, entries, costs, locations)


async def _check_installation(
    found: LenientConfig,
    entries: Mapping[str, ServerEntry],
    costs: DefinitionCosts,
    options: DoctorOptions,
) -> tuple[InstallationFacts, list[DoctorFinding]]:
    """Check the gateway's own endpoint, folders, database, sandbox and machine."""
    config = found.config
    locations = found.locations
    findings = [
        *configuration.check_endpoint(config, locations),
        *folders.check_data_folder(config, locations),
        *folders.check_audit_file(config, locations),
        *machine.check_open_file_limit(len(config.servers)),
        *await machine.check_search_model(),
        *await listen_port.check(config, locations),
    ]
    (database_name, database_findings), (languages, script_findings) = await asyncio.gather(
        database.check(config, locations, offline=options.offline),
        sandbox.check(config, locations),
    )
    cost = None
    if entries:
        cost = await asyncio.to_thread(budgets.measure_catalog, config, entries, costs)
    facts = InstallationFacts(machine.collect_versions(), database_name, languages, cost)
    return facts, [*findings, *database_findings, *script_findings]
