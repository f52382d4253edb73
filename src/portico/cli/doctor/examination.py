"""Everything in order: the configuration, the commands, the servers, their tools, and the house itself → a report."""

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from portico.catalog.entries import Source, listed, manifest_of
from portico.catalog.snapshot import ServerEntry
from portico.cli.doctor import (
    budgets,
    command_tools,
    commands,
    configuration,
    credentials,
    database,
    descriptions,
    door,
    folders,
    machine,
    rules,
    sandbox,
    secrets,
    tools,
    visits,
)
from portico.cli.doctor.budgets import Cost
from portico.cli.doctor.finding import Finding, ordered
from portico.cli.doctor.reading import Read, read
from portico.cli.doctor.visiting import Visit, visit_all
from portico.cli.screen import Screen
from portico.config import BackendConfig
from portico.config_file.names import nearest
from portico.disclosure.cost import Costs
from portico.disclosure.tokens import best_counter
from portico.errors import UnknownName


@dataclass(frozen=True)
class Asked:
    """What is to be examined."""

    files: Sequence[str] = ()
    servers: Sequence[str] = ()
    """Only these, and nothing of the house; empty is everything."""
    offline: bool = False
    """Start no server and ask none, no PostgreSQL either."""


@dataclass(frozen=True)
class House:
    """What the gateway stands on."""

    about: Mapping[str, str] = field(default_factory=dict)
    """Versions."""
    database: str = ""
    """Where the record is, in words."""
    languages: Mapping[str, str] = field(default_factory=dict)
    """Of scripts, each with `works` or why it does not."""
    cost: Cost | None = None
    """None where no server was heard."""


@dataclass(frozen=True)
class Report:
    """What was found."""

    findings: tuple[Finding, ...]
    servers: Mapping[str, str]
    """Every server that is not switched off, with its kind."""
    visits: Mapping[str, Visit] = field(default_factory=dict)
    house: House = field(default_factory=House)
    refused: bool = False
    """Portico would not start with this configuration."""

    def count(self, severity: str) -> int:
        """How many findings there are of a severity."""
        return sum(finding.severity == severity for finding in self.findings)

    @property
    def ok(self) -> bool:
        """Whether nothing is broken."""
        return not self.count("broken")


async def examine(asked: Asked, screen: Screen) -> Report:
    """Look at everything that was asked for."""
    found = await asyncio.to_thread(read, asked.files, os.environ, Path.cwd())
    found = _with_demo(found, asked)
    _known(asked.servers, found.config.servers)
    wanted = {
        name: server
        for name, server in found.config.servers.items()
        if not server.disabled and (not asked.servers or name in asked.servers)
    }
    house = not asked.servers
    findings = [one for one in found.findings if house or one.server in asked.servers]
    with screen.busy("Looking at the configuration …"):
        findings += await asyncio.to_thread(lambda: list(_looked_at(found, wanted, house=house)))
        usable = {name: server for name, server in wanted.items() if server.usable}
        if not asked.offline:
            findings += await commands.versions({n: s for n, s in usable.items() if s.command}, found.places)
    visited: dict[str, Visit] = {}
    if not asked.offline:
        startable = _startable(usable, findings)
        with screen.starting(list(startable)) as heard:
            visited = await visit_all(found.config, startable, heard)
    costs = Costs(best_counter().count)
    entries = _entries(found, visited)
    findings += await asyncio.to_thread(lambda: list(_heard(found, visited, entries, costs, house=house)))
    standing = House()
    if house:
        with screen.busy("Looking at the house …"):
            standing, more = await _house(found, entries, costs, asked)
        findings += more
    hidden = secrets.in_config(found.config)
    return Report(
        tuple(one.safe(hidden) for one in ordered(findings)),
        {name: server.kind for name, server in wanted.items()},
        visited,
        standing,
        found.refused,
    )


