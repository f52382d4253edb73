"""Completion: scripts that real shells read, and names that come in moments and do no harm."""

import shutil
import sqlite3
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Home, command

CONFIG = {
    "servers": {"text": {"functions": "portico.demo.text:TOOLS"}, "my db": {"command": "x"}},
    "profiles": {"small": {}},
}
SYNTAX_CHECKS = {"bash": ["-n"], "zsh": ["-n"], "fish": ["--no-execute"]}


def _find_shell(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed: its completion script is NOT checked")
    return found


@pytest.mark.parametrize("shell", SYNTAX_CHECKS)
def test_shells_read_the_script(home: Home, shell: str) -> None:
    program = _find_shell(shell)
    script = home.folder / f"portico.{shell}"
    script.write_text(home.run("completion", shell).out)
    checked = subprocess.run(
        [program, *SYNTAX_CHECKS[shell], str(script)], capture_output=True, text=True, timeout=240
    )
    assert (checked.returncode, checked.stderr) == (0, "")
    for word in ("disable", "--exposure", "complete"):
        assert word in script.read_text()


@pytest.mark.parametrize("shell", SYNTAX_CHECKS)
def test_only_commands_that_take_a_server_are_offered_one(home: Home, shell: str) -> None:
    lines = home.run("completion", shell).out.splitlines()
    offers = [line for line in lines if "rename" in line and "servers" in line]
    assert offers
    assert any("logs" in line for line in offers)
    assert not any("stop" in line for line in offers)


def test_names_come_from_the_configuration_and_the_last_listing(home: Home) -> None:
    home.write(CONFIG)
    assert home.run("status").code in (0, 1)
    assert home.run("complete", "servers").out == "text\n"
    assert home.run("complete", "profiles").out == "small\n"
    assert "text.count_text" in home.run("complete", "tools").out.splitlines()
    assert {"text", "text.count_text"} <= set(home.run("complete", "all").out.split())
    assert "claude-code" in home.run("complete", "clients").out.split()
    assert home.run("complete", "nonsense").out == ""


def test_a_name_that_a_shell_would_run_is_not_offered(home: Home) -> None:
    home.write(CONFIG)
    home.run("status")
    with sqlite3.connect(home.folder / "data" / "manifest.sqlite3") as db:
        db.execute("update tools set name = '$(touch ran)' where name = 'slugify'")
    assert "touch" not in home.run("complete", "tools").out


def test_names_need_nothing_of_the_gateway(home: Home) -> None:
    home.write(CONFIG)
    imported = home.spawn("complete", "all", env={"PYTHONPROFILEIMPORTTIME": "1"}).err
    modules = {line.rpartition("|")[2].strip() for line in imported.splitlines()}
    assert not {"pydantic", "cyclopts", "portico.gateway", "rich"} & modules


def test_bash_completes_a_server_s_name(home: Home) -> None:
    bash = _find_shell("bash")
    home.write(CONFIG)
    script = home.folder / "c.bash"
    script.write_text(home.run("completion", "bash").out)
    lines = (
        f". {script}; COMP_WORDS=(portico restart te); COMP_CWORD=2; _portico_names; "
        "echo ${COMPREPLY[@]}"
    )
    folder = Path(command()[0]).parent
    ran = subprocess.run(
        [bash, "-c", lines],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=home.folder,
        env={**home.environment, "PATH": f"{folder}:{home.environment['PATH']}"},
    )
    assert ran.stdout == "text\n"
