"""Reads clients' own rules about servers: denied and switched off, asked about, approved.

Claude Code, Codex, Gemini CLI, Cursor and Zed have such rules in files; other clients have none, or
keep them where only they read them. A file that cannot be read is reported, as its rules are not
known then.
"""

import json
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, cast

from portico.adoption.clients import (
    UserEnvironment,
    get_claude_state_file,
    list_client_locations,
)
from portico.config_file.draft import ConfigFinding
from portico.config_file.tree_reader import read_tree

WHOLE_SERVER = "*"
MAX_RULE_FILE_BYTES = 64 * 1024 * 1024
"""In bytes. Claude Code stores its history in the file that has a folder's switches."""
RuleEffect = Literal["deny", "off", "ask", "condition", "approve"]
"""Must not be used; is not wanted now; only with a person's consent; depends on what there is no
equivalent for; a project's server that may be started."""


@dataclass(frozen=True)
class RuleTarget:
    """A server as a client has it, to which rules may apply."""

    client: str
    name: str
    entry: Mapping[str, Any]
    folder: str
    """The folder it is used in, as the client writes it."""
    is_project_file: bool


ToolSelector = Callable[[RuleTarget], str | None]
"""Returns the glob of tools that a rule concerns; None if it does not apply to the server."""


def select_pattern(server: str, tool: str) -> ToolSelector:
    """Select tools of the servers whose name matches a glob."""
    return lambda target: tool if fnmatchcase(target.name, server) else None


def select_named(
    names: Iterable[str] | None, *, project_files_only: bool = False, folder: str | None = None
) -> ToolSelector:
    """Select whole servers by name (None: all), in one folder or in every one."""
    wanted = None if names is None else set(names)

    def select(target: RuleTarget) -> str | None:
        is_meant = wanted is None or target.name in wanted
        is_here = folder is None or target.folder == folder
        if is_meant and is_here and (target.is_project_file or not project_files_only):
            return WHOLE_SERVER
        return None

    return select


def select_claude_tool(pattern: str) -> ToolSelector:
    """Select by `mcp__server`, `mcp__server__tool` or globs of them."""

    def select(target: RuleTarget) -> str | None:
        server = re.sub(r"[^A-Za-z0-9_-]", "_", target.name)
        name = f"mcp__{server}"
        if pattern.startswith(f"{name}__"):
            return pattern.removeprefix(f"{name}__")
        if fnmatchcase(name, pattern):
            return WHOLE_SERVER
        server_glob, _, tool = pattern.removeprefix("mcp__").rpartition("__")
        return tool if server_glob and fnmatchcase(server, server_glob) else None

    return select


def select_gemini_tool(pattern: str) -> ToolSelector:
    """Select by `mcp_server_tool`, or `server__tool` of older versions."""

    def select(target: RuleTarget) -> str | None:
        for prefix in (f"mcp_{target.name}_", f"{target.name}__"):
            if pattern.startswith(prefix):
                return pattern.removeprefix(prefix)
        return None

    return select


def select_listed(item: Mapping[str, Any]) -> ToolSelector:
    """Select servers by `serverName`, `serverCommand` or `serverUrl`."""
    return lambda target: WHOLE_SERVER if _is_listed(target, item) else None


def select_unlisted(items: Sequence[Mapping[str, Any]]) -> ToolSelector:
    """Select servers that a list of allowed ones leaves out, as Claude Code reads it."""

    def select(target: RuleTarget) -> str | None:
        key = "serverUrl" if target.entry.get("url") else "serverCommand"
        deciding = [item for item in items if key in item]
        # With an entry of that kind, names do not count.
        if any(_is_listed(target, item) for item in deciding or items):
            return None
        return WHOLE_SERVER

    return select


def _is_listed(target: RuleTarget, item: Mapping[str, Any]) -> bool:
    if "serverName" in item:
        return item["serverName"] == target.name
    if "serverCommand" in item:
        return item["serverCommand"] == [target.entry.get("command"), *target.entry.get("args", ())]
    return fnmatchcase(str(target.entry.get("url", "")), str(item.get("serverUrl", "")))


@dataclass(frozen=True)
class AppliedRule:
    effect: RuleEffect
    tool: str
    """A glob of its tools; `*` is the whole server."""
    text: str
    """The rule as written."""
    file: str
    client: str


@dataclass(frozen=True)
class ClientRule:
    client: str
    file: str
    text: str
    effect: RuleEffect
    select: ToolSelector

    def apply(self, target: RuleTarget) -> AppliedRule | None:
        """Return the rule for this server; None if it does not apply."""
        tool = self.select(target) if target.client == self.client else None
        if tool is None:
            return None
        return AppliedRule(self.effect, tool, self.text, self.file, self.client)


