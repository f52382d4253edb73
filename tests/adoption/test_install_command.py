"""`portico install` and `portico uninstall` as a person runs them, and the entry as its client
starts it."""

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from portico.adoption.client_entries import find_program, is_portico, is_temporary
from portico.meta_tools import tool_definitions
from tests.cli.conftest import EVERYTHING, Home

SECRET = "ghp_notARealToken0000000000000000000000"
SERVERS = {
    "github": {"command": "npx", "args": ["-y", "server-github"], "env": {"GITHUB_TOKEN": SECRET}},
    "time": {"command": "uvx", "args": ["mcp-server-time"]},
}
CONFIG = {"servers": {"text": {"functions": "portico.demo.text:TOOLS"}}}


@pytest.fixture
def home(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Home:
    return Home(tmp_path, capfd)


def cursor(home: Home, data: Any = None) -> Path:
    path = home.folder / ".cursor" / "mcp.json"
    path.parent.mkdir(exist_ok=True)
    if data is not None:
        path.write_text(json.dumps(data, indent=2))
    return path


def test_without_write_only_the_difference_is_shown(home: Home) -> None:
    path = cursor(home, {"mcpServers": SERVERS})
    before = path.read_bytes()
    config = home.write(CONFIG)
    ran = home.run("install", "cursor")
    assert ran.code == 0, ran.err
    assert '+    "portico": {' in ran.out
    assert str(config) in ran.out
    assert "Exposure meta: it has a limit of about 40 tools" in ran.out
    assert "2 servers stay in the file: github, time." in ran.out
    assert "--write" in ran.out
    assert SECRET not in ran.out + ran.err
    assert path.read_bytes() == before
    assert not (home.folder / "data").exists()


def test_write_changes_the_file_twice_changes_nothing_and_uninstall_restores_it(home: Home) -> None:
    path = cursor(home, {"mcpServers": SERVERS})
    before = path.read_bytes()
    config = home.write(CONFIG)
    ran = home.run("install", "cursor", "--write")
    assert ran.code == 0, ran.err
    entry = json.loads(path.read_bytes())["mcpServers"]["portico"]
    assert Path(entry["command"]).is_absolute()
    assert entry["args"][-3:] == ["stdio", "--config", str(config)]
    written = path.read_bytes()
    assert "nothing to do" in home.run("install", "cursor", "--write").out
    assert path.read_bytes() == written
    dry = home.run("uninstall", "cursor", "--dry-run")
    assert "would be as it was" in dry.out
    assert path.read_bytes() == written
    assert "byte for byte" in home.run("uninstall", "cursor").out
    assert path.read_bytes() == before
    assert "nothing to do" in home.run("uninstall", "cursor").out


async def test_the_client_can_start_what_was_written_for_it(home: Home) -> None:
    home.write(CONFIG)
    assert home.run("install", "vscode", "--write", "--scope", "project").code == 0
    entry = json.loads((home.folder / ".vscode" / "mcp.json").read_bytes())["servers"]["portico"]
    assert entry["type"] == "stdio"
    elsewhere = home.folder / "elsewhere"
    elsewhere.mkdir()
    parameters = StdioServerParameters(
        command=entry["command"], args=entry["args"], env=home.environment, cwd=elsewhere
    )
    async with Client(parameters) as client:
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == list(tool_definitions.META_TOOL_NAMES)
        assert all((tool.meta or {}).get("anthropic/alwaysLoad") is True for tool in tools)
        overview = await client.call_tool("browse_tools", {"server": "text"})
        assert not overview.is_error


def test_replace_takes_out_what_portico_has_and_uninstall_brings_it_back(home: Home) -> None:
    gone = {"command": "no-such-server-anywhere"}
    servers = {**SERVERS, "every": EVERYTHING, "gone": gone}
    path = cursor(home, {"mcpServers": servers, "other": 1})
    before = path.read_bytes()
    home.write({"servers": {"every": EVERYTHING, "gone": gone}})
    plain = home.run("install", "cursor")
    assert (
        "Portico has every, gone, too, so Cursor would load what they offer twice: --replace"
        in plain.out
    )
    ran = home.run("install", "cursor", "--replace", "--write")
    assert "Taken out, because Portico has them: every." in ran.out
    assert SECRET not in ran.out
    assert "gone stays in the file, because Portico cannot use it now: " in ran.out
    assert [*json.loads(path.read_bytes())["mcpServers"]] == ["github", "time", "gone", "portico"]
    path.write_bytes(path.read_bytes().replace(b'"other": 1', b'"other": 2'))
    ran = home.run("uninstall", "cursor")
    assert "was changed since" in ran.out
    assert "every put back" in ran.out
    data = json.loads(path.read_bytes())
    assert data == {"mcpServers": servers, "other": 2}
    assert before != path.read_bytes()


def test_duplicate_servers_are_reported_with_their_cost(home: Home) -> None:
    cursor(home, {"mcpServers": {"every": EVERYTHING}})
    home.write({"servers": {"every": EVERYTHING}})
    unknown = home.run("install", "cursor", "--json").data
    assert (unknown["twice"], unknown["twice_tokens"]) == (["every"], 0)
    assert home.run("status").code == 0  # waits until the server has been listed
    tokens = home.run("install", "cursor", "--json").data["twice_tokens"]
    assert tokens > 100
    assert (
        f"{tokens:,} tokens at the start of every conversation" in home.run("install", "cursor").out
    )


def test_without_a_configuration_adopting_first_is_advised_but_it_works(home: Home) -> None:
    ran = home.run("install", "codex", "--write")
    assert ran.code == 0, ran.err
    assert "`portico adopt`" in ran.out
    path = home.folder / ".codex" / "config.toml"
    entry = tomllib.loads(path.read_text())["mcp_servers"]["portico"]
    assert entry["args"][-1] == "stdio"
    assert home.run("uninstall", "codex").code == 0
    assert not path.parent.exists()


def test_codex_gets_the_variables_to_pass_on_and_others_a_warning(home: Home) -> None:
    home.write({"servers": {"a": {"command": "x", "env": {"KEY": "${MY_KEY}"}}}})
    shown = home.run("install", "codex", "--json", env={"MY_KEY": "k"})
    assert shown.data["entry"]["env_vars"] == ["MY_KEY"]
    assert (
        "takes MY_KEY from the environment" in home.run("install", "zed", env={"MY_KEY": "k"}).out
    )
    (home.folder / "portico.env").write_text("MY_KEY=k\n")
    home.write(
        {"env_file": "portico.env", "servers": {"a": {"command": "x", "env": {"KEY": "${MY_KEY}"}}}}
    )
    assert "env_vars" not in home.run("install", "codex", "--json").data["entry"]
    assert "MY_KEY" not in home.run("install", "zed").out


@pytest.mark.parametrize(
    ("written", "flag", "words"), [(None, "full", ["--exposure", "full"]), ("code", None, [])]
)
def test_the_exposure_is_the_clients_unless_overridden(
    home: Home, written: str | None, flag: str | None, words: list[str]
) -> None:
    home.write({**CONFIG, **({"exposure": written} if written else {})})
    ran = home.run("install", "gemini", "--json", *(["--exposure", flag] if flag else []))
    assert ran.data["exposure"] == (flag or written)
    assert ran.data["entry"]["args"][3:] == words or ran.data["entry"]["args"][-2:] == words


def test_an_entry_with_an_address_reaches_a_served_portico(home: Home) -> None:
    home.write({**CONFIG, "gateway": {"token": "a-token-that-is-long-enough"}})
    ran = home.run("install", "claude-code", "--url", "http://127.0.0.1:8420", "--json")
    assert ran.data["entry"] == {
        "type": "http",
        "url": "http://127.0.0.1:8420/mcp",
        "headers": {"Authorization": "Bearer ${PORTICO_TOKEN}"},
    }
    refused = home.run("install", "claude-desktop", "--url", "http://127.0.0.1:8420")
    assert refused.code == 2
    assert "takes no address" in refused.err
    assert home.run("install", "cursor", "--url", "nowhere").code == 2
    assert home.run("install", "cursor", "--url", "http://x", "--exposure", "full").code == 2


def test_portico_is_never_made_to_read_the_file_that_starts_it(home: Home) -> None:
    path = home.folder / ".mcp.json"
    for data in ({"mcpServers": SERVERS}, None):
        path.unlink(missing_ok=True)
        if data:
            path.write_text(json.dumps(data))
        ran = home.run("install", "claude-code", "--scope", "project", "--write")
        assert ran.code == 2
        assert "portico adopt" in ran.err
        assert path.exists() == bool(data)


def test_the_users_configuration_precedes_the_projects_servers(home: Home) -> None:
    (home.folder / ".mcp.json").write_text(json.dumps({"mcpServers": SERVERS}))
    own = home.folder / "own"
    (own / "portico").mkdir(parents=True)
    (own / "portico" / "portico.yaml").write_text(json.dumps(CONFIG))
    if sys.platform in ("win32", "darwin"):
        pytest.skip("XDG_CONFIG_HOME says where this person's files are on Linux only")
    ran = home.run("install", "cursor", "--json", env={"XDG_CONFIG_HOME": str(own)})
    assert ran.data["entry"]["args"][-1] == str(own / "portico" / "portico.yaml")


def test_a_broken_file_of_another_scope_does_not_keep_uninstall_from_its_work(home: Home) -> None:
    assert home.run("install", "claude-code", "--write").code == 0
    broken = home.folder / ".mcp.json"
    broken.write_text('{"mcpServers": {')
    ran = home.run("uninstall", "claude-code")
    assert ran.code == 0
    assert f"Left alone: {broken}:1:" in ran.err
    assert not (home.folder / ".claude.json").exists()
    assert broken.read_text() == '{"mcpServers": {'
    assert home.run("uninstall", "claude-code", "--scope", "project").code == 2


def test_a_broken_file_is_refused_with_its_line(home: Home) -> None:
    path = cursor(home)
    path.write_text('{\n  "mcpServers": {')
    ran = home.run("install", "cursor", "--write")
    assert ran.code == 2
    assert f"{path}:2:" in ran.err
    assert path.read_text() == '{\n  "mcpServers": {'


def test_a_file_that_was_named_is_found_again_without_its_name(home: Home) -> None:
    named = home.folder / "portable" / "settings.json"
    named.parent.mkdir()
    named.write_text("// mine\n{}\n")
    assert home.run("install", "zed", "--file", str(named), "--write").code == 0
    assert "portico" in named.read_text()
    ran = home.run("uninstall", "zed")
    assert str(named) in ran.out
    assert named.read_text() == "// mine\n{}\n"


def test_a_wrong_client_gets_the_nearest_name(home: Home) -> None:
    ran = home.run("install", "claud-code")
    assert ran.code == 1
    assert "claude-code" in ran.err


def test_this_portico_is_started_by_its_script_or_else_by_its_interpreter(tmp_path: Path) -> None:
    script = tmp_path / "bin" / ("portico.exe" if sys.platform == "win32" else "portico")
    script.parent.mkdir()
    script.write_text("")
    script.chmod(0o755)
    assert find_program(str(script), "/nowhere/python") == [str(script)]
    assert find_program("/x/pytest", str(script.parent / "python")) == [str(script)]
    assert find_program("/x/__main__.py", "/nowhere/python") == ["/nowhere/python", "-m", "portico"]
    assert is_temporary(["/home/ada/.cache/uv/archive-v0/abc/bin/portico"])
    assert not is_temporary([str(script)])


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "/venv/bin/portico", "args": ["stdio"]},
        {"command": "C:\\venv\\Scripts\\portico.exe", "args": ["stdio", "--config", "x"]},
        {"command": "python", "args": ["-m", "portico", "stdio"]},
        {"command": "uvx", "args": ["--from", "portico-mcp", "portico", "stdio"]},
        {"command": {"path": "portico", "args": ["stdio"]}},
        {"command": ["portico", "stdio"]},
    ],
)
def test_an_entry_that_starts_portico_is_known_however_it_does(entry: dict[str, Any]) -> None:
    assert is_portico(entry)


