"""A contained server that turned bad does not get out; the same attempts succeed uncontained."""

import asyncio
import ctypes
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from portico.config import ContainmentConfig
from portico.containment import landlock
from portico.upstream.containment.contained_start import Containment, build_specification
from portico.upstream.containment.machine_support import find_support, render_launch
from tests.containment import escape_attempts
from tests.containment.escape_attempts import ATTEMPTS, ESCAPED, SECRET, World

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="containment needs Linux"),
    pytest.mark.timeout(300),
]

RUN_S = 200
WATCH_S = 3
UNCONTAINED = "uncontained"
MODES = ("with namespaces", "without namespaces")
PERMITTED = {("open a secret to everybody", "without namespaces")}
"""What Landlock alone cannot hold back; SECURITY.md says so."""
Outcomes = dict[tuple[str, str], dict[str, str]]


class Surroundings:
    """Secrets, processes and listeners around a server; some hold what it must not get."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._stack = stack
        self.folder = folder
        self.secret = SECRET.decode() + os.urandom(8).hex()
        for name in ("home/.ssh", "data", "other", "own", "outside", "sockets"):
            (folder / name).mkdir(parents=True)
        for name in ("home/.ssh/id_ed25519", "data/credentials.key", "other/server.env"):
            (folder / name).write_text(self.secret)
        unix_path = str(folder / "sockets" / "s")
        abstract = f"portico-test-{os.getpid()}-{os.urandom(4).hex()}"
        self._listen(socket.AF_UNIX, unix_path)
        self._listen(socket.AF_UNIX, f"\0{abstract}")
        shared = Path("/dev/shm", f"portico-test-{os.getpid()}-{os.urandom(4).hex()}")
        shared.write_text(self.secret)
        stack.callback(shared.unlink)
        self.world = World(
            home=str(folder / "home"),
            data=str(folder / "data"),
            env_file=str(folder / "other/server.env"),
            own=str(folder / "own"),
            alive="",
            outside=str(folder / "outside"),
            shared_memory=shared.name,
            victim=self._start_victim(),
            gateway=os.getpid(),
            gateway_port=self._listen(socket.AF_INET, ("127.0.0.1", 0)),
            other_port=self._listen(socket.AF_INET, ("0.0.0.0", 0)),
            other_port_v6=self._listen(socket.AF_INET6, ("::1", 0)),
            udp_port=self._answer_datagrams(),
            abstract=abstract,
            unix_path=unix_path,
            segment=self._make_segment(),
            address=find_own_address(),
        )

    def refill(self) -> None:
        """Put back what an attempt that succeeded has taken."""
        for name in ("outside/movable", "outside/victim", "outside/removable"):
            (self.folder / name).write_text(self.secret)

    def _start_victim(self) -> int:
        environ = {**os.environ, "TOKEN": self.secret}
        words = [sys.executable, "-c", "import sys; sys.stdin.read()", self.secret]
        process = subprocess.Popen(words, stdin=subprocess.PIPE, env=environ)
        self._stack.callback(process.wait, 60)
        self._stack.callback(process.kill)
        return process.pid

    def _listen(self, family: socket.AddressFamily, address: Any) -> int:
        server = self._stack.enter_context(socket.socket(family))
        server.bind(address)
        server.listen()
        threading.Thread(target=self._greet_all, args=(server,), daemon=True).start()
        return 0 if family == socket.AF_UNIX else int(server.getsockname()[1])

    def _greet_all(self, server: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = server.accept()
                client.sendall(self.secret.encode())
                client.close()

    def _answer_datagrams(self) -> int:
        server = self._stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        server.bind(("127.0.0.1", 0))

        def answer() -> None:
            with suppress(OSError):
                while True:
                    _, sender = server.recvfrom(64)
                    server.sendto(self.secret.encode(), sender)

        threading.Thread(target=answer, daemon=True).start()
        return int(server.getsockname()[1])

    def _make_segment(self) -> int:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.shmat.restype = ctypes.c_void_p
        segment = libc.shmget(0, 4096, 0o600 | 0o1000)
        place = libc.shmat(segment, None, 0)
        ctypes.memmove(place, self.secret.encode(), len(self.secret))
        self._stack.callback(libc.shmctl, segment, 0, None)
        return segment


def find_own_address() -> str:
    """Return this machine's address in a network; empty without one. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return ""
        return str(probe.getsockname()[0])


