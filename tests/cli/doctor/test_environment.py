"""Variables of the shell that a failing or likely server lacks are named; others are left alone."""

from pathlib import Path
from typing import Any

import pytest

from tests.adoption.test_environment_search import make_entry
from tests.cli.conftest import Home
from tests.fixtures import broken_command

SHELL = {"ODD_ONE": "value-of-the-odd-one", "UNRELATED": "x", "KUBECONFIG": "/k"}


@pytest.fixture
def home(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Home:
    return Home(tmp_path, capfd)


def find_variables(home: Home, servers: dict[str, Any], **settings: Any) -> dict[str, Any]:
    home.write({**settings, "servers": servers})
    named = [word for name in servers for word in ("--server", name)]
    done = home.run("doctor", "--json", *named, env=SHELL)
    return {
        one["server"]: (one["severity"], one["message"], one["remedy"])
        for one in done.data["findings"]
        if one["id"] == "variable.not_passed"
    }


def test_a_failing_server_lacks_what_it_names_and_a_healthy_one_nothing(home: Home) -> None:
    command = broken_command("healthy")
    healthy = {"command": command[0], "args": command[1:]}
    servers = {"needy": make_entry(home.folder, "ODD_ONE"), "notes": healthy, "kubectl": healthy}
    assert find_variables(home, servers) == {
        "needy": (
            "warning",
            "ODD_ONE is set in your shell and not passed on to needy",
            "inherit_env: [ODD_ONE]",
        ),
        "kubectl": (
            "note",
            "KUBECONFIG is set in your shell and not passed on to kubectl",
            "inherit_env: [KUBECONFIG]",
        ),
    }
    passed = {name: {**one, "inherit_env": ["ODD_ONE"]} for name, one in servers.items()}
    assert find_variables(home, passed, inherit_env=["KUBE*"]) == {}
