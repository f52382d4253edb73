"""`portico remove`, `enable`, `disable`, `rename` and `undo`: changes of the configuration.

--json: `{"server", "file", "changed", "written", "backup", "diff": [line]}`; of `undo`:
`{"undone": command, "file", "written", "left": [file], "diff": [line]}`.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from portico.adoption.config_document import ConfigDocument, parse_config_document
from portico.adoption.config_editor import ConfiguredServer, drop_switches, switch_off
from portico.adoption.diff import render_diff
from portico.adoption.file_replacement import read_file
from portico.cli.config_change import (
    change_config,
    find_server,
    list_config_files,
    open_history,
    show_diff,
)
from portico.cli.exit import EXIT_OK, print_note
from portico.cli.setup_commands import ChangeOptions
from portico.config import RESERVED_NAMES, Config
from portico.config.section import list_names
from portico.config_file import load, to_server_key
from portico.config_file.names import DENY_KEYS, find_nearest
from portico.config_file.tree_reader import decode_text
from portico.errors import PorticoError, UnknownName
from portico.gateway import HABITS_FILE, PINS_FILE, RECORD_FILE
from portico.storage.gateway_store import GatewayStore
from portico.storage.learning_store import LearningStore
from portico.storage.manifests import read_tool_names
from portico.storage.pin_store import PinStore

_GLOB_CHARACTERS = frozenset("*?[")


def run_remove(name: str, options: ChangeOptions) -> int:
    """Take a server out of the configuration."""
    server = find_server(name, options)
    done = f"{server.key} is removed. What it runs now is finished first."
    change_config("remove", server, lambda document: document.remove(server.keys), options, done)
    return EXIT_OK


def run_disable(name: str, options: ChangeOptions) -> int:
    """Switch a server or one of its tools off."""
    server, tool = _find_server_or_tool(name, options)
    if not tool:
        done = f"{server.key} is switched off."
        change_config(
            "disable", server, lambda document: switch_off(document, server), options, done
        )
        return EXIT_OK

    def deny(document: ConfigDocument) -> ConfigDocument:
        if not server.loaded.config.servers[server.key].tools.permits(tool):
            return document
        return document.add_item((*server.keys, "tools", "deny"), tool)

    change_config("disable", server, deny, options, f"{server.key}.{tool} is switched off.")
    return EXIT_OK


def run_enable(name: str, options: ChangeOptions) -> int:
    """Switch a server or one of its tools on."""
    server, tool = _find_server_or_tool(name, options)
    if tool:
        done = f"{server.key}.{tool} is switched on."
        change_config(
            "enable", server, lambda document: _permit(document, server, tool), options, done
        )
    else:
        done = f"{server.key} is switched on."
        change_config(
            "enable", server, lambda document: drop_switches(document, server), options, done
        )
    return EXIT_OK


def run_rename(name: str, new_name: str, options: ChangeOptions) -> int:
    """Give a server another name, also in `pins`, profiles and rules."""
    server = find_server(name, options)
    if to_server_key(new_name) != new_name or new_name.lower() in RESERVED_NAMES:
        raise PorticoError(
            f"{new_name!r} is no server name",
            advice="Use up to 40 of A-Z a-z 0-9 _ -, not portico.",
        )
    taken = {key.lower() for key in server.loaded.config.servers if key != server.key}
    if new_name.lower() in taken:
        raise PorticoError(
            f"there is a server {new_name} already", advice="Choose another name, or remove it."
        )

    def change_name(document: ConfigDocument) -> ConfigDocument:
        changed = document.rename(server.keys, new_name)
        for keys, item, new_item in _find_references(document.values, server.key, new_name):
            changed = changed.replace_item(keys, item, new_item)
        for position, key, item in _list_rule_patterns(document.values):
            if (new_item := _rename_in_pattern(item, server.key, new_name)) != item:
                changed = changed.replace_in_item(("rules",), position, key, item, new_item)
        return changed

    _refuse_lost_rules(server, new_name)

    if not options.dry_run:
        # Before a running gateway lists the server under its new name.
        _copy_pins(server.loaded.config, server.key, new_name)
    change_config("rename", server, change_name, options, f"{server.key} is {new_name} now.")
    if not options.dry_run:
        carry_record(server.loaded.config, server.key, new_name)
    return EXIT_OK


def run_undo(options: ChangeOptions) -> int:
    """Undo the last change that a command made to the configuration."""
    screen = options.make_screen()
    files = list_config_files(options)
    history = open_history()
    change = history.find_last(files)
    if change is None:
        where = ", ".join(map(str, files)) or "a configuration here"
        raise PorticoError(
            f"no command has changed {where}, or all of it is undone",
            advice="--config names another file.",
        )
    config = change.config
    now = read_file(config.path) or b""
    before = b""
    if config.copy is not None:
        before = read_file(config.copy) or b""
    diff = render_diff(decode_text(now), decode_text(before), config.path.name, mask_new_lines=True)
    left = ()
    if not options.dry_run:
        left = history.undo(change)
        if change.command == "rename" and not left:
            _carry_back(config.path, now, before, options)
    if screen.as_json:
        names = [str(path) for path in left]
        written = not options.dry_run
        facts = {"undone": change.command, "file": str(config.path), "written": written}
        screen.write_json({**facts, "left": names, "diff": diff})
        return EXIT_OK
    show_diff(screen, diff)
    if options.dry_run:
        screen.write_text("Nothing is written: --dry-run.")
    elif config.copy is None:
        screen.write_text(f"{config.path} is gone again: `portico {change.command}` had made it.")
    else:
        screen.write_text(f"{config.path} is as it was before `portico {change.command}`.")
    for path in left:
        print_note(f"{path} was changed since, and stays as it is.")
    return EXIT_OK


def _carry_back(path: Path, renamed: bytes, restored: bytes, options: ChangeOptions) -> None:
    """Give a server that has its old name again what is on record under the new one."""
    names = [
        {to_server_key(name) for name in parse_config_document(path, data).servers}
        for data in (renamed, restored)
    ]
    for old, new in zip(names[0] - names[1], names[1] - names[0], strict=True):
        carry_record(load(list_config_files(options)).config, old, new)


def _find_server_or_tool(name: str, options: ChangeOptions) -> tuple[ConfiguredServer, str]:
    """Return a server and the tool that is meant, empty for the server itself."""
    prefix, dot, tool = name.partition(".")
    if not dot:
        return find_server(name, options), ""
    try:
        return find_server(name, options), ""
    except UnknownName:
        server = find_server(prefix, options)
    rules = server.loaded.config.servers[server.key].tools
    names = read_tool_names(server.loaded.config.data_dir / "manifest.sqlite3").get(server.key, [])
    known = {*names, *map(rules.get_exposed_name, names)}
    if known and tool not in known and not _GLOB_CHARACTERS & set(tool):
        near = find_nearest(tool, known)
        advice = f"`portico browse {server.key}` lists its tools."
        if near:
            advice = f"Did you mean {' or '.join(near)}?"
        raise UnknownName(f"{server.key} has no tool {tool!r}", nearest=near, advice=advice)
    return server, tool


def _permit(document: ConfigDocument, server: ConfiguredServer, tool: str) -> ConfigDocument:
    """Return the document with a tool out of what is denied, and in what is allowed."""
    rules = server.loaded.config.servers[server.key].tools
    if rules.permits(tool):
        return document
    for keys in (("tools", "deny"), *((key,) for key in DENY_KEYS)):
        place = (*server.keys, *keys)
        items = document.get(place) or []
        if items == [tool]:
            parent = document.get(place[:-1])
            # An empty `tools: {deny: []}` says nothing.
            document = document.remove(place[:-1] if len(parent) == 1 else place)
        elif tool in items:
            document = document.remove_item(place, tool)
    globs = [glob for glob in rules.deny if glob != tool and fnmatchcase(tool, glob)]
    if globs:
        raise PorticoError(
            f"{globs[0]!r} in tools.deny of {server.key} covers {tool} and other tools",
            advice=f"Change that pattern in {document.path}.",
        )
    if not any(fnmatchcase(tool, glob) for glob in rules.allow):
        document = document.add_item((*server.keys, "tools", "allow"), tool)
    return document


def _find_references(
    values: Mapping[str, Any], old: str, new: str
) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Yield the list items that name a server: their place, their text and its replacement."""
    places: list[tuple[tuple[str, ...], Any]] = [(("pins",), values.get("pins"))]
    profiles: Any = values.get("profiles")
    for name, profile in (profiles or {}).items():
        keys = ("servers", "tools", "resources", "prompts")
        places += [(("profiles", name, key), (profile or {}).get(key)) for key in keys]
    for place, items in places:
        for item in items or ():
            head, dot, rest = str(item).partition(".")
            if head == old:
                yield place, item, f"{new}{dot}{rest}"


