"""`portico install` and `portico uninstall`: point a client at Portico, and restore its file."""

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rich.text import Text

from portico.adoption import gateway_entry
from portico.adoption.atomic_files import read_file
from portico.adoption.backups import Backups, compute_digest
from portico.adoption.client_documents import parse_document
from portico.adoption.clients import Client, list_locations
from portico.adoption.clients import find_client as client_named
from portico.adoption.config_locations import ClientConfigLocation
from portico.adoption.diff import render_diff
from portico.adoption.installation import (
    InstallPlan,
    apply_install,
    apply_uninstall,
    choose_location,
    is_installed,
    plan_install,
    plan_uninstall,
)
from portico.cli.exit import EXIT_OK, print_note, sanitize_server_text
from portico.cli.screen import Screen
from portico.config import get_default_data_dir
from portico.config_file import LoadedConfig, find_files, load
from portico.errors import ConfigError, PorticoError

_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


@dataclass(frozen=True)
class _ClientEntry:
    """The entry to write, and remarks for the person."""

    entry: dict[str, Any]
    exposure: str
    remarks: tuple[str, ...]


def install(
    client: str,
    *,
    config: Sequence[str],
    scope: str | None,
    url: str | None,
    exposure: str | None,
    file: str | None,
    write: bool,
    screen: Screen,
    replace: bool = False,
) -> int:
    """Show the change to the client's file; with `write`, apply it and store a backup."""
    target_client = client_named(client)
    backups = _open_backups()
    cwd = Path.cwd()
    location = choose_location(
        target_client, list_locations(target_client, Path.home(), cwd), scope, file
    )
    files = _find_config_files(config, cwd)
    if not url:
        _refuse_self_reference(location, files, cwd)
    loaded = load(files, {"exposure": exposure})
    if url:
        pointer = _make_http_entry(target_client, url, loaded, exposure)
    else:
        pointer = _make_stdio_entry(target_client, location, files, loaded)
    failing: dict[str, str] = {}
    if replace:
        failing = _find_failing_servers(location, loaded)

    def find_working_duplicates(servers: Mapping[str, Any]) -> list[str]:
        duplicates = gateway_entry.find_duplicates(servers, loaded.config)
        return [name for name, twin in duplicates.items() if twin not in failing]

    plan = plan_install(
        target_client,
        location,
        pointer.entry,
        backups,
        find_working_duplicates,
        replace_duplicates=replace,
    )
    has_no_folder = location.scope == "user" and not location.path.parent.is_dir()
    copy = None
    if write:
        copy = apply_install(plan, backups)
    tokens = _count_duplicate_tokens(location, plan, loaded)
    for warning in loaded.warnings:
        print_note(f"Warning: {warning}")
    if screen.as_json:
        screen.write_json(
            _to_data(target_client, plan, write)
            | {
                "exposure": pointer.exposure,
                "entry": pointer.entry,
                "backup": str(copy) if copy else None,
                "staying": [*plan.remaining_servers],
                "twice": [*plan.duplicate_servers],
                "twice_tokens": tokens,
                "remarks": [*pointer.remarks],
                "kept": failing,
            }
        )
        return EXIT_OK
    screen.write_text(
        f"{target_client.title}: {location.path}{', a new file' if plan.before is None else ''}"
    )
    if has_no_folder:
        screen.write_text(
            f"There was no folder {location.path.parent}: is {target_client.title} installed here?"
        )
    _show_install(target_client, plan, pointer, tokens, screen)
    for name, reason in failing.items():
        screen.write_text(f"{name} stays in the file, because Portico cannot use it now: {reason}")
    if not plan.has_changes:
        screen.write_text(f"{target_client.title} points at Portico already: nothing to do.")
    elif not write:
        screen.write_text(
            "Nothing is written yet. The same command with --write does it, and keeps a backup."
        )
    else:
        screen.write_text(
            f"Written. {_render_backup_note(copy, target_client)}", target_client.reload_advice
        )
    return EXIT_OK


def uninstall(
    client: str, *, scope: str | None, file: str | None, write: bool = True, screen: Screen
) -> int:
    """Restore the client's file; without `write`, only show the change."""
    target_client = client_named(client)
    backups = _open_backups()
    plans: list[InstallPlan] = []
    locations = list(_find_targets(target_client, scope, file, backups))
    while locations:
        location = next(
            (location for location in locations if _is_untouched(location, backups)), locations[0]
        )
        locations.remove(location)
        plan = plan_uninstall(location, backups)
        if write:
            apply_uninstall(plan, backups)
        if plan.outcome != "absent":
            plans.append(plan)
    if screen.as_json:
        screen.write_json(
            [
                _to_data(target_client, plan, write) | {"put_back": [*plan.replaced_servers]}
                for plan in plans
            ]
        )
        return EXIT_OK
    for plan in plans:
        _show_uninstall(target_client, plan, write, screen)
    if not plans:
        screen.write_text(f"{target_client.title} does not point at Portico here: nothing to do.")
    else:
        screen.write_text(target_client.reload_advice if write else "Nothing is written yet.")
    return EXIT_OK


