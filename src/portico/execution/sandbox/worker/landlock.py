"""Landlock: this process and its children lose the file system, the network and signals to others. Linux ≥ 5.13.

A rule set that handles everything and allows nothing. What a kernel's version knows is handled, the rest cannot be.
"""

import ctypes
import os

_CREATE_RULESET, _RESTRICT_SELF = 444, 446
"""The same on every architecture."""
_VERSION = 1
_FS_BITS = {1: 13, 2: 14, 3: 15, 4: 15}
"""Of each version of the interface; later ones have 16."""


class _Attributes(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


def version(libc: ctypes.CDLL) -> int:
    """The kernel's version of the interface; 0 where there is none."""
    return max(0, libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION)))


def deny_all(libc: ctypes.CDLL) -> tuple[str, ...]:
    """Close it all; what is closed now, in words (nothing where the kernel has no Landlock)."""
    has = version(libc)
    if not has:
        return ()
    wanted = _Attributes(
        fs=(1 << _FS_BITS.get(has, 16)) - 1,
        net=0b11 if has >= 4 else 0,
        scoped=0b11 if has >= 6 else 0,
    )
    size = 24 if has >= 6 else 16 if has >= 4 else 8
    ruleset = libc.syscall(_CREATE_RULESET, ctypes.byref(wanted), ctypes.c_size_t(size), ctypes.c_uint32(0))
    if ruleset < 0:
        return ()
    try:
        if libc.syscall(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0)) != 0:
            return ()
    finally:
        os.close(ruleset)
    kept = ["landlock: no files"]
    if wanted.net:
        kept.append("landlock: no TCP")
    if wanted.scoped:
        kept.append("landlock: no signals to others")
    return tuple(kept)
