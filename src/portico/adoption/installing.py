"""Points a client at Portico and gives its file back: first a plan, which changes nothing, then its carrying out.

A file that is still what was written gets back, byte for byte, what it was. One that somebody has changed since loses
our entry, gets back what was taken out of it, and keeps the rest.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from portico.adoption.backups import Backups, Record, digest
from portico.adoption.clients import Client
from portico.adoption.documents import NAME, Document, opened, with_server, with_written, without
from portico.adoption.file_writing import read_file, remove_file, write_file
from portico.adoption.places import Place
from portico.adoption.pointing import is_portico
from portico.errors import ConfigError

Outcome = Literal["added", "updated", "unchanged", "restored", "removed", "taken out", "absent"]
_TAKES_OVER = ("type", "command", "args", "url", "serverUrl", "httpUrl", "headers", "env_vars", "bearer_token_env_var")
"""Keys of an entry of ours that a new one decides; what a person added beside them stays."""


@dataclass(frozen=True)
class Plan:
    """What would become of one file."""

    place: Place
    outcome: Outcome
    before: bytes | None
    after: bytes | None
    record: Record | None = None
    """What to remember of it."""
    base: bytes | None = None
    """What to keep as the file that was."""
    staying: tuple[str, ...] = ()
    """The other servers in the file."""
    twice: tuple[str, ...] = ()
    """Those of them that Portico has, too."""
    replaced: tuple[str, ...] = ()
    """Those that are taken out, or put back."""

    @property
    def changes(self) -> bool:
        return self.before != self.after


def chosen(client: Client, there: Sequence[Place], scope: str | None, file: str | None) -> Place:
    """The file to write to: the one that is named, else of the scope's files one that exists, else the first."""
    if file is not None:
        path = Path(file).expanduser().absolute()
        known = next((place for place in there if place.path == path and scope in (None, place.scope)), None)
        first = next(place for place in there if not place.legacy)
        return known or replace(first, path=path, format="toml" if path.suffix == ".toml" else "json")
    wanted = scope or "user"
    fitting = [place for place in there if place.scope == wanted and not place.legacy]
    if not fitting:
        scopes = ", ".join(dict.fromkeys(place.scope for place in there))
        raise ConfigError(f"{client.title} has no scope {wanted}", advice=f"It has {scopes}; --file names any file.")
    tests: tuple[Callable[[Path], bool], ...] = (Path.exists, lambda path: path.parent.is_dir())
    return next((place for test in tests for place in fitting if test(place.path)), fitting[0])


def plan_install(
    client: Client,
    place: Place,
    entry: Mapping[str, Any],
    backups: Backups,
    also_behind: Callable[[Mapping[str, Any]], Iterable[str]],
    *,
    replacing: bool = False,
) -> Plan:
    """What installing would do. `also_behind` tells which servers of a map Portico has, too."""
    before = read_file(place.path)
    document = opened(place, before or b"")
    servers, record = document.servers, backups.find(place)
    mine = servers.get(NAME)
    if NAME in servers and not _ours(mine, record):
        document.refuse(
            (*place.keys, NAME), "is somebody else's entry", "Rename that entry, or remove it, and run this again."
        )
    others = {name: server for name, server in servers.items() if name != NAME}
    twice = tuple(also_behind(others))
    taken = twice if replacing else ()
    wanted = {**entry, **{key: value for key, value in (mine or {}).items() if key not in _TAKES_OVER}}
    changed = document
    for name in taken:
        changed = without(changed, (*place.keys, name))
    if mine != wanted:
        changed = with_server(changed, NAME, wanted)
    staying = tuple(name for name in others if name not in taken)
    if changed is document:
        return Plan(place, "unchanged", before, before, record, staying=staying, twice=twice)
    after = changed.bytes
    remembered = Record(
        client.name,
        place.scope,
        str(place.path),
        place.keys,
        place.format,
        digest(after),
        before is not None,
        wanted,
        document.missing(),
        replaced=taken,
    )
    base = before
    if record is not None and before is not None:
        base, remembered = _carried_on(document, before, record, remembered, backups)
    outcome: Outcome = "updated" if mine is not None else "added"
    return Plan(place, outcome, before, after, remembered, base, staying, () if taken else twice, taken)


