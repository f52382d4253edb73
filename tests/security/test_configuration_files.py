"""Only files that nobody else can write are taken as configuration: at the start, and while a
gateway runs."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from portico.config_file import load
from portico.errors import ConfigError
from tests.cli.commands.test_serve import _announced as announced  # pyright: ignore[reportPrivateUsage]
from tests.cli.conftest import TIMEOUT_S, Home, Start
from tests.cli.conftest import start as start
from tests.cli.test_config_watcher import browsed, demo, until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="owners and modes are POSIX's")
AS_ROOT = pytest.mark.skipif(
    sys.platform == "win32" or os.geteuid() != 0, reason="only root gives files away"
)
STRANGER = 65_534


@pytest.fixture
def home(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Home:
    return Home(tmp_path, capfd)


WEAK: dict[str, Callable[[Path], None]] = {
    "others can write it": lambda file: file.chmod(0o646),
    "others can write its folder": lambda file: file.parent.chmod(0o757),
    "others can write a folder above": lambda file: file.parent.parent.chmod(0o777),
}
GIVEN_AWAY: dict[str, Callable[[Path], None]] = {
    "it is a stranger's": lambda file: os.chown(file, STRANGER, -1),
    "its folder is a stranger's": lambda file: os.chown(file.parent, STRANGER, -1),
    "a strangers' group can write it": lambda file: (
        os.chown(file, -1, STRANGER),
        file.chmod(0o664),
    )[1],
    "a strangers' group can write its folder": lambda file: (
        os.chown(file.parent, -1, STRANGER),
        file.parent.chmod(0o775),
    )[1],
}


def write_nested(home: Home, text: str, name: str = "portico.yaml") -> Path:
    file = home.folder / "outer" / "inner" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


@pytest.mark.parametrize("weakness", WEAK)
def test_a_configuration_that_others_can_write_is_refused_with_what_to_do(
    home: Home, weakness: str
) -> None:
    file = write_nested(home, "servers: {}\n")
    assert home.run("config", "--config", str(file)).code == 0
    WEAK[weakness](file)
    ran = home.run("config", "--config", str(file))
    assert ran.code == 2
    assert "others can write" in ran.err
    assert "chmod go-w" in ran.err


@AS_ROOT
@pytest.mark.parametrize("weakness", GIVEN_AWAY)
def test_a_configuration_of_somebody_else_is_refused(home: Home, weakness: str) -> None:
    file = write_nested(home, "servers: {}\n")
    GIVEN_AWAY[weakness](file)
    ran = home.run("config", "--config", str(file))
    assert ran.code == 2
    assert "belongs to another user" in ran.err or "others can write" in ran.err


def test_the_real_command_does_not_serve_from_a_file_that_others_can_write(home: Home) -> None:
    file = home.write({"servers": {"x": {"command": "touch", "args": [str(home.folder / "ran")]}}})
    file.chmod(0o666)
    ran = home.spawn("serve", "--port", "0")
    assert ran.code == 2
    assert f"chmod go-w {file}" in ran.err
    assert not (home.folder / "ran").exists()


@pytest.mark.parametrize("where", ["of the configuration", "of a server", "of the environment"])
def test_an_env_file_that_others_can_write_is_refused_too(home: Home, where: str) -> None:
    values = write_nested(home, "PROGRAM=touch\n", "some.env")
    text = {
        "of the configuration": f"env_file: {values}\nservers:\n  x: {{command: '${{PROGRAM}}'}}\n",
        "of a server": f"servers:\n  x: {{command: x, env_file: {values}}}\n",
        "of the environment": "servers:\n  x: {command: '${PROGRAM}'}\n",
    }[where]
    file = write_nested(home, text)
    env = {"PORTICO_ENV_FILE": str(values)} if where == "of the environment" else {}
    assert home.run("config", "--config", str(file), env=env).code == 0
    values.chmod(0o622)
    ran = home.run("config", "--config", str(file), env=env)
    assert ran.code == 2
    assert f"chmod go-w {values}" in ran.err


@pytest.mark.parametrize("weak", ["the folder of the link", "the folder of the file", "the file"])
def test_a_link_is_as_good_as_every_folder_that_it_passes(home: Home, weak: str) -> None:
    real = write_nested(home, "servers: {}\n")
    link = home.folder / "links" / "portico.yaml"
    link.parent.mkdir()
    link.symlink_to(Path("..") / "outer" / "inner" / "portico.yaml")
    assert home.run("config", "--config", str(link)).code == 0
    {
        "the folder of the link": link.parent,
        "the folder of the file": real.parent,
        "the file": real,
    }[weak].chmod(0o777)
    assert home.run("config", "--config", str(link)).code == 2


@AS_ROOT
def test_a_stranger_s_link_in_a_sticky_folder_is_refused_and_one_s_own_file_there_is_fine(
    home: Home,
) -> None:
    shared = home.folder / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    file = shared / "portico.yaml"
    file.write_text("servers: {}\n")
    assert home.run("config", "--config", str(file)).code == 0
    link = shared / "link.yaml"
    link.symlink_to(file)
    os.lchown(link, STRANGER, STRANGER)
    ran = home.run("config", "--config", str(link))
    assert ran.code == 2
    assert "belongs to another user" in ran.err


def test_a_file_of_umask_002_is_fine_where_the_group_is_this_user_s_own(tmp_path: Path) -> None:
    import grp
    import pwd

    user = pwd.getpwuid(os.geteuid())
    group = grp.getgrgid(user.pw_gid)
    if group.gr_name != user.pw_name or set(group.gr_mem) - {user.pw_name}:
        pytest.skip("this user has no group of its own")
    file = tmp_path / "portico.yaml"
    file.write_text("servers: {}\n")
    os.chown(file, -1, user.pw_gid)
    file.chmod(0o664)
    assert load([file], environ={}, cwd=tmp_path).config.servers == {}


def test_a_loop_of_links_is_said_to_be_unreadable(tmp_path: Path) -> None:
    (tmp_path / "portico.yaml").symlink_to(tmp_path / "portico.yaml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load([tmp_path / "portico.yaml"], environ={}, cwd=tmp_path)


def test_values_through_a_pipe_of_the_caller_are_taken(home: Home) -> None:
    file = home.write({"servers": {"x": {"command": "${PROGRAM}"}}})
    text = f'echo PROGRAM=y | "$0" -m portico config --json --config {file} 3<&0'
    ended = subprocess.run(
        ["sh", "-c", text, sys.executable],
        cwd=home.folder,
        env={**home.environment, "PORTICO_ENV_FILE": "/dev/fd/3"},
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["warnings"] == []


def test_a_file_system_without_modes_is_taken_on_the_word_of_the_environment(home: Home) -> None:
    file = write_nested(home, "servers: {}\n")
    file.chmod(0o666)
    assert (
        home.run("config", "--config", str(file), env={"PORTICO_ALLOW_WRITABLE_CONFIG": "1"}).code
        == 0
    )
    assert (
        home.run("config", "--config", str(file), env={"PORTICO_ALLOW_WRITABLE_CONFIG": "0"}).code
        == 2
    )


def test_the_doctor_names_it_and_starts_nothing_from_it(home: Home) -> None:
    file = home.write({"servers": {"x": {"command": "touch", "args": [str(home.folder / "ran")]}}})
    file.chmod(0o666)
    reported: Any = home.run("doctor", "--json")
    (found,) = (one for one in reported.data["findings"] if one["id"] == "config.writable")
    assert (reported.code, found["severity"], found["remedy"]) == (
        2,
        "broken",
        f"chmod go-w {file}",
    )
    assert not (home.folder / "ran").exists()


async def test_a_running_gateway_keeps_its_configuration_until_nobody_else_can_write_the_file(
    home: Home, start: Start
) -> None:
    file = home.write(demo("text"))
    process = start("serve", "--port", "0")
    url, _ = announced(process)
    assert process.stderr is not None
    file.chmod(0o666)
    home.write(demo("text", "colors"))
    received = ""
    while f"chmod go-w {file}" not in received:
        line = await asyncio.wait_for(asyncio.to_thread(process.stderr.readline), TIMEOUT_S)
        assert line, received
        received += line.decode()
        assert "took over the changed configuration" not in received
    assert "the running one stays" in received
    async with Client(url) as client:
        assert "colors" not in await browsed(client)
        file.chmod(0o644)

        async def there() -> bool:
            return "colors" in await browsed(client)

        await until(there)
