"""Privileges of a process: prctl, and capabilities that are given up. Linux."""

import ctypes

SET_DEATH_SIGNAL = 1
SET_DUMPABLE = 4
_DROP_CAPABILITY = 24
SET_CHILD_SUBREAPER = 36
SET_NO_NEW_PRIVILEGES = 38
_CLEAR_AMBIENT = (47, 4)
_CAPSET = {"x86_64": 126, "aarch64": 91}
_CAPABILITY_VERSION = 0x2008_0522
_MAX_CAPABILITIES = 64


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


def call_prctl(libc: ctypes.CDLL, option: int, value: int) -> bool:
    """Call prctl with one value; return whether it worked."""
    numbers = (ctypes.c_ulong(number) for number in (value, 0, 0, 0))
    return libc.prctl(ctypes.c_int(option), *numbers) == 0


def drop_capabilities(libc: ctypes.CDLL, machine: str) -> bool:
    """Give up all capabilities, also those that executing a program as root would give."""
    # Fails behind the last one that the kernel knows, and for who has none to give up.
    for number in range(_MAX_CAPABILITIES):
        call_prctl(libc, _DROP_CAPABILITY, number)
    call_prctl(libc, *_CLEAR_AMBIENT)
    header = _CapabilityHeader(_CAPABILITY_VERSION, 0)
    nothing = (ctypes.c_uint32 * 6)()
    return libc.syscall(_CAPSET[machine], ctypes.byref(header), ctypes.byref(nothing)) == 0
