"""A server that turned bad: tries to get out, and says how far it came.

Run as a program with a description of its surroundings (`World`); prints the outcome of each
attempt as JSON. Each runs in a process of its own. Standard library only.
"""

import ctypes
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SECRET = b"SECRET:"
ESCAPED = "escaped"
ATTEMPT_S = 20
NETLESS = ("none",)
EVERYWHERE = ("none", "loopback", "all")
MACHINE = {"x86_64": 0, "aarch64": 1}.get(os.uname().machine, 0)
LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass
class World:
    """What there is to be reached."""

    home: str
    data: str
    env_file: str
    own: str
    """Folder that may be written to."""
    alive: str
    """File in it that a process which outlives the server keeps changing."""
    outside: str
    shared_memory: str
    victim: int
    gateway: int
    gateway_port: int
    other_port: int
    other_port_v6: int
    udp_port: int
    abstract: str
    unix_path: str
    segment: int
    """Id of a System V segment."""
    address: str
    """Of this machine in a network; empty without one."""

    @property
    def key(self) -> Path:
        return Path(self.home, ".ssh", "id_ed25519")


Attempt = Callable[[World], None]
ATTEMPTS: dict[str, tuple[Attempt, tuple[str, ...], bool]] = {}
"""By name: the attempt, the networks it is made in, whether only root could succeed anywhere."""


def attempt(*networks: str, root: bool = False) -> Callable[[Attempt], Attempt]:
    def register(function: Attempt) -> Attempt:
        name = function.__name__.replace("_", " ")
        ATTEMPTS[name] = (function, networks or NETLESS, root)
        return function

    return register


def find_secret(data: bytes) -> None:
    if SECRET not in data:
        raise OSError("nothing secret in it")


def call(x86: int, arm: int, *arguments: object) -> int:
    code = LIBC.syscall(ctypes.c_long((x86, arm)[MACHINE]), *arguments)
    if code < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return code


# --- files


@attempt()
def read_a_private_key(world: World) -> None:
    find_secret(world.key.read_bytes())


@attempt()
def read_keys_of_the_gateway(world: World) -> None:
    find_secret(Path(world.data, "credentials.key").read_bytes())


@attempt()
def read_the_env_file_of_another_server(world: World) -> None:
    find_secret(Path(world.env_file).read_bytes())


@attempt()
def list_the_home(world: World) -> None:
    if ".ssh" not in os.listdir(world.home):
        raise OSError("it is another home")


@attempt()
def read_through_a_symbolic_link(world: World) -> None:
    link = Path(world.own, "link")
    link.unlink(missing_ok=True)
    link.symlink_to(world.key)
    find_secret(link.read_bytes())


@attempt()
def read_through_a_hard_link(world: World) -> None:
    link = Path(world.own, "hard")
    link.unlink(missing_ok=True)
    os.link(world.key, link)
    find_secret(link.read_bytes())


@attempt()
def read_through_dots(world: World) -> None:
    back = "/".join([".."] * 30)
    find_secret(Path(f"{world.own}/{back}{world.key}").read_bytes())


@attempt()
def move_a_secret_here(world: World) -> None:
    moved = Path(world.own, "moved")
    os.rename(Path(world.outside, "movable"), moved)
    find_secret(moved.read_bytes())


@attempt()
def write_outside(world: World) -> None:
    Path(world.outside, f"made-{os.getpid()}").write_text("x")


@attempt()
def empty_a_file(world: World) -> None:
    os.truncate(Path(world.outside, "victim"), 0)


@attempt()
def open_a_file_to_empty_it(world: World) -> None:
    os.close(os.open(Path(world.outside, "victim"), os.O_RDONLY | os.O_TRUNC))


@attempt()
def remove_a_file(world: World) -> None:
    os.unlink(Path(world.outside, "removable"))


@attempt()
def open_a_secret_to_everybody(world: World) -> None:
    os.chmod(world.key, 0o644)


@attempt()
def read_shared_memory(world: World) -> None:
    find_secret(Path("/dev/shm", world.shared_memory).read_bytes())


@attempt()
def attach_a_segment_of_shared_memory(world: World) -> None:
    LIBC.shmat.restype = ctypes.c_void_p
    place = LIBC.shmat(world.segment, None, 0o10000)
    if place in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "shmat")
    find_secret(ctypes.string_at(place, 64))


@attempt()
def read_an_inherited_descriptor(world: World) -> None:
    for number in range(3, 1_024):
        with suppress(OSError):
            if SECRET in os.pread(number, 64, 0):
                return
    raise OSError("no descriptor has it")


# --- other processes


@attempt()
def read_environments(world: World) -> None:
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            if SECRET in Path("/proc", name, "environ").read_bytes():
                return
    raise OSError("no environment has it")


@attempt()
def read_command_lines(world: World) -> None:
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            if SECRET in Path("/proc", name, "cmdline").read_bytes():
                return
    raise OSError("no command line has it")


