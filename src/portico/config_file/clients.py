"""What clients write → our own keys. A client's file loads as it is; what only its client uses is left out, and told.

Works on nodes, so that every line stays known, and before expansion, so that what is left out needs no variables.
Clients differ in four ways: where in the file the servers are, what a key is called, what a value looks like, and what
else they keep there.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from portico.config import RESERVED_NAMES, TARGETS, BackendConfig, Config, ToolRules, spelled_kind
from portico.config_file.client_keys import (
    ALLOWING,
    CLIENTS_ALONE,
    DENYING,
    MEANINGLESS,
    MILLISECONDS_FROM,
    REMARKS,
    RENAMED,
    SECONDS,
    SERVER_MAPS,
    SWITCHES,
    UNSUPPORTED,
)
from portico.config_file.finding import Finding
from portico.config_file.keys import settable
from portico.config_file.names import misspelled
from portico.config_file.reading import Node

OWN_ROOT_KEYS = frozenset(settable(Config)) - {"servers"}
SERVER_KEYS = frozenset(settable(BackendConfig))
RULES = frozenset(ToolRules.model_fields)


@dataclass(slots=True)
class Translated:
    """One file in our own terms."""

    settings: dict[str, Node] = field(default_factory=dict[str, Node])
    servers: list[tuple[str, Node]] = field(default_factory=list[tuple[str, Node]])
    """Name as written and entry in our keys, in the file's order; names may still collide."""
    problems: dict[int, str] = field(default_factory=dict[int, str])
    """Position in `servers` → why that server cannot be used."""
    own: bool = True
    """Whether the file is written for Portico, where an unknown key is a mistake."""
    errors: list[Finding] = field(default_factory=list[Finding])
    warnings: list[Finding] = field(default_factory=list[Finding])


def translate(root: Node, file: str) -> Translated:
    """Our own terms for a file's tree."""
    done = Translated()
    entries = root.entries
    if entries is None:
        done.errors.append(Finding(file, root.line, "", "expected keys and values", "Begin with `servers:`."))
        return done
    name = PurePath(file).name
    maps = {key: entries[key] for key in SERVER_MAPS if key in entries}
    if not maps and not OWN_ROOT_KEYS & set(entries) and name.endswith((".json", ".jsonc")) and bare_servers(entries):
        maps, entries = {"": root}, {}
    done.own = name.split(".")[0] == "portico" or not is_clients(name, set(entries), set(maps))
    others = [key for key in entries if key not in maps and not key.startswith(REMARKS) and key != "inputs"]
    if done.own:
        done.settings = {key: entries[key] for key in others if key in OWN_ROOT_KEYS or key not in Config.model_fields}
    elif others:
        shown = ", ".join(others[:8]) + (f" and {len(others) - 8} more" if len(others) > 8 else "")
        done.warnings.append(Finding(file, entries[others[0]].line, "", f"left out, a client's own settings: {shown}"))
    for key, node in maps.items():
        read_servers(done, file, key, node)
    return done


def is_clients(name: str, keys: set[str], maps: set[str]) -> bool:
    """Whether a file was written for a client: no key of ours beside the servers, and something of a client's."""
    if CLIENTS_ALONE & maps or (name.endswith(".toml") and "mcp_servers" in maps):
        return True  # Codex has `profiles` of its own
    return not (OWN_ROOT_KEYS & keys) and bool(
        maps - {"servers"} or "inputs" in keys or name.endswith((".json", ".jsonc"))
    )


def bare_servers(entries: Mapping[str, Node]) -> bool:
    """Whether a file is nothing but entries (a Claude Code plugin's .mcp.json)."""
    return bool(entries) and all(
        node.entries is not None and any(key in node.entries for key in TARGETS) for node in entries.values()
    )


