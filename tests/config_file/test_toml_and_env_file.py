"""TOML files, and the env_file beside a configuration."""

from pathlib import Path

import pytest

from portico.config_file import load
from portico.config_file.tree_reader import ConfigNode, read_tree
from portico.errors import ConfigError

YAML = (
    "env_file: my.env\nservers:\n  a:\n    command: x\n    env: {TOKEN: '${TOKEN}', "
    "OTHER: '${OTHER:-none}'}\n"
)


def lines_of(text: str) -> dict[str, int]:
    root, findings = read_tree(text.encode(), "config.toml")
    assert findings == []
    assert root is not None
    found: dict[str, int] = {}

    def walk(node: ConfigNode, where: str) -> None:
        found[where] = node.line
        for key, child in (node.entries or {}).items():
            walk(child, f"{where}/{key}")

    walk(root, "")
    return found


def test_toml_values_know_their_lines() -> None:
    found = lines_of(
        '# first\n\n[servers.a]\ncommand = "x"\n\n[servers."b.c".env]\n"K=1" = "v"\n'
        "list = [\n 1,\n]\n"
    )
    assert {
        key: found[key]
        for key in ("/servers/a", "/servers/a/command", "/servers/b.c", "/servers/b.c/env/K=1")
    } == {
        "/servers/a": 3,
        "/servers/a/command": 4,
        "/servers/b.c": 6,
        "/servers/b.c/env/K=1": 7,
    }
    assert lines_of("a.b.c = 1\r\nd = {e = 2}\r\n")["/d/e"] == 2


def test_a_configuration_may_be_toml(tmp_path: Path) -> None:
    path = tmp_path / "portico.toml"
    path.write_bytes(
        b'\xef\xbb\xbfexposure = "full"\r\n[servers.a]\r\ncommand = "x"\r\nargs = '
        b'["-v", "${A}"]\r\n'
    )
    loaded = load([path], environ={"A": "1"})
    assert (loaded.config.exposure, loaded.config.servers["a"].args) == ("full", ("-v", "1"))
    assert str(loaded.sources["servers.a.command"]).endswith(":3")


def test_the_file_of_codex_loads_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(
        'model = "m"\n[profiles.p]\nmodel = "n"\n[mcp_servers.a]\ncommand = "x"\n'
        "[mcp_servers.a.tools.t]\nq = 1\n"
    )
    assert set(load([path], environ={}).config.servers) == {"a"}


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a = 1\nb = x\n", 2, "Text stands between quotes"),
        ('a = "C:\\Users"\n', 1, "backslash"),
        ("[a]\n[a]\n", 2, "written twice"),
        ("a = [1,\n", 2, "not TOML"),
        ("[servers.a]\ncomand = 'x'\n", 2, "command"),
    ],
)
def test_a_mistake_in_toml_is_reported_with_its_line(
    tmp_path: Path, text: str, line: int, words: str
) -> None:
    (tmp_path / "portico.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(["portico.toml"], environ={}, cwd=tmp_path)
    assert str(caught.value).startswith(f"portico.toml:{line}: ")
    assert words in str(caught.value)


def test_variables_come_from_the_env_file_and_the_environment_wins(tmp_path: Path) -> None:
    (tmp_path / "portico.yaml").write_text(YAML)
    (tmp_path / "my.env").write_text("TOKEN=from the file\nOTHER=file\n")
    loaded = load(["portico.yaml"], environ={"OTHER": "environment"}, cwd=tmp_path)
    assert loaded.config.servers["a"].env == {"TOKEN": "from the file", "OTHER": "environment"}
    assert loaded.warnings == ()
    assert tmp_path / "my.env" in loaded.files, "a change of it is a reason to load again"
    assert loaded.path == tmp_path / "portico.yaml"


def test_a_missing_env_file_is_reported_and_affects_only_servers_that_need_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "portico.yaml").write_text(YAML + "  b: {command: y}\n")
    loaded = load(["portico.yaml"], environ={}, cwd=tmp_path)
    shown = [str(warning) for warning in loaded.warnings]
    assert shown[0].startswith("portico.yaml:1: env_file: ")
    assert "KEY=VALUE" in shown[0]
    assert [name for name, server in loaded.config.servers.items() if server.is_usable] == ["b"]


def test_an_invalid_line_of_the_env_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "portico.yaml").write_text(YAML)
    (tmp_path / "my.env").write_text("TOKEN=1\nwhat is this\n")
    (warning,) = load(["portico.yaml"], environ={}, cwd=tmp_path).warnings
    assert (warning.file, warning.line) == (str(tmp_path / "my.env"), 2)


def test_the_environment_may_name_the_env_file(tmp_path: Path) -> None:
    (tmp_path / "portico.yaml").write_text(YAML)
    (tmp_path / "other.env").write_text("TOKEN=other\n")
    loaded = load(["portico.yaml"], environ={"PORTICO_ENV_FILE": "other.env"}, cwd=tmp_path)
    assert loaded.config.servers["a"].env["TOKEN"] == "other"
    assert loaded.config.env_file == "other.env"


def test_a_configuration_can_be_tried_before_it_is_written(tmp_path: Path) -> None:
    unwritten = {tmp_path / "portico.yaml": YAML.encode(), tmp_path / "my.env": b"TOKEN=t\n"}
    loaded = load(["portico.yaml"], environ={}, cwd=tmp_path, unwritten=unwritten)
    assert loaded.config.servers["a"].env["TOKEN"] == "t"
    assert not list(tmp_path.iterdir())
