"""The pure parts of the doctor: what it makes of command lines, credentials, failures, rules and
budgets."""

import re
from pathlib import Path
from typing import Any

import pytest

from portico.catalog.entries import ServerSource, build_entry, build_manifest
from portico.catalog.listing import ServerListing, salvage_tools
from portico.catalog.snapshot import ServerEntry
from portico.cli import doctor
from portico.cli.doctor import configuration_checks, rule_checks, tool_checks
from portico.cli.doctor.configuration_checks import is_credential, is_placeholder, is_secret
from portico.cli.doctor.examination import _collect_secrets  # pyright: ignore[reportPrivateUsage]
from portico.cli.doctor.finding import ConfigLocations, DoctorFinding
from portico.cli.doctor.server_checks import guess_remedy
from portico.cli.doctor.server_command_checks import find_script_position, find_unpinned
from portico.config import BackendConfig, Budgets, Config, Profile
from portico.rendering.listing_cost import DefinitionCosts
from portico.upstream.backend import InitializeInfo

NOWHERE = ConfigLocations({})


def _entry(name: str, *definitions: dict[str, Any]) -> ServerEntry:
    source = ServerSource(name, "")
    kept, remarks = salvage_tools(definitions)
    listing = ServerListing(InitializeInfo("legacy", "2025-11-25"), kept, warnings=remarks)
    return build_entry(source, listing, build_manifest(source, listing))


def _tool(name: str, description: str = "Does it.", **schema: Any) -> dict[str, Any]:
    return {"name": name, "description": description, "inputSchema": {"type": "object", **schema}}


def _ids(findings: Any) -> list[str]:
    return [finding.id for finding in findings]


@pytest.mark.parametrize(
    "line",
    [
        "npx -y @scope/server", "npx some-server@latest", "npx --package=some-server run",
            "uvx some-server",
        "uvx --from some-server tool", "uv tool run some-server", "pipx run some-server",
            "docker run -i --rm image",
        "docker run -e TOKEN -v /a:/b some/image:latest", "bunx some-server",
            "pnpm dlx some-server",
    ],
)  # fmt: skip
def test_a_package_without_a_version_is_reported(line: str) -> None:
    program, *args = line.split()
    assert find_unpinned(program, args) is not None


@pytest.mark.parametrize(
    "line",
    [
        "npx -y @scope/server@1.2.3", "npx ./local", "npx -p some-server@2 run",
            "uvx some-server==1.0", "uvx a@1.0",
        "uvx --from git+https://host/x tool", "docker run -i image:1.2",
            "docker run image@sha256:00", "node server.js",
        "docker compose up", "npx", "uv run server.py",
    ],
)  # fmt: skip
def test_a_package_whose_version_is_fixed_is_not(line: str) -> None:
    program, *args = line.split()
    assert find_unpinned(program, args) is None


@pytest.mark.parametrize(
    "value",
    [
        "YOUR_API_KEY",
        "<token>",
        "xxx",
        "changeme",
        "your-token-here",
        "sk-xxxx",
        "Bearer <token>",
        "TODO",
        "...",
    ],
)
def test_a_value_nobody_filled_in_is_a_placeholder(value: str) -> None:
    assert is_placeholder(value)
    assert not is_secret("API_KEY", value)


@pytest.mark.parametrize(
    "value", ["ghp_0123456789abcdef", "s3cr3t", "correct horse battery", "my-own-pass"]
)
def test_a_real_value_is_no_placeholder(value: str) -> None:
    assert not is_placeholder(value)


@pytest.mark.parametrize(
    ("name", "value"),
    [("TOKEN_LIMIT", "4000"), ("AUTH_MODE", "oauth2"), ("SECRET_FILE", "/run/secrets/x"), (
        "API_KEY", "${API_KEY}"),
     ("PASSWORD_PATH", "~/x"), ("USE_AUTH", "true"), ("PROJECT", "my-project-2024"), ("SITE",
         "https://host/path")],
)  # fmt: skip
def test_what_only_sounds_secret_is_not(name: str, value: str) -> None:
    assert not is_secret(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [("GITHUB_TOKEN", "abcdefgh"), ("X", "ghp_0123456789abcdef0123"), ("Authorization",
        "Bearer abc"),
     ("DATABASE", "postgres://user:secret@host/db")],
)  # fmt: skip
def test_what_is_secret_is_known_by_its_name_or_its_look(name: str, value: str) -> None:
    assert is_secret(name, value)


