"""Points a client at Portico and gives its file back: first a plan, which changes nothing, then its
carrying out.

A file that is still what was written gets back, byte for byte, what it was. One that somebody has
changed since loses our entry, gets back what was taken out of it, and keeps the rest.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from portico.adoption.atomic_files import read_file, remove_file, write_file
from portico.adoption.backups import Backups, InstallRecord, compute_digest
from portico.adoption.client_documents import (
    ENTRY_NAME,
    ClientDocument,
    add_server,
    copy_server,
    parse_document,
    remove_keys,
)
from portico.adoption.clients import Client
from portico.adoption.config_locations import ClientConfigLocation
from portico.adoption.gateway_entry import is_portico
from portico.errors import ConfigError

InstallOutcome = Literal[
    "added", "updated", "unchanged", "restored", "removed", "taken out", "absent"
]
_MANAGED_KEYS = (
    "type",
    "command",
    "args",
    "url",
    "serverUrl",
    "httpUrl",
    "headers",
    "env_vars",
    "bearer_token_env_var",
)
"""Keys of an entry of ours that a new one decides; what a person added beside them stays."""


@dataclass(frozen=True)
class InstallPlan:
    """What would become of one file."""

    location: ClientConfigLocation
    outcome: InstallOutcome
    before: bytes | None
    after: bytes | None
    record: InstallRecord | None = None
    """What to remember of it."""
    backup_content: bytes | None = None
    """What to keep as the file that was."""
    remaining_servers: tuple[str, ...] = ()
    """The other servers in the file."""
    duplicate_servers: tuple[str, ...] = ()
    """Those of them that Portico has, too."""
    replaced_servers: tuple[str, ...] = ()
    """Those that are taken out, or put back."""

    @property
    def has_changes(self) -> bool:
        return self.before != self.after


def choose_location(
    client: Client, locations: Sequence[ClientConfigLocation], scope: str | None, file: str | None
) -> ClientConfigLocation:
    """The file to write to: the one that is named, else of the scope's files one that exists, else
    the first."""
    if file is not None:
        path = Path(file).expanduser().absolute()
        known = next(
            (place for place in locations if place.path == path and scope in (None, place.scope)),
            None,
        )
        first = next(place for place in locations if not place.legacy)
        return known or replace(
            first, path=path, format="toml" if path.suffix == ".toml" else "json"
        )
    wanted = scope or "user"
    fitting = [place for place in locations if place.scope == wanted and not place.legacy]
    if not fitting:
        scopes = ", ".join(dict.fromkeys(place.scope for place in locations))
        raise ConfigError(
            f"{client.title} has no scope {wanted}",
            advice=f"It has {scopes}; --file names any file.",
        )
    tests: tuple[Callable[[Path], bool], ...] = (Path.exists, lambda path: path.parent.is_dir())
    return next((place for test in tests for place in fitting if test(place.path)), fitting[0])


def plan_install(
    client: Client,
    location: ClientConfigLocation,
    entry: Mapping[str, Any],
    backups: Backups,
    find_duplicates: Callable[[Mapping[str, Any]], Iterable[str]],
    *,
    replace_duplicates: bool = False,
) -> InstallPlan:
    """What installing would do. `also_behind` tells which servers of a map Portico has, too."""
    before = read_file(location.path)
    document = parse_document(location, before or b"")
    servers = document.servers
    record = backups.find(location)
    mine = servers.get(ENTRY_NAME)
    if ENTRY_NAME in servers and not _is_own_entry(mine, record):
        document.refuse(
            (*location.keys, ENTRY_NAME),
            "is somebody else's entry",
            "Rename that entry, or remove it, and run this again.",
        )
    others = {name: server for name, server in servers.items() if name != ENTRY_NAME}
    twice = tuple(find_duplicates(others))
    if replace_duplicates:
        taken = twice
    else:
        taken = ()
    wanted = {
        **entry,
        **{key: value for key, value in (mine or {}).items() if key not in _MANAGED_KEYS},
    }
    changed = document
    for name in taken:
        changed = remove_keys(changed, (*location.keys, name))
    if mine != wanted:
        changed = add_server(changed, ENTRY_NAME, wanted)
    staying = tuple(name for name in others if name not in taken)
    if changed is document:
        return InstallPlan(
            location,
            "unchanged",
            before,
            before,
            record,
            remaining_servers=staying,
            duplicate_servers=twice,
        )
    after = changed.file_bytes
    remembered = InstallRecord(
        client.name,
        location.scope,
        str(location.path),
        location.keys,
        location.format,
        compute_digest(after),
        before is not None,
        wanted,
        document.count_missing_keys(),
        replaced=taken,
    )
    base = before
    if record is not None and before is not None:
        base, remembered = _merge_previous_install(document, before, record, remembered, backups)
    if mine is not None:
        outcome: InstallOutcome = "updated"
    else:
        outcome = "added"
    return InstallPlan(
        location, outcome, before, after, remembered, base, staying, () if taken else twice, taken
    )


def plan_uninstall(location: ClientConfigLocation, backups: Backups) -> InstallPlan:
    """What uninstalling would do."""
    before = read_file(location.path)
    record = backups.find(location)
    if before is None:
        return InstallPlan(location, "absent", None, None, record)
    was = backups.read_original(location)
    if (
        record is not None
        and compute_digest(before) == record.wrote
        and (was is not None or not record.existed)
    ):
        if record.existed:
            outcome: InstallOutcome = "restored"
        else:
            outcome = "removed"
        return InstallPlan(
            location,
            outcome,
            before,
            was if record.existed else None,
            record,
            replaced_servers=record.replaced,
        )
    document = parse_document(location, before)
    servers = document.servers
    if ENTRY_NAME in servers and not _is_own_entry(servers[ENTRY_NAME], record):
        document.refuse(
            (*location.keys, ENTRY_NAME),
            "is somebody else's entry",
            "Remove it by hand if it should go.",
        )
    changed, back = _remove_own_entry(document, record, was)
    if changed is document:
        return InstallPlan(location, "absent", before, before, record)
    return InstallPlan(
        location, "taken out", before, changed.file_bytes, record, replaced_servers=back
    )


def apply_install(plan: InstallPlan, backups: Backups) -> Path | None:
    """Do what a plan of installing says; where the backup is."""
    if plan.record is None or plan.after is None or not plan.has_changes:
        return None
    known = backups.find(plan.location)
    was = backups.read_original(plan.location)
    copy = backups.save(plan.record, plan.backup_content)
    try:
        made = write_file(
            plan.location.path,
            plan.after,
            plan.before,
            mode=0o600 if plan.location.scope == "user" else 0o644,
        )
    except ConfigError:
        backups.drop(plan.location)
        if known is not None:
            backups.save(known, was)
        raise
    if made:
        backups.save(replace(plan.record, made_folders=tuple(map(str, made))), plan.backup_content)
    return copy


def apply_uninstall(plan: InstallPlan, backups: Backups) -> None:
    """Do what a plan of uninstalling says."""
    if plan.has_changes and plan.before is not None:
        if plan.after is None:
            if plan.record:
                folders = plan.record.made_folders
            else:
                folders = ()
            remove_file(plan.location.path, plan.before, tuple(map(Path, folders)))
        else:
            write_file(plan.location.path, plan.after, plan.before)
    if plan.record is not None:
        backups.drop(plan.location)


def is_installed(location: ClientConfigLocation, backups: Backups) -> bool:
    """Whether there is something to undo in a file; raises ConfigError where that cannot be told."""
    if backups.find(location) is not None:
        return True
    data = read_file(location.path)
    return data is not None and is_portico(parse_document(location, data).servers.get(ENTRY_NAME))


def _is_own_entry(entry: Any, record: InstallRecord | None) -> bool:
    return is_portico(entry) or (record is not None and entry == record.entry)


def _merge_previous_install(
    document: ClientDocument,
    before: bytes,
    record: InstallRecord,
    new_record: InstallRecord,
    backups: Backups,
) -> tuple[bytes | None, InstallRecord]:
    """What to go back to after a second installation: what was there before the first, with what
    was changed since."""
    was = backups.read_original(document.location)
    same = compute_digest(before) == record.wrote and (was is not None or not record.existed)
    if same:
        base = was
        existed = record.existed
    else:
        base = _remove_own_entry(document, record, was)[0].file_bytes
        existed = True
    replaced = tuple(dict.fromkeys((*(record.replaced if same else ()), *new_record.replaced)))
    return base, replace(
        new_record,
        existed=existed,
        made_keys=max(record.made_keys, new_record.made_keys),
        made_folders=record.made_folders,
        replaced=replaced,
    )


def _remove_own_entry(
    document: ClientDocument, record: InstallRecord | None, original: bytes | None
) -> tuple[ClientDocument, tuple[str, ...]]:
    """A document without our entry, with what was taken out for it; the names of the latter."""
    changed = document
    place = document.location
    if ENTRY_NAME in changed.servers:
        changed = remove_keys(changed, (*place.keys, ENTRY_NAME))
    back: list[str] = []
    if record is not None and record.replaced and original is not None:
        source = parse_document(place, original)
        for name in record.replaced:
            if name in source.servers and name not in changed.servers:
                changed = copy_server(changed, name, source)
                back.append(name)
    for made in range(record.made_keys if record and place.format == "json" else 0):
        keys = place.keys[: len(place.keys) - made]
        if changed is document or _get_nested(changed.data, keys) != {}:
            break
        changed = remove_keys(changed, keys)
    return changed, tuple(back)


def _get_nested(data: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        if isinstance(data, Mapping):
            data = data.get(key)
        else:
            data = None
    return data
