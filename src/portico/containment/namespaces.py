"""A file system, processes and network of its own, by namespaces of Linux.

The file system holds what a specification grants, at the same paths, and nothing else exists there.
"""

import ctypes
import fcntl
import os
import socket
import stat
import struct

from portico.containment.specification import Specification

_NEW_MOUNTS = 0x2_0000
_NEW_IPC = 0x800_0000
_NEW_USERS = 0x1000_0000
_NEW_PROCESSES = 0x2000_0000
_NEW_NETWORK = 0x4000_0000

_READ_ONLY = 1
_NO_SETUID = 2
_NO_DEVICES = 4
_NO_PROGRAMS = 8
_BIND = 4096
_RECURSIVE = 16384
_PRIVATE = 1 << 18
_DETACH = 2
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_MOUNT_SETATTR = 442
_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000
_MAX_LINKS = 40
_TEMPORARY_SIZE = "size=2g"
"""Upper bound of what lies in its /tmp, in memory."""

DEVICES = ("null", "zero", "full", "random", "urandom")
_DEVICE_LINKS = (
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
)
OWN_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - of the server's own file system
"""Folders in memory that end with the server."""
_SET_INTERFACE_FLAGS = 0x8914
_IS_UP = 1


class _MountAttributes(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "users"))


class NamespaceRefused(Exception):
    """The kernel, or a policy of this machine, does not allow it; the text says what."""


def enter_namespaces(libc: ctypes.CDLL, *, own_network: bool) -> None:
    """Enter new namespaces of users, IPC, processes (of the children) and maybe network.

    Raises NamespaceRefused.
    """
    user = os.geteuid()
    group = os.getegid()
    flags = _NEW_USERS | _NEW_IPC | _NEW_PROCESSES | (_NEW_NETWORK if own_network else 0)
    _check(libc.unshare(flags), "new user, process and network namespaces")
    try:
        # Without this no group may be mapped.
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{user} {user} 1")
        _write("/proc/self/gid_map", f"{group} {group} 1")
        if own_network:
            _raise_loopback()
    except OSError as error:
        raise NamespaceRefused(f"a user namespace cannot be used: {error.strerror}") from error


def build_file_system(libc: ctypes.CDLL, specification: Specification, machine: str) -> None:
    """Make a file system of what is granted this process's root; it is process 1 of its namespace.

    Raises NamespaceRefused.
    """
    base = specification.root
    _check(libc.unshare(_NEW_MOUNTS), "a new mount namespace")
    _mount(libc, None, "/", None, _PRIVATE | _RECURSIVE)
    _mount(libc, "tmpfs", base, "tmpfs", _NO_SETUID | _NO_DEVICES, "mode=755,size=1m")
    builder = _FileSystemBuilder(libc, base)
    builder.make_own_folders()
    granted = [(path, False) for path in specification.read]
    granted += [(path, True) for path in (*specification.write, specification.home)]
    for path, writable in sorted(granted):
        builder.grant(path, writable=writable)
    builder.protect(base, _READ_ONLY, recursive=False)
    os.chdir(base)
    number = ctypes.c_long(_PIVOT_ROOT[machine])
    _check(libc.syscall(number, b".", b"."), "another root folder")
    _check(libc.umount2(b".", _DETACH), "removing the old root folder")
    os.chdir("/")


class _FileSystemBuilder:
    def __init__(self, libc: ctypes.CDLL, base: str) -> None:
        self._libc = libc
        self._base = base

    def make_own_folders(self) -> None:
        for path in ("/proc", "/dev", *OWN_FOLDERS):
            os.makedirs(self._base + path, exist_ok=True)
        flags = _NO_SETUID | _NO_DEVICES
        _mount(self._libc, "proc", self._base + "/proc", "proc", flags | _NO_PROGRAMS)
        for path in OWN_FOLDERS:
            options = f"mode=1777,{_TEMPORARY_SIZE}"
            _mount(self._libc, "tmpfs", self._base + path, "tmpfs", flags, options)
        for name in DEVICES:
            self._bind(f"/dev/{name}", _NO_SETUID)
        for name, target in _DEVICE_LINKS:
            os.symlink(target, f"{self._base}/dev/{name}")

    def grant(self, path: str, *, writable: bool) -> None:
        """Show a file or folder at its path, with the symbolic links on the way."""
        found = self._resolve(path)
        if found is None or not os.path.exists(found):
            return
        flags = _NO_SETUID | _NO_DEVICES | (0 if writable else _READ_ONLY)
        self._bind(found, flags)

    def protect(self, path: str, flags: int, *, recursive: bool = True) -> None:
        attributes = _MountAttributes(flags, 0, 0, 0)
        code = self._libc.syscall(
            ctypes.c_long(_MOUNT_SETATTR),
            ctypes.c_int(_AT_FDCWD),
            os.fsencode(path),
            ctypes.c_uint(_AT_RECURSIVE if recursive else 0),
            ctypes.byref(attributes),
            ctypes.c_size_t(ctypes.sizeof(attributes)),
        )
        _check(code, f"protecting {path}")

    def _bind(self, path: str, flags: int) -> None:
        target = self._base + path
        if stat.S_ISDIR(os.stat(path).st_mode):
            os.makedirs(target, exist_ok=True)
        elif not os.path.lexists(target):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        _mount(self._libc, path, target, None, _BIND | _RECURSIVE)
        self.protect(target, flags)

    def _resolve(self, path: str) -> str | None:
        """Return a path without symbolic links, which are copied; None if they go in circles."""
        parts = path.split("/")
        current = ""
        links = 0
        while parts:
            part = parts.pop(0)
            if part in ("", "."):
                continue
            if part == "..":
                current = os.path.dirname(current).rstrip("/")
                continue
            step = f"{current}/{part}"
            if not os.path.islink(step):
                current = step
                continue
            links += 1
            if links > _MAX_LINKS:
                return None
            target = os.readlink(step)
            self._copy_link(step, target)
            if target.startswith("/"):
                current = ""
            parts = [*target.split("/"), *parts]
        return current or "/"

    def _copy_link(self, path: str, target: str) -> None:
        copy = self._base + path
        if not os.path.lexists(copy):
            os.makedirs(os.path.dirname(copy), exist_ok=True)
            os.symlink(target, copy)


def _raise_loopback() -> None:
    """Bring up the loopback interface of this network, which is down at first."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sh22x", b"lo", _IS_UP)
        fcntl.ioctl(control, _SET_INTERFACE_FLAGS, request)


def _mount(
    libc: ctypes.CDLL,
    source: str | None,
    target: str,
    kind: str | None,
    flags: int,
    options: str | None = None,
) -> None:
    words = [None if word is None else os.fsencode(word) for word in (source, target, kind)]
    data = None if options is None else options.encode()
    _check(libc.mount(*words, ctypes.c_ulong(flags), data), f"mounting {target}")


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def _check(code: int, what: str) -> None:
    if code != 0:
        raise NamespaceRefused(f"{what}: {os.strerror(ctypes.get_errno())}")