@attempt()
def read_memory_of_another_process(world: World) -> None:
    with open(f"/proc/{world.victim}/maps", encoding="ascii") as maps:
        start = int(maps.readline().partition("-")[0], 16)
    with open(f"/proc/{world.victim}/mem", "rb") as memory:
        memory.seek(start)
        memory.read(16)


@attempt()
def go_through_the_root_of_the_gateway(world: World) -> None:
    find_secret(Path(f"/proc/{world.gateway}/root{world.key}").read_bytes())


@attempt()
def trace_another_process(world: World) -> None:
    seize = 0x4206
    call(101, 117, ctypes.c_long(seize), ctypes.c_long(world.victim), None, None)


@attempt()
def copy_memory_of_another_process(world: World) -> None:
    with open(f"/proc/{world.victim}/maps", encoding="ascii") as maps:
        start = int(maps.readline().partition("-")[0], 16)
    buffer = ctypes.create_string_buffer(16)
    here = (ctypes.c_ulong * 2)(ctypes.addressof(buffer), 16)
    there = (ctypes.c_ulong * 2)(start, 16)
    call(310, 270, world.victim, here, ctypes.c_ulong(1), there, ctypes.c_ulong(1), None)


@attempt()
def signal_another_process(world: World) -> None:
    os.kill(world.victim, signal.SIGURG)


@attempt()
def signal_the_gateway(world: World) -> None:
    os.kill(world.gateway, signal.SIGURG)


@attempt()
def signal_by_a_descriptor(world: World) -> None:
    signal.pidfd_send_signal(os.pidfd_open(world.victim), signal.SIGURG)


@attempt()
def steal_a_descriptor(world: World) -> None:
    call(438, 438, os.pidfd_open(world.victim), 1, 0)


# --- privileges and the kernel


@attempt()
def gain_privileges(world: World) -> None:
    if LIBC.prctl(39, 0, 0, 0, 0) != 0:
        raise OSError("setuid programs have no effect")


@attempt(root=True)
def have_capabilities(world: World) -> None:
    status = Path("/proc/self/status").read_text()
    if not int(status.partition("CapEff:")[2].split()[0], 16):
        raise OSError("there are none")


@attempt(root=True)
def mount_something(world: World) -> None:
    if LIBC.mount(b"tmpfs", world.own.encode(), b"tmpfs", 0, None) != 0:
        raise OSError(ctypes.get_errno(), "mount")
    LIBC.umount2(world.own.encode(), 2)


@attempt()
def enter_new_namespaces(world: World) -> None:
    if LIBC.unshare(0x1000_0000) != 0:
        raise OSError(ctypes.get_errno(), "unshare")


@attempt()
def start_a_process_in_new_namespaces(world: World) -> None:
    if call(56, 220, ctypes.c_ulong(0x1000_0000 | signal.SIGCHLD), None, None, None, None) == 0:
        os._exit(0)
    os.wait()


@attempt(root=True)
def join_the_namespaces_of_the_gateway(world: World) -> None:
    with open(f"/proc/{world.gateway}/ns/net", "rb") as namespace:
        if LIBC.setns(namespace.fileno(), 0) != 0:
            raise OSError(ctypes.get_errno(), "setns")


@attempt(root=True)
def change_the_root_folder(world: World) -> None:
    os.chroot(world.own)


@attempt()
def use_the_keyring(world: World) -> None:
    # Of the user session: what others of this user put there.
    call(250, 219, 0, ctypes.c_int(-4), 1)


@attempt(root=True)
def load_bpf(world: World) -> None:
    attributes = struct.pack("=IIII", 1, 4, 4, 1).ljust(72, b"\0")
    call(321, 280, 0, attributes, len(attributes))


@attempt()
def use_io_uring(world: World) -> None:
    call(425, 425, 1, ctypes.create_string_buffer(120))


@attempt(root=True)
def watch_the_machine_by_perf(world: World) -> None:
    attributes = struct.pack("=IIQ", 1, 64, 0).ljust(64, b"\0")
    call(298, 241, attributes, world.victim, -1, -1, ctypes.c_ulong(0))


@attempt(root=True)
def open_a_file_by_its_handle(world: World) -> None:
    handle = ctypes.create_string_buffer(struct.pack("=Ii", 120, 0), 128)
    place = ctypes.c_int()
    path = os.fsencode(world.key)
    call(303, 264, ctypes.c_int(-100), path, handle, ctypes.byref(place), 0)
    folder = os.open(world.own, os.O_RDONLY)
    find_secret(os.read(call(304, 265, folder, handle, 0), 64))


# --- programs and children


@attempt()
def read_by_another_program(world: World) -> None:
    find_secret(subprocess.run(["cat", world.key], capture_output=True, check=False).stdout)


