"""Measures what the soak is done to: a gateway over many servers, gateways of single clients, and
what all
of them take.

Every server's command line carries the run's tag, so that whatever is left behind can be found.
"""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import yaml

from benchmarks import processes
from benchmarks.soak_clients import Target

SERVER = Path(__file__).with_name("soak_server.py")
TOOLS = ("echo", "peek", "claim", "ask", "crash", "hang", "fail")
TIMEOUTS = {"start_s": 15, "call_s": 5, "list_s": 15}
HELPERS = 2
EXTRA = "extra"


@dataclass(frozen=True)
class Fleet:
    """Which servers there are: most over pipes, some of them for each client, the rest over HTTP,
    one inside."""

    piped: tuple[str, ...]
    isolated: tuple[str, ...]
    remote: tuple[str, ...]

    @classmethod
    def of(cls, count: int) -> "Fleet":
        remote = max(2, count // 4)
        isolated = 2 if count >= 10 else 1
        piped = max(1, count - remote - isolated - 1)
        return cls(
            tuple(f"b{n:02}" for n in range(piped)),
            tuple(f"s{n:02}" for n in range(isolated)),
            tuple(f"h{n:02}" for n in range(remote)),
        )

    def era(self, name: str) -> str:
        return ("legacy", "modern")[int(name[1:]) % 2] if not name.startswith("s") else "legacy"

    def targets(self) -> list[Target]:
        """As clients of the gateway know them."""
        return [*map(self.target, (*self.piped, *self.isolated, *self.remote)), FUNCTIONS]

    def target(self, name: str, *, alone: bool = False) -> Target:
        """As a client knows it, which may be `alone` with it."""
        isolated = name in self.isolated
        # A question in the old era has a client if nobody else uses the server; over HTTP ours
        # cannot ask at all.
        asks = self.era(name) == "modern" or isolated or (alone and name in self.piped)
        # A process with several HTTP servers must not die of one's call.
        dies = name not in self.remote
        there = {"claim": isolated, "ask": asks, "crash": dies}
        return Target(
            name, name, frozenset(tool for tool in TOOLS if there.get(tool, True)), isolated
        )


FUNCTIONS = Target("functions", "functions", frozenset({"echo", "hang", "fail"}))


@dataclass
class Configured:
    """The configuration of one gateway, as it is changed again and again."""

    path: Path
    servers: dict[str, dict[str, Any]]
    removed: set[str] = field(default_factory=set[str])
    more: dict[str, Any] = field(default_factory=dict[str, Any])

    def text(self) -> str:
        there = {name: server for name, server in self.servers.items() if name not in self.removed}
        settings = {
            "data_dir": str(self.path.parent / "data"),
            "servers": there,
            "code": {"wall_s": 10, "workers": 2},
            "workflow": {"wall_s": 15},
            "limits": {"wait_s": 8, "send_s": 10, "elicitation_s": 10},
            # What is learnt and kept has bounds: here they are reached while it warms up, and a
            # leak would show.
            "learning": {"max_followed": 20, "max_together": 20},
            "results": {"total_bytes": "64MiB"},
            **self.more,
        }
        return yaml.safe_dump(settings, sort_keys=False)

    def write(self, *, at_once: bool = True) -> None:
        """In one step, or as an editor does that writes into the file."""
        if at_once:
            beside = self.path.with_suffix(".new")
            beside.write_text(self.text())
            beside.replace(self.path)
        else:
            self.path.write_text(self.text())


class World:
    """Everything that runs beside the clients."""

    def __init__(self, folder: Path, fleet: Fleet) -> None:
        self.folder, self.fleet = folder, fleet
        self.tag = f"soak-{secrets.token_hex(4)}"
        self.port = processes.free_port()
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self.log = folder / f"{self.port}.log"
        self.helpers: list[Helper] = []
        for number in range(HELPERS):
            names = fleet.remote[number::HELPERS]
            self.helpers.append(
                Helper(
                    names,
                    [fleet.era(name) for name in names],
                    folder / f"helper{number}.log",
                    self.tag,
                )
            )
        self.main = self.configured("main", [*fleet.piped, *fleet.isolated, *fleet.remote])
        self.main.servers["functions"] = {
            "functions": "benchmarks.soak_server:FUNCTIONS",
            "timeouts": TIMEOUTS,
        }
        self.main.write()

    def configured(self, gateway: str, names: Iterable[str]) -> Configured:
        """A configuration over some of the servers."""
        (folder := self.folder / gateway).mkdir()
        path = folder / "portico.yaml"
        one = Configured(path, {name: self._server(name) for name in names})
        one.write()
        return one

    def _server(self, name: str) -> dict[str, Any]:
        restart = {"pause_s": 0.2, "longest_s": 1, "tries": 1_000, "window_s": 60}
        health = {"every_s": 5, "timeout_s": 2, "failures": 2}
        common = {
            "timeouts": TIMEOUTS,
            "restart": restart,
            "health": health,
            "protocol": self.fleet.era(name),
        }
        if name in self.fleet.remote:
            helper = next(one for one in self.helpers if name in one.names)
            return {"url": f"http://127.0.0.1:{helper.port}/{name}/mcp", **common}
        # Clients that go without a word leave their instance behind: it must go by itself within
        # the run.
        own = {"isolation": "session", "idle_s": 10, "max_instances": 24}
        isolation = own if name in self.fleet.isolated else {}
        return {"command": sys.executable, "args": self.args(name, 0), **isolation, **common}

    def args(self, name: str, number: int) -> list[str]:
        """A server's arguments; another `number` is another process."""
        era = self.fleet.era(name) if name != EXTRA else "legacy"
        return [
            "-S",
            "-P",
            str(SERVER),
            "--name",
            name,
            "--era",
            era,
            "--round",
            f"{self.tag}-{number}",
        ]

    def command(self) -> list[str]:
        """Return what starts the gateway."""
        serve = [sys.executable, "-m", "portico", "serve"]
        return [*serve, "--config", str(self.main.path), "--port", str(self.port)]

    def left_behind(self, seen: Mapping[int, float]) -> list[str]:
        """Return what still runs of the run, by its tag or because it was seen below a gateway."""
        left: list[str] = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                line = " ".join(process.cmdline())
                known = seen.get(process.pid) == process.create_time()
                if (
                    known or self.tag in line or str(self.folder) in line
                ) and process.pid != os.getpid():
                    left.append(f"{process.pid} {process.status()} {line[:160]}")
        return left


class Helper:
    """One process with some of the HTTP servers; it is killed and restarted at the same port."""

    def __init__(self, names: Iterable[str], eras: Iterable[str], log: Path, tag: str) -> None:
        self.names, self.log, self.port = tuple(names), log, processes.free_port()
        named = [
            part
            for name, era in zip(self.names, eras, strict=True)
            for part in ("--name", f"{name}={era}")
        ]
        self._command = [
            sys.executable,
            "-S",
            "-P",
            str(SERVER),
            "--port",
            str(self.port),
            "--round",
            tag,
            *named,
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()


@dataclass
class Sample:
    """Describes what a gateway takes at one moment."""

    at: float
    rss_mb: float
    fds: int
    threads: int
    servers: int
    sandboxes: int
    sandbox_mb: float


def server_of(process: psutil.Process) -> str | None:
    """The name of the server that a process is; None for any other."""
    line = process.cmdline()
    return line[line.index("--name") + 1] if str(SERVER) in line and "--name" in line else None


def is_sandbox(process: psutil.Process) -> bool:
    """Decide whether a process runs scripts."""
    line = " ".join(process.cmdline())
    return str(SERVER) not in line and ("monty" in line or "sandbox" in line)


def sample(gateway: psutil.Process, seen: dict[int, float]) -> Sample:
    """Look at a gateway and everything below it, and remember who was there."""
    servers, sandboxes, sandbox_bytes = 0, 0, 0
    for child in gateway.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            seen[child.pid] = child.create_time()
            if server_of(child) is not None:
                servers += 1
            elif is_sandbox(child):
                sandboxes += 1
                sandbox_bytes += child.memory_info().rss
    memory, many = gateway.memory_info().rss, 1024**2
    return Sample(
        time.monotonic(),
        memory / many,
        gateway.num_fds(),
        gateway.num_threads(),
        servers,
        sandboxes,
        sandbox_bytes / many,
    )
