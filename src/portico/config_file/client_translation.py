"""Translates client configuration to our keys. What only the client uses is dropped and reported.

Works on nodes, so that line numbers are kept, and before expansion, so that dropped values need no
variables. Clients differ in the place of servers in the file, in key names, in value formats, and
in additional keys.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from portico.config import RESERVED_NAMES, TARGETS, BackendConfig, Config, ToolRules, parse_kind
from portico.config_file.draft import ConfigFinding
from portico.config_file.names import (
    ALLOW_KEYS,
    CLIENT_ONLY_KEYS,
    CLIENT_ONLY_MAPS,
    COMMENT_PREFIXES,
    DENY_KEYS,
    ENABLED_KEYS,
    MILLISECONDS_FROM,
    RENAMED_KEYS,
    SERVER_MAPS,
    TIMEOUT_KEYS,
    UNSUPPORTED_KEYS,
    find_intended_name,
    list_settable_keys,
)
from portico.config_file.tree_reader import ConfigNode

OWN_ROOT_KEYS = frozenset(list_settable_keys(Config)) - {"servers"}
SERVER_KEYS = frozenset(list_settable_keys(BackendConfig))
TOOL_RULE_KEYS = frozenset(ToolRules.model_fields)


@dataclass(slots=True)
class TranslatedFile:
    settings: dict[str, ConfigNode] = field(default_factory=dict[str, ConfigNode])
    servers: list[tuple[str, ConfigNode]] = field(default_factory=list[tuple[str, ConfigNode]])
    """Name as written and translated entry, in the file's order; names may still collide."""
    problems: dict[int, str] = field(default_factory=dict[int, str])
    """Position in `servers` → why that server cannot be used."""
    is_own: bool = True
    """Whether the file is written for Portico, where an unknown key is a mistake."""
    errors: list[ConfigFinding] = field(default_factory=list[ConfigFinding])
    warnings: list[ConfigFinding] = field(default_factory=list[ConfigFinding])

    def fail(self, file: str, line: int, key: str, message: str, advice: str = "") -> None:
        self.errors.append(ConfigFinding(file, line, key, message, advice))


def translate(root: ConfigNode, file: str) -> TranslatedFile:
    """Translate a file's tree to our own keys."""
    result = TranslatedFile()
    entries = root.entries
    if entries is None:
        result.fail(file, root.line, "", "expected keys and values", "Begin with `servers:`.")
        return result
    name = PurePath(file).name
    maps = {key: entries[key] for key in SERVER_MAPS if key in entries}
    if (
        not maps
        and not OWN_ROOT_KEYS & set(entries)
        and name.endswith((".json", ".jsonc"))
        and is_bare_server_map(entries)
    ):
        maps = {"": root}
        entries = {}
    result.is_own = name.split(".")[0] == "portico" or not is_client_file(
        name, set(entries), set(maps)
    )
    others = [
        key
        for key in entries
        if key not in maps and not key.startswith(COMMENT_PREFIXES) and key != "inputs"
    ]
    if result.is_own:
        result.settings = {
            key: entries[key]
            for key in others
            if key in OWN_ROOT_KEYS or key not in Config.model_fields
        }
    elif others:
        message = f"left out, a client's own settings: {', '.join(others[:8])}"
        if len(others) > 8:
            message += f" and {len(others) - 8} more"
        result.warnings.append(ConfigFinding(file, entries[others[0]].line, "", message))
    for key, node in maps.items():
        translate_servers(result, file, key, node)
    return result


def is_client_file(name: str, keys: set[str], maps: set[str]) -> bool:
    """Return whether a file was written for a client: none of our keys in it."""
    if CLIENT_ONLY_MAPS & maps or (name.endswith(".toml") and "mcp_servers" in maps):
        return True  # Codex has its own `profiles`
    return not (OWN_ROOT_KEYS & keys) and bool(
        maps - {"servers"} or "inputs" in keys or name.endswith((".json", ".jsonc"))
    )


def is_bare_server_map(entries: Mapping[str, ConfigNode]) -> bool:
    """Return whether a file consists only of server entries (a Claude Code plugin's .mcp.json)."""
    return bool(entries) and all(
        node.entries is not None and any(key in node.entries for key in TARGETS)
        for node in entries.values()
    )