def _open_backups() -> Backups:
    data_dir = os.environ.get("PORTICO_DATA_DIR", "").strip()
    return Backups(
        (Path(data_dir).expanduser() if data_dir else get_default_data_dir()) / "clients"
    )


def _find_config_files(config_options: Sequence[str], cwd: Path) -> list[Path]:
    """Return the files that the started Portico reads: the named ones, or those found now."""
    found: Sequence[str | Path] = config_options or find_files(os.environ, cwd)
    if not config_options and found == [cwd / ".mcp.json"]:
        # A folder's own servers must not replace the configuration adopted for this user.
        found = find_files(os.environ, Path(os.devnull)) or found
    return [(cwd / Path(name).expanduser()).absolute() for name in found]


def _refuse_self_reference(place: ClientConfigLocation, files: Sequence[Path], cwd: Path) -> None:
    """Refuse a Portico whose configuration is the file that starts it."""
    target = os.path.realpath(place.path)
    found_later = not files and place.path == cwd / ".mcp.json"
    if found_later or any(os.path.realpath(file) == target for file in files):
        raise ConfigError(
            "is the file that Portico itself would read its servers from",
            advice=(
                "Run `portico adopt` first: it writes a portico.yaml with these servers, and "
                "Portico reads that."
            ),
            file=str(place.path),
        )


def _make_stdio_entry(
    client: Client, place: ClientConfigLocation, files: Sequence[Path], loaded: LoadedConfig
) -> _ClientEntry:
    """Make an entry that starts Portico with this configuration."""
    source = loaded.sources["exposure"].kind
    if source == "default":
        exposure = client.exposure
    else:
        exposure = loaded.config.exposure
    arguments = ["stdio", *(word for file in files for word in ("--config", str(file)))]
    if source in ("flag", "env") or (source == "default" and exposure != loaded.config.exposure):
        arguments += ["--exposure", exposure]
    command = gateway_entry.find_program()
    variables = [
        name
        for name in gateway_entry.list_config_variables(loaded.config)
        if name not in loaded.env_file_variables
    ]
    reason = {
        "default": f"{client.exposure_reason}. --exposure chooses another",
        "file": "the configuration says so",
    }.get(source, "you say so")
    remarks = [f"Exposure {exposure}: {reason}."]
    if not files:
        remarks.append(
            "No configuration is found here, so Portico would serve its demo servers. `portico "
            "adopt` takes over the servers you have; run this again after it."
        )
    if variables and client.name not in ("codex", "claude-code"):
        remarks.append(
            f"The configuration takes {', '.join(variables)} from the environment, "
            f"which {client.title} may not pass on: an `env_file` is surer."
        )
    path = ""
    if place.scope == "user" and not client.is_shell_program and os.name == "posix":
        shell_path = os.environ.get("PATH", "")
        if shell_only := gateway_entry.list_shell_only_commands(loaded.config, shell_path):
            path = shell_path
            remarks.append(
                f"This shell's PATH goes with it: {client.title} is not started in one, and would "
                f"not find {', '.join(shell_only)}."
            )
    if place.scope == "project":
        remarks.append(
            "This file is the project's: whoever shares it gets paths that are of this machine."
        )
    if gateway_entry.is_temporary(command):
        remarks.append(
            f"This Portico runs from a cache ({command[0]}): install it first, so that it is "
            "still there tomorrow."
        )
    return _ClientEntry(
        gateway_entry.make_stdio_entry(client, command, arguments, variables, path),
        exposure,
        tuple(remarks),
    )