def read_servers(done: Translated, file: str, key: str, node: Node) -> None:
    if key == "mcp" and node.entries is not None and not bare_servers(node.entries):
        # VS Code's settings have {"mcp": {"servers": …}}; Gemini's have only switches there.
        inner = node.entries.get("servers")
        if inner is not None:
            read_servers(done, file, "mcp.servers", inner)
        return
    if node.items and not any(item.entries is not None for item in node.items):
        done.errors.append(
            Finding(
                file,
                node.line,
                key,
                "expected servers by name, found a list",
                f"Write {key}: {{name: {{command: …}}}}.",
            )
        )
        return
    if node.items is not None:
        # Continue writes a list whose items carry their names.
        named = [(named_by(item), item) for item in node.items]
    elif node.entries is not None:
        named = list(node.entries.items())
    elif node.value is None:
        return
    else:
        done.errors.append(Finding(file, node.line, key, "expected a mapping of server names to entries"))
        return
    for name, entry in named:
        label = f"{key}.{name}".lstrip(".")
        if entry.entries is None and name.startswith(REMARKS):
            continue
        if entry.entries is None:
            done.errors.append(Finding(file, entry.line, label, "expected keys like command or url"))
        elif not name:
            done.errors.append(Finding(file, entry.line, key, "a server without a name", "Add `name` to it."))
        elif not done.own and is_portico(name, entry.entries):
            done.warnings.append(Finding(file, entry.line, label, "left out: it is Portico itself"))
        else:
            translator = Entry(done, file, f"servers.{name}", entry)
            translator.translate()
            if translator.problem:
                done.problems[len(done.servers)] = translator.problem
            done.servers.append((name, Node(translator.new, entry.line)))


def named_by(item: Node) -> str:
    node = (item.entries or {}).get("name")
    return node.value if node is not None and isinstance(node.value, str) else ""


def is_portico(name: str, entry: Mapping[str, Node]) -> bool:
    """Whether an entry would start the gateway inside itself, as it does once a client has been told of Portico."""
    command, args = entry.get("command"), entry.get("args")
    words = [command.text] if command is not None else []
    words += [item.text for item in (args.items if args is not None else None) or []]
    program = PurePath(words[0].replace("\\", "/")).name.lower().removesuffix(".exe") if words else ""
    return (
        name.lower() in RESERVED_NAMES
        or program == "portico"
        or (program in ("uvx", "uv", "pipx") and any(word.split("[")[0] == "portico-mcp" for word in words))
        or (program.startswith("python") and words[1:3] in (["-m", "portico"], ["-m", "portico.cli"]))
    )


