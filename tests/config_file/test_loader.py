"""Loading: sources of settings, their precedence, and reports of mistakes."""

import json
import os
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from portico.config import BackendConfig, Config
from portico.config_file import LoadedConfig, load, mask_config
from portico.config_file.names import RENAMED_KEYS, TIMEOUT_KEYS, UNSUPPORTED_KEYS
from portico.errors import ConfigError

Environ = Mapping[str, str]


class Project:
    """A folder with config files, loaded without this machine's environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, text: str, name: str = "portico.yaml") -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
        return path

    def load(self, text: str, environ: Environ | None = None, **flags: Any) -> LoadedConfig:
        self.write(text)
        return self.load_files("portico.yaml", environ=environ, **flags)

    def load_files(self, *names: str, environ: Environ | None = None, **flags: Any) -> LoadedConfig:
        dotted = {name.replace("__", "."): value for name, value in flags.items()}
        return load(list(names), dotted, environ or {}, cwd=self.folder)

    def refused(self, text: str, environ: Environ | None = None) -> str:
        with pytest.raises(ConfigError) as caught:
            self.load(text, environ)
        return str(caught.value)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home" / "config"))
    return Project(folder)


# --- a file in our own words ---


def test_a_whole_file_loads(project: Project):
    loaded = project.load("""
        gateway: {host: 0.0.0.0, port: 9000, token: abc, allowed_hosts: [a.example]}
        exposure: full
        prefix: never
        metatools: {browse_tools: false}
        budgets: {discovery: 500}
        limits: {start_concurrency: 2, max_request_bytes: 1MiB}
        pins: [files.read]
        data_dir: data
        log_level: WARN
        profiles:
          work: {exposure: code, servers: ["file*"], budgets: {discovery: 900}}
          empty:
        servers:
          files:
            command: uvx
            args: [files-server, --root, .]
            cwd: sub
            description: Reads files.
            tags: [local]
            tools: {allow: ["read*"], deny: ["*all"], rename: {read_file: read}}
            timeouts: {start_s: 5, call_s: 10, list_s: 3}
            start: boot
            isolation: session
            protocol: legacy
            ttl_s: 60
            inherit_env: [HTTPS_PROXY]
            roots: [/srv]
          web: {url: "https://example.com/mcp", headers: {X-Key: k}}
          old: {url: "https://example.com/events", type: sse}
          py: {functions: "package.module:TOOLS"}
          tape: {recorded: tapes.jsonl.gz#airbnb}
        """)
    config = loaded.config
    assert {name: server.kind for name, server in config.servers.items()} == {
        "files": "stdio",
        "web": "http",
        "old": "sse",
        "py": "functions",
        "tape": "recorded",
    }
    files = config.servers["files"]
    assert files.args == ("files-server", "--root", ".")
    assert files.cwd == str(project.folder / "sub")
    assert (files.start, files.isolation, files.protocol, files.ttl_s) == (
        "boot",
        "session",
        "legacy",
        60,
    )
    assert files.tools.get_exposed_name("read_file") == "read"
    assert files.timeouts.list_s == 3
    assert config.servers["tape"].recorded == project.folder / "tapes.jsonl.gz"
    assert config.servers["tape"].recorded_slug == "airbnb"
    assert config.data_dir == project.folder / "data"
    assert config.log_level == "warning"
    assert config.gateway.token is not None
    assert config.gateway.token.get_secret_value() == "abc"
    assert config.limits.max_request_bytes == 1024**2
    assert config.resolve_profile("work").exposure == "code"
    assert config.resolve_profile("empty").exposure == "full"
    assert loaded.warnings == ()
    assert loaded.path == project.folder / "portico.yaml"


def test_a_file_may_be_empty(project: Project):
    loaded = project.load("# nothing yet\n")
    assert loaded.config.servers == {}
    assert [warning.message for warning in loaded.warnings] == ["the file is empty"]


def test_sections_without_content_are_no_mistake(project: Project):
    assert project.load("gateway:\nservers:\npins:\n").config.gateway.port == 8420


def test_yaml_words_stay_text_in_text_keys(project: Project):
    server = project.load("""
        gateway: {token: 012345678}
        servers:
          a:
            command: x
            args: [--port, 8080, on, 1.50, 22:22, 2026-07-28, ~]
            env: {COUNTRY: NO, ZIP: 01234, DEBUG: true, EMPTY: ""}
        """).config
    assert server.servers["a"].args == ("--port", "8080", "on", "1.50", "22:22", "2026-07-28", "~")
    assert server.servers["a"].env == {
        "COUNTRY": "NO",
        "ZIP": "01234",
        "DEBUG": "true",
        "EMPTY": "",
    }
    assert server.gateway.token is not None
    assert server.gateway.token.get_secret_value() == "012345678"


def test_learning_can_be_switched_off_by_a_bare_word(project: Project):
    loaded = project.load("learning: off", {"PORTICO_LEARNING__HALF_LIFE_DAYS": "7"})
    assert (loaded.config.learning.scope, loaded.config.learning.half_life_days) == ("off", 7)
    assert (loaded.sources["learning.scope"].name, loaded.sources["learning.scope"].line) == (
        "portico.yaml",
        1,
    )
    assert project.load("learning: {scope: off}").config.learning.scope == "off"
    assert project.load("learning: ${MODE}", {"MODE": "shared"}).config.learning.scope == "shared"
    assert "Did you mean shared?" in project.refused("learning: sharde")


def test_a_variable_without_a_value_is_passed_through(project: Project):
    server = project.load("servers: {a: {command: x, env: {HTTPS_PROXY: , A: b}}}").config.servers[
        "a"
    ]
    assert (server.env, server.inherit_env) == ({"A": "b"}, ("HTTPS_PROXY",))


def test_anchors_and_merges_work_and_extension_keys_hold_them(project: Project):
    servers = project.load("""
        x-shared: &shared
          command: uvx
          env: {REGION: eu}
        servers:
          a: {<<: *shared, args: [one]}
          b:
            <<: [*shared, {description: second}]
            command: npx
        """).config.servers
    assert (servers["a"].command, servers["a"].args, servers["a"].env) == (
        "uvx",
        ("one",),
        {"REGION": "eu"},
    )
    assert (servers["b"].command, servers["b"].description) == ("npx", "second")


# --- mistakes: file, line, key, nearest key, all at once ---


def test_an_unknown_key_gets_its_file_its_line_and_the_nearest_key(project: Project):
    with pytest.raises(ConfigError) as caught:
        project.load("""
            # a comment
            servers:
              github:
                command: npx
                enviroment: {}
                agrs: [x]
            """)
    error = caught.value
    assert (error.file, error.line, error.key) == ("portico.yaml", 5, "servers.github.enviroment")
    lines = str(error).splitlines()
    assert lines[0] == "portico.yaml:5: servers.github.enviroment: there is no such key"
    assert "portico.yaml:6: servers.github.agrs: there is no such key" in lines
    assert lines[1].startswith("Did you mean env?")
    assert "Did you mean args? Also near: tags." in lines


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("servers:\n  a: {command: x}\nexposre: full\n", 3, "Did you mean exposure?"),
        ("port: 80\n", 1, "Did you mean gateway.port?"),
        ("gateway:\n  prot: 80\n", 2, "Did you mean port?"),
        ("profiles:\n  p:\n    exposures: meta\n", 3, "Did you mean exposure?"),
        (
            "servers:\n  a:\n    command: x\n    timeouts:\n      call: 5\n",
            5,
            "Did you mean call_s?",
        ),
        (
            "servers:\n  a:\n    command: x\n    tools:\n      alow: ['*']\n",
            5,
            "Did you mean allow?",
        ),
        ("zzz: 1\n", 1, "Keys here: servers, gateway, intent, exposure"),
        ("exposure: most\n", 1, "expected one of meta, full, semantic, code, found 'most'"),
        ("exposure: ful\n", 1, "Did you mean full?"),
        ("metatools:\n  search_tool: false\n", 2, "Did you mean search_tools?"),
        ("gateway:\n  port: many\n", 2, "expected a whole number, found 'many'"),
        ("gateway:\n  port: 70000\n", 2, "expected at most 65535, found 70000"),
        ("pins: files.read\n", 1, "expected a list, found 'files.read'"),
        ("servers:\n  a:\n    command: x\n    args: -y\n", 4, "expected a list"),
        (
            "servers:\n  a:\n    command: x\n    disabled: perhaps\n",
            4,
            "expected true or false, found 'perhaps'",
        ),
        ("servers:\n  a:\n    command: x\n    ttl_s: long\n", 4, "expected a number, found 'long'"),
        ("servers:\n  a:\n    command: {x: y}\n", 3, "expected text, found keys and values"),
        ("servers:\n  a:\n    args: [x]\n", 2, "say how to reach it"),
        (
            "servers:\n  a:\n    command: x\n    type: websocket\n",
            4,
            "expected one of stdio, http, sse",
        ),
        ("servers:\n  a: npx -y something\n", 2, "expected keys like command or url"),
        ("servers: 5\n", 1, "expected a mapping of server names"),
        ("servers: [a, b]\n", 1, "servers: expected servers by name, found a list"),
        ("servers:\n  a:\n    command: x\n    problem: none\n", 4, "only Portico itself sets this"),
        ("servers:\n  portico: {command: x}\n", 2, "this name is Portico's own"),
        ("profiles:\n  a/b: {}\n", 1, "cannot be part of a URL"),
        ("- a\n- b\n", 1, "expected keys and values"),
        ("gateway: {token: x}\ngateway: {port: 1}\n", 2, "written twice: lines 1 and 2"),
        (
            "servers:\n  a: {command: x}\n  b: {command: x}\n  a: {command: y}\n",
            4,
            "written twice: lines 2 and 4",
        ),
        ("servers:\n  a:\n\tcommand: x\n", 3, "Indent with spaces"),
        ("servers:\n  a: {command: x\n", 3, "not YAML"),
        (
            "servers:\n  a: {command: npx, args: [@scope/x]}\n",
            2,
            "put quotes around a text that begins with @",
        ),
        ("servers:\n  a:\n    description: one: two\n", 3, "Put quotes around"),
        ("a: 1\n---\nb: 2\n", 2, "Keep one document"),
        ("servers:\n  a: {command: !secret x}\n", 2, "the tag !secret means nothing here"),
        ("a: &a [*a]\n", 1, "names nothing written before it, or what it stands in"),
        ("exposure: meta\n\x07: 1\n", 2, "control character"),
    ],
)
def test_a_mistake_is_reported_with_its_line_and_advice(
    project: Project, text: str, line: int, words: str
):
    (project.folder / "portico.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        project.load_files("portico.yaml")
    message = str(caught.value)
    assert message.startswith(f"portico.yaml:{line}: "), message
    assert words in message


def test_all_mistakes_are_reported_together_in_file_order(project: Project):
    message = project.refused("""
        exposre: full
        gateway: {port: x}
        servers:
          a: {command: x, comand: y}
          a: {command: z}
          b: {url: nowhere}
        """)
    places = [
        line.split(":")[1] for line in message.splitlines() if line.startswith("portico.yaml:")
    ]
    assert places == ["1", "2", "4", "5", "6"]
    assert message.endswith("5 problems to correct.")


def test_aliases_of_aliases_cannot_fill_the_memory(project: Project):
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert "aliases counted" in project.refused("\n".join(lines))


@pytest.mark.parametrize("depth", [200, 5_000, 100_000])
@pytest.mark.parametrize("name", ["portico.yaml", "client.json"])
def test_a_bottomless_file_is_refused(project: Project, depth: int, name: str):
    (project.folder / name).write_text("{" + '"a":{' * depth)
    with pytest.raises(ConfigError):
        project.load_files(name)


def test_a_wrong_value_that_may_be_secret_is_not_repeated(project: Project):
    message = project.refused(
        """
        gateway: {token: {a: hidden1}}
        servers:
          a: {command: x, env: hidden2, start: "${S}"}
          b: {command: x, headers: [hidden3]}
          c: {url: "hidden4"}
        """,
        {"S": "hidden5"},
    )
    assert "hidden" not in message
    assert "6 problems" not in message


def test_a_missing_file_gets_the_nearest_name_back(project: Project):
    project.write("servers: {}", "portico.yaml")
    with pytest.raises(ConfigError, match="cannot be read") as caught:
        project.load_files("portcio.yaml")
    assert "Did you mean" in caught.value.advice
    assert "portico.yaml" in caught.value.advice


def test_a_folder_is_no_file(project: Project):
    with pytest.raises(ConfigError, match="Name a file"):
        load(project.folder, environ={})


def test_text_in_another_encoding_is_reported_with_its_line(project: Project):
    (project.folder / "portico.yaml").write_bytes(b"servers:\n  caf\xe9: {command: x}\n")
    with pytest.raises(ConfigError, match="Save the file as UTF-8") as caught:
        project.load_files("portico.yaml")
    assert caught.value.line == 2


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_is_no_mistake(project: Project, encoding: str):
    (project.folder / "portico.yaml").write_bytes("servers: {a: {command: é}}".encode(encoding))
    assert project.load_files("portico.yaml").config.servers["a"].command == "é"


# --- names ---


def test_names_become_keys_and_the_name_as_written_becomes_the_title(project: Project):
    servers = project.load("""
        servers:
          GitHub MCP: {command: x}
          my.server: {command: x, title: Mine}
          plain: {command: x}
        """).config.servers
    assert {name: server.title for name, server in servers.items()} == {
        "GitHub_MCP": "GitHub MCP",
        "my_server": "Mine",
        "plain": "",
    }


@pytest.mark.parametrize(
    ("text", "commands", "words"),
    [
        (
            "servers:\n  my.api: {command: x}\n  my api: {command: y}\n",
            {"my_api": "x", "my_api-2": "y"},
            "'my.api' and 'my api' would both be named my_api: this is my_api-2",
        ),
        (
            "servers:\n  my.api: {command: x}\n  my_api: {command: y}\n  my_api-2: {command: z}\n",
            {"my_api-3": "x", "my_api": "y", "my_api-2": "z"},
            "'my_api' and 'my.api' would both be named my_api: this is my_api-3",
        ),
        (
            "servers:\n  a: {command: x}\nmcpServers:\n  a: {command: y}\n",
            {"a": "x", "a-2": "y"},
            "'a' and 'a' would both be named a: this is a-2",
        ),
    ],
)
def test_of_two_names_with_the_same_key_one_is_renamed_and_that_is_said(
    project: Project, text: str, commands: dict[str, str], words: str
):
    loaded = project.load(text)
    assert {name: server.command for name, server in loaded.config.servers.items()} == commands
    (warning,) = loaded.warnings
    assert warning.message == words
    assert warning.advice == "Rename one of them."


# --- precedence ---


def test_a_flag_wins_over_the_environment_and_that_over_the_file_and_that_over_the_default(
    project: Project,
):
    text = "gateway: {port: 1}\n"
    environ = {"PORTICO_PORT": "2"}
    assert project.load("servers: {}").config.gateway.port == 8420
    assert project.load(text).config.gateway.port == 1
    assert project.load(text, environ).config.gateway.port == 2
    assert project.load(text, environ, gateway__port=3).config.gateway.port == 3


def test_every_key_has_its_source(project: Project):
    loaded = project.load(
        """
        gateway:
          host: localhost
          port: 1
        pins: [a.b]
        servers:
          a:
            command: x
            env:
              K: v
        """,
        {"PORTICO_PORT": "2", "PORTICO_EXPOSURE": "full"},
        exposure="code",
    )
    sources = {key: str(source) for key, source in loaded.sources.items()}
    assert sources["gateway.host"] == "portico.yaml:2"
    assert sources["gateway.port"] == "env PORTICO_PORT"
    assert sources["exposure"] == "flag"
    assert sources["prefix"] == "default"
    assert sources["pins"] == "portico.yaml:4"
    assert sources["servers.a.command"] == "portico.yaml:7"
    assert sources["servers.a.env.K"] == "portico.yaml:9"


def test_a_flag_that_was_not_given_changes_nothing(project: Project):
    assert project.load("gateway: {port: 1}", gateway__port=None).config.gateway.port == 1


def test_the_environment_sets_every_key_that_names_a_variable(project: Project, tmp_path: Path):
    config = project.load(
        "servers: {}",
        {
            "PORTICO_HOST": "localhost",
            "PORTICO_TOKEN": "t",
            "PORTICO_ALLOWED_HOSTS": "a.example, b.example,",
            "PORTICO_EXPOSURE": "code",
            "PORTICO_PINS": "a.b",
            "PORTICO_LIMITS__MAX_REQUEST_BYTES": "2MiB",
            "PORTICO_BUDGETS__DISCOVERY": "700",
            "PORTICO_LOG_LEVEL": "Debug",
            "PORTICO_DATA_DIR": str(tmp_path),
            "PORTICO_GATEWAY__PORT": "77",
            "PORTICO_PREFIX": "",
        },
    ).config
    assert (config.gateway.host, config.gateway.port) == ("localhost", 77)
    assert config.gateway.allowed_hosts == ("a.example", "b.example")
    assert (config.exposure, config.prefix, config.pins) == ("code", "always", ("a.b",))
    assert (config.limits.max_request_bytes, config.budgets.discovery) == (2 * 1024**2, 700)
    assert (config.log_level, config.data_dir) == ("debug", tmp_path)


def test_a_bad_variable_or_flag_is_named(project: Project):
    with pytest.raises(ConfigError) as caught:
        project.load("servers: {}", {"PORTICO_PORT": "many"}, exposure="al", gateway__prot=1)
    message = str(caught.value)
    assert "PORTICO_PORT: gateway.port: expected a whole number, found 'many'" in message
    assert "flag: exposure: expected one of meta, full, semantic, code" in message
    assert "flag: gateway.prot: no such setting" in message
    assert "Did you mean port?" in message


def test_an_exposure_without_its_intent_is_reported_with_advice(project: Project):
    with pytest.raises(ConfigError) as caught:
        project.load("exposure: semantic")
    assert 'as in `intent: "review pull requests"`' in str(caught.value)


def test_a_misspelled_variable_is_a_warning_and_a_strange_one_is_none(project: Project):
    loaded = project.load(
        "servers: {}", {"PORTICO_EXPOSUR": "full", "PORTICO_SHARED": "/x", "PORTICO_CONFIG": "x"}
    )
    assert [str(warning) for warning in loaded.warnings] == [
        "PORTICO_EXPOSUR: no such setting\nDid you mean PORTICO_EXPOSURE?"
    ]


def test_a_service_link_of_a_cluster_is_no_port(project: Project):
    loaded = project.load("servers: {}", {"PORTICO_PORT": "tcp://10.0.0.7:8420"})
    assert loaded.config.gateway.port == 8420
    assert "service link" in str(loaded.warnings[0])


def test_of_several_files_the_later_wins_key_by_key_and_server_by_server(project: Project):
    project.write(
        "gateway: {port: 1, host: localhost}\nservers: {a: {command: x, cwd: y}, b: {command: x}}",
        "one.yaml",
    )
    project.write("gateway: {port: 2}\nservers: {a: {command: z}, c: {command: x}}", "two.yaml")
    loaded = project.load_files("one.yaml", "two.yaml")
    assert (loaded.config.gateway.port, loaded.config.gateway.host) == (2, "localhost")
    assert (loaded.config.servers["a"].command, loaded.config.servers["a"].cwd) == ("z", None)
    assert list(loaded.config.servers) == ["a", "b", "c"]
    assert [str(warning) for warning in loaded.warnings] == [
        "two.yaml:2: servers.a: replaces the 'a' of an earlier file"
    ]
    assert "servers.a.cwd" not in loaded.sources
    assert loaded.files == (project.folder / "one.yaml", project.folder / "two.yaml")


# --- where the file is looked for ---


def test_the_usual_places_are_searched_in_order(project: Project, tmp_path: Path):
    def found(environ: Environ | None = None) -> str | None:
        path = load(None, {}, environ or {}, cwd=project.folder).path
        return path and str(path.relative_to(tmp_path))

    assert found() is None
    names = [
        "home/config/portico/portico.yaml",
        "project/.mcp.json",
        "project/portico.yml",
        "project/portico.yaml",
    ]
    for name in names:
        if name.startswith("home") and os.name != "posix":
            continue
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('{"mcpServers": {}}')
        assert found() == name or (name.startswith("home") and found() is None)
    (tmp_path / "elsewhere.yaml").write_text("servers: {}")
    assert found({"PORTICO_CONFIG": str(tmp_path / "elsewhere.yaml")}) == "elsewhere.yaml"


def test_without_any_file_there_are_no_servers_and_the_environment_still_counts(project: Project):
    loaded = load(None, {}, {"PORTICO_PORT": "5"}, cwd=project.folder)
    assert (loaded.config.servers, loaded.path, loaded.config.gateway.port) == ({}, None, 5)


def test_several_files_may_be_named_in_the_environment(project: Project):
    project.write("servers: {a: {command: x}}", "a.yaml")
    project.write("servers: {b: {command: x}}", "b.yaml")
    loaded = load(None, {}, {"PORTICO_CONFIG": f"a.yaml{os.pathsep}b.yaml"}, cwd=project.folder)
    assert list(loaded.config.servers) == ["a", "b"]


# --- placeholders ---


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${A}", "one"),
        ("pre-${A}-${B}-post", "pre-one-two-post"),
        ("${MISSING:-fallback}", "fallback"),
        ("${EMPTY:-fallback}", "fallback"),
        ("${EMPTY}", ""),
        ("${MISSING:-}", ""),
        ("${MISSING:-${A}}", "one"),
        ("${MISSING:-a:-b}", "a:-b"),
        ("${env:A}", "one"),
        ("${env:MISSING:-x}", "x"),
        ("$${A}", "${A}"),
        ("$A and $5", "$A and $5"),
        ("${workspaceFolder}/x", "WORK/x"),
        ("${userHome}/x", "HOME/x"),
        ("${workspaceFolderBasename}", "project"),
        ("a${/}b${pathSeparator}c", f"a{os.sep}b{os.sep}c"),
    ],
)
def test_placeholders_are_filled_in(project: Project, text: str, value: str):
    project.write(
        f"servers:\n  a:\n    command: x\n    args: ['{text}']\n    env: {{K: '{text}'}}\n"
    )
    loaded = project.load_files("portico.yaml", environ={"A": "one", "B": "two", "EMPTY": ""})
    value = value.replace("WORK", str(project.folder)).replace("HOME", str(Path.home()))
    server = loaded.config.servers["a"]
    assert (server.args, server.env, server.problem) == ((value,), {"K": value}, None)


def test_placeholders_work_in_every_setting(project: Project):
    config = project.load(
        "gateway: {port: '${P}', token: '${T}'}\nexposure: ${E:-full}\ndata_dir: ${D}\n"
        "servers: {a: {url: '${U}/mcp', disabled: '${OFF:-false}', timeouts: {call_s: '${S}'}}}",
        {"P": "7", "T": "secret", "D": "/data", "U": "https://example.com", "S": "5"},
    ).config
    assert (config.gateway.port, config.exposure, config.data_dir) == (7, "full", Path("/data"))
    assert (config.servers["a"].url, config.servers["a"].timeouts.call_s) == (
        "https://example.com/mcp",
        5,
    )


def test_a_missing_variable_affects_only_its_server(project: Project):
    loaded = project.load("""
        servers:
          broken: {url: "${BASE}/mcp", headers: {Authorization: "Bearer ${TOKEN}"}}
          fine: {command: x}
          off: {command: x, disabled: true, env: {K: "${TOKEN}"}}
        """)
    servers = loaded.config.servers
    assert servers["broken"].problem == (
        "url: the environment variable BASE is not set: set it, or write ${BASE:-default}; "
        "headers.Authorization: the environment variable TOKEN is not set: set it, or "
        "write ${TOKEN:-default}"
    )
    assert not servers["broken"].is_usable
    assert servers["fine"].is_usable
    assert [warning.key for warning in loaded.warnings] == ["servers.broken"]
    assert loaded.warnings[0].line == 2


def test_a_missing_variable_outside_servers_is_a_mistake(project: Project):
    message = project.refused("exposure: meta\ngateway:\n  token: ${TOKEN}\n")
    assert message == (
        "portico.yaml:3: gateway.token: the environment variable TOKEN is not set: set "
        "it, or write ${TOKEN:-default}"
    )


def test_an_unknown_placeholder_stays_with_a_warning(project: Project):
    loaded = project.load("servers: {a: {command: x, args: ['${not a name}', '${1+1}']}}")
    assert loaded.config.servers["a"].args == ("${not a name}", "${1+1}")
    assert len(loaded.warnings) == 2


def test_an_anchor_used_twice_is_filled_in_twice(project: Project):
    servers = project.load(
        "x-e: &e {K: '${T}'}\nservers: {a: {command: x, env: *e}, b: {command: x, env: *e}}",
        {"T": "v"},
    ).config.servers
    assert [(server.env, server.written) for server in servers.values()] == [
        ({"K": "v"}, {"env.K": "${T}"})
    ] * 2


# --- paths and env files ---


def test_paths_are_relative_to_the_file_and_home_is_expanded(project: Project):
    project.write(
        "servers:\n  a: {command: ~/bin/x, cwd: sub}\n  b: {command: ./x, cwd: ~/sub}\n"
        "  c: {command: x, cwd: /abs}\n",
        "deep/portico.yaml",
    )
    servers = project.load_files("deep/portico.yaml").config.servers
    home = Path.home()
    assert (servers["a"].command, servers["a"].cwd) == (
        str(home / "bin/x"),
        str(project.folder / "deep" / "sub"),
    )
    assert (servers["b"].command, servers["b"].cwd) == ("./x", str(home / "sub"))
    assert servers["c"].cwd == str(Path("/abs"))


def test_an_env_file_gives_variables_and_env_wins_over_it(project: Project):
    project.write(
        """
        # comment
        export A=1
        B="two words" # trailing
        C='$raw'
        D=with # comment
        E="line\\nbreak"
        F=
        not a line
        OVER=file
        """,
        "secrets.env",
    )
    loaded = project.load("servers: {a: {command: x, env_file: secrets.env, env: {OVER: own}}}")
    assert loaded.config.servers["a"].env == {
        "A": "1",
        "B": "two words",
        "C": "$raw",
        "D": "with",
        "E": "line\nbreak",
        "F": "",
        "OVER": "own",
    }
    assert "left out, not KEY=VALUE" in str(loaded.warnings[0])
    assert loaded.warnings[0].line == 8
    assert loaded.files == (project.folder / "portico.yaml", project.folder / "secrets.env")


def test_a_missing_env_file_affects_only_its_server(project: Project):
    servers = project.load(
        "servers: {a: {command: x, env_file: gone.env}, b: {command: x}}"
    ).config.servers
    assert servers["a"].problem is not None
    assert "gone.env cannot be read" in servers["a"].problem
    assert servers["b"].is_usable


def test_loading_twice_gives_equal_configurations(project: Project):
    text = "servers: {a: {command: x, env: {K: '${T}'}}, b: {url: 'https://example.com'}}"
    first, second = (project.load(text, {"T": "v"}).config for _ in range(2))
    assert first == second
    changed = project.load(text, {"T": "other"}).config
    assert [name for name in first.servers if first.servers[name] != changed.servers[name]] == ["a"]


# --- whatever is written, it loads or is refused ---

SCALARS = st.sampled_from(
    [None, True, 0, -1, 3.5, "", "x", "${V}", "${", "http://[", "#", "~", "*"]
)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "name", "url", ""]), inner, max_size=3)
    ),
    max_leaves=6,
)
ENTRY_KEYS = [
    *BackendConfig.model_fields,
    *RENAMED_KEYS,
    *TIMEOUT_KEYS,
    *UNSUPPORTED_KEYS,
    *[
        "alwaysAllow",
        "enabled",
        "includeTools",
        "excludeTools",
        "bearer_token_env_var",
        "env_http_headers",
    ],
    *["requestOptions", "zzz"],
]
ENTRIES = st.dictionaries(st.sampled_from(ENTRY_KEYS), ANYTHING, max_size=5) | ANYTHING
ROOT_KEYS = [*Config.model_fields, "mcpServers", "mcp", "context_servers", "inputs", "zzz", "x-a"]


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=300
)
@given(
    root=st.dictionaries(st.sampled_from(ROOT_KEYS), ANYTHING, max_size=3),
    servers=st.dictionaries(st.sampled_from(["a", "b c", "portico", "文", ""]), ENTRIES, max_size=3)
    | ANYTHING,
    key=st.sampled_from(["servers", "mcpServers"]),
    name=st.sampled_from(["portico.yaml", ".mcp.json"]),
)
def test_any_text_loads_or_raises_a_config_error(
    tmp_path: Path, root: dict[str, Any], servers: Any, key: str, name: str
):
    path = tmp_path / name
    path.write_text(json.dumps({**root, key: servers}))
    refused: ConfigError | None = None
    try:
        loaded = load(path, {}, {"V": "v"}, cwd=tmp_path)
    except ConfigError as error:
        refused = error
    else:
        assert json.dumps(mask_config(loaded.config))
        assert all(str(warning) for warning in loaded.warnings)
    assert refused is None or refused.file == name


def test_a_profile_or_pin_without_a_server_is_a_warning_with_the_nearest_name(
    project: Project,
):
    loaded = project.load("""
        servers:
          github: {command: x}
          docs: {command: y}
        profiles:
          dev:
            servers: ["git*", gihtub]
        pins:
          - docs.search
          - dcos.search
    """)
    assert [str(warning) for warning in loaded.warnings] == [
        "portico.yaml:6: profiles.dev.servers.1: 'gihtub' matches no server\nDid you mean github?",
        "portico.yaml:9: pins.1: 'dcos' matches no server\nDid you mean docs?",
    ]
    assert not project.load(
        "profiles: {dev: {servers: [notes]}}"
    ).warnings  # the demo's servers are not in the file


def test_functions_are_imported_from_the_folder_of_the_file_that_names_them(project: Project):
    project.write(
        "servers: {a: {functions: x}, b: {functions: x, cwd: lib}, c: {command: x}}",
        "deep/portico.yaml",
    )
    servers = project.load_files("deep/portico.yaml").config.servers
    deep = project.folder / "deep"
    assert [servers[name].cwd for name in "abc"] == [str(deep), str(deep / "lib"), None]
