"""A server that needs variables of the shell is adopted with exactly those, by name."""

import sys
from pathlib import Path

import pytest
import yaml

from portico.adoption.environment_search import find_needed_variables, find_smallest_set
from portico.config import Config
from tests.cli.conftest import Home
from tests.fixtures import broken_command

NEEDY = """
import os, runpy, sys
missing = [name for name in sys.argv[1].split(",") if not os.environ.get(name)]
if missing:
    sys.exit(f"{missing[0]} is not set")
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
SECRET = "value-that-must-not-be-written"


@pytest.fixture
def home(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Home:
    return Home(tmp_path, capfd)


def make_entry(folder: Path, *names: str) -> dict[str, object]:
    """A server that exits unless these variables are set."""
    script = folder / "needy.py"
    script.write_text(NEEDY)
    args = [*broken_command("healthy")[1:]]
    args.remove("-S")
    return {"command": sys.executable, "args": [str(script), ",".join(names), *args]}


@pytest.mark.parametrize(
    ("needed", "count"),
    [((), 100), (("V0",), 100), (("V99",), 100), (("V17", "V3", "V64"), 100), (("V0",), 1)],
)
async def test_the_smallest_set_is_found_in_few_attempts(
    needed: tuple[str, ...], count: int
) -> None:
    attempts = 0

    async def is_enough(names: object) -> bool:
        nonlocal attempts
        attempts += 1
        assert isinstance(names, list)
        return set(needed) <= set[str](names)

    names = [f"V{number}" for number in range(count)]
    assert await find_smallest_set(names, is_enough) == tuple(sorted(needed))
    assert attempts <= 1 + 8 * len(needed)


async def test_servers_that_start_with_no_environment_are_left_out(tmp_path: Path) -> None:
    config = Config.model_validate(
        {
            "servers": {
                "needy": make_entry(tmp_path, "KUBECONFIG", "ODD_ONE"),
                "broken": {"command": sys.executable, "args": ["-c", "raise SystemExit(3)"]},
                "healthy": make_entry(tmp_path, "PATH"),
            }
        }
    )
    many = {f"OTHER_{number}": "x" for number in range(20)}
    environ = {**many, "PATH": "x", "KUBECONFIG": "/k", "ODD_ONE": SECRET}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environ.items():
            if name != "PATH":
                patch.setenv(name, value)
        found = await find_needed_variables(config, {"needy", "broken"}, environ)
    assert {name: one.names for name, one in found.items()} == {"needy": ("KUBECONFIG", "ODD_ONE")}


def test_adopt_writes_the_names_and_never_the_values(home: Home) -> None:
    config = home.write({"mcpServers": {"needy": make_entry(home.folder, "ODD_ONE")}}, "team.json")
    done = home.run(
        "adopt", "--from", str(config), "--yes", "--output", "portico.yaml",
        env={"ODD_ONE": SECRET, "OTHER_ONE": "x", "SSL_CERT_FILE": ""},
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "needy starts only with ODD_ONE of this shell" in done.out
    assert "did not start" not in done.out
    text = (home.folder / "portico.yaml").read_text()
    assert yaml.safe_load(text)["servers"]["needy"]["inherit_env"] == ["ODD_ONE"]
    assert SECRET not in done.out + done.err + text
    assert not (home.folder / "portico.env").exists()
    called = home.run("call", "needy.echo", '{"text": "works"}', env={"ODD_ONE": SECRET})
    assert called.code == 0, called.err


def test_adopt_of_a_server_that_fails_anyway_says_why_and_inherits_nothing(home: Home) -> None:
    entry = {"command": sys.executable, "args": ["-c", "raise SystemExit('no luck')"]}
    config = home.write({"mcpServers": {"broken": entry}}, "team.json")
    done = home.run("adopt", "--from", str(config), "--yes", "--output", "portico.yaml")
    assert "broken did not start" in done.out
    assert "inherit_env" not in (home.folder / "portico.yaml").read_text()


def test_adopt_passes_on_what_servers_of_a_kind_need_though_they_start_without(home: Home) -> None:
    command = broken_command("healthy")
    entry = {"command": command[0], "args": command[1:]}
    servers = {"kubernetes": entry, "notes": {**entry, "args": [*command[1:], "1"]}}
    config = home.write({"mcpServers": servers}, "team.json")
    shell = {"KUBECONFIG": "/k", "SSH_AUTH_SOCK": "/s", "AWS_PROFILE": ""}
    done = home.run(
        "adopt", "--from", str(config), "--yes", "--no-start", "--output", "portico.yaml", env=shell
    )
    assert "inherits KUBECONFIG" in done.out
    written = yaml.safe_load((home.folder / "portico.yaml").read_text())["servers"]
    assert written["kubernetes"]["inherit_env"] == ["KUBECONFIG"]
    assert "inherit_env" not in written["notes"]
