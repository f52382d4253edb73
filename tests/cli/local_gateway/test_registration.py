"""A gateway is found by configuration and owner, and only if it proves that it has the key."""

import json
import os
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from portico.cli.local_gateway.connection import find_gateway
from portico.cli.local_gateway.registration import (
    Registration,
    ensure_private_folder,
    identify_configuration,
    list_registrations,
    read_process_start,
    write_registration,
)

posix = pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions")


def _identify(folder: Path, *files: str, **environ: str) -> Any:
    return identify_configuration(
        files, environ={"PORTICO_DATA_DIR": str(folder / "data"), **environ}, cwd=str(folder)
    )


def _register(folder: Path, address: str, **changes: Any) -> Registration:
    configuration = _identify(folder)
    ensure_private_folder(configuration.folder)
    data = {
        "configuration": configuration.id,
        "files": [],
        "pid": os.getpid(),
        "process_start": read_process_start(os.getpid()),
        "registered_at": 1.0,
        "address": address,
        "url": "http://127.0.0.1:1",
        "version": "1",
        "background": False,
        "key": "00" * 32,
    }
    registration = Registration(os.path.join(configuration.folder, "one.json"), {**data, **changes})
    write_registration(registration)
    return registration


def test_the_same_file_is_the_same_configuration_however_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "portico.yaml").write_text("servers: {}")
    (tmp_path / "link.yaml").symlink_to(tmp_path / "portico.yaml")
    found = _identify(tmp_path)
    assert found.files == (str(tmp_path.resolve() / "portico.yaml"),)
    assert found.id == _identify(tmp_path, "portico.yaml").id == _identify(tmp_path, "link.yaml").id
    assert found.id == _identify(tmp_path, PORTICO_TOKEN="secret", PORTICO_LOG_LEVEL="debug").id


def test_another_file_folder_exposure_or_setting_is_another_configuration(tmp_path: Path) -> None:
    for name in ("portico.yaml", "other.yaml"):
        (tmp_path / name).write_text("servers: {}")
    environ = {"PORTICO_DATA_DIR": str(tmp_path / "data")}
    ids = [
        _identify(tmp_path).id,
        _identify(tmp_path, "other.yaml").id,
        _identify(tmp_path, PORTICO_DATA_DIR=str(tmp_path / "elsewhere")).id,
        _identify(tmp_path, PORTICO_TOP_K="3").id,
        identify_configuration((), "full", environ, str(tmp_path)).id,
    ]
    assert len(set(ids)) == len(ids)


@posix
def test_a_registration_is_for_its_user_alone(tmp_path: Path) -> None:
    registration = _register(tmp_path, "unix:/nowhere")
    assert os.stat(registration.path).st_mode & 0o777 == 0o600
    assert os.stat(os.path.dirname(registration.path)).st_mode & 0o777 == 0o700
    assert [one.path for one in list_registrations(_identify(tmp_path))] == [registration.path]
    os.chmod(registration.path, 0o644)  # somebody else may know its key
    assert list_registrations(_identify(tmp_path)) == []


@posix
@pytest.mark.parametrize("changes", [{"pid": 2**22 - 3}, {"process_start": "another process"}])
def test_the_registration_of_a_process_that_ended_is_removed(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    registration = _register(tmp_path, "unix:/nowhere", **changes)
    assert list_registrations(_identify(tmp_path)) == []
    assert not os.path.exists(registration.path)


def test_a_damaged_registration_is_ignored(tmp_path: Path) -> None:
    registration = _register(tmp_path, "unix:/nowhere")
    for text in ("", "[]", "{}", json.dumps({"configuration": registration.configuration})):
        Path(registration.path).write_text(text)
        assert list_registrations(_identify(tmp_path)) == []


def test_a_program_that_took_over_the_port_learns_nothing_and_is_not_asked(tmp_path: Path) -> None:
    received: list[bytes] = []

    def answer(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            received.append(connection.recv(65_536))
            connection.sendall(json.dumps({"nonce": "00", "proof": "11" * 32}).encode() + b"\n")
            while data := connection.recv(65_536):
                received.append(data)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        registration = _register(tmp_path, f"tcp:127.0.0.1:{listener.getsockname()[1]}")
        thread = threading.Thread(target=answer, args=(listener,), daemon=True)
        thread.start()
        assert find_gateway(_identify(tmp_path)) is None
        thread.join(10)
    (only,) = received
    assert set(json.loads(only)) == {"portico", "nonce"}
    assert registration.key.hex().encode() not in only


@pytest.mark.parametrize("address", ["tcp:192.0.2.1:80", "tcp:localhost:80", "http://x", ""])
def test_an_address_that_is_not_local_is_not_connected_to(tmp_path: Path, address: str) -> None:
    _register(tmp_path, address)
    assert find_gateway(_identify(tmp_path)) is None
