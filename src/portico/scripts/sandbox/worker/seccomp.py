"""Seccomp: an allow-list of system calls for a running engine. Linux on x86_64 and aarch64.

The filter is a BPF program that is assembled here. Calls that are not listed fail with EPERM; calls
that only an attack would make end the process. A filter that is installed before a program is
executed also allows what starting it takes (`LOADING`). Imports little, because it delays the start
of every worker.
"""

import ctypes
import os

from portico.containment.seccomp import (
    ALLOW,
    ANY_BIT,
    ENOSYS,
    EPERM,
    FIRST_ARGUMENT,
    FOURTH_ARGUMENT,
    KILL,
    LOAD,
    MACHINES,
    NO_NUMBER,
    RETURN,
    SECOND_ARGUMENT,
    THIRD_ARGUMENT,
    BpfInstruction,
    allow_unless,
    check_architecture,
    decide_all,
    install,
    make_instruction,
    when_equal,
)

ALLOWED: dict[str, tuple[int, int]] = {  # x86_64, aarch64
    "read": (0, 63), "write": (1, 64), "readv": (19, 65), "writev": (20, 66), "close": (3, 57),
    "munmap": (11, 215), "brk": (12, 214), "mremap": (25, 216), "madvise": (28, 233),
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139),
    "sigaltstack": (131, 132), "futex": (202, 98), "sched_yield": (24, 124),
    "restart_syscall": (219, 128), "clock_gettime": (228, 113), "clock_getres": (229, 114),
    "gettimeofday": (96, 169), "time": (201, NO_NUMBER), "nanosleep": (35, 101),
    "clock_nanosleep": (230, 115), "getrandom": (318, 278), "getpid": (39, 172),
    "getppid": (110, 173), "gettid": (186, 178), "getrusage": (98, 165), "times": (100, 153),
    "exit": (60, 93), "exit_group": (231, 94),
}  # fmt: skip

NOT_EXECUTABLE: dict[str, tuple[int, int]] = {"mmap": (9, 222), "mprotect": (10, 226)}
"""Allowed unless their third argument requests executable memory."""

FATAL: dict[str, tuple[int, int]] = {
    "execve": (59, 221), "execveat": (322, 281), "fork": (57, NO_NUMBER),
    "vfork": (58, NO_NUMBER), "clone": (56, 220), "clone3": (435, 435), "ptrace": (101, 117),
    "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "pidfd_open": (434, 434), "pidfd_send_signal": (424, 424),
    "pidfd_getfd": (438, 438),
    "socket": (41, 198), "socketpair": (53, 199), "connect": (42, 203), "bind": (49, 200),
    "listen": (50, 201), "accept": (43, 202), "accept4": (288, 242), "sendto": (44, 206),
    "sendmsg": (46, 211), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "bpf": (321, 280),
    "io_uring_setup": (425, 425), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "keyctl": (250, 219), "add_key": (248, 217), "memfd_create": (319, 279),
}  # fmt: skip

LOADING: dict[str, tuple[int, int]] = {
    "execve": (59, 221), "newfstatat": (262, 79), "fstat": (5, 80), "pread64": (17, 67),
    "poll": (7, NO_NUMBER), "ppoll": (271, 73), "arch_prctl": (158, NO_NUMBER),
    "set_tid_address": (218, 96),
}  # fmt: skip
"""Also allowed for the dynamic loader and the start of a program, as are some uses of `open`,
`openat`, `clone` and `mmap`."""
_OPEN = (2, NO_NUMBER)
_OPENAT = (257, 56)
_CLONE = (56, 220)
_CLONE3 = (435, 435)

_PROT_WRITE = 2
_PROT_EXEC = 4
_MAP_ANONYMOUS = 0x20
_CLONE_THREAD = 0x1_0000
_FORBIDDEN_OPEN_FLAGS = 0xFFFF_FFFF & ~(0x8_0000 | 0x8000 | 0x2_0000)
"""Flags of `open` except O_CLOEXEC and O_LARGEFILE, whose numbers differ between machines."""


def build_filter(machine: str, *, allow_loading: bool = False) -> tuple[BpfInstruction, ...]:
    """Build the filter for a machine; raises KeyError if it has no table."""
    column, architecture = MACHINES[machine]
    steps = check_architecture(architecture)
    if allow_loading:
        steps += _allow_loading_calls(column)
    for table, verdict in ((ALLOWED, ALLOW), (FATAL, KILL)):
        steps += decide_all((numbers[column] for numbers in table.values()), verdict)
    for numbers in NOT_EXECUTABLE.values():
        steps += allow_unless(numbers[column], THIRD_ARGUMENT, _PROT_EXEC, EPERM)
    return (*steps, make_instruction(RETURN, EPERM))


def _allow_loading_calls(column: int) -> list[BpfInstruction]:
    """Allow the calls that start a program; evaluated before the other tables.

    Files are read-only; threads are allowed, processes are not; executable memory comes from files
    only.
    """
    steps = decide_all((numbers[column] for numbers in LOADING.values()), ALLOW)
    if _OPEN[column] != NO_NUMBER:
        steps += allow_unless(_OPEN[column], SECOND_ARGUMENT, _FORBIDDEN_OPEN_FLAGS, EPERM)
    steps += allow_unless(_OPENAT[column], THIRD_ARGUMENT, _FORBIDDEN_OPEN_FLAGS, EPERM)
    # Its flags are in memory, where a filter cannot look; the C library falls back to `clone`.
    steps += decide_all((_CLONE3[column],), ENOSYS)
    steps += when_equal(
        _CLONE[column],
        (
            make_instruction(LOAD, FIRST_ARGUMENT),
            make_instruction(ANY_BIT, _CLONE_THREAD, 0, 1),
            make_instruction(RETURN, ALLOW),
            make_instruction(RETURN, KILL),
        ),
    )
    steps += when_equal(
        NOT_EXECUTABLE["mmap"][column],
        (
            make_instruction(LOAD, THIRD_ARGUMENT),
            make_instruction(ANY_BIT, _PROT_EXEC, 1, 0),
            make_instruction(RETURN, ALLOW),
            make_instruction(ANY_BIT, _PROT_WRITE, 2, 0),
            make_instruction(LOAD, FOURTH_ARGUMENT),
            make_instruction(ANY_BIT, _MAP_ANONYMOUS, 0, 1),
            make_instruction(RETURN, EPERM),
            make_instruction(RETURN, ALLOW),
        ),
    )
    return steps


def install_filter(libc: ctypes.CDLL, *, allow_loading: bool = False) -> tuple[str, ...]:
    """Install the filter; returns descriptions of what is denied, empty without seccomp."""
    machine = os.uname().machine
    if machine not in MACHINES:
        return ()
    if install(libc, build_filter(machine, allow_loading=allow_loading)) != 0:
        return ()
    return ("seccomp: no files, processes, sockets or signals", "seccomp: no new executable memory")