@attempt()
def read_by_a_preloaded_program(world: World) -> None:
    environ = {**os.environ, "LD_PRELOAD": "libm.so.6", "LD_LIBRARY_PATH": world.own}
    done = subprocess.run(["cat", world.key], env=environ, capture_output=True, check=False)
    find_secret(done.stdout)


@attempt()
def read_by_a_program_in_memory(world: World) -> None:
    file = os.memfd_create("program", 0)
    os.write(file, f"#!/bin/sh\ncat {world.key}\n".encode())
    path = f"/proc/self/fd/{file}"
    done = subprocess.run([path], pass_fds=[file], capture_output=True, check=False)
    find_secret(done.stdout)


@attempt()
def read_by_the_dynamic_loader(world: World) -> None:
    loader = next(Path("/").glob("lib*/ld-linux*.so.*"))
    words = [str(loader), "/bin/cat", str(world.key)]
    find_secret(subprocess.run(words, capture_output=True, check=False).stdout)


@attempt(*EVERYWHERE)
def outlive_the_server(world: World) -> None:
    """Leave a process of another session behind, which is looked for later."""
    if os.fork():
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    for number in range(3):
        os.close(number)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and Path(world.alive).exists():
        with open(world.alive, "r+", encoding="ascii") as alive:
            alive.write(str(time.time()))
        time.sleep(0.05)
    os._exit(0)


# --- network


def talk(family: socket.AddressFamily, address: Any) -> None:
    with socket.socket(family) as client:
        client.settimeout(5)
        client.connect(address)
        find_secret(client.recv(64))


@attempt()
def connect_by_tcp(world: World) -> None:
    talk(socket.AF_INET, ("127.0.0.1", world.other_port))


@attempt()
def connect_by_ipv6(world: World) -> None:
    talk(socket.AF_INET6, ("::1", world.other_port_v6))


@attempt("none", "loopback")
def connect_to_another_address(world: World) -> None:
    talk(socket.AF_INET, (world.address, world.other_port))


@attempt("none", "loopback")
def send_by_udp(world: World) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(5)
        client.sendto(b"?", ("127.0.0.1", world.udp_port))
        find_secret(client.recv(64))


@attempt(*EVERYWHERE)
def connect_to_an_abstract_socket(world: World) -> None:
    talk(socket.AF_UNIX, f"\0{world.abstract}")


@attempt(*EVERYWHERE)
def connect_to_a_unix_socket(world: World) -> None:
    talk(socket.AF_UNIX, world.unix_path)


@attempt(*EVERYWHERE, root=True)
def open_a_raw_socket(world: World) -> None:
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close()


@attempt(*EVERYWHERE, root=True)
def listen_to_packets(world: World) -> None:
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)).close()


@attempt(*EVERYWHERE)
def reach_the_gateway(world: World) -> None:
    talk(socket.AF_INET, ("127.0.0.1", world.gateway_port))


@attempt(*EVERYWHERE)
def reach_the_gateway_by_the_unspecified_address(world: World) -> None:
    talk(socket.AF_INET, ("0.0.0.0", world.gateway_port))


@attempt(*EVERYWHERE)
def reach_the_gateway_by_a_mapped_address(world: World) -> None:
    talk(socket.AF_INET6, ("::ffff:127.0.0.1", world.gateway_port))


@attempt(*EVERYWHERE)
def reach_the_gateway_with_the_first_packet(world: World) -> None:
    with socket.socket() as client:
        client.settimeout(5)
        with suppress(BlockingIOError):
            client.sendto(b"?", socket.MSG_FASTOPEN, ("127.0.0.1", world.gateway_port))
        find_secret(client.recv(64))


@attempt(*EVERYWHERE)
def reach_the_gateway_by_multipath(world: World) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262) as client:
        client.settimeout(5)
        client.connect(("127.0.0.1", world.gateway_port))
        find_secret(client.recv(64))


@attempt("none", "loopback")
def listen_to_the_network(world: World) -> None:
    with socket.create_server(("0.0.0.0", 0)) as server:
        if len(Path("/proc/net/dev").read_text().splitlines()) == 3:
            raise OSError(f"it is a network of its own: {server}")


@attempt("loopback")
def listen_without_an_address(world: World) -> None:
    with socket.socket() as server:
        server.listen()


def run(function: Attempt, world: World) -> str:
    """Make one attempt in a process of its own; return how it ended."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(ATTEMPT_S)
        try:
            function(world)
            outcome = ESCAPED
        except BaseException as error:
            outcome = f"{type(error).__name__}: {error}"
        os.write(writer, outcome.encode()[:500])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        # What a child that outlives it holds open is not waited for.
        said = pipe.raw.read(500) or b""
    _, status = os.waitpid(pid, 0)
    return said.decode() or f"ended with {os.waitstatus_to_exitcode(status)}"


def main(text: str, network: str) -> None:
    world = World(**json.loads(text))
    outcomes = {
        name: run(function, world)
        for name, (function, networks, _) in ATTEMPTS.items()
        if network in networks
    }
    print(json.dumps(outcomes), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