def test_a_password_in_a_url_is_among_what_is_never_shown() -> None:
    server = BackendConfig(
        url="https://user:the-password@host/mcp", headers={"X-Api-Key": "Custom some-value"}
    )
    assert {"the-password", "some-value"} <= _collect_secrets(Config(servers={"a": server}))


def test_the_names_of_credentials() -> None:
    assert all(
        map(
            is_credential,
            ("API_KEY", "GITHUB_PERSONAL_ACCESS_TOKEN", "authorization", "DB_PASSWORD"),
        )
    )
    assert not any(
        map(is_credential, ("AUTHOR", "KEYBOARD", "PATH", "MAX_TOKENS_LIMIT", "TOKEN_URL"))
    )


def test_a_token_that_still_holds_is_not_called_expired() -> None:
    token = "eyJhbGciOiJIUzI1NiJ9.eyJleHAiOjIwMDB9.c2ln"
    server = BackendConfig(url="https://host/mcp", headers={"Authorization": f"Bearer {token}"})
    assert _ids(configuration_checks.check_credentials("a", server, NOWHERE, now=1_999.0)) == []
    assert _ids(configuration_checks.check_credentials("a", server, NOWHERE, now=2_001.0)) == [
        "credential.expired"
    ]


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("ModuleNotFoundError: No module named 'mcp'", "pip install mcp"),
        ("Error: Cannot find module '/x/dist/index.js'", "npm install"),
        ("npm error code E404", "no such package"),
        ("npm ERR! network request failed, reason: getaddrinfo EAI_AGAIN", "registry"),
        ("Error: EACCES: permission denied, open '/x'", "right"),
        ("Error: ENOENT: no such file or directory, scandir '/data'", "/data does not exist"),
        ("Error: GITHUB_TOKEN environment variable is not set", "GITHUB_TOKEN: ${GITHUB_TOKEN}"),
        ("Missing required environment variable: API_KEY", "API_KEY: ${API_KEY}"),
        ("usage: server [-h] --db DB", "--help"),
        ("connection refused", "Nothing listens"),
        ("its host name is not known", "no address"),
        ("its certificate is not trusted: self-signed", "certificate"),
        ("Cannot connect to the Docker daemon at unix:///x", "Start Docker"),
    ],
)
def test_a_failure_that_is_known_has_its_remedy(said: str, remedy: str) -> None:
    assert remedy in guess_remedy([said])[1]


@pytest.mark.parametrize(
    ("line", "script"),
    [
        ("node dist/index.js --port 1", "dist/index.js"), ("python -u -W ignore server.py out.py",
            "server.py"),
        ("uv run server.py", "server.py"), ("uv --directory /x run --with mcp server.py",
            "server.py"),
        ("node --import tsx src/index.ts", "src/index.ts"), ("java -jar server.jar", "server.jar"),
        ("python -m package x.py", None), ("python /opt/tool x.py", None), (
            "uv run tool --out x.py", None),
        ("npx server.js", None), ("deno run https://host/mod.ts", None), ("sh -c x.sh", None),
    ],
)  # fmt: skip
def test_the_script_of_an_interpreter_is_told_from_its_other_arguments(
    line: str, script: str | None
) -> None:
    program, *args = line.split()
    position = find_script_position(program, args)
    assert (None if position is None else args[position]) == script


def test_a_failure_that_is_not_known_is_not_guessed_at() -> None:
    assert guess_remedy(["something else"]) == ("", "")


