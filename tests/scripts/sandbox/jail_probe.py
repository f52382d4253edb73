"""A runtime whose scripts are Python, run as they are inside the jail: what could an engine that
was taken over do?"""

import _thread
import ctypes
import mmap
import os
import resource
import signal
import socket
import time
from collections.abc import Mapping
from typing import Any

from portico.scripts.sandbox.worker.main import WorkerChannel

RUNTIME = f"{__name__}:Probe"


class Probe:
    """Serves scripts that leave their answer in `value`."""

    def prepare(self) -> None:
        modules = (_thread, ctypes, mmap, os, resource, signal, socket, time)
        self.names: dict[str, Any] = {module.__name__: module for module in modules}
        self.names["libc"] = ctypes.CDLL(None, use_errno=True)

    def run(self, job: Mapping[str, Any], channel: WorkerChannel) -> dict[str, Any]:
        names: dict[str, Any] = {**self.names, "channel": channel, "value": None}
        try:
            exec(job["run"], names)
        except MemoryError:
            raise
        except Exception as error:
            fault = {"kind": "runtime", "message": f"{type(error).__name__}: {error}", "line": None}
            return {"value": None, "stored": {}, "fault": fault}
        return {"value": names["value"], "stored": {}, "fault": None}


class Broken:
    """Cannot be prepared."""

    def prepare(self) -> None:
        raise ModuleNotFoundError("No module named 'lupa'")