class ClientRules:
    def __init__(self, environment: UserEnvironment) -> None:
        self.findings: list[ConfigFinding] = []
        """Files that could not be read."""
        self._environment = environment
        self._rules: list[ClientRule] = [
            *self._read_claude_code(),
            *self._read_gemini(),
            *self._read_cursor(),
            *self._read_zed(),
        ]

    def find(self, target: RuleTarget, raw_entry: Mapping[str, Any]) -> tuple[AppliedRule, ...]:
        """Return the rules that apply to a server; `raw_entry` is as its client wrote it."""
        applied = [rule.apply(target) for rule in self._rules]
        own = _list_codex_rules(raw_entry) if target.client == "codex" else ()
        return (*(rule for rule in applied if rule is not None), *own)

    def _read(self, path: Path) -> Mapping[str, Any]:
        def report(problem: str) -> Mapping[str, Any]:
            self.findings.append(
                ConfigFinding(str(path), 0, "", f"its rules are unknown: {problem}")
            )
            return {}

        try:
            found = path.stat()
            if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_RULE_FILE_BYTES:
                return report("no ordinary file of settings")
            data = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except OSError as error:
            return report(f"it cannot be read ({error.strerror})")
        try:
            document: Any = json.loads(data)
        except (ValueError, RecursionError):
            root, problems = read_tree(data, path.name)
            if problems:
                return report(problems[0].message)
            document = root.to_plain() if root is not None else {}
        return _get_mapping({"": document}, "")

    # --- Claude Code

    def _read_claude_code(self) -> Iterator[ClientRule]:
        env = self._environment
        folder = env.cwd / ".claude"
        user = env.resolve_folder("CLAUDE_CONFIG_DIR", env.home / ".claude") / "settings.json"
        managed = _get_system_folder(env, "claude-code", "ClaudeCode", "Program Files/ClaudeCode")
        managed_files = [
            managed / "managed-settings.json",
            *sorted((managed / "managed-settings.d").glob("*.json")),
        ]
        allowed: list[Mapping[str, Any]] | None = None
        is_closed = False
        shared = folder / "settings.json"
        for path in (*managed_files, folder / "settings.local.json", user, shared):
            settings = self._read(path)
            # What a project brings must not approve its own servers.
            is_trusted = path != shared
            yield from _list_claude_rules(str(path), settings, is_trusted=is_trusted)
            if isinstance(settings.get("allowedMcpServers"), list) and not is_closed:
                allowed = [*(allowed or ()), *_get_mappings(settings, "allowedMcpServers")]
            is_closed = is_closed or (
                path in managed_files and settings.get("allowManagedMcpServersOnly") is True
            )
        if allowed is not None:
            yield ClientRule(
                "claude-code", "settings", "allowedMcpServers", "deny", select_unlisted(allowed)
            )
        state = get_claude_state_file(env)
        for project, value in _get_mapping(self._read(state), "projects").items():
            known = _get_mapping({"": value}, "")
            yield from _list_project_switches(str(state), project, known)

    # --- Gemini CLI

    def _read_gemini(self) -> Iterator[ClientRule]:
        env = self._environment
        system = _get_system_folder(env, "gemini-cli", "GeminiCli", "ProgramData/gemini-cli")
        user = env.resolve_folder("GEMINI_CLI_HOME", env.home) / ".gemini"
        for folder in (system, user, env.cwd / ".gemini"):
            yield from _list_gemini_rules(
                str(folder / "settings.json"), self._read(folder / "settings.json")
            )
            for path in sorted((folder / "policies").glob("*.toml")):
                for rule in _get_mappings(self._read(path), "rule"):
                    yield from _list_gemini_policy(str(path), rule)
        switches = user / "mcp-server-enablement.json"
        for name, value in self._read(switches).items():
            if _get_mapping({"": value}, "").get("enabled") is False:
                yield ClientRule("gemini", str(switches), name, "off", select_named([name]))

    # --- Cursor and Zed

    def _read_cursor(self) -> Iterator[ClientRule]:
        env = self._environment
        for path in (env.home / ".cursor" / "cli-config.json", env.cwd / ".cursor" / "cli.json"):
            for text in _get_texts(_get_mapping(self._read(path), "permissions"), "deny"):
                if match := re.fullmatch(r"Mcp\(([^:]*)(?::(.*))?\)", text):
                    select = select_pattern(match[1], match[2] or WHOLE_SERVER)
                    yield ClientRule("cursor", str(path), text, "deny", select)

    def _read_zed(self) -> Iterator[ClientRule]:
        effects: Mapping[Any, RuleEffect] = {"deny": "deny", "confirm": "ask"}
        for location in list_client_locations("zed", self._environment):
            agent = _get_mapping(self._read(location.path), "agent")
            tools = _get_mapping(_get_mapping(agent, "tool_permissions"), "tools")
            for name, value in tools.items():
                effect = effects.get(_get_mapping({"": value}, "").get("default"))
                if effect and (match := re.fullmatch(r"mcp:([^:]*):(.*)", name)):
                    select = select_pattern(match[1], match[2])
                    yield ClientRule("zed", str(location.path), name, effect, select)