class Entry:
    """The translation of one server's entry."""

    def __init__(self, done: Translated, file: str, label: str, entry: Node) -> None:
        self.done, self.file, self.label = done, file, label
        self.old = dict(entry.entries or {})
        self.new: dict[str, Node] = {}
        self.line = entry.line
        self.problem = ""
        self.left_out: list[str] = []

    def translate(self) -> None:
        for key, node in self.old.items():
            if node.value is None and key not in ("env", "headers"):
                continue
            self.key(key, node)
        self.kind()
        self.command()
        if self.left_out:
            keys = ", ".join(self.left_out)
            self.warn(self.line, self.label, f"left out, only its client uses: {keys}")

    def key(self, key: str, node: Node) -> None:
        special = SPECIAL.get(key)
        if key == "url" and "httpUrl" in self.old:
            self.warn(node.line, f"{self.label}.url", "left out, httpUrl is used")
        elif key == "tools" and node.items is not None:
            self.rule("allow", node)
        elif key == "tools" and not self.done.own and not RULES & set(node.entries or {}):
            self.left_out.append(key)  # Codex says there which tools need no asking
        elif key in ("env", "headers") or (special is None and key in SERVER_KEYS):
            self.put(key, node)
        elif special is not None:
            special(self, key, node)
        elif key in BackendConfig.model_fields:
            self.done.errors.append(
                Finding(self.file, node.line, f"{self.label}.{key}", "only Portico itself sets this")
            )
        elif key in UNSUPPORTED:
            self.warn(node.line, f"{self.label}.{key}", UNSUPPORTED[key])
        elif key in MEANINGLESS or key.startswith(REMARKS):
            self.left_out.append(key)
        elif self.done.own or misspelled(key, SERVER_KEYS):
            # Kept, so that it is refused with its nearest key: in a client's file too a misspelling is no client's key.
            self.put(key, node)
        else:
            self.left_out.append(key)

    def warn(self, line: int, key: str, message: str) -> None:
        self.done.warnings.append(Finding(self.file, line, key, message))

    def put(self, key: str, node: Node) -> None:
        if key in self.new and key in ("env", "headers") and node.entries is not None:
            node = Node({**(self.new[key].entries or {}), **node.entries}, node.line)
        elif key in self.new:
            self.warn(node.line, f"{self.label}.{key}", f"said twice in this entry, line {node.line} is used")
        self.new[key] = node

    def renamed(self, key: str, node: Node) -> None:
        if key == "httpUrl":
            self.new.setdefault("type", Node("http", node.line, "http"))
        elif RENAMED[key] == "title" and "title" in self.old:
            return
        elif RENAMED[key] == "inherit_env" and any(isinstance(item.value, dict) for item in node.items or []):
            return self.left_out.append(key)
        self.put(RENAMED[key], node)

    def rule(self, rule: str, node: Node) -> None:
        rules = dict((self.new["tools"].entries if "tools" in self.new else None) or {})
        self.new["tools"] = Node({**rules, rule: node}, node.line)

    def allowing(self, key: str, node: Node) -> None:
        self.rule("allow", node)

    def denying(self, key: str, node: Node) -> None:
        self.rule("deny", node)

    def switch(self, key: str, node: Node) -> None:
        if node.value is False and "disabled" not in self.new:
            self.new["disabled"] = Node(True, node.line, "true")

    def seconds(self, key: str, node: Node) -> None:
        value = node.value
        if isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)?", value):
            value = float(value)
        target, unit = SECONDS[key]
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            value = value * (unit or (0.001 if value >= MILLISECONDS_FROM else 1))
        known = dict((self.new["timeouts"].entries if "timeouts" in self.new else None) or {})
        known.setdefault(target, Node(value, node.line, str(value)))
        self.new["timeouts"] = Node(known, node.line)

    def bearer(self, key: str, node: Node) -> None:
        text = f"Bearer ${{{node.text}}}"
        self.put("headers", Node({"Authorization": Node(text, node.line, text)}, node.line))

    def headers_from_variables(self, key: str, node: Node) -> None:
        entries = {
            name: Node(f"${{{value.text}}}", value.line, f"${{{value.text}}}")
            for name, value in (node.entries or {}).items()
        }
        self.put("headers", Node(entries, node.line))

    def request_options(self, key: str, node: Node) -> None:
        headers = (node.entries or {}).get("headers")
        if headers is not None:
            self.put("headers", headers)

    def kind(self) -> None:
        node = self.new.get("type")
        given = [key for key in TARGETS if key in self.new]
        kind = spelled_kind(node.value) if node is not None else None
        if self.done.own:
            return
        if node is not None and kind is None:
            self.problem = f"its transport {node.text!r} is not supported: stdio, http and sse are"
            del self.new["type"]
        if not given and not any(misspelled(key, TARGETS) for key in self.new):
            self.problem = self.problem or "its entry has neither command nor url"
        if len(given) > 1:
            # Clients take what fits the type, else the address.
            keep = next((key for key in given if kind in TARGETS[key]), "url" if "url" in given else given[0])
            for key in given:
                if key != keep:
                    self.warn(self.new.pop(key).line, f"{self.label}.{key}", f"left out, {keep} is used")

    def command(self) -> None:
        node = self.new.get("command")
        if node is None:
            return
        args = self.new.get("args")
        if node.items:
            first, *rest = node.items
            self.new["command"] = first
            self.new["args"] = Node([*rest, *((args.items if args is not None else None) or [])], node.line)
        elif node.entries is not None and "path" in node.entries:
            self.new["command"] = node.entries["path"]
            for key in ("args", "env"):
                if key in node.entries:
                    self.new.setdefault(key, node.entries[key])


SPECIAL: Mapping[str, Callable[[Entry, str, Node], Any]] = {
    **dict.fromkeys(RENAMED, Entry.renamed),
    **dict.fromkeys(ALLOWING, Entry.allowing),
    **dict.fromkeys(DENYING, Entry.denying),
    **dict.fromkeys(SWITCHES, Entry.switch),
    **dict.fromkeys(SECONDS, Entry.seconds),
    "bearer_token_env_var": Entry.bearer,
    "env_http_headers": Entry.headers_from_variables,
    "requestOptions": Entry.request_options,
}