def test_long_names_matter_where_tools_are_listed_and_are_a_note_elsewhere() -> None:
    entry = _entry("server", _tool("n" * 60))
    assert [one.severity for one in tool_checks.check(entry, NOWHERE, full=True)] == ["warning"]
    assert [one.severity for one in tool_checks.check(entry, NOWHERE, full=False)] == ["note"]


def test_a_long_description_is_reported_only_where_it_is_listed() -> None:
    entry = _entry("server", _tool("a", "long " * 600))
    assert _ids(tool_checks.check(entry, NOWHERE, full=True)) == ["tool.description_long"]
    assert _ids(tool_checks.check(entry, NOWHERE, full=False)) == []


def test_many_tools_with_one_flaw_are_one_finding() -> None:
    entry = _entry("server", *(_tool(f"tool_{number}", "") for number in range(30)))
    [finding] = tool_checks.check(entry, NOWHERE, full=False)
    assert finding.id == "tool.description_empty"
    assert "30 tools" in finding.message
    assert "and 22 more" in finding.message


def test_good_tools_have_no_flaw() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/defs/node"}}}
    entry = _entry(
        "server", _tool("a", properties={"x": {"$ref": "#/defs/node"}}, defs={"node": node})
    )
    assert _ids(tool_checks.check(entry, NOWHERE, full=True)) == []


def test_a_profile_that_shows_no_tool_is_reported() -> None:
    config = Config(
        servers={"a": BackendConfig(command="x")},
        profiles={"none": Profile(tools=("zzz*",)), "some": Profile(tools=("on*",))},
    )
    found: list[DoctorFinding] = list(
        rule_checks.check_gateway_rules(config, {"a": _entry("a", _tool("one"))}, NOWHERE)
    )
    assert [(one.id, one.at.key) for one in found] == [("profile.empty", "profiles.none")]


def test_rules_that_leave_nothing_are_reported() -> None:
    server = BackendConfig.model_validate({"command": "x", "tools": {"deny": ["*"]}})
    assert _ids(rule_checks.check_server_rules("a", server, ["one", "two"], NOWHERE)) == [
        "rules.nothing_left"
    ]


def test_more_tools_than_clients_take_are_reported_with_what_they_cost() -> None:
    entries = {"a": _entry("a", *(_tool(f"tool_{number}") for number in range(129)))}
    config = Config(servers={"a": BackendConfig(command="x")}, exposure="full")
    [finding] = rule_checks.check_budgets(config, entries, DefinitionCosts(), NOWHERE)
    assert finding.id == "exposure.too_many_tools"
    assert "129 tools" in finding.message
    assert not list(
        rule_checks.check_budgets(
            config.model_copy(update={"exposure": "meta"}), entries, DefinitionCosts(), NOWHERE
        )
    )


def test_a_budget_that_no_tool_fits_is_reported() -> None:
    large = {
        f"parameter_{number}": {"type": "string", "description": "A word. " * 20}
        for number in range(20)
    }
    entries = {"a": _entry("a", _tool("large", properties=large))}
    given = {
        "servers": {"a": BackendConfig(command="x")},
        "budgets": Budgets(listing=100, discovery=100),
    }
    config = Config(**given, exposure="semantic", intent="anything")  # pyright: ignore[reportArgumentType]
    assert _ids(rule_checks.check_budgets(config, entries, DefinitionCosts(), NOWHERE)) == [
        "budget.listing_small",
        "budget.discovery_small",
    ]


def test_every_id_is_in_the_documentation() -> None:
    subjects = (
        r"audit|auth|budget|command|config|containment|credential|data_dir|database|disk|endpoint|env_file|"
        r"exposure|files|openapi|pin|profile|program|reload|rules|sandbox|search|secret|server|tool|trust|variable"
    )
    source = "".join(path.read_text("utf-8") for path in Path(doctor.__path__[0]).rglob("*.py"))
    used = set(re.findall(rf'"((?:{subjects})\.[a-z_]+)"', source))
    page = (Path(__file__).parents[3] / "docs" / "reference" / "doctor.md").read_text("utf-8")
    documented = set(re.findall(r"^\| `([a-z_.]+)` \|", page, re.MULTILINE))
    assert used == documented