def translate_servers(result: TranslatedFile, file: str, key: str, node: ConfigNode) -> None:
    if key == "mcp" and node.entries is not None and not is_bare_server_map(node.entries):
        # VS Code's settings have {"mcp": {"servers": …}}; Gemini's have only switches there.
        inner = node.entries.get("servers")
        if inner is not None:
            translate_servers(result, file, "mcp.servers", inner)
        return
    if node.items and not any(item.entries is not None for item in node.items):
        advice = f"Write {key}: {{name: {{command: …}}}}."
        result.fail(file, node.line, key, "expected servers by name, found a list", advice)
        return
    if node.items is not None:
        # Continue writes a list of items with names.
        named = [(get_item_name(item), item) for item in node.items]
    elif node.entries is not None:
        named = list(node.entries.items())
    elif node.value is None:
        return
    else:
        result.fail(file, node.line, key, "expected a mapping of server names to entries")
        return
    for name, entry in named:
        label = f"{key}.{name}".lstrip(".")
        if entry.entries is None and name.startswith(COMMENT_PREFIXES):
            continue
        if entry.entries is None:
            result.fail(file, entry.line, label, "expected keys like command or url")
        elif not name:
            result.fail(file, entry.line, key, "a server without a name", "Add `name` to it.")
        elif not result.is_own and is_portico_entry(name, entry.entries):
            result.warnings.append(
                ConfigFinding(file, entry.line, label, "left out: it is Portico itself")
            )
        else:
            translator = EntryTranslator(result, file, f"servers.{name}", entry)
            translator.translate()
            if translator.problem:
                result.problems[len(result.servers)] = translator.problem
            result.servers.append((name, ConfigNode(translator.own_entries, entry.line)))


def get_item_name(item: ConfigNode) -> str:
    node = (item.entries or {}).get("name")
    if node is not None and isinstance(node.value, str):
        return node.value
    return ""


def is_portico_entry(name: str, entry: Mapping[str, ConfigNode]) -> bool:
    """Return whether an entry starts Portico itself, as written by `portico` into client files."""
    command = entry.get("command")
    args = entry.get("args")
    words = [command.text] if command is not None else []
    words += [item.text for item in (args.items if args is not None else None) or []]
    if not words:
        return name.lower() in RESERVED_NAMES
    program = PurePath(words[0].replace("\\", "/")).name.lower().removesuffix(".exe")
    if program in ("uvx", "uv", "pipx"):
        is_portico = any(word.split("[")[0] == "portico-mcp" for word in words)
    elif program.startswith("python"):
        is_portico = words[1:3] in (["-m", "portico"], ["-m", "portico.cli"])
    else:
        is_portico = program == "portico"
    return is_portico or name.lower() in RESERVED_NAMES


