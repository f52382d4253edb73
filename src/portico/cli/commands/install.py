"""`portico install` and `portico uninstall`: point a client at Portico, and restore its file."""

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.text import Text

from portico.adoption import client_entries
from portico.adoption.backups import Backups, compute_digest
from portico.adoption.client_documents import parse_document
from portico.adoption.clients import Client, ClientConfigLocation, find_client, list_locations
from portico.adoption.diff import render_diff
from portico.adoption.file_replacement import read_file
from portico.adoption.installation import (
    InstallPlan,
    apply_install,
    apply_uninstall,
    choose_location,
    is_installed,
    plan_install,
    plan_uninstall,
)
from portico.cli.client_entry import (
    ClientEntry,
    find_config_files,
    find_unkept_rules,
    make_http_entry,
    make_stdio_entry,
    refuse_self_reference,
)
from portico.cli.exit import EXIT_OK, print_note, print_warning, sanitize_server_text
from portico.cli.screen import Screen
from portico.cli.setup_commands import InstallOptions, UninstallOptions
from portico.config import get_default_data_dir
from portico.config_file import LoadedConfig, load
from portico.errors import ConfigError, PorticoError

_COLOURS = {"+": "green", "-": "red", "@": "cyan"}
_MAX_NAMES = 8


@dataclass(frozen=True)
class _Installation:
    """What `install` did, or would do."""

    client: Client
    plan: InstallPlan
    pointer: ClientEntry
    is_written: bool
    backup: Path | None
    has_no_folder: bool
    duplicate_tokens: int
    """Tokens of servers that the client would load twice, as far as they are known."""
    failing: Mapping[str, str]
    """Servers that stay in the file, with the reason."""
    lost_rules: Mapping[str, Sequence[str]]
    """Servers for which the client has rules that Portico does not keep, with those rules."""


def run_install(client: str, options: InstallOptions) -> int:
    """Show the change to the client's file; with `write`, apply it and store a backup."""
    screen = options.make_screen()
    target = find_client(client)
    backups = open_backups()
    cwd = Path.cwd()
    locations = list_locations(target, Path.home(), cwd)
    location = choose_location(target, locations, options.scope, options.file)
    files = find_config_files(options.config or (), cwd)
    if not options.url:
        refuse_self_reference(location, files, cwd)
    loaded = load(files, {"exposure": options.exposure})
    if options.url:
        pointer = make_http_entry(target, options.url, loaded, options.exposure)
    else:
        pointer = make_stdio_entry(target, location, files, loaded)
    failing = _find_failing_servers(location, loaded) if options.replace else {}

    lost_rules: dict[str, tuple[str, ...]] = {}
    if options.replace:
        lost_rules = find_unkept_rules(target, location, loaded)
    kept = set[str]() if options.drop_rules else set(lost_rules)

    def find_working_duplicates(servers: Mapping[str, Any]) -> list[str]:
        duplicates = client_entries.find_duplicates(servers, loaded.config)
        return [
            name for name, twin in duplicates.items() if twin not in failing and name not in kept
        ]

    plan = plan_install(
        target,
        location,
        pointer.entry,
        backups,
        find_working_duplicates,
        replace_duplicates=options.replace,
    )
    has_no_folder = location.scope == "user" and not location.path.parent.is_dir()
    backup = apply_install(plan, backups) if options.write else None
    tokens = _count_duplicate_tokens(location, plan, loaded)
    done = _Installation(
        target, plan, pointer, options.write, backup, has_no_folder, tokens, failing, lost_rules
    )
    for warning in loaded.warnings:
        if not warning.unusable_server:  # `adopt` and `doctor` say so; installing changes nothing
            print_warning(str(warning))
    if screen.as_json:
        screen.write_json(_to_install_data(done))
    else:
        _show_install(screen, done)
    return EXIT_OK


