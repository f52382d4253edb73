"""Client files with permission rules, switched-off servers and projects, in the shapes that the
clients' public documentation shows, each with what adopting them must give.

Keys of `files` begin with `home/`, `project/` or `system/`. `servers` are the expected entries by
name: the globs denied and allowed, and whether it is switched off. `lost` are the rules that have
no equivalent, as (server, rule) pairs. `elsewhere` is the number of servers of other folders.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class ExpectedServer:
    """What an adopted server must have."""

    deny: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    disabled: bool = False


@dataclass(frozen=True)
class ClientRuleCase:
    """Files of one client, and what is expected of them."""

    name: str
    files: dict[str, str]
    servers: dict[str, ExpectedServer]
    lost: frozenset[tuple[str, str]] = frozenset()
    asked: frozenset[str] = field(default_factory=frozenset)
    """Patterns of the rules that ask."""
    elsewhere: int = 0
    trusted: frozenset[str] = field(default_factory=frozenset)
    """Servers of the project's own file that the person has approved in the client."""


PLAIN = ExpectedServer()
OFF = ExpectedServer(disabled=True)
CLAUDE = "home/.claude.json"
TWO_SERVERS = """{
  "numStartups": 12,
  "mcpServers": {
    "github": {"type": "http", "url": "https://api.githubcopilot.com/mcp/"},
    "puppeteer": {"type": "stdio", "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-puppeteer"]}
  }
}"""

