"""The way in: help, versions, mistakes, completion, and a `stdio` that imports little."""

import shutil
import signal
import subprocess
import sys

import pytest

from portico import __version__
from portico.cli.main import parse_serve_options, parse_stdio_options
from tests.cli.conftest import Home

COMMANDS = (
    "serve",
    "stdio",
    "demo",
    "search",
    "browse",
    "describe",
    "call",
    "status",
    "config",
    "completion",
)


def test_alone_it_explains_itself_with_three_examples(home: Home) -> None:
    ran = home.spawn()
    assert ran.code == 0
    assert all(f" {name} " in ran.out for name in COMMANDS)
    examples = ran.out.partition("Examples:")[2]
    assert examples.count("\n  portico ") == 3


def test_it_knows_its_version(home: Home) -> None:
    assert home.spawn("--version").out.strip() == __version__


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["serch"], 'Did you mean "search"?'),
        (["search"], "QUERY"),
        (["search", "x", "--limit", "many"], "--limit"),
        (["stdio", "--prot", "1"], "--prot"),
    ],
)
def test_a_wrong_command_line_is_explained_on_stderr(
    home: Home, words: list[str], reason: str
) -> None:
    ran = home.spawn(*words)
    assert (ran.code, ran.out) == (2, "")
    assert reason in ran.err


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ([], {"config": [], "profile": [], "exposure": []}),
        (
            ["--config", "a", "-c=b", "--profile=p"],
            {"config": ["a", "b"], "profile": ["p"], "exposure": []},
        ),
        (["--help"], None),
        (["--config"], None),
        (["--config", "--profile"], None),
        (["extra"], None),
    ],
)
def test_stdio_reads_its_own_options_and_leaves_the_rest_to_the_parser(
    words: list[str], options: object
) -> None:
    assert parse_stdio_options(words) == options


@pytest.mark.parametrize(
    ("words", "read"),
    [
        ([], {}),
        (
            ["--port", "0", "--host=::1", "-p", "a", "-p", "b"],
            {"port": ["0"], "host": ["::1"], "profile": ["a", "b"]},
        ),
        (["--token", "t", "--exposure", "full"], {"token": ["t"], "exposure": ["full"]}),
        (["--port", "many"], None),
        (["--port", "-1"], None),
        (["--exposure", "everything"], None),
        (["--help"], None),
        (["extra"], None),
    ],
)
def test_serve_reads_plain_options_itself_and_leaves_the_rest_to_the_parser(
    words: list[str], read: dict[str, list[str]] | None
) -> None:
    found = parse_serve_options(words)
    assert (
        found if found is None else {name: values for name, values in found.items() if values}
    ) == read


def test_stdio_starts_without_what_only_people_need(home: Home) -> None:
    code = (
        "import sys; from portico.cli.main import main; code = main(['stdio']);"
        "print(sorted({'rich', 'cyclopts', 'rapidfuzz', 'uvloop'} & set(sys.modules)), "
        "file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=b"",
        capture_output=True,
        env=home.environment,
        cwd=home.folder,
        timeout=240,
    )
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr.decode().splitlines()[-1] == "[]"


def test_serve_holds_nothing_that_only_people_or_the_rest_api_need(home: Home) -> None:
    code = (
        "import sys; from portico.cli.main import main; sys.stdout.flush(); "
        "main(['serve', '--port', '0']);"
        "print(sorted({'rich', 'cyclopts', 'fastapi', 'websockets'} & "
        "set(sys.modules)), file=sys.stderr)"
    )
    serving = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=home.environment,
        cwd=home.folder,
    )
    assert serving.stdout is not None
    try:
        while b"Ctrl+C" not in (line := serving.stdout.readline()):
            assert line
        serving.send_signal(signal.SIGINT)
        _, said = serving.communicate(timeout=240)
    finally:
        serving.kill()
        serving.wait()
    assert said.decode().splitlines()[-1] == "[]"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_name_the_commands(home: Home, shell: str) -> None:
    ran = home.spawn("completion", shell)
    assert ran.code == 0
    assert all(name in ran.out for name in COMMANDS)
    interpreter = shutil.which(shell)
    if interpreter:
        checked = subprocess.run(
            [interpreter, "-n"], input=ran.out.encode(), capture_output=True, timeout=240
        )
        assert (checked.returncode, checked.stderr) == (0, b"")


@pytest.mark.skipif(sys.platform == "win32", reason="the shells are POSIX ones")
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_installs_itself_in_the_users_home(home: Home, shell: str) -> None:
    ran = home.spawn("--install-completion", "--shell", shell, env={"SHELL": f"/bin/{shell}"})
    assert ran.code == 0, ran.err
    written = [
        path for path in home.folder.rglob("*") if path.is_file() and "portico" in path.read_text()
    ]
    assert written


@pytest.mark.parametrize(
    "name", ["doctor", "audit", "install", "uninstall", "enable", "disable", "adopt", "demo", "top"]
)
def test_help_is_shown_without_the_gateway(home: Home, name: str) -> None:
    ran = home.spawn(name, "--help", env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert (ran.code, f"portico {name}" in ran.out) == (0, True)
    modules = {line.rpartition("|")[2].strip() for line in ran.err.splitlines()}
    assert "cyclopts" in modules
    assert not {"portico.gateway", "portico.upstream", "mcp", "numpy", "fastapi"} & modules


def test_a_server_without_its_variable_is_named_where_it_matters_and_once(home: Home) -> None:
    home.write(
        {
            "servers": {
                "github": {"command": "nothing", "env": {"TOKEN": "${NOWHERE_SET}"}},
                "clock": {"functions": "portico.demo.clock"},
            }
        }
    )
    searched = home.run("search", "current time")
    assert "clock.now" in searched.out
    assert "NOWHERE_SET" not in searched.out + searched.err
    status = home.run("status")
    assert (status.out + status.err).count("NOWHERE_SET is not set") == 1
    assert "NOWHERE_SET is not set" in home.run("config").err
    assert "NOWHERE_SET is not set" in home.run("call", "github.get_issue").err
