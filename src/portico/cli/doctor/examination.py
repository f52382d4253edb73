"""Everything in order: the configuration, the commands, the servers, their tools, and the house
itself → a report."""

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
    """What is to be examined."""

    files: Sequence[str] = ()
    servers: Sequence[str] = ()
    """Only these, and nothing of the house; empty is everything."""
    offline: bool = False
    """Start no server and ask none, no PostgreSQL either."""


@dataclass(frozen=True)
class InstallationFacts:
    """What the gateway stands on."""

    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions."""
    database: str = ""
    """Where the record is, in words."""
    languages: Mapping[str, str] = field(default_factory=dict)
    """Of scripts, each with `works` or why it does not."""
    cost: CatalogCost | None = None
    """None where no server was heard."""


@dataclass(frozen=True)
class DoctorReport:
    """What was found."""

    findings: tuple[DoctorFinding, ...]
    servers: Mapping[str, str]
    """Every server that is not switched off, with its kind."""
    probes: Mapping[str, ServerProbe] = field(default_factory=dict)
    installation: InstallationFacts = field(default_factory=InstallationFacts)
    config_refused: bool = False
    """Portico would not start with this configuration."""

    def count(self, severity: str) -> int:
        """How many findings there are of a severity."""
        return sum(finding.severity == severity for finding in self.findings)

    @property
    def ok(self) -> bool:
        """Whether nothing is broken."""
        return not self.count("broken")


async def examine(options: DoctorOptions, screen: Screen) -> DoctorReport:
    """Look at everything that was asked for."""
    found = await asyncio.to_thread(read_leniently, options.files, os.environ, Path.cwd())
    found = _use_demo_servers(found, options)
    _require_known_servers(options.servers, found.config.servers)
    wanted = {
        name: server
        for name, server in found.config.servers.items()
        if not server.disabled and (not options.servers or name in options.servers)
    }
    house = not options.servers
    findings = [one for one in found.findings if house or one.server in options.servers]
    with screen.show_spinner("Looking at the configuration …"):
        findings += await asyncio.to_thread(
            lambda: list(_check_statically(found, wanted, include_gateway=house))
        )
        usable = {name: server for name, server in wanted.items() if server.is_usable}
        if not options.offline:
            findings += await server_commands.check_versions(
                {n: s for n, s in usable.items() if s.command}, found.locations
            )
    visited: dict[str, ServerProbe] = {}
    if not options.offline:
        startable = _select_startable(usable, findings)
        with screen.show_start_progress(list(startable)) as heard:
            visited = await probe_servers(found.config, startable, heard)
    costs = DefinitionCosts(get_best_counter().count)
    entries = _build_entries(found, visited)
    findings += await asyncio.to_thread(
        lambda: list(_check_probes(found, visited, entries, costs, include_gateway=house))
    )
    standing = InstallationFacts()
    if house:
        with screen.show_spinner("Looking at the house …"):
            standing, more = await _check_installation(found, entries, costs, options)
        findings += more
    hidden = secrets.collect_secrets(found.config)
    return DoctorReport(
        tuple(one.mask_secrets(hidden) for one in sort_findings(findings)),
        {name: server.kind for name, server in wanted.items()},
        visited,
        standing,
        found.refused,
    )


def _use_demo_servers(found: LenientConfig, options: DoctorOptions) -> LenientConfig:
    """Without a configuration the embedded servers are used, as by every command."""
    if found.files or found.config.servers or found.findings:
        return found
    from portico.demo import make_demo_servers

    said = DoctorFinding(
        "config.absent",
        "note",
        "no configuration was found, so the embedded demo servers are used",
        "Write a portico.yaml here, or name a file with --config.",
    )
    config = found.config.model_copy(update={"servers": make_demo_servers()})
    return replace(found, config=config, findings=(said,))


def _require_known_servers(names: Sequence[str], servers: Mapping[str, BackendConfig]) -> None:
    for name in names:
        if name not in servers:
            near = find_nearest(name, servers)
            raise UnknownName(
                f"there is no server {name!r} here",
                nearest=near,
                advice=f"Did you mean {near[0]}?"
                if near
                else f"Servers: {', '.join(servers) or 'none'}.",
            )


def _check_statically(
    found: LenientConfig, wanted: Mapping[str, BackendConfig], *, include_gateway: bool
) -> Iterator[DoctorFinding]:
    """What can be seen without starting anything."""
    config = found.config
    places = found.locations
    for name, server in wanted.items():
        yield from credentials.check(name, server, places)
        yield from configuration.check_variables(name, server, os.environ, places)
        if server.is_usable and server.command:
            yield from server_commands.check(name, server, places)
        if server.is_usable and server.commands:
            yield from command_tools.check(name, server, places)
        if server.is_usable and server.openapi:
            yield from openapi.check(name, server, places)
    plain = list(secrets.check_plain_text(config, places))
    yield from (one for one in plain if include_gateway or one.server in wanted)
    if include_gateway:
        yield from folders.check_config_files(found.files, plain)
        yield from folders.check_env_files(config, places)
        yield from configuration.check(config, places)


def _select_startable(
    usable: Mapping[str, BackendConfig], findings: Sequence[DoctorFinding]
) -> dict[str, BackendConfig]:
    """Servers that are worth starting: not those whose command is known to be missing."""
    hopeless = {
        one.server for one in findings if one.id.startswith("command.") and one.severity == "broken"
    }
    return {name: server for name, server in usable.items() if name not in hopeless}


def _build_entries(
    found: LenientConfig, probes: Mapping[str, ServerProbe]
) -> dict[str, ServerEntry]:
    entries: dict[str, ServerEntry] = {}
    for name, visit in probes.items():
        if visit.listing is not None:
            source = ServerSource(name, "", rules=found.config.servers[name].tools)
            entries[name] = build_entry(
                source, visit.listing, build_manifest(source, visit.listing)
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
    """What the servers said and listed."""
    config = found.config
    places = found.locations
    full = any(
        config.resolve_profile(name).exposure in ("full", "semantic")
        for name in (None, *config.profiles)
    )
    for name, visit in probes.items():
        server = config.servers[name]
        yield from server_probes.check(visit, server, places)
        if visit.listing is not None:
            yield from tools.check(entries[name], places, full=full)
            yield from rules.check_server_rules(
                name, server, (entry.name for entry in visit.listing.tools), places
            )
    if include_gateway:
        yield from rules.check_gateway_rules(config, entries, places)
        yield from budgets.check(config, entries, costs, places)


async def _check_installation(
    found: LenientConfig,
    entries: Mapping[str, ServerEntry],
    costs: DefinitionCosts,
    options: DoctorOptions,
) -> tuple[InstallationFacts, list[DoctorFinding]]:
    """The gateway's own door, folders, database, sandbox and machine."""
    config = found.config
    places = found.locations
    findings = [
        *configuration.check_endpoint(config, places),
        *folders.check_data_folder(config, places),
        *folders.check_audit_file(config, places),
    ]
    findings += [
        *machine.check_open_file_limit(len(config.servers)),
        *await machine.check_search_model(),
        *await listen_port.check(config, places),
    ]
    (where, records), (languages, scripts) = await asyncio.gather(
        database.check(config, places, offline=options.offline), sandbox.check(config, places)
    )
    if entries:
        cost = await asyncio.to_thread(budgets.measure_catalog, config, entries, costs)
    else:
        cost = None
    return InstallationFacts(machine.collect_versions(), where, languages, cost), [
        *findings,
        *records,
        *scripts,
    ]
