"""Seccomp: an allow-list of the few system calls that a running engine needs. Linux on x86_64 and aarch64.

The filter is a program of the kernel's packet filter, assembled here. What is not listed fails with EPERM; what only an
attack would try ends the process, so that no second try is made.
"""

import ctypes
import platform
from dataclasses import dataclass

_NO_NUMBER = -1

ALLOWED: dict[str, tuple[int, int]] = {  # x86_64, aarch64
    "read": (0, 63), "write": (1, 64), "readv": (19, 65), "writev": (20, 66), "close": (3, 57),
    "munmap": (11, 215), "brk": (12, 214), "mremap": (25, 216), "madvise": (28, 233),
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "sigaltstack": (131, 132),
    "futex": (202, 98), "sched_yield": (24, 124), "restart_syscall": (219, 128),
    "clock_gettime": (228, 113), "clock_getres": (229, 114), "gettimeofday": (96, 169), "time": (201, _NO_NUMBER),
    "nanosleep": (35, 101), "clock_nanosleep": (230, 115), "getrandom": (318, 278),
    "getpid": (39, 172), "getppid": (110, 173), "gettid": (186, 178), "getrusage": (98, 165), "times": (100, 153),
    "exit": (60, 93), "exit_group": (231, 94),
}  # fmt: skip

NOT_EXECUTABLE: dict[str, tuple[int, int]] = {"mmap": (9, 222), "mprotect": (10, 226)}
"""Allowed while their third argument does not ask for memory that can be executed."""

FATAL: dict[str, tuple[int, int]] = {
    "execve": (59, 221), "execveat": (322, 281), "fork": (57, _NO_NUMBER), "vfork": (58, _NO_NUMBER),
    "clone": (56, 220), "clone3": (435, 435), "ptrace": (101, 117),
    "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "pidfd_open": (434, 434), "pidfd_send_signal": (424, 424),
    "pidfd_getfd": (438, 438),
    "socket": (41, 198), "socketpair": (53, 199), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201),
    "accept": (43, 202), "accept4": (288, 242), "sendto": (44, 206), "sendmsg": (46, 211),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "unshare": (272, 97), "setns": (308, 268),
    "mount": (165, 40), "bpf": (321, 280), "io_uring_setup": (425, 425), "perf_event_open": (298, 241),
    "userfaultfd": (323, 282), "keyctl": (250, 219), "add_key": (248, 217), "memfd_create": (319, 279),
}  # fmt: skip

_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Column of the tables, and the kernel's name of the architecture."""
_X32 = 0x4000_0000
"""x86_64 kernels take a second set of numbers from here on."""

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _THIRD_ARGUMENT = 0, 4, 32
"""Where they stand in what the filter is given."""
_ALLOW, _EPERM, _KILL = 0x7FFF_0000, 0x0005_0001, 0x8000_0000
_PROT_EXEC = 4
_SET_MODE_FILTER = 1
_ALL_THREADS = 1
_SECCOMP = {"x86_64": 317, "aarch64": 277}


@dataclass(frozen=True)
class Step:
    """One instruction: jumps count the instructions to leave out."""

    code: int
    value: int
    then: int = 0
    otherwise: int = 0


class _Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint16), ("jt", ctypes.c_uint8), ("jf", ctypes.c_uint8), ("k", ctypes.c_uint32))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.POINTER(_Instruction)))


def program(machine: str) -> tuple[Step, ...]:
    """The filter for that machine. Raises KeyError for one that has no table."""
    column, architecture = _MACHINES[machine]
    steps = [
        Step(_LOAD, _ARCHITECTURE),
        Step(_EQUAL, architecture, 1, 0),
        Step(_RETURN, _KILL),
        Step(_LOAD, _NUMBER),
        Step(_AT_LEAST, _X32, 0, 1),
        Step(_RETURN, _KILL),
    ]
    for table, verdict in ((ALLOWED, _ALLOW), (FATAL, _KILL)):
        for numbers in table.values():
            if numbers[column] != _NO_NUMBER:
                steps += (Step(_EQUAL, numbers[column], 0, 1), Step(_RETURN, verdict))
    for numbers in NOT_EXECUTABLE.values():
        steps += (
            Step(_EQUAL, numbers[column], 0, 4),
            Step(_LOAD, _THIRD_ARGUMENT),
            Step(_ANY_BIT, _PROT_EXEC, 0, 1),
            Step(_RETURN, _EPERM),
            Step(_RETURN, _ALLOW),
        )
    return (*steps, Step(_RETURN, _EPERM))


def allow_only_these(libc: ctypes.CDLL) -> tuple[str, ...]:
    """Close it; what is closed now, in words (nothing where the kernel or the machine has no filter)."""
    machine = platform.machine()
    if machine not in _MACHINES:
        return ()
    steps = program(machine)
    array = (_Instruction * len(steps))(*[_Instruction(s.code, s.then, s.otherwise, s.value) for s in steps])
    whole = _Program(len(steps), array)
    if (
        libc.syscall(
            _SECCOMP[machine], ctypes.c_uint(_SET_MODE_FILTER), ctypes.c_uint(_ALL_THREADS), ctypes.byref(whole)
        )
        != 0
    ):
        return ()
    return ("seccomp: no files, processes, sockets or signals", "seccomp: no new executable memory")
