"""Contains itself as a specification says, and executes the server. Linux.

    launcher ─▶ process 1 of the namespaces ─▶ server      (without namespaces: the launcher alone)

What starts the server waits for it, makes its connections where `network` is `loopback`, and ends
with it all that it has started. Whatever fails ends in FAILED, and no server.
"""

import contextlib
import ctypes
import os
import signal
import socket
import threading
from typing import NoReturn

from portico.containment import landlock, namespaces, privileges, seccomp
from portico.containment.connections import Connections
from portico.containment.home_links import link_into_home
from portico.containment.server_filter import CONNECTING, build_server_filter
from portico.containment.specification import FAILED, FAILURE_PREFIX, Specification

_SHELL_SIGNAL_BASE = 128
_STANDARD_COUNT = 3
_GROUP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Sent to the whole group, hence to the server too, whose end is waited for."""
_PYTHON_IGNORES = (signal.SIGPIPE, signal.SIGXFSZ)
_SHARED_PROCESS_FILES = (
    *("/proc/cpuinfo", "/proc/filesystems", "/proc/loadavg", "/proc/meminfo", "/proc/self"),
    *("/proc/stat", "/proc/sys", "/proc/uptime", "/proc/version"),
)
"""Readable where there is no /proc of its own."""


class ContainmentFailed(Exception):
    """A restriction could not be put on the server; the text says which."""


def main(text: str) -> NoReturn:
    """Run what the specification names; exit as it does, with 128 + N for the signal N."""
    try:
        specification = Specification.from_json(text)
        link_into_home(specification.home, specification.links)
        _set_own_variables(specification)
        code = _run(specification)
    except (ContainmentFailed, namespaces.NamespaceRefused, OSError) as error:
        _fail(str(error))
    os._exit(code)


def _run(specification: Specification) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    machine = os.uname().machine
    if machine not in seccomp.MACHINES:
        raise ContainmentFailed(f"there is no filter of system calls for {machine}")
    for number in _GROUP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    if not specification.has_namespaces:
        privileges.call_prctl(libc, privileges.SET_CHILD_SUBREAPER, 1)
        privileges.call_prctl(libc, privileges.SET_DUMPABLE, 0)
        code = _supervise(libc, specification, machine)
        _end_descendants()
        return code
    namespaces.enter_namespaces(libc, own_network=specification.network == "none")
    first = os.fork()
    if first == 0:
        _run_first_process(libc, specification, machine)
    _let_go_of_streams()
    return _wait_for(first)


def _run_first_process(libc: ctypes.CDLL, specification: Specification, machine: str) -> NoReturn:
    try:
        privileges.call_prctl(libc, privileges.SET_DEATH_SIGNAL, signal.SIGKILL)
        namespaces.build_file_system(libc, specification, machine)
        privileges.call_prctl(libc, privileges.SET_DUMPABLE, 0)
        privileges.drop_capabilities(libc, machine)
        code = _supervise(libc, specification, machine)
    except BaseException as error:  # an exception must not go on in a copy of the launcher
        _fail(str(error))
    os._exit(code)


def _supervise(libc: ctypes.CDLL, specification: Specification, machine: str) -> int:
    """Start the server, serve it, and return its exit code."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        try:
            ours.close()
            _become_server(libc, specification, machine, theirs)
        except BaseException as error:  # as above
            _fail(str(error))
    theirs.close()
    _let_go_of_streams()
    if specification.network == "loopback":
        _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
        if descriptors:  # else it has failed, and says so
            column, _ = seccomp.MACHINES[machine]
            numbers = {name: numbers[column] for name, numbers in CONNECTING.items()}
            connections = Connections(libc, descriptors[0], numbers, specification.refused_ports)
            threading.Thread(target=connections.serve, daemon=True).start()
    return _wait_for(pid)