class EntryTranslator:
    def __init__(self, result: TranslatedFile, file: str, label: str, entry: ConfigNode) -> None:
        self.result = result
        self.file = file
        self.label = label
        self.client_entries = dict(entry.entries or {})
        self.own_entries: dict[str, ConfigNode] = {}
        self.line = entry.line
        self.problem = ""
        self.dropped_keys: list[str] = []

    def translate(self) -> None:
        for key, node in self.client_entries.items():
            if node.value is None and key not in ("env", "headers"):
                continue
            self.translate_key(key, node)
        self.check_kind()
        self.normalize_command()
        if self.dropped_keys:
            keys = ", ".join(self.dropped_keys)
            self.warn(self.line, self.label, f"left out, only its client uses: {keys}")

    def translate_key(self, key: str, node: ConfigNode) -> None:
        special = KEY_HANDLERS.get(key)
        if key == "url" and "httpUrl" in self.client_entries:
            self.warn(node.line, f"{self.label}.url", "left out, httpUrl is used")
        elif key == "tools" and node.items is not None:
            self.add_rule("allow", node)
        elif (
            key == "tools"
            and not self.result.is_own
            and not TOOL_RULE_KEYS & set(node.entries or {})
        ):
            self.dropped_keys.append(key)  # Codex lists tools there that need no confirmation
        elif key == "trust" and not self.result.is_own:
            self.dropped_keys.append(key)  # clients call none of its tools without asking otherwise
        elif key == "auth" and not self.result.is_own and node.value != "oauth":
            self.warn(node.line, f"{self.label}.{key}", UNSUPPORTED_KEYS["oauth"])
        elif key in ("env", "headers") or (special is None and key in SERVER_KEYS):
            self.set_key(key, node)
        elif special is not None:
            special(self, key, node)
        elif key in BackendConfig.model_fields:
            self.result.fail(
                self.file, node.line, f"{self.label}.{key}", "only Portico itself sets this"
            )
        elif key in UNSUPPORTED_KEYS:
            self.warn(node.line, f"{self.label}.{key}", UNSUPPORTED_KEYS[key])
        elif key in CLIENT_ONLY_KEYS or key.startswith(COMMENT_PREFIXES):
            self.dropped_keys.append(key)
        elif self.result.is_own or find_intended_name(key, SERVER_KEYS):
            # Kept, so that it is refused with a suggestion: a misspelling is no client key either.
            self.set_key(key, node)
        else:
            self.dropped_keys.append(key)

    def warn(self, line: int, key: str, message: str) -> None:
        self.result.warnings.append(ConfigFinding(self.file, line, key, message))

    def set_key(self, key: str, node: ConfigNode) -> None:
        if key in self.own_entries and key in ("env", "headers") and node.entries is not None:
            node = ConfigNode({**(self.own_entries[key].entries or {}), **node.entries}, node.line)
        elif key in self.own_entries:
            message = f"repeated in this entry, line {node.line} is used"
            self.warn(node.line, f"{self.label}.{key}", message)
        self.own_entries[key] = node

    def apply_rename(self, key: str, node: ConfigNode) -> None:
        if key == "httpUrl":
            self.own_entries.setdefault("type", ConfigNode("http", node.line, "http"))
        elif RENAMED_KEYS[key] == "title" and "title" in self.client_entries:
            return
        elif RENAMED_KEYS[key] == "inherit_env" and any(
            isinstance(item.value, dict) for item in node.items or []
        ):
            return self.dropped_keys.append(key)
        self.set_key(RENAMED_KEYS[key], node)

    def add_rule(self, rule: str, node: ConfigNode) -> None:
        rules = self.get_own_entries("tools")
        self.own_entries["tools"] = ConfigNode({**rules, rule: node}, node.line)

    def get_own_entries(self, key: str) -> dict[str, ConfigNode]:
        node = self.own_entries.get(key)
        return dict((node.entries if node is not None else None) or {})

    def add_allow_rule(self, key: str, node: ConfigNode) -> None:
        self.add_rule("allow", node)

    def add_deny_rule(self, key: str, node: ConfigNode) -> None:
        self.add_rule("deny", node)

    def apply_switch(self, key: str, node: ConfigNode) -> None:
        if node.value is False and "disabled" not in self.own_entries:
            self.own_entries["disabled"] = ConfigNode(True, node.line, "true")

    def set_timeout(self, key: str, node: ConfigNode) -> None:
        value = node.value
        if isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)?", value):
            value = float(value)
        target, unit = TIMEOUT_KEYS[key]
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            value = value * (unit or (0.001 if value >= MILLISECONDS_FROM else 1))
        known = self.get_own_entries("timeouts")
        known.setdefault(target, ConfigNode(value, node.line, str(value)))
        self.own_entries["timeouts"] = ConfigNode(known, node.line)

    def set_bearer_header(self, key: str, node: ConfigNode) -> None:
        text = f"Bearer ${{{node.text}}}"
        header = ConfigNode(text, node.line, text)
        self.set_key("headers", ConfigNode({"Authorization": header}, node.line))

    def set_headers_from_variables(self, key: str, node: ConfigNode) -> None:
        entries = {
            name: ConfigNode(f"${{{value.text}}}", value.line, f"${{{value.text}}}")
            for name, value in (node.entries or {}).items()
        }
        self.set_key("headers", ConfigNode(entries, node.line))

    def apply_request_options(self, key: str, node: ConfigNode) -> None:
        headers = (node.entries or {}).get("headers")
        if headers is not None:
            self.set_key("headers", headers)

    def check_kind(self) -> None:
        node = self.own_entries.get("type")
        given = [key for key in TARGETS if key in self.own_entries]
        kind = parse_kind(node.value) if node is not None else None
        if self.result.is_own:
            return
        if node is not None and kind is None:
            self.problem = f"its transport {node.text!r} is not supported: stdio, http and sse are"
            del self.own_entries["type"]
        if not given and not any(find_intended_name(key, TARGETS) for key in self.own_entries):
            self.problem = self.problem or "its entry has neither command nor url"
        if len(given) > 1:
            # Clients prefer the target of the given type, else the URL.
            keep = next(
                (key for key in given if kind in TARGETS[key]),
                "url" if "url" in given else given[0],
            )
            for key in given:
                if key != keep:
                    line = self.own_entries.pop(key).line
                    self.warn(line, f"{self.label}.{key}", f"left out, {keep} is used")

    def normalize_command(self) -> None:
        node = self.own_entries.get("command")
        if node is None:
            return
        args = self.own_entries.get("args")
        if node.items:
            first, *rest = node.items
            self.own_entries["command"] = first
            self.own_entries["args"] = ConfigNode(
                [*rest, *((args.items if args is not None else None) or [])], node.line
            )
        elif node.entries is not None and "path" in node.entries:
            self.own_entries["command"] = node.entries["path"]
            for key in ("args", "env"):
                if key in node.entries:
                    self.own_entries.setdefault(key, node.entries[key])


KEY_HANDLERS: Mapping[str, Callable[[EntryTranslator, str, ConfigNode], Any]] = {
    **dict.fromkeys(RENAMED_KEYS, EntryTranslator.apply_rename),
    **dict.fromkeys(ALLOW_KEYS, EntryTranslator.add_allow_rule),
    **dict.fromkeys(DENY_KEYS, EntryTranslator.add_deny_rule),
    **dict.fromkeys(ENABLED_KEYS, EntryTranslator.apply_switch),
    **dict.fromkeys(TIMEOUT_KEYS, EntryTranslator.set_timeout),
    "bearer_token_env_var": EntryTranslator.set_bearer_header,
    "env_http_headers": EntryTranslator.set_headers_from_variables,
    "requestOptions": EntryTranslator.apply_request_options,
}
