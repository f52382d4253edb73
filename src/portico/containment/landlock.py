"""Landlock: which files, TCP ports, signals and abstract sockets a process may use.

Restrictions are inherited, add up and cannot be undone. What is not allowed is denied. Imports
little, because it delays the start of every worker.
"""

import ctypes
import os
import stat
from collections.abc import Iterable, Mapping

_CREATE_RULESET = 444
_ADD_RULE = 445
_RESTRICT_SELF = 446
"""System call numbers, the same on every architecture."""
_QUERY_VERSION = 1
_FS_BITS = {1: 13, 2: 14, 3: 15, 4: 15}
"""File system access bits by ABI version; later versions have 16."""
_PATH_BENEATH = 1
_NET_PORT = 2
EXECUTE = 1
_WRITE_FILE = 2
READ_FILE = 4
READ_DIR = 8
_MAKE_CHAR = 1 << 6
_MAKE_BLOCK = 1 << 11
_TRUNCATE = 1 << 14
_IOCTL_DEV = 1 << 15
READ = EXECUTE | READ_FILE | READ_DIR
WRITE = (1 << 15) - 1 & ~_MAKE_CHAR & ~_MAKE_BLOCK
"""Read, execute, and all changes but devices."""
USE_DEVICE = READ_FILE | _WRITE_FILE | _TRUNCATE | _IOCTL_DEV
_FILE_RIGHTS = EXECUTE | USE_DEVICE
"""Rights that a rule about something else than a folder may have."""
BIND = 1
CONNECT = 2
_SCOPES = 0b11
"""No abstract sockets and no signals of processes outside."""
NETWORK_ABI = 4
SCOPE_ABI = 6
MAX_PORT = 65_535


class _RulesetAttributes(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


class _PortRule(ctypes.Structure):
    _fields_ = (("allowed", ctypes.c_uint64), ("port", ctypes.c_uint64))


def get_abi_version(libc: ctypes.CDLL) -> int:
    """Return the kernel's Landlock ABI version; 0 without Landlock."""
    return max(
        0, libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_QUERY_VERSION))
    )


def restrict(
    libc: ctypes.CDLL,
    rights: Mapping[str, int],
    *,
    network: int = BIND | CONNECT,
    ports: Iterable[int] = (),
) -> int:
    """Restrict this process to `rights` by path, and `network` uses to `ports`.

    A path may be a file or a folder with all it contains; a missing one needs no rule. Where the
    kernel can, signals and abstract sockets of processes outside are denied too. Returns the ABI
    version; 0 if nothing is restricted.
    """
    version = get_abi_version(libc)
    if not version:
        return 0
    attributes = _RulesetAttributes(
        fs=(1 << _FS_BITS.get(version, 16)) - 1,
        net=network if version >= NETWORK_ABI else 0,
        scoped=_SCOPES if version >= SCOPE_ABI else 0,
    )
    if version >= SCOPE_ABI:
        size = 24
    elif version >= NETWORK_ABI:
        size = 16
    else:
        size = 8
    ruleset = libc.syscall(
        _CREATE_RULESET, ctypes.byref(attributes), ctypes.c_size_t(size), ctypes.c_uint32(0)
    )
    if ruleset < 0:
        return 0
    try:
        for path, allowed in rights.items():
            _allow_path(libc, ruleset, path, allowed & attributes.fs)
        if attributes.net:
            _allow_ports(libc, ruleset, attributes.net, ports)
        if libc.syscall(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0)) != 0:
            return 0
    finally:
        os.close(ruleset)
    return version


def _allow_path(libc: ctypes.CDLL, ruleset: int, path: str, allowed: int) -> None:
    try:
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(parent).st_mode):
            allowed &= _FILE_RIGHTS
        _add_rule(libc, ruleset, _PATH_BENEATH, _PathRule(allowed, parent))
    finally:
        os.close(parent)


def _allow_ports(libc: ctypes.CDLL, ruleset: int, allowed: int, ports: Iterable[int]) -> None:
    # One structure for all, because there may be tens of thousands.
    rule = _PortRule(allowed, 0)
    for port in ports:
        rule.port = port
        _add_rule(libc, ruleset, _NET_PORT, rule)


def _add_rule(libc: ctypes.CDLL, ruleset: int, kind: int, rule: ctypes.Structure) -> None:
    libc.syscall(
        _ADD_RULE,
        ctypes.c_int(ruleset),
        ctypes.c_int(kind),
        ctypes.byref(rule),
        ctypes.c_uint32(0),
    )