def run_uninstall(client: str, options: UninstallOptions) -> int:
    """Restore the client's file; with `dry_run`, only show the change."""
    screen = options.make_screen()
    target = find_client(client)
    backups = open_backups()
    plans: list[InstallPlan] = []
    locations = list(_find_targets(target, options.scope, options.file, backups))
    while locations:
        untouched = (location for location in locations if _is_untouched(location, backups))
        location = next(untouched, locations[0])
        locations.remove(location)
        plan = plan_uninstall(location, backups)
        if not options.dry_run:
            apply_uninstall(plan, backups)
        if plan.outcome != "absent":
            plans.append(plan)
    if screen.as_json:
        data = [
            _to_data(target, plan, not options.dry_run) | {"put_back": [*plan.replaced_servers]}
            for plan in plans
        ]
        screen.write_json(data)
        return EXIT_OK
    for plan in plans:
        _show_uninstall(target, plan, options.dry_run, screen)
    if not plans:
        screen.write_text(f"{target.title} does not point at Portico here: nothing to do.")
    else:
        screen.write_text("Nothing is written yet." if options.dry_run else target.reload_advice)
    return EXIT_OK


def open_backups() -> Backups:
    """Return the originals of the clients' files."""
    data_dir = os.environ.get("PORTICO_DATA_DIR", "").strip()
    folder = Path(data_dir).expanduser() if data_dir else get_default_data_dir()
    return Backups(folder / "clients")


def _count_duplicate_tokens(
    location: ClientConfigLocation, plan: InstallPlan, loaded: LoadedConfig
) -> int:
    if not plan.duplicate_servers or plan.before is None:
        return 0
    from portico.adoption.server_costs import measure_costs  # Imports the gateway.

    servers = parse_document(location, plan.before).servers
    duplicates = client_entries.find_duplicates(servers, loaded.config)
    try:
        costs = asyncio.run(measure_costs(loaded.config, ()))
    except (PorticoError, OSError):
        return 0  # A missing figure is no reason to fail.
    return costs.sum_direct_tokens({duplicates[name] for name in plan.duplicate_servers})


def _find_failing_servers(location: ClientConfigLocation, loaded: LoadedConfig) -> dict[str, str]:
    """Return the duplicates of a client's servers that do not work behind Portico, with the
    reason.
    """
    data = read_file(location.path)
    servers = parse_document(location, data).servers if data else {}
    duplicates = set(client_entries.find_duplicates(servers, loaded.config).values())
    if not duplicates:
        return {}
    from portico.adoption.server_costs import measure_costs

    costs = asyncio.run(measure_costs(loaded.config, duplicates))
    reasons: dict[str, str] = {}
    for name in sorted(duplicates - costs.servers.keys()):
        reason = costs.failures.get(name) or "it cannot be started"
        if loaded.config.servers[name].disabled:
            reason = f"it is switched off there (`portico enable {name}`)"
        reasons[name] = sanitize_server_text(reason)
    return reasons


def _find_targets(
    client: Client, scope: str | None, file: str | None, backups: Backups
) -> Iterator[ClientConfigLocation]:
    """Yield the files that have something to undo."""
    locations = list_locations(client, Path.home(), Path.cwd())
    recorded = [
        record.location for record in backups.iter_records() if record.client == client.name
    ]
    if file is not None:
        named = choose_location(client, locations, scope, file)
        matching = [
            location
            for location in recorded
            if location.path == named.path and scope in (None, location.scope)
        ]
        yield from matching or [named]
        return
    seen: set[tuple[str, tuple[str, ...]]] = set()
    for location in (*locations, *(one for one in recorded if one.scope == "user")):
        mark = (os.path.realpath(location.path), location.keys)
        if scope not in (None, location.scope) or mark in seen:
            continue
        seen.add(mark)
        try:
            if is_installed(location, backups):
                yield location
        except ConfigError as error:
            if scope is not None:
                raise
            print_note(f"Left alone: {error}")


def _is_untouched(location: ClientConfigLocation, backups: Backups) -> bool:
    record = backups.find(location)
    now = read_file(location.path)
    return record is not None and now is not None and compute_digest(now) == record.wrote


def _to_install_data(done: _Installation) -> dict[str, Any]:
    return _to_data(done.client, done.plan, done.is_written) | {
        "exposure": done.pointer.exposure,
        "entry": done.pointer.entry,
        "backup": str(done.backup) if done.backup else None,
        "staying": [*done.plan.remaining_servers],
        "twice": [*done.plan.duplicate_servers],
        "twice_tokens": done.duplicate_tokens,
        "remarks": [*done.pointer.remarks],
        "kept": dict(done.failing),
        "lost_rules": {name: list(rules) for name, rules in done.lost_rules.items()},
    }