def _with_demo(found: Read, asked: Asked) -> Read:
    """Without a configuration the embedded servers are used, as by every command."""
    if found.files or found.config.servers or found.findings:
        return found
    from portico.demo import servers

    said = Finding(
        "config.absent",
        "note",
        "no configuration was found, so the embedded demo servers are used",
        "Write a portico.yaml here, or name a file with --config.",
    )
    config = found.config.model_copy(update={"servers": servers()})
    return replace(found, config=config, findings=(said,))


def _known(names: Sequence[str], servers: Mapping[str, BackendConfig]) -> None:
    for name in names:
        if name not in servers:
            near = nearest(name, servers)
            raise UnknownName(
                f"there is no server {name!r} here",
                nearest=near,
                advice=f"Did you mean {near[0]}?" if near else f"Servers: {', '.join(servers) or 'none'}.",
            )


def _looked_at(found: Read, wanted: Mapping[str, BackendConfig], *, house: bool) -> Iterator[Finding]:
    """What can be seen without starting anything."""
    config, places = found.config, found.places
    for name, server in wanted.items():
        yield from credentials.check(name, server, places)
        yield from configuration.variables(name, server, os.environ, places)
        if server.usable and server.command:
            yield from commands.check(name, server, places)
        if server.usable and server.commands:
            yield from command_tools.check(name, server, places)
        if server.usable and server.openapi:
            yield from descriptions.check(name, server, places)
    plain = list(secrets.in_plain_text(config, places))
    yield from (one for one in plain if house or one.server in wanted)
    if house:
        yield from folders.config_files(found.files, plain)
        yield from folders.env_files(config, places)
        yield from configuration.check(config, places)


def _startable(usable: Mapping[str, BackendConfig], findings: Sequence[Finding]) -> dict[str, BackendConfig]:
    """Servers that are worth starting: not those whose command is known to be missing."""
    hopeless = {one.server for one in findings if one.id.startswith("command.") and one.severity == "broken"}
    return {name: server for name, server in usable.items() if name not in hopeless}


def _entries(found: Read, visited: Mapping[str, Visit]) -> dict[str, ServerEntry]:
    entries: dict[str, ServerEntry] = {}
    for name, visit in visited.items():
        if visit.listing is not None:
            source = Source(name, "", rules=found.config.servers[name].tools)
            entries[name] = listed(source, visit.listing, manifest_of(source, visit.listing))
    return entries


def _heard(
    found: Read, visited: Mapping[str, Visit], entries: Mapping[str, ServerEntry], costs: Costs, *, house: bool
) -> Iterator[Finding]:
    """What the servers said and listed."""
    config, places = found.config, found.places
    full = any(config.view(name).exposure in ("full", "semantic") for name in (None, *config.profiles))
    for name, visit in visited.items():
        server = config.servers[name]
        yield from visits.check(visit, server, places)
        if visit.listing is not None:
            yield from tools.check(entries[name], places, full=full)
            yield from rules.of_server(name, server, (entry.name for entry in visit.listing.tools), places)
    if house:
        yield from rules.of_house(config, entries, places)
        yield from budgets.check(config, entries, costs, places)


async def _house(
    found: Read, entries: Mapping[str, ServerEntry], costs: Costs, asked: Asked
) -> tuple[House, list[Finding]]:
    """The gateway's own door, folders, database, sandbox and machine."""
    config, places = found.config, found.places
    findings = [
        *configuration.door(config, places),
        *folders.data_folder(config, places),
        *folders.audit_file(config, places),
    ]
    findings += [*machine.limits(len(config.servers)), *await machine.search(), *await door.check(config, places)]
    (where, records), (languages, scripts) = await asyncio.gather(
        database.check(config, places, offline=asked.offline), sandbox.check(config, places)
    )
    cost = await asyncio.to_thread(budgets.cost, config, entries, costs) if entries else None
    return House(machine.about(), where, languages, cost), [*findings, *records, *scripts]
