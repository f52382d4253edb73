"""Starts what a benchmark measures, and ends it with everything it started."""

import contextlib
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import yaml

REPOSITORY = Path(__file__).parents[1]
START_S = 60.0
STOP_S = 5.0


class DidNotStart(Exception):
    """A program ended or did not listen in time; the message has the end of what it wrote."""


def portico() -> list[str]:
    """The `portico` command of this environment; $PORTICO_COMMAND names another build's, to compare
    the two."""
    if chosen := os.environ.get("PORTICO_COMMAND"):
        return shlex.split(chosen)
    beside = shutil.which("portico", path=str(Path(sys.executable).parent))
    return [beside] if beside else [sys.executable, "-m", "portico"]


def write_config(folder: Path, config: Mapping[str, Any]) -> Path:
    """A configuration file in `folder`, with its data beside it."""
    path = folder / "portico.yaml"
    path.write_text(yaml.safe_dump({"data_dir": str(folder / "data"), **config}, sort_keys=False))
    return path


@contextlib.contextmanager
def scratch() -> Generator[Path]:
    """A folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(
        prefix="portico-benchmark-", ignore_cleanup_errors=True
    ) as folder:
        yield Path(folder)


def free_port() -> int:
    """A loopback port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


@contextlib.contextmanager
def listening(port: int, command: Sequence[str], folder: Path) -> Generator[psutil.Process]:
    """A program that listens on `port`, from the moment it does. Its configuration says where its
    data is, not PORTICO_DATA_DIR."""
    log = folder / f"{port}.log"
    environment = {name: value for name, value in os.environ.items() if name != "PORTICO_DATA_DIR"}
    with log.open("wb") as sink:
        process = psutil.Popen(
            command,
            cwd=REPOSITORY,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
        )
    try:
        deadline = time.monotonic() + START_S
        while not _listens(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise DidNotStart(f"`{' '.join(command)}` does not listen; {tail(log)}")
            time.sleep(0.02)
        yield process
    finally:
        end(process)


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def tail(log: Path) -> str:
    """The end of what a program wrote, as part of a sentence."""
    return "\n".join(["it wrote:", *log.read_text("utf-8", "replace").splitlines()[-15:]])


def end(process: psutil.Process) -> None:
    """Ask a program to go, then make it and everything it started go."""
    with contextlib.suppress(psutil.NoSuchProcess):
        family = [process, *process.children(recursive=True)]
        process.terminate()
        _, alive = psutil.wait_procs(family, timeout=STOP_S)
        for one in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        psutil.wait_procs(alive, timeout=STOP_S)
