"""Keys in client configuration files: their names for our keys, and keys of clients alone.

From the documentation and source of Claude Desktop and Code, VS Code, Copilot, Cursor, Windsurf,
Cline, Roo, Gemini CLI, Codex, Zed, opencode, Continue, Goose, Kiro and LibreChat.
"""

from collections.abc import Mapping

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
    "oauth": "signing in with OAuth is not done here: send a token in `headers`",
    "auth": "signing in is not done here: send a token in `headers`",
    "authProviderType": "signing in is not done here: send a token in `headers`",
    "headersHelper": "commands that make headers are not run: write `headers` with ${VAR}",
    "sandbox": "the server runs with the gateway's rights",
    "sandboxEnabled": "the server runs with the gateway's rights",
}
CLIENT_ONLY_KEYS = frozenset(
    {
        "allowInstructions",
        "always_allow",
        "alwaysAllow",
        "alwaysLoad",
        "author",
        "authSession",
        "auto_approve",
        "autoApprove",
        "autoStart",
        "bundled",
        "category",
        "chatMenu",
        "concurrency",
        "created_at",
        "customUserVars",
        "default_tools_approval_mode",
        "dev",
        "disabledPrompts",
        "extension",
        "extensionName",
        "gallery",
        "groups",
        "homepage",
        "icon",
        "iconPath",
        "icons",
        "id",
        "identifier",
        "installed_at",
        "isBuiltIn",
        "lastUpdated",
        "logo",
        "longRunning",
        "metadata",
        "note",
        "notes",
        "persistConnection",
        "priority",
        "provider",
        "proxy",
        "registryType",
        "repository",
        "required",
        "requiresOAuth",
        "restart",
        "retry",
        "scope",
        "scopes",
        "serverInstructions",
        "settings",
        "source",
        "sourceUrl",
        "sseReadTimeout",
        "start_on_launch",
        "startup",
        "targetAudience",
        "targetServiceAccount",
        "telemetry",
        "trust",
        "updateTime",
        "uri",
        "useRequestDirectives",
        "version",
        "watchPaths",
    }
)
"""Keys that only concern the client that wrote them."""
