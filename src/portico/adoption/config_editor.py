"""Changes of one's own configuration: planned in the text of the file, checked by loading the
result, written with a record by which they are undone."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from portico.adoption.backups import ConfigHistory, FileChange, RecordedChange
from portico.adoption.config_document import ConfigDocument, parse_config_document
from portico.adoption.diff import render_diff
from portico.adoption.file_replacement import read_file
from portico.config_file import LoadedConfig, load, to_server_key
from portico.config_file.config_changes import ConfigDifference, RequestedChange, split_key
from portico.config_file.names import ENABLED_KEYS, find_nearest
from portico.config_file.tree_reader import decode_text
from portico.errors import PorticoError, UnknownName

EditDocument = Callable[[ConfigDocument], ConfigDocument]


@dataclass(frozen=True)
class ConfiguredServer:
    """A server of the configuration, in the file that has it."""

    key: str
    """Its name in the loaded configuration."""
    name: str
    """Its name as written in the file."""
    document: ConfigDocument
    data: bytes
    """The file as it is now."""
    loaded: LoadedConfig

    @property
    def keys(self) -> tuple[str, ...]:
        """The place of its entry in the file."""
        return (*self.document.servers_keys, self.name)

    @property
    def entry(self) -> Mapping[str, Any]:
        """Its entry as written."""
        return self.document.servers[self.name]


@dataclass(frozen=True)
class ConfigEdit:
    """One file before and after a change that loads."""

    path: Path
    before: bytes
    after: bytes

    @property
    def has_changes(self) -> bool:
        return self.before != self.after

    def render_diff(self, *, mask_new_lines: bool = True) -> list[str]:
        """Return the difference; secrets of lines that were there are masked, of new ones too
        unless they are what somebody has just written."""
        texts = (decode_text(self.before), decode_text(self.after))
        return render_diff(*texts, self.path.name, mask_new_lines=mask_new_lines)

    @property
    def seen(self) -> str:
        """What stands for exactly this change."""
        digest = hashlib.blake2b(self.before, digest_size=16)
        digest.update(b"\0" + self.after)
        return digest.hexdigest()


def find_configured_server(name: str, files: Sequence[Path]) -> ConfiguredServer:
    """Return a server and its file; raises UnknownName, or ConfigError for a broken file."""
    _require_files(files)
    loaded = load(files)
    servers = loaded.config.servers
    matches = [name] if name in servers else []
    matches = matches or [key for key in servers if key.lower() == to_server_key(name).lower()]
    if not matches:
        near = find_nearest(name, servers)
        advice = f"Did you mean {' or '.join(near)}?"
        if not near:
            advice = f"Servers: {', '.join(servers) or 'none'}."
        raise UnknownName(f"there is no server {name!r} here", nearest=near, advice=advice)
    # Of several files a later one wins.
    for path in reversed(files):
        data = read_file(path) or b""
        document = parse_config_document(path, data)
        for written in document.servers:
            if to_server_key(written) == matches[0]:
                return ConfiguredServer(matches[0], written, document, data, loaded)
    raise PorticoError(
        f"the entry of {matches[0]} is written in a way that cannot be changed here",
        advice=f"Change it by hand in {' or '.join(map(str, files))}.",
    )


def _require_files(files: Sequence[Path]) -> None:
    if not files:
        raise PorticoError(
            "there is no configuration to change",
            advice="`portico add` begins one, `portico adopt` takes over your clients' servers.",
        )


def drop_switches(document: ConfigDocument, server: ConfiguredServer) -> ConfigDocument:
    """Take `disabled`, and what clients write instead of it, out of an entry."""
    for key in ("disabled", *ENABLED_KEYS):
        if key in server.entry:
            document = document.remove((*server.keys, key))
    return document


def switch_off(document: ConfigDocument, server: ConfiguredServer) -> ConfigDocument:
    """Switch a server off."""
    if server.loaded.config.servers[server.key].disabled:
        return document
    return drop_switches(document, server).set_value((*server.keys, "disabled"), True)


def plan_edit(
    document: ConfigDocument, data: bytes, edit: EditDocument, files: Sequence[Path]
) -> ConfigEdit:
    """Change a document, and check that the configuration loads with it; raises ConfigError."""
    changed = edit(document)
    after = changed.file_bytes
    load(list(files), unwritten={changed.path: after})
    return ConfigEdit(changed.path, data, after)


class ConfigEditor:
    """The files of one configuration."""

    def __init__(self, files: Sequence[Path], history: ConfigHistory) -> None:
        self._files = tuple(files)
        self._history = history

    def change(self, change: RequestedChange, seen: str) -> ConfigDifference:
        """Plan a change; write it if `seen` stands for exactly that. Raises PorticoError."""
        edit = self._plan(change)
        is_written = self._check_seen(edit, seen)
        if is_written:
            file = FileChange(edit.path, edit.before, edit.after)
            self._history.write(change.kind.replace("_", " "), [file], datetime.now())
        diff = edit.render_diff(mask_new_lines=False)
        return _to_difference(edit, diff, is_written=is_written)

    def undo(self, seen: str) -> ConfigDifference:
        """Plan to undo the last change; do it if `seen` stands for exactly that."""
        change = self._history.find_last(self._files)
        if change is None or change.config.copy is None:
            raise PorticoError(
                "no command and nobody here has changed this configuration, or all of it is undone"
            )
        edit = _plan_undo(change)
        is_written = self._check_seen(edit, seen)
        if is_written:
            self._history.undo(change)
        diff = edit.render_diff()
        return _to_difference(edit, diff, is_written=is_written, undoes=change.command)

    def _check_seen(self, edit: ConfigEdit, seen: str) -> bool:
        """Return whether to write; raises PorticoError if something else was looked at."""
        if not seen or not edit.has_changes:
            return False
        if seen != edit.seen:
            raise PorticoError(
                f"{edit.path} was changed since you looked", advice="Look at the difference again."
            )
        return True

    def _plan(self, change: RequestedChange) -> ConfigEdit:
        if change.kind in ("enable", "disable"):
            server = find_configured_server(change.server, self._files)
            edit_server = switch_off if change.kind == "disable" else drop_switches
            return plan_edit(
                server.document,
                server.data,
                lambda document: edit_server(document, server),
                self._files,
            )
        if change.kind in ("set", "reset"):
            keys = split_key(change.key)
            return self._plan_value(keys, change)
        return self._plan_in_last(("rules",), lambda document: _edit_rules(document, change))

    def _plan_value(self, keys: tuple[str, ...], change: RequestedChange) -> ConfigEdit:
        if keys[0] == "servers":
            server = find_configured_server(keys[1], self._files)
            keys = (*server.keys, *keys[2:])
            return plan_edit(
                server.document,
                server.data,
                lambda document: _edit_value(document, keys, change),
                self._files,
            )
        return self._plan_in_last(keys, lambda document: _edit_value(document, keys, change))

    def _plan_in_last(self, keys: Sequence[str], edit: EditDocument) -> ConfigEdit:
        """Edit the file that has these keys, of several the last one, which wins."""
        _require_files(self._files)
        found: list[tuple[ConfigDocument, bytes]] = []
        for path in reversed(self._files):
            data = read_file(path) or b""
            found.append((parse_config_document(path, data), data))
        document, data = next((one for one in found if one[0].get(keys) is not None), found[0])
        return plan_edit(document, data, edit, self._files)


def _edit_value(
    document: ConfigDocument, keys: Sequence[str], change: RequestedChange
) -> ConfigDocument:
    if change.kind == "set":
        return document.set_value(keys, change.value)
    if document.get(keys) is None:
        return document
    return document.remove(keys)


def _edit_rules(document: ConfigDocument, change: RequestedChange) -> ConfigDocument:
    rules: Sequence[Any] = document.get(("rules",)) or []
    if change.kind == "add_rule":
        place = min(max(change.position, 0), len(rules))
        return document.insert_entry(("rules",), place, dict(change.rule or {}))
    if not 0 <= change.position < len(rules):
        raise PorticoError(f"there is no rules[{change.position}] in {document.path}")
    return document.remove_entry(("rules",), change.position)


def _plan_undo(change: RecordedChange) -> ConfigEdit:
    copy = change.config.copy
    now = read_file(change.config.path) or b""
    before = (read_file(copy) if copy is not None else None) or b""
    return ConfigEdit(change.config.path, now, before)


def _to_difference(
    edit: ConfigEdit, diff: Sequence[str], *, is_written: bool, undoes: str = ""
) -> ConfigDifference:
    return ConfigDifference(str(edit.path), diff, edit.has_changes, edit.seen, is_written, undoes)
