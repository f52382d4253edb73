"""Processes of the new user's servers, found by the mark in their environment."""

from __future__ import annotations

import contextlib

import psutil

from tests.acceptance.fleet import MARK, Started


def find_processes(it: Started) -> list[psutil.Process]:
    """Processes of the server, without those that such a process started itself."""
    found: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == it.env[MARK] and process.cmdline():
                found[process.pid] = process
    return [process for process in found.values() if process.ppid() not in found]


def kill(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        process.kill()
        return True
    return False
