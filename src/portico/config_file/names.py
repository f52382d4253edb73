"""Configurable keys, clients' names for them, legal server names, and the nearest known name.

Clients' names are from the documentation and source of Claude Desktop and Code, VS Code, Copilot,
Cursor, Windsurf, Cline, Roo, Gemini CLI, Codex, Zed, opencode, Continue, Goose, Kiro and LibreChat.
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from portico.config import MAX_SERVER_NAME_LENGTH, Config, Section

_WITHOUT_VARIABLES = ("servers", "profiles", "rules", "auth")
"""Servers and profiles have user-defined names, rules and issuers are lists."""
TYPO_SIMILARITY = 0.75
"""Similarity from which a key counts as a misspelling of another."""


SERVER_MAPS = ("servers", "mcpServers", "mcp_servers", "context_servers", "mcp")
"""Portico and VS Code; most clients; Codex; Zed; opencode and VS Code user settings
(`mcp.servers`)."""
CLIENT_ONLY_MAPS = frozenset({"context_servers", "mcp"})
"""A file with one of these belongs to a client, even with a key named like ours (Zed's
`profiles`)."""
COMMENT_PREFIXES = ("x-", "$", "_", "//")
"""Prefixes of keys without meaning: extensions, `$schema`, `_comment`, `//`."""

RENAMED_KEYS: Mapping[str, str] = {
    "transport": "type",
    "transportType": "type",
    "httpUrl": "url",
    "serverUrl": "url",
    "cmd": "command",
    "environment": "env",
    "envs": "env",
    "envFile": "env_file",
    "env_vars": "inherit_env",
    "env_keys": "inherit_env",
    "workingDirectory": "cwd",
    "working_directory": "cwd",
    "http_headers": "headers",
    "name": "title",
    "displayName": "title",
}
ALLOW_KEYS = ("includeTools", "enabledTools", "enabled_tools", "allowedTools")
DENY_KEYS = ("excludeTools", "disabledTools", "disabled_tools")
ENABLED_KEYS = ("enabled", "isActive")
TIMEOUT_KEYS: Mapping[str, tuple[str, float | None]] = {
    "timeout": ("call_s", None),
    "tool_timeout_sec": ("call_s", 1),
    "startup_timeout_sec": ("start_s", 1),
    "startup_timeout_ms": ("start_s", 0.001),
    "initTimeout": ("start_s", 0.001),
    "connectionTimeout": ("start_s", 0.001),
}
"""Our timeout and the unit in seconds. Clients disagree on `timeout`: from 1000 on it is
milliseconds."""
MILLISECONDS_FROM = 1000

UNSUPPORTED_KEYS: Mapping[str, str] = {
    "oauth": "not taken over: `portico login NAME` signs in; its settings are under `auth`",
    "authProviderType": "not taken over: `portico login NAME` signs in; settings are under `auth`",
    "headersHelper": "commands that make headers are not run: write `headers` with ${VAR}",
    "sandbox": "the server runs with the gateway's rights",
    "sandboxEnabled": "the server runs with the gateway's rights",
}
CLIENT_ONLY_KEYS = {
    *("allowInstructions", "always_allow", "alwaysAllow", "alwaysLoad", "author", "authSession"),
    *("auto_approve", "autoApprove", "autoStart", "bundled", "category", "chatMenu"),
    *("concurrency", "created_at", "customUserVars", "default_tools_approval_mode", "dev"),
    *("disabledPrompts", "extension", "extensionName", "gallery", "groups", "homepage", "icon"),
    *("iconPath", "icons", "id", "identifier", "installed_at", "isBuiltIn", "lastUpdated"),
    *("logo", "longRunning", "metadata", "note", "notes", "persistConnection", "priority"),
    *("provider", "proxy", "registryType", "repository", "required", "requiresOAuth", "restart"),
    *("retry", "scope", "scopes", "serverInstructions", "settings", "source", "sourceUrl"),
    *("sseReadTimeout", "start_on_launch", "startup", "targetAudience", "targetServiceAccount"),
    *("telemetry", "trust", "updateTime", "uri", "useRequestDirectives", "version", "watchPaths"),
}
"""Keys that only concern the client that wrote them."""


def to_server_key(name: str) -> str:
    """Return a legal server key for a name; a legal name is unchanged.

    Letters without an ASCII form are replaced by a digest, so that 文件 and 天气 stay two servers.
    """
    if re.fullmatch(f"[A-Za-z0-9_-]{{1,{MAX_SERVER_NAME_LENGTH}}}", name):
        return name
    folded = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    key = re.sub(r"[^A-Za-z0-9_-]+", "_", folded).strip("_-")
    letters = sum(char.isalnum() for char in name)
    if (
        sum(char.isalnum() for char in key) < letters
        or not key
        or len(key) > MAX_SERVER_NAME_LENGTH
    ):
        digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=3).hexdigest()
        key = f"{key[: MAX_SERVER_NAME_LENGTH - 7].rstrip('_-') or 'server'}-{digest}"
    return key


def find_nearest(name: str, known: Iterable[str], *, cutoff: float = 0.5) -> tuple[str, ...]:
    """Return up to three known names similar to this one, the most similar first."""
    from rapidfuzz import process  # imported late: only mistakes need it
    from rapidfuzz.distance import OSA

    folded = {candidate: candidate.lower().replace("_", "") for candidate in known}
    found = process.extract(
        name.lower().replace("_", ""),
        folded,
        scorer=OSA.normalized_similarity,
        score_cutoff=cutoff,
        limit=3,
    )
    nearest = [candidate for _, _, candidate in found]
    nearest += [
        candidate
        for candidate in folded
        if len(candidate) > 2 and name.lower().startswith(candidate)
    ]
    return tuple(dict.fromkeys(nearest))[:3]


def find_intended_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that this one misspells, if it is close enough."""
    from rapidfuzz import process  # as above
    from rapidfuzz.distance import OSA

    found = process.extractOne(
        name, list(known), scorer=OSA.normalized_similarity, score_cutoff=TYPO_SIMILARITY
    )
    return found[0] if found else None


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One configurable key, for reference pages and `--help`."""

    path: tuple[str, ...]
    """`*` stands for the name of a server or profile, or for a rule or issuer."""
    type: str
    default: Any
    help: str
    environment_variable: str | None
    """Environment variable that sets it, if there is one."""
    is_list: bool
    """Whether it takes a list; in an environment variable its items are separated by commas."""

    @property
    def dotted_name(self) -> str:
        return ".".join(self.path)


def list_settable_keys(model: type[BaseModel]) -> list[str]:
    return [
        info.alias or name
        for name, info in model.model_fields.items()
        if not (isinstance(info.json_schema_extra, dict) and info.json_schema_extra.get("internal"))
    ]


def get_fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields of a section by their keys in a file."""
    return {info.alias or name: info for name, info in model.model_fields.items()}