@pytest.fixture(scope="module")
def surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Surroundings]:
    with ExitStack() as stack:
        yield Surroundings(tmp_path_factory.mktemp("escapes"), stack)


class Tries:
    """Runs all attempts once for each way to be contained, when the first test asks."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._around = surroundings
        self._outcomes: Outcomes = {}

    def get(self, mode: str, network: str) -> dict[str, str]:
        key = (mode, network)
        if key not in self._outcomes:
            self._outcomes[key] = self._run(mode, network)
        return self._outcomes[key]

    def _run(self, mode: str, network: str) -> dict[str, str]:
        around = self._around
        around.refill()
        alive = Path(around.world.own, f"alive-{len(self._outcomes)}")
        alive.touch()
        words = [
            sys.executable,
            escape_attempts.__file__,
            json.dumps(asdict(replace(around.world, alive=str(alive)))),
            network,
        ]
        if mode != UNCONTAINED:
            words = self._contain(words, network, has_namespaces=mode == MODES[0])
        leaked = os.open(around.world.key, os.O_RDONLY)
        try:
            done = subprocess.run(
                words, capture_output=True, text=True, timeout=RUN_S, pass_fds=[leaked], check=False
            )
        finally:
            os.close(leaked)
        assert done.returncode == 0, done.stderr
        outcomes: dict[str, str] = json.loads(done.stdout)
        assert outcomes.pop("outlive the server") == ESCAPED
        outcomes["outlive the server"] = ESCAPED if is_changing(alive) else "it has ended"
        alive.unlink()  # ends what writes to it
        return outcomes

    def _contain(self, words: list[str], network: str, *, has_namespaces: bool) -> list[str]:
        around = self._around
        settings = ContainmentConfig.model_validate({"network": network, "write": around.world.own})
        containment = Containment(settings, Path(around.world.data), network)
        specification = build_specification(
            containment, words, os.environ, {}, None, around.world.home
        )
        for path in (specification.home, specification.temporary, specification.root):
            os.makedirs(path, exist_ok=True)
        specification = replace(
            specification,
            has_namespaces=has_namespaces,
            refused_ports=(around.world.gateway_port,),
        )
        return render_launch(specification)


def is_changing(file: Path) -> bool:
    """Return whether something still writes to a file."""
    deadline = time.monotonic() + WATCH_S
    first = file.read_text()
    while time.monotonic() < deadline:
        if file.read_text() not in ("", first):
            return True
        time.sleep(0.1)
    return False


@pytest.fixture(scope="module")
def tries(surroundings: Surroundings) -> Tries:
    return Tries(surroundings)


def list_cases() -> Iterator[tuple[str, str, str]]:
    for mode in MODES:
        for name, (_, networks, _) in ATTEMPTS.items():
            for network in networks:
                if (name, mode) not in PERMITTED:
                    yield mode, network, name


def skip_without(mode: str) -> None:
    if mode == MODES[0]:
        support = asyncio.run(find_support())
        if not support.has_namespaces:
            pytest.skip(f"SKIPPED: no namespaces on this machine: {support.namespaces}")
    elif landlock.get_abi_version(ctypes.CDLL(None)) < landlock.SCOPE_ABI:
        pytest.skip(f"SKIPPED: this kernel has no Landlock {landlock.SCOPE_ABI}")


@pytest.mark.parametrize(("mode", "network", "name"), list(list_cases()))
def test_what_gets_out_of_no_containment(mode: str, network: str, name: str, tries: Tries) -> None:
    skip_without(mode)
    uncontained = tries.get(UNCONTAINED, network)[name]
    if uncontained != ESCAPED:
        pytest.skip(f"not possible here uncontained either: {uncontained}")
    assert tries.get(mode, network)[name] != ESCAPED


def test_most_attempts_succeed_uncontained(tries: Tries) -> None:
    outcomes = tries.get(UNCONTAINED, "none")
    failed = {name: said for name, said in outcomes.items() if said != ESCAPED}
    needs_root = {name for name, (_, _, root) in ATTEMPTS.items() if root}
    assert len(outcomes) - len(failed) >= 30, failed
    assert len(failed.keys() - needs_root) <= 10, failed