def _show_install(screen: Screen, done: _Installation) -> None:
    client = done.client
    plan = done.plan
    path = plan.location.path
    screen.write_text(f"{client.title}: {path}{', a new file' if plan.before is None else ''}")
    if done.has_no_folder:
        screen.write_text(f"There was no folder {path.parent}: is {client.title} installed here?")
    _show_difference(plan, screen, masking=False)
    screen.write_text(*done.pointer.remarks, *_describe_other_servers(done))
    if not plan.has_changes:
        screen.write_text(f"{client.title} points at Portico already: nothing to do.")
    elif not done.is_written:
        screen.write_text(
            "Nothing is written yet. The same command with --write does it, and keeps a backup."
        )
    else:
        kept = f"The file as it was is kept in {done.backup}. " if done.backup else ""
        screen.write_text(f"Written. {kept}`portico uninstall {client.name}` undoes it.")
        screen.write_text(client.reload_advice)
        if "command" in done.pointer.entry:
            screen.write_text(
                "Several clients? `portico start` runs one gateway for all of them; without it, "
                "each starts its own."
            )


def _describe_other_servers(done: _Installation) -> Iterator[str]:
    """Say what happens to the other servers in the client's file."""
    plan = done.plan
    if plan.replaced_servers:
        yield (
            f"Taken out, because Portico has them: {_join_names(plan.replaced_servers)}. "
            "`portico uninstall` puts them back."
        )
    if plan.remaining_servers:
        names = _join_names(plan.remaining_servers)
        text = f"{len(plan.remaining_servers)} servers stay in the file: {names}. Their"
        if len(plan.remaining_servers) == 1:
            text = f"1 server stays in the file: {names}. Its"
        yield f"{text} tools are still loaded beside Portico."
    if plan.duplicate_servers:
        cost = ""
        if done.duplicate_tokens:
            cost = f", for {done.duplicate_tokens:,} tokens at the start of every conversation"
        yield (
            f"Portico has {_join_names(plan.duplicate_servers)}, too, so {done.client.title} would "
            f"load what they offer twice{cost}: --replace takes them out of the file."
        )
    for name, rules in done.lost_rules.items():
        said = "; ".join(rules)
        if name in plan.replaced_servers:
            yield f"Rules of {done.client.title} that no longer hold for {name}: {said}"
        else:
            yield (
                f"{name} stays in the file, because Portico does not keep these rules for it: "
                f"{said}. Run `portico adopt` again, write them as its `tools: {{deny: […]}}` or "
                "as a rule with `may: ask`, or give --drop-rules."
            )
    for name, reason in done.failing.items():
        yield f"{name} stays in the file, because Portico cannot use it now: {reason}"


def _show_uninstall(client: Client, plan: InstallPlan, dry_run: bool, screen: Screen) -> None:
    if dry_run:
        _show_difference(plan, screen, masking=True)
    where = f"{client.title}: {plan.location.path}"
    verb = "would be" if dry_run else "is"
    if plan.outcome == "restored":
        screen.write_text(f"{where} {verb} as it was before Portico, byte for byte.")
    elif plan.outcome == "removed":
        screen.write_text(f"{where} was made for Portico, and {verb} gone again.")
    else:
        names = _join_names(plan.replaced_servers)
        back = f" and {names} put back" if names else ""
        screen.write_text(
            f"{where} was changed since. Portico's entry {verb} taken out{back}; the rest stays."
        )


def _show_difference(plan: InstallPlan, screen: Screen, *, masking: bool) -> None:
    for line in render_difference(plan, masking=masking):
        screen.write_text(Text(line, style=_COLOURS.get(line[:1], "")))


def render_difference(plan: InstallPlan, *, masking: bool) -> list[str]:
    """Return what a plan changes in its file."""
    location = plan.location
    before = parse_document(location, plan.before).text if plan.before is not None else ""
    after = parse_document(location, plan.after).text if plan.after is not None else ""
    return render_diff(before, after, location.path.name, mask_new_lines=masking)


def _to_data(client: Client, plan: InstallPlan, write: bool) -> dict[str, Any]:
    return {
        "client": client.name,
        "file": str(plan.location.path),
        "scope": plan.location.scope,
        "outcome": plan.outcome,
        "changes": plan.has_changes,
        "written": write and plan.has_changes,
        "replaced": [*plan.replaced_servers],
        "diff": render_difference(plan, masking=True),
    }


def _join_names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MAX_NAMES])
    if len(names) > _MAX_NAMES:
        return f"{shown} and {len(names) - _MAX_NAMES} more"
    return shown