def _become_server(
    libc: ctypes.CDLL, specification: Specification, machine: str, channel: socket.socket
) -> NoReturn:
    for number in (*_GROUP_SIGNALS, *_PYTHON_IGNORES):
        signal.signal(number, signal.SIG_DFL)
    privileges.call_prctl(libc, privileges.SET_DEATH_SIGNAL, signal.SIGKILL)
    if not privileges.call_prctl(libc, privileges.SET_NO_NEW_PRIVILEGES, 1):
        raise ContainmentFailed("new privileges cannot be forbidden")
    os.chdir(specification.cwd)
    os.closerange(_STANDARD_COUNT, channel.fileno())
    os.closerange(channel.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
    _restrict_files_and_ports(libc, specification)
    if not privileges.drop_capabilities(libc, machine):
        raise ContainmentFailed("capabilities cannot be given up")
    steps = build_server_filter(
        machine, specification.network, has_namespaces=specification.has_namespaces
    )
    listens = specification.network == "loopback"
    listener = seccomp.install(libc, steps, listener=listens)
    if listener < 0:
        raise ContainmentFailed(f"seccomp: {os.strerror(ctypes.get_errno())}")
    if listens:
        socket.send_fds(channel, [b"+"], [listener])
    channel.close()
    if not specification.command:
        # Executing a program would do it; its process must be open to who makes its connections.
        privileges.call_prctl(libc, privileges.SET_DUMPABLE, 1)
        _try_out(specification)
    program, *_ = specification.command
    try:
        os.execve(program, specification.command, os.environ)  # noqa: S606 - no shell
    except OSError as error:
        raise ContainmentFailed(
            f"{program} cannot be executed inside: {error.strerror}. It, its interpreter and their"
            " libraries must be in contain.read."
        ) from error


def _try_out(specification: Specification) -> NoReturn:
    """Do what only a working containment lets a server do; exit with 0, or FAILED."""
    if specification.network == "loopback":
        with socket.socket() as trial:
            try:
                # Nothing listens at port 1, or what does is welcome to the greeting.
                trial.connect(("127.0.0.1", 1))
            except ConnectionRefusedError:
                pass
            except OSError as error:
                raise ContainmentFailed(f"connections cannot be made for it: {error}") from error
    os._exit(0)


def _restrict_files_and_ports(libc: ctypes.CDLL, specification: Specification) -> None:
    rights: dict[str, int] = {}
    if specification.has_namespaces:
        rights["/"] = landlock.READ_DIR
        rights["/proc"] = landlock.READ
        rights.update(dict.fromkeys(namespaces.OWN_FOLDERS, landlock.WRITE))
    else:
        rights.update(dict.fromkeys(_SHARED_PROCESS_FILES, landlock.READ))
        rights[specification.temporary] = landlock.WRITE
    rights.update({f"/dev/{name}": landlock.USE_DEVICE for name in namespaces.DEVICES})
    rights.update(dict.fromkeys(specification.read, landlock.READ))
    rights.update(dict.fromkeys((*specification.write, specification.home), landlock.WRITE))
    network, ports = _decide_ports(specification)
    version = landlock.restrict(libc, rights, network=network, ports=ports)
    if version < landlock.NETWORK_ABI:
        raise ContainmentFailed(
            f"this kernel has Landlock {version}, and {landlock.NETWORK_ABI} (Linux 6.7) is needed"
            if version
            else "this kernel has no Landlock, or a policy of this machine forbids it"
        )
    if version < landlock.SCOPE_ABI and not specification.has_namespaces:
        raise ContainmentFailed(
            f"this kernel has Landlock {version}: without namespaces {landlock.SCOPE_ABI} (Linux"
            " 6.12) is needed, to hold back signals"
        )


def _decide_ports(specification: Specification) -> tuple[int, "list[int] | range"]:
    """Return the uses of TCP that Landlock restricts, and the ports that stay."""
    if specification.network == "all":
        refused = set(specification.refused_ports)
        if not refused:
            return 0, []
        ports = range(landlock.MAX_PORT + 1)
        return landlock.CONNECT, [port for port in ports if port not in refused]
    if specification.network == "none" and specification.has_namespaces:
        return 0, []  # its network has nothing but itself
    return landlock.BIND | landlock.CONNECT, []


def _set_own_variables(specification: Specification) -> None:
    temporary = "/tmp" if specification.has_namespaces else specification.temporary  # noqa: S108
    for name, value in specification.own_variables:
        filled = value.replace("{home}", specification.home).replace("{temporary}", temporary)
        os.environ[name] = filled


def _wait_for(pid: int) -> int:
    """Wait for a child, reaping all others; return its exit code."""
    while True:
        ended, status = os.waitpid(-1, 0)
        if ended == pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else _SHELL_SIGNAL_BASE - code


def _end_descendants() -> None:
    """End what the server left behind, which has become this process's children."""
    while True:
        for pid in _list_children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _list_children() -> list[int]:
    own = str(os.getpid())
    children: list[int] = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
            # The name before may contain anything; state and parent follow its last bracket.
            fields = file.read().decode(errors="replace").rpartition(")")[2].split()
            if fields[1] == own:
                children.append(int(name))
    return children


def _let_go_of_streams() -> None:
    """Leave the standard streams to the server, so that their end is noticed."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(_STANDARD_COUNT):
        os.dup2(nothing, descriptor)
    os.close(nothing)


def _fail(reason: str) -> NoReturn:
    with contextlib.suppress(OSError):
        os.write(2, f"{FAILURE_PREFIX}{reason}\n".encode(errors="replace"))
    os._exit(FAILED)
