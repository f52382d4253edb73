"""A gateway that runs detached from any terminal: started, awaited and stopped.

There is one for each user and configuration: the command that starts one holds a lock meanwhile.
What it logs goes to a file in the data folder, which the gateway rotates itself (`log_file`).
"""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

from portico.cli.local_gateway.connection import (
    ChannelRefused,
    GatewayGone,
    RunningGateway,
    find_gateway,
)
from portico.cli.local_gateway.registration import ServedConfiguration, ensure_private_folder
from portico.errors import PorticoError

START_TIMEOUT_S = 60.0
STOP_MARGIN_S = 15.0
"""Time to end in addition to what requests under way may take."""
POLL_S = 0.05
_SHOWN_LOG_LINES = 20


def get_log_path(configuration: ServedConfiguration) -> Path:
    """Return the log of the background gateway of a configuration."""
    return Path(configuration.folder) / f"{configuration.id[:12]}.log"


def build_serve_command(configuration: ServedConfiguration, port: int | None) -> list[str]:
    """Return the command that serves a configuration and logs into its file."""
    command = [sys.executable, "-m", "portico", "serve"]
    for file in configuration.files:
        command += ["--config", file]
    if port is not None:
        command += ["--port", str(port)]
    return [*command, "--log-file", str(get_log_path(configuration))]


def start_gateway(configuration: ServedConfiguration, port: int | None) -> RunningGateway:
    """Start a gateway in the background and wait until it answers; one that runs is returned."""
    ensure_private_folder(configuration.folder)
    with _hold_start_lock(configuration):
        running = find_gateway(configuration)
        if running is not None:
            return running
        return _start(configuration, port)


def _start(configuration: ServedConfiguration, port: int | None) -> RunningGateway:
    log = get_log_path(configuration)
    log_end = log.stat().st_size if log.exists() else 0
    flags = 0
    if sys.platform == "win32":
        flags = subprocess.DETACHED_PROCESS | subprocess.CREATE_NEW_PROCESS_GROUP
    process = subprocess.Popen(  # noqa: S603 - this program itself, no shell
        build_serve_command(configuration, port),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=sys.platform != "win32",
        creationflags=flags,
    )
    running = wait_for_gateway(configuration, process)
    if running is None:
        with contextlib.suppress(OSError):
            process.kill()
        lines = read_log(log, log_end)[-_SHOWN_LOG_LINES:]
        raise PorticoError("the gateway did not start", advice="\n".join(lines) or f"See {log}.")
    return running


def wait_for_gateway(
    configuration: ServedConfiguration, process: "subprocess.Popen[bytes] | None" = None
) -> RunningGateway | None:
    """Wait until a gateway answers; None if its process ends first, or after a minute."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        running = find_gateway(configuration)
        if running is not None:
            return running
        if process is not None and process.poll() is not None:
            return None
        time.sleep(POLL_S)
    return None


def request_stop(gateway: RunningGateway) -> str:
    """Ask a gateway to end; return what it waits for, empty if for nothing."""
    try:
        with gateway.open_channel({"open": "stop"}) as channel:
            return str(channel.answer.get("waits_for", ""))
    except (GatewayGone, ChannelRefused):
        return ""


def wait_until_stopped(gateway: RunningGateway, timeout_s: float) -> bool:
    """Wait until the process of a gateway has ended; return whether it has."""
    deadline = time.monotonic() + timeout_s
    registration = gateway.registration
    while time.monotonic() < deadline:
        if not os.path.exists(registration.path) and registration.is_process_gone():
            return True
        time.sleep(POLL_S)
    return False


def read_log(path: Path, start: int = 0) -> list[str]:
    """Return the lines of a log from a position on, at most its last megabyte."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            if start > size:
                start = 0  # it was rotated meanwhile
            file.seek(max(start, size - 2**20))
            return file.read().decode(errors="replace").splitlines()
    except OSError:
        return []


@contextlib.contextmanager
def _hold_start_lock(configuration: ServedConfiguration) -> Generator[None]:
    """Let only one process of this user start this gateway; another one waits."""
    path = os.path.join(configuration.folder, f"{configuration.id[:12]}.lock")
    with open(path, "w", encoding="utf-8") as file:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield
