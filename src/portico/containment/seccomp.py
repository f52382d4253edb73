"""Seccomp: assembles and installs filters of system calls. Linux on x86_64 and aarch64.

A filter is a BPF program. It loads a number of the system call into its one register and compares
it. Imports little, because it delays the start of every worker.
"""

import ctypes
import os
from collections.abc import Iterable, Sequence

NO_NUMBER = -1
"""Number of a system call that a machine does not have."""
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Column of the tables of numbers, and the kernel's identifier of the architecture."""
_X32 = 0x4000_0000
"""First number of the x32 ABI, a second set of numbers on x86_64 kernels."""

LOAD = 0x20
EQUAL = 0x15
AT_LEAST = 0x35
ANY_BIT = 0x45
AND = 0x54
RETURN = 0x06
NUMBER = 0
_ARCHITECTURE = 4
FIRST_ARGUMENT = 16
SECOND_ARGUMENT = 24
THIRD_ARGUMENT = 32
FOURTH_ARGUMENT = 40
"""Offsets in the data that the filter gets."""
ALLOW = 0x7FFF_0000
NOTIFY = 0x7FC0_0000
"""Another process decides (`install` with `listener`)."""
EPERM = 0x0005_0001
ENOSYS = 0x0005_0026
KILL = 0x8000_0000
_SET_MODE_FILTER = 1
_ALL_THREADS = 1
_NEW_LISTENER = 8
_SECCOMP = {"x86_64": 317, "aarch64": 277}


class BpfInstruction(ctypes.Structure):
    """One instruction; jumps are numbers of instructions to skip."""

    _fields_ = (
        ("code", ctypes.c_uint16),
        ("then", ctypes.c_uint8),
        ("otherwise", ctypes.c_uint8),
        ("value", ctypes.c_uint32),
    )


class _BpfProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.POINTER(BpfInstruction)))


def make_instruction(code: int, value: int, then: int = 0, otherwise: int = 0) -> BpfInstruction:
    return BpfInstruction(code, then, otherwise, value)


def check_architecture(architecture: int) -> list[BpfInstruction]:
    """Begin a filter: end processes that use another set of numbers, then load the number."""
    return [
        make_instruction(LOAD, _ARCHITECTURE),
        make_instruction(EQUAL, architecture, 1, 0),
        make_instruction(RETURN, KILL),
        make_instruction(LOAD, NUMBER),
        make_instruction(AT_LEAST, _X32, 0, 1),
        make_instruction(RETURN, KILL),
    ]


def decide_all(numbers: Iterable[int], verdict: int) -> list[BpfInstruction]:
    """Return `verdict` for all of these system calls."""
    steps: list[BpfInstruction] = []
    for number in numbers:
        if number != NO_NUMBER:
            steps += when_equal(number, [make_instruction(RETURN, verdict)])
    return steps


def when_equal(value: int, steps: Sequence[BpfInstruction]) -> list[BpfInstruction]:
    """Run `steps`, which end by returning, if the register has this value."""
    return [make_instruction(EQUAL, value, 0, len(steps)), *steps]


def allow_unless(number: int, argument: int, bits: int, verdict: int) -> list[BpfInstruction]:
    """Allow a call unless one of these bits is set in that argument."""
    return when_equal(
        number,
        (
            make_instruction(LOAD, argument),
            make_instruction(ANY_BIT, bits, 0, 1),
            make_instruction(RETURN, verdict),
            make_instruction(RETURN, ALLOW),
        ),
    )


def install(libc: ctypes.CDLL, steps: Sequence[BpfInstruction], *, listener: bool = False) -> int:
    """Install a filter in all threads; return a negative number if that fails.

    With `listener`, in this thread only; returns the descriptor that hears of NOTIFY.
    """
    program = _BpfProgram(len(steps), (BpfInstruction * len(steps))(*steps))
    return libc.syscall(
        _SECCOMP[os.uname().machine],
        ctypes.c_uint(_SET_MODE_FILTER),
        ctypes.c_uint(_NEW_LISTENER if listener else _ALL_THREADS),
        ctypes.byref(program),
    )