@pytest.mark.parametrize(
    "entry", [None, "portico", {}, {"command": "portico"}, {"url": "http://portico/stdio"}, 3]
)
def test_other_entries_are_left_to_others(entry: Any) -> None:
    assert not is_portico(entry)


def test_a_client_that_no_shell_starts_gets_the_path_where_servers_need_it(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = home.folder / "bin"
    own.mkdir()
    (own / "my-server").write_text("#!/bin/sh\n")
    (own / "my-server").chmod(0o755)
    monkeypatch.setenv("PATH", f"{own}:/usr/bin:/bin")
    home.write({"servers": {"mine": {"command": "my-server"}}})
    there = home.run("install", "claude-desktop", "--json").data
    assert there["entry"]["env"] == {"PATH": f"{own}:/usr/bin:/bin"}
    assert "would not find my-server" in " ".join(there["remarks"])
    assert "env" not in home.run("install", "claude-code", "--json").data["entry"], (
        "it has the PATH of its shell"
    )
    home.write({"servers": {"mine": {"command": "sh"}}})
    assert "env" not in home.run("install", "claude-desktop", "--json").data["entry"], (
        "nothing is hidden"
    )


SHELL = {
    "SSL_CERT_FILE": "/etc/company/ca.pem",
    "HTTPS_PROXY": "http://proxy.example:3128",
    "HTTP_PROXY": "http://me:s3cret-of-mine@proxy.example:3128",
    "KUBECONFIG": "/home/me/.kube/work",
    "UNRELATED": "x",
}


@pytest.mark.parametrize(
    ("client", "key", "carried"),
    [
        ("codex", "env_vars", ["HTTPS_PROXY", "HTTP_PROXY", "KUBECONFIG", "SSL_CERT_FILE"]),
        ("gemini", "env", {name: f"${name}" for name in SHELL if name != "UNRELATED"}),
        ("claude-code", "env", None),
        (
            "cursor",
            "env",
            {"SSL_CERT_FILE": SHELL["SSL_CERT_FILE"], "HTTPS_PROXY": SHELL["HTTPS_PROXY"]},
        ),
    ],
)
def test_a_client_carries_the_variables_it_would_keep_back_by_name_or_harmless_value(
    home: Home, client: str, key: str, carried: object
) -> None:
    home.write({"inherit_env": ["KUBE*"], "servers": {"a": {"command": "x"}}})
    shown = home.run("install", client, "--json", env=SHELL)
    assert shown.data["entry"].get(key) == carried
    assert "s3cret-of-mine" not in shown.out + shown.err
    if client == "cursor":
        assert "may not have HTTP_PROXY, KUBECONFIG" in " ".join(shown.data["remarks"])


def test_installing_into_a_project_file_warns_that_it_is_shared(home: Home) -> None:
    home.write(CONFIG)
    assert "others who share it" in home.run("install", "cursor", "--scope", "project").out