CASES = (
    ClientRuleCase(
        "claude denies one tool",
        {
            CLAUDE: TWO_SERVERS,
            "home/.claude/settings.json": """{
  "permissions": {
    "allow": ["Bash(npm run lint)", "mcp__github__get_issue"],
    "deny": ["Bash(curl:*)", "Read(./.env)", "mcp__github__delete_repository"]
  }
}""",
        },
        {"github": ExpectedServer(deny=("delete_repository",)), "puppeteer": PLAIN},
    ),
    ClientRuleCase(
        "claude denies a whole server",
        {
            CLAUDE: TWO_SERVERS,
            "home/.claude/settings.json": '{"permissions": {"deny": ["mcp__puppeteer"]}}',
        },
        {"github": PLAIN, "puppeteer": OFF},
    ),
    ClientRuleCase(
        "claude denies by wildcard in the project's settings",
        {
            CLAUDE: TWO_SERVERS,
            "project/.claude/settings.json": """{
  "permissions": {"deny": ["mcp__github__delete_*", "mcp__puppeteer__*", "mcp__absent__x"]}
}""",
        },
        {"github": ExpectedServer(deny=("delete_*",)), "puppeteer": OFF},
    ),
    ClientRuleCase(
        "claude asks",
        {
            CLAUDE: TWO_SERVERS,
            "home/.claude/settings.json": """{
  "permissions": {
    "ask": ["mcp__github__create_issue", "mcp__puppeteer", "Bash(git push *)"],
    "allow": ["mcp__github"]
  }
}""",
        },
        {"github": PLAIN, "puppeteer": PLAIN},
        asked=frozenset({"github.create_issue", "puppeteer.*"}),
    ),
    ClientRuleCase(
        "claude rejected servers of the project's file",
        {
            "project/.mcp.json": """{
  "mcpServers": {
    "memory": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-memory"]},
    "filesystem": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "."]}
  }
}""",
            "project/.claude/settings.local.json": """{
  "disabledMcpjsonServers": ["filesystem"],
  "permissions": {"deny": ["mcp__memory__delete_entities"]}
}""",
        },
        {"memory": ExpectedServer(deny=("delete_entities",)), "filesystem": OFF},
    ),
    ClientRuleCase(
        "claude approved servers of the project's file",
        {
            CLAUDE: """{
  "projects": {"$PROJECT": {"enabledMcpjsonServers": ["memory"], "disabledMcpjsonServers": []}}
}""",
            "project/.mcp.json": """{
  "mcpServers": {
    "memory": {"command": "memory-server"},
    "unseen": {"command": "unseen-server"}
  }
}""",
            "project/.claude/settings.json": '{"enableAllProjectMcpServers": true}',
        },
        {"memory": PLAIN, "unseen": PLAIN},
        trusted=frozenset({"memory"}),
    ),
    ClientRuleCase(
        "claude has servers in other folders",
        {
            CLAUDE: """{
  "mcpServers": {"context7": {"type": "http", "url": "https://mcp.context7.com/mcp"}},
  "projects": {
    "/srv/shop": {"mcpServers": {"stripe": {"command": "npx", "args": ["-y", "@stripe/mcp"]},
      "sentry": {"type": "http", "url": "https://mcp.sentry.dev/mcp"}}, "history": []},
    "/srv/blog": {"mcpServers": {"ghost": {"command": "ghost-mcp"}}},
    "/srv/empty": {"mcpServers": {}, "hasTrustDialogAccepted": true},
    "$PROJECT": {"mcpServers": {"here": {"command": "here-mcp"}}}
  }
}""",
        },
        {"context7": PLAIN, "here": PLAIN},
        elsewhere=3,
    ),
    ClientRuleCase(
        "claude switched servers off in this folder",
        {
            CLAUDE: """{
  "mcpServers": {"pixellab": {"command": "pixellab-mcp"}, "slack": {"command": "slack-mcp"}},
  "projects": {"$PROJECT": {"disabledMcpServers": ["slack"], "disabledMcpjsonServers": ["docs"]}}
}""",
            "project/.mcp.json": '{"mcpServers": {"docs": {"command": "docs-mcp"}}}',
        },
        {"pixellab": PLAIN, "slack": OFF, "docs": OFF},
    ),
    ClientRuleCase(
        "codex allows and denies tools, and switches one off",
        {
            "home/.codex/config.toml": """
model = "gpt-5.1-codex"

[mcp_servers.chrome_devtools]
url = "http://localhost:3000/mcp"
enabled_tools = ["open", "screenshot"]
disabled_tools = ["screenshot"] # applied after enabled_tools
startup_timeout_sec = 20
enabled = true

[mcp_servers.docs]
command = "docs-server"
enabled = false
""",
        },
        {
            "chrome_devtools": ExpectedServer(deny=("screenshot",), allow=("open", "screenshot")),
            "docs": OFF,
        },
    ),
    ClientRuleCase(
        "codex asks before tools",
        {
            "home/.codex/config.toml": """
[mcp_servers.docs]
command = "docs-server"
supports_parallel_tool_calls = true

[mcp_servers.docs.tools.search]
approval_mode = "approve"

[mcp_servers.docs.tools.publish]
approval_mode = "prompt"

[mcp_servers.payments]
command = "payments"
default_tools_approval_mode = "prompt"
""",
        },
        {"docs": PLAIN, "payments": PLAIN},
        asked=frozenset({"docs.publish", "payments.*"}),
    ),
    ClientRuleCase(
        "gemini includes and excludes tools and servers",
        {
            "home/.gemini/settings.json": """{
  // servers that may be connected
  "mcp": {"allowed": ["trusted-server", "experimental-server"],
    "excluded": ["experimental-server"]},
  "mcpServers": {
    "trusted-server": {
      "command": "path/to/server", "env": {"API_KEY": "$MY_API_TOKEN"}, "timeout": 30000,
      "trust": false, "includeTools": ["tool1", "tool2"], "excludeTools": ["dangerous_tool"]
    },
    "experimental-server": {"httpUrl": "http://localhost:8080/stream"},
    "unlisted": {"command": "unlisted"}
  }
}""",
        },
        {
            "trusted-server": ExpectedServer(deny=("dangerous_tool",), allow=("tool1", "tool2")),
            "experimental-server": OFF,
            "unlisted": OFF,
        },
    ),
    ClientRuleCase(
        "gemini has policies",
        {
            "home/.gemini/settings.json": """{
  "mcpServers": {"jira-server": {"command": "jira"}, "deploy": {"command": "deploy"},
    "danger": {"command": "danger"}}
}""",
            "home/.gemini/policies/my-rules.toml": """
[[rule]]
toolName = "run_shell_command"
commandPrefix = "rm -rf"
decision = "deny"
priority = 100

[[rule]]
mcpName = "jira-server"
toolName = ["delete_issue", "purge"]
decision = "deny"
priority = 200

[[rule]]
mcpName = "danger"
decision = "deny"
priority = 500
denyMessage = "Not here"

[[rule]]
mcpName = "deploy"
toolName = "release"
decision = "ask_user"
priority = 200
""",
        },
        {
            "jira-server": ExpectedServer(deny=("delete_issue", "purge")),
            "danger": OFF,
            "deploy": PLAIN,
        },
        asked=frozenset({"deploy.release"}),
    ),
    ClientRuleCase(
        "cursor's command line denies",
        {
            "home/.cursor/mcp.json": """{
  "mcpServers": {
    "datadog": {"url": "https://mcp.datadoghq.com/mcp"},
    "postgres": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-postgres", "postgres://localhost/db"]}
  }
}""",
            "home/.cursor/cli-config.json": """{
  "version": 1,
  "permissions": {
    "allow": ["Shell(ls)", "Mcp(datadog:*)"],
    "deny": ["Shell(rm)", "Mcp(postgres:query)", "Write(**/*.key)"]
  }
}""",
            "home/.cursor/permissions.json": '{"mcpAllowlist": ["datadog:search_logs"]}',
        },
        {"datadog": PLAIN, "postgres": ExpectedServer(deny=("query",))},
    ),
    ClientRuleCase(
        "windsurf and cline switch tools and servers off",
        {
            "home/.codeium/windsurf/mcp_config.json": """{
  "mcpServers": {"figma": {"serverUrl": "https://mcp.figma.com/mcp", "disabledTools": ["get_code"]}}
}""",
            "home/.cline/data/settings/cline_mcp_settings.json": """{
  "mcpServers": {
    "weather": {"command": "uvx", "args": ["weather"], "disabled": true, "autoApprove": ["now"]}
  }
}""",
        },
        {"figma": ExpectedServer(deny=("get_code",)), "weather": OFF},
    ),
    ClientRuleCase(
        "claude is managed",
        {
            CLAUDE: TWO_SERVERS,
            "system/etc/claude-code/managed-settings.json": """{
  "allowedMcpServers": [{"serverName": "github"}, {"serverName": "puppeteer"}],
  "deniedMcpServers": [
    {"serverCommand": ["npx", "-y", "@modelcontextprotocol/server-puppeteer"]},
    {"serverUrl": "https://*.untrusted.com/*"}
  ],
  "permissions": {"deny": ["mcp__github__merge_pull_request"]}
}""",
        },
        {"github": ExpectedServer(deny=("merge_pull_request",)), "puppeteer": OFF},
    ),
)
