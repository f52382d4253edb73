"""Starts the servers under test, waits until they listen, and ends them with everything they
started."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path

import yaml

REPOSITORY = Path(__file__).parents[2]
START_S = 60.0
STOP_S = 10.0


class ServerTrouble(Exception):
    """A server under test did not listen in time, or ended by itself; the message has the end of
    its log."""


@contextlib.contextmanager
def fixture(folder: Path) -> Generator[str]:
    """Our fixture server on a free loopback port; gives its URL."""
    port = free_port()
    command = [sys.executable, "-m", "tests.fixtures.everything", "--port", str(port)]
    with _listening(command, port, folder / "fixture.log"):
        yield f"http://127.0.0.1:{port}/mcp"


@contextlib.contextmanager
def task_server(folder: Path, begun: Path | None = None) -> Generator[str]:
    """Our server with tasks on a free loopback port; gives its URL. `begun` gets a line for each
    piece of work."""
    port = free_port()
    command = [sys.executable, "-m", "tests.fixtures.task_server", "--port", str(port)]
    if begun is not None:
        command += ["--begun", str(begun)]
    with _listening(command, port, folder / "tasks.log"):
        yield f"http://127.0.0.1:{port}/mcp"


@contextlib.contextmanager
def gateway(upstream: str, spec: str, folder: Path, template: str | None = None) -> Generator[str]:
    """Portico in front of `upstream`, transparent; gives its URL.

    `template` starts something else in its place: a command line with {config}, {port} and
    {upstream} in it.
    """
    port = free_port()
    config = folder / "portico.yaml"
    era = "modern" if spec >= "2026" else "legacy"
    server = {"url": upstream, "protocol": era}
    config.write_text(
        yaml.safe_dump({"exposure": "full", "prefix": "never", "servers": {"everything": server}})
    )
    if template is None:
        command = [
            *portico(),
            "serve",
            "--config",
            str(config),
            "--port",
            str(port),
            "--exposure",
            "full",
        ]
    else:
        values = {"config": str(config), "port": str(port), "upstream": upstream}
        command = [part.format(**values) for part in shlex.split(template)]
    # A home of its own: what an earlier run remembered about this backend must not help or hurt
    # this one.
    home = folder / "home"
    home.mkdir()
    names = (
        "HOME",
        "XDG_DATA_HOME",
        "XDG_STATE_HOME",
        "XDG_CACHE_HOME",
        "XDG_CONFIG_HOME",
        "PORTICO_DATA_DIR",
    )
    with _listening(command, port, folder / "gateway.log", dict.fromkeys(names, str(home))):
        yield f"http://127.0.0.1:{port}/mcp"


def portico() -> list[str]:
    """The `portico` command of this environment."""
    beside = shutil.which("portico", path=str(Path(sys.executable).parent))
    return (
        [beside] if beside else [sys.executable, "-c", "from portico.cli.main import main; main()"]
    )


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


@contextlib.contextmanager
def _listening(
    command: Sequence[str], port: int, log: Path, environment: Mapping[str, str] | None = None
) -> Generator[None]:
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=os.name == "posix",
        )
    try:
        _wait_until_it_listens(process, port, log, shlex.join(command))
        yield
        # Otherwise every check from the moment of its death on would be blamed.
        if process.poll() is not None:
            raise _trouble(process, log, shlex.join(command))
    finally:
        _end(process)


def _wait_until_it_listens(
    process: subprocess.Popen[bytes], port: int, log: Path, command: str
) -> None:
    deadline = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise _trouble(process, log, command)


def _trouble(process: subprocess.Popen[bytes], log: Path, command: str) -> ServerTrouble:
    how = "does not listen" if process.poll() is None else f"ended with code {process.returncode}"
    tail = "\n".join(log.read_text("utf-8", "replace").splitlines()[-15:])
    return ServerTrouble(f"`{command}` {how}; it wrote:\n{tail}")


def _end(process: subprocess.Popen[bytes]) -> None:
    _signal(process, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_S)
    _signal(process, signal.SIGKILL if os.name == "posix" else signal.SIGTERM)
    process.wait(STOP_S)


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """To the whole group where there are groups, even when its leader is gone: children may outlive
    it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if os.name == "posix":
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
