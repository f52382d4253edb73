"""What `portico doctor` says about the gateway's own endpoint, folders, database and scripts."""

import contextlib
import os
import socket
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from portico.gateway import MANIFEST_FILE, RECORD_FILE
from tests.cli.conftest import TIMEOUT_S, Home, Start
from tests.fixtures.postgres import GUARDED, PostgresDatabase
from tests.fixtures.postgres import postgres as postgres

CLOCK = {"clock": {"functions": "portico.demo.clock"}}
NO_SCRIPTS = {"run_code": False, "run_workflow": False}
"""Where scripts are not what is examined, none need be run."""


def _examined(
    home: Home, *arguments: str, **settings: Any
) -> tuple[int, dict[str, dict[str, Any]]]:
    home.write({"gateway": {"port": 0}, "metatools": NO_SCRIPTS, "servers": CLOCK, **settings})
    result = home.run("doctor", "--json", *arguments)
    return result.code, {finding["id"]: finding for finding in result.data["findings"]}


def test_a_port_that_another_program_has_is_broken(home: Home) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, found = _examined(home, gateway={"port": taken.getsockname()[1]})
    assert (code, found["endpoint.port_taken"]["severity"]) == (1, "broken")
    assert "--port" in found["endpoint.port_taken"]["remedy"]


def test_the_default_port_may_be_that_of_another_gateway(home: Home) -> None:
    home.write({"metatools": NO_SCRIPTS, "servers": CLOCK})
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # somebody has it already
            stack.enter_context(socket.create_server(("127.0.0.1", 8420)))
        result = home.run("doctor", "--json", "--offline")
    found = {finding["id"]: finding for finding in result.data["findings"]}
    assert found["endpoint.port_taken"]["severity"] == "note"
    assert "`portico start` takes another" in found["endpoint.port_taken"]["remedy"]
    assert result.code == 0


@pytest.mark.parametrize("token", ["", "a-token-of-ours"])
def test_a_portico_that_runs_already_is_recognised(home: Home, start: Start, token: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    home.write({"servers": CLOCK})
    serving = start("serve", "--port", str(port), *(["--token", token] if token else []))
    assert serving.stdout is not None
    assert str(port).encode() in serving.stdout.readline()
    code, found = _examined(home, gateway={"port": port})
    assert (code, "endpoint.running" in found, "endpoint.port_taken" in found) == (0, True, False)
    serving.terminate()
    serving.wait(TIMEOUT_S)


def test_a_host_of_another_machine_cannot_be_listened_on(home: Home) -> None:
    code, found = _examined(
        home, gateway={"host": "192.0.2.1", "port": 9, "token": "${PORTICO_X:-some-token}"}
    )
    assert code == 1
    assert found["endpoint.host"]["key"] == "gateway.host"


def test_a_data_folder_that_is_a_file_is_broken(home: Home, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    code, found = _examined(home)
    assert (code, found["data_dir.no_folder"]["severity"]) == (1, "broken")


def test_an_audit_log_that_cannot_be_written_is_broken(home: Home, tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    code, found = _examined(home, audit={"file": str(tmp_path / "plain" / "audit.jsonl")})
    assert (code, found["audit.unwritable"]["severity"]) == (1, "broken")
    code, found = _examined(home, audit={"file": str(tmp_path / "new" / "audit.jsonl")})
    assert "audit.unwritable" not in found


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_data_folder_that_cannot_be_written_is_broken(home: Home, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o500)
    code, found = _examined(home)
    assert (code, found["data_dir.unwritable"]["severity"]) == (1, "broken")


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX ones")
def test_a_data_folder_that_others_may_write_is_reported(home: Home, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(0o777)
    code, found = _examined(home)
    assert (code, found["data_dir.open"]["remedy"]) == (0, f"chmod 700 {tmp_path / 'data'}")


@pytest.mark.parametrize("name", [RECORD_FILE, MANIFEST_FILE])
def test_a_damaged_database_is_broken_and_left_as_it_is(
    home: Home, tmp_path: Path, name: str
) -> None:
    damaged = tmp_path / "data" / name
    damaged.parent.mkdir(mode=0o700)
    damaged.write_bytes(b"SQLite format 3\0" + b"nonsense" * 1_000)
    code, found = _examined(home, "--offline")
    assert (code, found["database.damaged"]["severity"]) == (1, "broken")
    assert damaged.read_bytes().endswith(b"nonsense")


@pytest.mark.parametrize(
    ("version", "kind"), [("9999", "database.newer"), ("0001", "database.older")]
)
def test_tables_of_another_portico_are_reported(
    home: Home, tmp_path: Path, version: str, kind: str
) -> None:
    (tmp_path / "data").mkdir(mode=0o700)
    with sqlite3.connect(tmp_path / "data" / RECORD_FILE) as record:
        record.execute("create table portico_version (version_num text)")
        record.execute("insert into portico_version values (?)", (version,))
    record.close()
    code, found = _examined(home, "--offline")
    assert (code, kind in found) == (int(kind == "database.newer"), True)


def test_a_postgresql_that_is_there_is_named_and_a_wrong_password_is_broken(
    home: Home, postgres: PostgresDatabase
) -> None:
    home.write(
        {
            "gateway": {"port": 0},
            "metatools": NO_SCRIPTS,
            "servers": CLOCK,
            "database_url": "${PLACE}",
        }
    )
    result = home.run("doctor", "--json", env={"PLACE": postgres.url})
    assert result.code == 0, result.out
    assert result.data["database"].startswith("PostgreSQL 1")
    wrong = postgres.server.url(postgres.name, f"{GUARDED}:not-the-password")
    result = home.run("doctor", "--json", env={"PLACE": wrong})
    broken = [one["id"] for one in result.data["findings"] if one["severity"] == "broken"]
    assert (result.code, broken) == (1, ["database.refused"])
    assert "not-the-password" not in result.out


def test_a_postgresql_that_is_not_there_is_broken(home: Home) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    code, found = _examined(
        home, database_url=f"postgresql://someone:a-password@127.0.0.1:{port}/x"
    )
    assert (code, found["database.unreachable"]["severity"]) == (1, "broken")
    assert "a-password" not in str(found)
    assert found["secret.in_file"]["key"] == "database_url"


def test_scripts_run_in_each_configured_language_only(home: Home) -> None:
    home.write({"gateway": {"port": 0}, "servers": CLOCK, "code": {"languages": ["lua", "python"]}})
    assert home.run("doctor", "--json", "--offline").data["languages"] == {
        "lua": "works",
        "python": "works",
    }
