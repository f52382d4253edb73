"""Landlock: denies file system, network and signals to this process and its children. Linux ≥ 5.13.

A rule set that handles everything the kernel's version supports and allows nothing but named
files.
"""

import ctypes
import os

_CREATE_RULESET = 444
_ADD_RULE = 445
_RESTRICT_SELF = 446
"""System call numbers, the same on every architecture."""
_QUERY_VERSION = 1
_FS_BITS = {1: 13, 2: 14, 3: 15, 4: 15}
"""File system access bits by ABI version; later versions have 16."""


_PATH_BENEATH = 1
_EXECUTE = 1
_READ_FILE = 4


class _RulesetAttributes(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def get_abi_version(libc: ctypes.CDLL) -> int:
    """Return the kernel's Landlock ABI version; 0 without Landlock."""
    return max(
        0, libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_QUERY_VERSION))
    )


def deny_all(libc: ctypes.CDLL, program_files: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Deny everything; returns descriptions of what is denied, empty without Landlock.

    `program_files` are files and folders that may still be read and executed.
    """
    version = get_abi_version(libc)
    if not version:
        return ()
    attributes = _RulesetAttributes(
        fs=(1 << _FS_BITS.get(version, 16)) - 1,
        net=0b11 if version >= 4 else 0,
        scoped=0b11 if version >= 6 else 0,
    )
    if version >= 6:
        size = 24
    elif version >= 4:
        size = 16
    else:
        size = 8
    ruleset = libc.syscall(
        _CREATE_RULESET, ctypes.byref(attributes), ctypes.c_size_t(size), ctypes.c_uint32(0)
    )
    if ruleset < 0:
        return ()
    try:
        for path in program_files:
            _allow_path(libc, ruleset, path)
        if libc.syscall(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0)) != 0:
            return ()
    finally:
        os.close(ruleset)
    restrictions = ["landlock: no files"]
    if attributes.net:
        restrictions.append("landlock: no TCP")
    if attributes.scoped:
        restrictions.append("landlock: no signals to others")
    return tuple(restrictions)


def _allow_path(libc: ctypes.CDLL, ruleset: int, path: str) -> None:
    try:
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # a missing file needs no rule
    try:
        rule = _PathRule(_EXECUTE | _READ_FILE, parent)
        libc.syscall(
            _ADD_RULE,
            ctypes.c_int(ruleset),
            ctypes.c_int(_PATH_BENEATH),
            ctypes.byref(rule),
            ctypes.c_uint32(0),
        )
    finally:
        os.close(parent)
