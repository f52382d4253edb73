"""Installs Portico into a client's file and uninstalls it: first a plan, then its execution.

A file that is unchanged since gets its original content back, byte for byte. In a file that was
changed since, our entry is removed, replaced servers are put back, and the rest stays.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from portico.adoption.backups import Backups, InstallRecord, compute_digest
from portico.adoption.client_documents import (
    ENTRY_NAME,
    ClientDocument,
    add_server,
    copy_server,
    parse_document,
    remove_keys,
)
from portico.adoption.client_entries import is_portico
from portico.adoption.clients import Client, ClientConfigLocation
from portico.adoption.file_replacement import read_file, remove_file, write_file
from portico.errors import ConfigError

InstallOutcome = Literal[
    "added", "updated", "unchanged", "restored", "removed", "taken out", "absent"
]
_MANAGED_KEYS = (
    *("type", "command", "args", "url", "serverUrl", "httpUrl", "headers"),
    *("env_vars", "bearer_token_env_var"),
)
"""Keys of our entry that an update overwrites; other keys, added by a person, stay."""


@dataclass(frozen=True)
class InstallPlan:
    """The change to one file."""

    location: ClientConfigLocation
    outcome: InstallOutcome
    before: bytes | None
    after: bytes | None
    record: InstallRecord | None = None
    """The record to store."""
    backup_content: bytes | None = None
    """The original content to back up."""
    remaining_servers: tuple[str, ...] = ()
    """The other servers in the file."""
    duplicate_servers: tuple[str, ...] = ()
    """Those that Portico also has."""
    replaced_servers: tuple[str, ...] = ()
    """Those that are removed, or put back."""

    @property
    def has_changes(self) -> bool:
        return self.before != self.after


def choose_location(
    client: Client, locations: Sequence[ClientConfigLocation], scope: str | None, file: str | None
) -> ClientConfigLocation:
    """Return the file to write: the named one, else an existing one of the scope, else the
    first.
    """
    if file is not None:
        path = Path(file).expanduser().absolute()
        for location in locations:
            if location.path == path and scope in (None, location.scope):
                return location
        first = next(location for location in locations if not location.legacy)
        return replace(first, path=path, format="toml" if path.suffix == ".toml" else "json")
    wanted_scope = scope or "user"
    fitting = [
        location for location in locations if location.scope == wanted_scope and not location.legacy
    ]
    if not fitting:
        scopes = ", ".join(dict.fromkeys(location.scope for location in locations))
        raise ConfigError(
            f"{client.title} has no scope {wanted_scope}",
            advice=f"It has {scopes}; --file names any file.",
        )
    existing = [location for location in fitting if location.path.exists()]
    in_folder = [location for location in fitting if location.path.parent.is_dir()]
    return (existing or in_folder or fitting)[0]


def plan_install(
    client: Client,
    location: ClientConfigLocation,
    entry: Mapping[str, Any],
    backups: Backups,
    find_duplicates: Callable[[Mapping[str, Any]], Iterable[str]],
    *,
    replace_duplicates: bool = False,
) -> InstallPlan:
    """Plan an installation; `find_duplicates` returns the servers that Portico also has."""
    before = read_file(location.path)
    document = parse_document(location, before or b"")
    servers = document.servers
    record = backups.find(location)
    current = servers.get(ENTRY_NAME)
    if ENTRY_NAME in servers and not _is_own_entry(current, record):
        document.refuse(
            (*location.keys, ENTRY_NAME),
            "is somebody else's entry",
            "Rename that entry, or remove it, and run this again.",
        )
    others = {name: server for name, server in servers.items() if name != ENTRY_NAME}
    duplicates = tuple(find_duplicates(others))
    removed = duplicates if replace_duplicates else ()
    new_entry = {
        **entry,
        **{key: value for key, value in (current or {}).items() if key not in _MANAGED_KEYS},
    }
    changed = document
    for name in removed:
        changed = remove_keys(changed, (*location.keys, name))
    if current != new_entry:
        changed = add_server(changed, ENTRY_NAME, new_entry)
    remaining = tuple(name for name in others if name not in removed)
    if changed is document:
        return InstallPlan(
            location,
            "unchanged",
            before,
            before,
            record,
            remaining_servers=remaining,
            duplicate_servers=duplicates,
        )
    after = changed.file_bytes
    new_record = InstallRecord(
        client.name,
        location.scope,
        str(location.path),
        location.keys,
        location.format,
        compute_digest(after),
        before is not None,
        new_entry,
        document.count_missing_keys(),
        replaced=removed,
    )
    base = before
    if record is not None and before is not None:
        base, new_record = _merge_previous_install(document, before, record, new_record, backups)
    return InstallPlan(
        location,
        "added" if current is None else "updated",
        before,
        after,
        new_record,
        base,
        remaining,
        () if removed else duplicates,
        removed,
    )


def plan_uninstall(location: ClientConfigLocation, backups: Backups) -> InstallPlan:
    before = read_file(location.path)
    record = backups.find(location)
    if before is None:
        return InstallPlan(location, "absent", None, None, record)
    original = backups.read_original(location)
    if (
        record is not None
        and compute_digest(before) == record.wrote
        and (original is not None or not record.existed)
    ):
        outcome: InstallOutcome = "restored"
        if not record.existed:
            outcome = "removed"
            original = None
        return InstallPlan(
            location, outcome, before, original, record, replaced_servers=record.replaced
        )
    document = parse_document(location, before)
    servers = document.servers
    if ENTRY_NAME in servers and not _is_own_entry(servers[ENTRY_NAME], record):
        document.refuse(
            (*location.keys, ENTRY_NAME),
            "is somebody else's entry",
            "Remove it by hand if it should go.",
        )
    changed, put_back = _remove_own_entry(document, record, original)
    if changed is document:
        return InstallPlan(location, "absent", before, before, record)
    return InstallPlan(
        location, "taken out", before, changed.file_bytes, record, replaced_servers=put_back
    )


def apply_install(plan: InstallPlan, backups: Backups) -> Path | None:
    """Apply an installation plan; return the path of the backup."""
    if plan.record is None or plan.after is None or not plan.has_changes:
        return None
    known = backups.find(plan.location)
    original = backups.read_original(plan.location)
    copy = backups.save(plan.record, plan.backup_content)
    try:
        made_folders = write_file(
            plan.location.path,
            plan.after,
            plan.before,
            mode=0o600 if plan.location.scope == "user" else 0o644,
        )
    except ConfigError:
        backups.drop(plan.location)
        if known is not None:
            backups.save(known, original)
        raise
    if made_folders:
        backups.save(
            replace(plan.record, made_folders=tuple(map(str, made_folders))), plan.backup_content
        )
    return copy


def apply_uninstall(plan: InstallPlan, backups: Backups) -> None:
    if plan.has_changes and plan.before is not None:
        if plan.after is None:
            folders = plan.record.made_folders if plan.record else ()
            remove_file(plan.location.path, plan.before, tuple(map(Path, folders)))
        else:
            write_file(plan.location.path, plan.after, plan.before)
    if plan.record is not None:
        backups.drop(plan.location)


def is_installed(location: ClientConfigLocation, backups: Backups) -> bool:
    """Return whether a file has something to undo; raises ConfigError if it cannot be parsed."""
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
    """Return what to restore after a second installation: the first original, with later edits."""
    original = backups.read_original(document.location)
    is_unchanged = compute_digest(before) == record.wrote and (
        original is not None or not record.existed
    )
    merged = replace(
        new_record,
        made_keys=max(record.made_keys, new_record.made_keys),
        made_folders=record.made_folders,
    )
    if not is_unchanged:
        base = _remove_own_entry(document, record, original)[0].file_bytes
        return base, replace(merged, existed=True)
    replaced = tuple(dict.fromkeys((*record.replaced, *new_record.replaced)))
    return original, replace(merged, existed=record.existed, replaced=replaced)


def _remove_own_entry(
    document: ClientDocument, record: InstallRecord | None, original: bytes | None
) -> tuple[ClientDocument, tuple[str, ...]]:
    """Remove our entry and put replaced servers back; return the document and their names."""
    changed = document
    location = document.location
    if ENTRY_NAME in changed.servers:
        changed = remove_keys(changed, (*location.keys, ENTRY_NAME))
    put_back: list[str] = []
    if record is not None and record.replaced and original is not None:
        source = parse_document(location, original)
        for name in record.replaced:
            if name in source.servers and name not in changed.servers:
                changed = copy_server(changed, name, source)
                put_back.append(name)
    for removed_keys in range(record.made_keys if record and location.format == "json" else 0):
        keys = location.keys[: len(location.keys) - removed_keys]
        if changed is document or _get_nested(changed.data, keys) != {}:
            break
        changed = remove_keys(changed, keys)
    return changed, tuple(put_back)


def _get_nested(data: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        data = data.get(key) if isinstance(data, Mapping) else None
    return data