def plan_uninstall(place: Place, backups: Backups) -> Plan:
    """What uninstalling would do."""
    before, record = read_file(place.path), backups.find(place)
    if before is None:
        return Plan(place, "absent", None, None, record)
    was = backups.before(place)
    if record is not None and digest(before) == record.wrote and (was is not None or not record.existed):
        outcome: Outcome = "restored" if record.existed else "removed"
        return Plan(place, outcome, before, was if record.existed else None, record, replaced=record.replaced)
    document = opened(place, before)
    servers = document.servers
    if NAME in servers and not _ours(servers[NAME], record):
        document.refuse((*place.keys, NAME), "is somebody else's entry", "Remove it by hand if it should go.")
    changed, back = _taken_out(document, record, was)
    if changed is document:
        return Plan(place, "absent", before, before, record)
    return Plan(place, "taken out", before, changed.bytes, record, replaced=back)


def carry_out(plan: Plan, backups: Backups) -> Path | None:
    """Do what a plan of installing says; where the backup is."""
    if plan.record is None or plan.after is None or not plan.changes:
        return None
    known, was = backups.find(plan.place), backups.before(plan.place)
    copy = backups.keep(plan.record, plan.base)
    try:
        made = write_file(plan.place.path, plan.after, plan.before, mode=0o600 if plan.place.scope == "user" else 0o644)
    except ConfigError:
        backups.drop(plan.place)
        if known is not None:
            backups.keep(known, was)
        raise
    if made:
        backups.keep(replace(plan.record, made_folders=tuple(map(str, made))), plan.base)
    return copy


def undo(plan: Plan, backups: Backups) -> None:
    """Do what a plan of uninstalling says."""
    if plan.changes and plan.before is not None:
        if plan.after is None:
            folders = plan.record.made_folders if plan.record else ()
            remove_file(plan.place.path, plan.before, tuple(map(Path, folders)))
        else:
            write_file(plan.place.path, plan.after, plan.before)
    if plan.record is not None:
        backups.drop(plan.place)


def is_installed(place: Place, backups: Backups) -> bool:
    """Whether there is something to undo in a file; raises ConfigError where that cannot be told."""
    if backups.find(place) is not None:
        return True
    data = read_file(place.path)
    return data is not None and is_portico(opened(place, data).servers.get(NAME))


def _ours(entry: Any, record: Record | None) -> bool:
    return is_portico(entry) or (record is not None and entry == record.entry)


def _carried_on(
    document: Document, before: bytes, record: Record, remembered: Record, backups: Backups
) -> tuple[bytes | None, Record]:
    """What to go back to after a second installation: what was there before the first, with what was changed since."""
    was = backups.before(document.place)
    same = digest(before) == record.wrote and (was is not None or not record.existed)
    if same:
        base, existed = was, record.existed
    else:
        base, existed = _taken_out(document, record, was)[0].bytes, True
    replaced = tuple(dict.fromkeys((*(record.replaced if same else ()), *remembered.replaced)))
    return base, replace(
        remembered,
        existed=existed,
        made_keys=max(record.made_keys, remembered.made_keys),
        made_folders=record.made_folders,
        replaced=replaced,
    )


def _taken_out(document: Document, record: Record | None, was: bytes | None) -> tuple[Document, tuple[str, ...]]:
    """A document without our entry, with what was taken out for it; the names of the latter."""
    changed, place = document, document.place
    if NAME in changed.servers:
        changed = without(changed, (*place.keys, NAME))
    back: list[str] = []
    if record is not None and record.replaced and was is not None:
        source = opened(place, was)
        for name in record.replaced:
            if name in source.servers and name not in changed.servers:
                changed = with_written(changed, name, source)
                back.append(name)
    for made in range(record.made_keys if record and place.format == "json" else 0):
        keys = place.keys[: len(place.keys) - made]
        if changed is document or _at(changed.data, keys) != {}:
            break
        changed = without(changed, keys)
    return changed, tuple(back)


def _at(data: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        data = data.get(key) if isinstance(data, Mapping) else None
    return data