def _list_claude_rules(
    file: str, settings: Mapping[str, Any], *, is_trusted: bool
) -> Iterator[ClientRule]:
    permissions = _get_mapping(settings, "permissions")
    effects: Sequence[RuleEffect] = ("deny", "ask")
    for effect in effects:
        for text in _get_texts(permissions, effect):
            # Claude Code ignores rules of MCP tools with parentheses.
            if (text.startswith("mcp__") or text == WHOLE_SERVER) and "(" not in text:
                yield ClientRule("claude-code", file, text, effect, select_claude_tool(text))
    for item in _get_mappings(settings, "deniedMcpServers"):
        yield ClientRule(
            "claude-code",
            file,
            f"deniedMcpServers: {json.dumps(item)}",
            "deny",
            select_listed(item),
        )
    for name in _get_texts(settings, "disabledMcpjsonServers"):
        select = select_named([name], project_files_only=True)
        yield ClientRule("claude-code", file, f"disabledMcpjsonServers: {name}", "off", select)
    if is_trusted:
        approved = _get_texts(settings, "enabledMcpjsonServers")
        if settings.get("enableAllProjectMcpServers") is True:
            approved = None
        select = select_named(approved, project_files_only=True)
        yield ClientRule("claude-code", file, "enabledMcpjsonServers", "approve", select)


def _list_project_switches(
    file: str, project: str, known: Mapping[str, Any]
) -> Iterator[ClientRule]:
    for key, effect, of_project_files in (
        ("disabledMcpServers", "off", False),
        ("disabledMcpjsonServers", "off", True),
        ("enabledMcpjsonServers", "approve", True),
    ):
        for name in _get_texts(known, key):
            select = select_named([name], project_files_only=of_project_files, folder=project)
            yield ClientRule(
                "claude-code", file, f"{key}: {name}", cast("RuleEffect", effect), select
            )


def _list_gemini_rules(file: str, settings: Mapping[str, Any]) -> Iterator[ClientRule]:
    switches = _get_mapping(settings, "mcp")
    for name in _get_texts(switches, "excluded"):
        yield ClientRule("gemini", file, f"mcp.excluded: {name}", "off", select_named([name]))
    if isinstance(switches.get("allowed"), list):
        allowed = _get_texts(switches, "allowed")
        yield ClientRule(
            "gemini",
            file,
            "mcp.allowed",
            "off",
            lambda target: None if target.name in allowed else WHOLE_SERVER,
        )
    excluded = (
        *_get_texts(_get_mapping(settings, "tools"), "exclude"),
        *_get_texts(settings, "excludeTools"),
    )
    for text in excluded:
        yield ClientRule("gemini", file, text, "deny", select_gemini_tool(text))


_CONDITIONS = ("argsPattern", "commandPrefix", "commandRegex", "modes", "toolAnnotations")


def _list_gemini_policy(file: str, rule: Mapping[str, Any]) -> Iterator[ClientRule]:
    decision = rule.get("decision")
    if decision not in ("deny", "ask_user"):
        return
    effect: RuleEffect = "deny" if decision == "deny" else "ask"
    if any(key in rule for key in _CONDITIONS):
        effect = "condition"
    server = rule.get("mcpName")
    tools = rule.get("toolName", WHOLE_SERVER)
    for tool in cast("list[Any]", tools) if isinstance(tools, list) else [tools]:
        text = f"{tool}: {decision}"
        if isinstance(server, str):
            yield ClientRule("gemini", file, text, effect, select_pattern(server, str(tool)))
        elif tool != WHOLE_SERVER:
            yield ClientRule("gemini", file, text, effect, select_gemini_tool(str(tool)))


def _list_codex_rules(entry: Mapping[str, Any]) -> Iterator[AppliedRule]:
    if entry.get("default_tools_approval_mode") == "prompt":
        text = 'default_tools_approval_mode = "prompt"'
        yield AppliedRule("ask", WHOLE_SERVER, text, "", "codex")
    for tool, value in _get_mapping(entry, "tools").items():
        if _get_mapping({"": value}, "").get("approval_mode") == "prompt":
            text = f'tools.{tool}.approval_mode = "prompt"'
            yield AppliedRule("ask", tool, text, "", "codex")


# --- values of settings, which may have any type


def _get_mapping(values: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = values.get(key)
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _get_texts(values: Mapping[str, Any], key: str) -> list[str]:
    value = values.get(key)
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [item for item in items if isinstance(item, str)]


def _get_mappings(values: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    value = values.get(key)
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [cast("Mapping[str, Any]", item) for item in items if isinstance(item, Mapping)]


def _get_system_folder(env: UserEnvironment, linux: str, mac: str, windows: str) -> Path:
    if env.platform == "darwin":
        return env.system / "Library" / "Application Support" / mac
    if env.platform == "win32":
        return env.system / windows
    return env.system / "etc" / linux