def iter_keys(model: type[BaseModel] = Config, path: tuple[str, ...] = ()) -> Iterator[ConfigKey]:
    fields = get_fields(model)
    for name in list_settable_keys(model):
        info = fields[name]
        key_path = (*path, name)
        inner, named = get_section_type(info.annotation)
        if inner is not None:
            yield from iter_keys(inner, (*key_path, "*") if named else key_path)
            continue
        text = re.sub(r"typing\.|pathlib\.(_local\.)?", "", str(info.annotation))
        if isinstance(info.annotation, type):
            text = info.annotation.__name__
        scalar = key_path[0] not in _WITHOUT_VARIABLES and "dict[" not in text
        yield ConfigKey(
            key_path,
            text,
            None if info.default_factory is not None else info.get_default(),
            info.description or "",
            to_environment_name(key_path) if scalar else None,
            text.startswith("tuple["),
        )


def get_section_type(annotation: Any) -> tuple[type[Section] | None, bool]:
    for position, candidate in enumerate((annotation, *get_args(annotation))):
        if isinstance(candidate, type) and issubclass(candidate, Section):
            return candidate, position > 0
    return None, False


def to_environment_name(path: Sequence[str]) -> str:
    """Return PORTICO_KEY or PORTICO_SECTION__KEY; keys of `gateway` omit it (PORTICO_PORT)."""
    return "PORTICO_" + "__".join(path[1:] if path[0] == "gateway" else path).upper()


def find_section(path: Sequence[str | int]) -> type[Section] | None:
    section: type[Section] = Config
    steps = iter(path)
    for step in steps:
        info = section.model_fields.get(str(step))
        inner, named = get_section_type(info.annotation) if info is not None else (None, False)
        if inner is None:
            return None
        if named:
            next(steps, None)
        section = inner
    return section


def suggest_key(path: Sequence[str | int]) -> str:
    """Return advice for an unknown key: the nearest ones, or the section it belongs to."""
    name = str(path[-1])
    section = find_section(path[:-1])
    here = list_settable_keys(section) if section is not None else []
    near = find_nearest(name, here)
    elsewhere = [
        key.dotted_name for key in iter_keys() if key.path[-1] == name and "*" not in key.path
    ]
    if elsewhere and (not near or near[0] != name):
        return f"Did you mean {elsewhere[0]}?"
    if near[1:]:
        return f"Did you mean {near[0]}? Also near: {', '.join(near[1:])}."
    if near:
        return f"Did you mean {near[0]}?"
    if here:
        return f"Keys here: {', '.join(here)}."
    return ""