def _make_http_entry(
    client: Client, url: str, loaded: LoadedConfig, exposure: str | None
) -> _ClientEntry:
    """Make an entry that points at a running Portico."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ConfigError(f"{url!r} is no address", advice="Write it as http://127.0.0.1:8420/mcp.")
    if exposure is not None:
        raise ConfigError(
            "--exposure is for a Portico that the client starts; one that is served decides itself",
            advice=(
                "Give `portico serve` the exposure, or lead the client to a profile: …/mcp/p/NAME."
            ),
        )
    if parts.path.strip("/"):
        full_url = url
    else:
        full_url = f"{url.rstrip('/')}/mcp"
    needs_token = loaded.config.gateway.token is not None
    remarks = [f"It leads to {full_url}: keep `portico serve` running there."]
    if needs_token and client.bearer_template:
        remarks.append(
            "The token comes from the variable PORTICO_TOKEN, which the client must have."
        )
    elif needs_token:
        remarks.append(
            f"{client.title} needs the token by hand: headers, Authorization, Bearer and the token."
        )
    return _ClientEntry(
        gateway_entry.make_http_entry(client, full_url, send_token=needs_token),
        loaded.config.exposure,
        tuple(remarks),
    )


def _count_duplicate_tokens(
    place: ClientConfigLocation, plan: InstallPlan, loaded: LoadedConfig
) -> int:
    """Count the tokens of servers that the client would load twice, as far as they are known."""
    if not plan.duplicate_servers or plan.before is None:
        return 0
    from portico.adoption.server_costs import measure_costs  # Imports the gateway.

    duplicates = gateway_entry.find_duplicates(
        parse_document(place, plan.before).servers, loaded.config
    )
    try:
        costs = asyncio.run(measure_costs(loaded.config, ()))
    except (PorticoError, OSError):
        return 0  # A missing figure is no reason to fail.
    return costs.sum_direct_tokens({duplicates[name] for name in plan.duplicate_servers})


def _find_failing_servers(place: ClientConfigLocation, loaded: LoadedConfig) -> dict[str, str]:
    """Return the duplicates of a client's servers that do not work behind Portico, with the
    reason.
    """
    data = read_file(place.path)
    if data:
        duplicates = set(
            gateway_entry.find_duplicates(
                parse_document(place, data).servers, loaded.config
            ).values()
        )
    else:
        duplicates = set[str]()
    if not duplicates:
        return {}
    from portico.adoption.server_costs import measure_costs

    costs = asyncio.run(measure_costs(loaded.config, duplicates))
    return {
        name: sanitize_server_text(
            costs.failures.get(name) or "it is switched off, or cannot be started"
        )
        for name in sorted(duplicates)
        if name not in costs.servers
    }


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
    recorded_for_user = [location for location in recorded if location.scope == "user"]
    seen: set[tuple[str, tuple[str, ...]]] = set()
    for location in (*locations, *recorded_for_user):
        mark = (os.path.realpath(location.path), location.keys)
        if scope in (None, location.scope) and mark not in seen:
            seen.add(mark)
            try:
                if is_installed(location, backups):
                    yield location
            except ConfigError as error:
                if scope is not None:
                    raise
                print_note(f"Left alone: {error}")


def _is_untouched(place: ClientConfigLocation, backups: Backups) -> bool:
    record = backups.find(place)
    now = read_file(place.path)
    return record is not None and now is not None and compute_digest(now) == record.wrote


def _show_install(
    client: Client, plan: InstallPlan, pointer: _ClientEntry, tokens: int, screen: Screen
) -> None:
    _show_difference(plan, screen, masking=False)
    screen.write_text(*pointer.remarks)
    if plan.replaced_servers:
        screen.write_text(
            f"Taken out, because Portico has them: {_join_names(plan.replaced_servers)}. "
            "`portico uninstall` puts them back."
        )
    if plan.remaining_servers:
        count = len(plan.remaining_servers)
        stay, their = ("server stays", "Its") if count == 1 else ("servers stay", "Their")
        screen.write_text(
            f"{count} {stay} in the file: {_join_names(plan.remaining_servers)}. "
            f"{their} tools are still loaded beside Portico."
        )
    if plan.duplicate_servers:
        if tokens:
            cost = f", for {tokens:,} tokens at the start of every conversation"
        else:
            cost = ""
        screen.write_text(
            f"Portico has {_join_names(plan.duplicate_servers)}, too, so {client.title} would load "
            f"what they offer twice{cost}: --replace takes them out of the file."
        )


def _show_uninstall(client: Client, plan: InstallPlan, write: bool, screen: Screen) -> None:
    if not write:
        _show_difference(plan, screen, masking=True)
    path = plan.location.path
    if write:
        verb = "is"
    else:
        verb = "would be"
    if plan.outcome == "restored":
        screen.write_text(f"{client.title}: {path} {verb} as it was before Portico, byte for byte.")
    elif plan.outcome == "removed":
        screen.write_text(f"{client.title}: {path} was made for Portico, and {verb} gone again.")
    else:
        if plan.replaced_servers:
            back = f" and {_join_names(plan.replaced_servers)} put back"
        else:
            back = ""
        screen.write_text(
            f"{client.title}: {path} was changed since. Portico's entry {verb} taken "
            f"out{back}; the rest stays."
        )


def _show_difference(plan: InstallPlan, screen: Screen, *, masking: bool) -> None:
    for line in _render_difference(plan, masking=masking):
        screen.write_text(Text(line, style=_COLOURS.get(line[:1], "")))


def _render_difference(plan: InstallPlan, *, masking: bool) -> list[str]:
    before, after = (_decode_document(plan.location, data) for data in (plan.before, plan.after))
    return render_diff(before, after, plan.location.path.name, mask_new_lines=masking)


def _decode_document(place: ClientConfigLocation, data: bytes | None) -> str:
    if data is not None:
        return parse_document(place, data).text
    return ""


def _to_data(client: Client, plan: InstallPlan, write: bool) -> dict[str, Any]:
    return {
        "client": client.name,
        "file": str(plan.location.path),
        "scope": plan.location.scope,
        "outcome": plan.outcome,
        "changes": plan.has_changes,
        "written": write and plan.has_changes,
        "replaced": [*plan.replaced_servers],
        "diff": _render_difference(plan, masking=True),
    }


def _render_backup_note(copy: Path | None, client: Client) -> str:
    undo_note = f"`portico uninstall {client.name}` undoes it."
    if copy:
        return f"The file as it was is kept in {copy}. {undo_note}"
    return undo_note


def _join_names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:8])
    if len(names) > 8:
        return f"{shown} and {len(names) - 8} more"
    return shown