def _list_rule_patterns(values: Mapping[str, Any]) -> Iterator[tuple[int, str, str]]:
    """Yield the patterns of rules that may name a server: their rule, key and text."""
    rules: list[dict[str, Any]] = values.get("rules") or []
    for position, rule in enumerate(rules):
        for key in ("servers", "tools", "resources", "prompts"):
            patterns: list[str] = list_names(rule.get(key)) or []
            for pattern in patterns:
                if key == "servers" or "." in pattern:
                    yield position, key, pattern


def _rename_in_pattern(pattern: str, old: str, new: str) -> str:
    """Return a rule's pattern with a server's new name where it has the old one."""
    head, dot, rest = pattern.partition(".")
    return f"{new}{dot}{rest}" if head.casefold() == old.casefold() else pattern


def _refuse_lost_rules(server: ConfiguredServer, new_name: str) -> None:
    """Raise if a pattern of a rule fits the server's name, and would not fit the new one."""
    for position, _, pattern in _list_rule_patterns(server.document.values):
        glob = pattern.partition(".")[0].casefold()
        if not _GLOB_CHARACTERS & set(glob) or not fnmatchcase(server.key.casefold(), glob):
            continue
        if not fnmatchcase(new_name.casefold(), glob):
            raise PorticoError(
                f"rules[{position}] is about {server.key} by {pattern!r}, and would not be "
                f"about {new_name}",
                advice=f"Change that pattern in {server.document.path}, or choose another name.",
            )


def carry_record(config: Config, old: str, new: str) -> None:
    """Carry a server's calls, tiers and what search learned to its new name, or note why not.

    Running gateways notice within seconds; calls that one has not written yet stay with the old
    name. The audit log stays as it was written.
    """
    habits = config.data_dir / HABITS_FILE
    if habits.exists():
        store = LearningStore(habits)
        store.rename_server(old, new, now=time.time())
        store.close()
    url = config.database_url
    path = config.data_dir / RECORD_FILE
    if url is None and not path.exists():
        return
    record = GatewayStore(url.get_secret_value() if url else None, path)
    try:
        asyncio.run(_rename(record, old, new))
    except PorticoError as error:
        print_note(f"Calls on record stay with {old}: {error.message}")


def _copy_pins(config: Config, old: str, new: str) -> None:
    path = config.data_dir / PINS_FILE
    if path.exists():
        pins = PinStore(path)
        pins.copy_server(old, new)
        pins.close()


async def _rename(record: GatewayStore, old: str, new: str) -> None:
    try:
        await record.rename_server(old, new)
    finally:
        await record.close()
