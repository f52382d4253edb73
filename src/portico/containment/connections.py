"""Connections of a server with `network: loopback`, made for it by the process that started it.

The server's filter passes `connect`, `bind` and `listen` of it on to here. For TCP they are done
here, with a copy of the address and of the socket, so that nothing can change between check and
use. All others go on: what they could reach is denied by the filter and by Landlock.
"""

import ctypes
import errno
import fcntl
import ipaddress
import os
import select
import socket
import struct
import threading

_RECEIVE = 0xC050_2100
_SEND = 0xC018_2101
_IS_VALID = 0x4008_2102
_NOTIFICATION = struct.Struct("=QIIiIQ6Q")
"""Id, thread, flags; number, architecture, instruction pointer and six arguments of the call."""
_RESPONSE = struct.Struct("=QqiI")
_CONTINUE = 1
_PIDFD_GETFD = 438
_MAX_ADDRESS = 128
_NAME_PORTS = frozenset({53, 853, 5353})
"""A resolver on this machine would ask others."""
_FAMILIES: dict[int, int] = {socket.AF_INET: 8, socket.AF_INET6: 24}
"""Bytes of an address that are needed."""


class Connections:
    """Decides and makes connections; `numbers` are those of the calls that are passed on."""

    def __init__(
        self,
        libc: ctypes.CDLL,
        listener: int,
        numbers: dict[str, int],
        refused_ports: tuple[int, ...],
    ) -> None:
        self._libc = libc
        self._listener = listener
        self._connect = numbers["connect"]
        self._listen = numbers["listen"]
        self._refused_ports = refused_ports

    def serve(self) -> None:
        """Answer until no process with the filter is left."""
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        while True:
            if any(event & select.POLLHUP for _, event in poll.poll()):
                return
            buffer = bytearray(_NOTIFICATION.size)
            try:
                fcntl.ioctl(self._listener, _RECEIVE, buffer)
            except OSError:
                continue  # it was interrupted meanwhile
            # A connection may take minutes.
            threading.Thread(target=self._handle, args=(bytes(buffer),), daemon=True).start()

    def _handle(self, notification: bytes) -> None:
        id, thread, _, number, _, _, *arguments = _NOTIFICATION.unpack(notification)
        response = -errno.EPERM
        try:
            response = self._decide(id, thread, number, arguments)
        except OSError as error:
            response = -(error.errno or errno.EPERM)
        body = (id, 0, response, 0)
        if response > 0:
            body = (id, 0, 0, _CONTINUE)
        try:
            fcntl.ioctl(self._listener, _SEND, _RESPONSE.pack(*body))
        except OSError:
            return  # the process has ended

    def _decide(self, id: int, thread: int, number: int, arguments: list[int]) -> int:
        """Return 0 or a negative error, or 1 for a call that goes on. Raises OSError."""
        own = self._copy_socket(thread, arguments[0])
        try:
            address = b""
            if number != self._listen:
                address = _read_memory(thread, arguments[1], min(arguments[2], _MAX_ADDRESS))
            fcntl.ioctl(self._listener, _IS_VALID, struct.pack("=Q", id))
            with socket.socket(fileno=os.dup(own)) as copy:
                if copy.family not in _FAMILIES:
                    return 1
                if number == self._listen:
                    return self._make_listen(copy, arguments[1])
            if not is_permitted(
                address, self._refused_ports if number == self._connect else frozenset()
            ):
                return -errno.EACCES
            call = self._libc.connect if number == self._connect else self._libc.bind
            if call(own, address, len(address)) == 0:
                return 0
            return -ctypes.get_errno()
        finally:
            os.close(own)

    def _make_listen(self, copy: socket.socket, backlog: int) -> int:
        # A socket without an address would get one that others reach.
        if not ipaddress.ip_address(copy.getsockname()[0]).is_loopback:
            return -errno.EACCES
        return 0 if self._libc.listen(copy.fileno(), ctypes.c_int(backlog)) == 0 else -22

    def _copy_socket(self, thread: int, descriptor: int) -> int:
        process = os.pidfd_open(_find_process(thread))
        try:
            own = self._libc.syscall(
                ctypes.c_long(_PIDFD_GETFD),
                ctypes.c_int(process),
                ctypes.c_int(descriptor),
                ctypes.c_uint(0),
            )
        finally:
            os.close(process)
        if own < 0:
            raise OSError(ctypes.get_errno(), "the socket cannot be used")
        return own


def is_permitted(address: bytes, refused_ports: tuple[int, ...] | frozenset[int]) -> bool:
    """Return whether a sockaddr is on this machine's loopback, at a port that may be used. Pure."""
    if len(address) < 2:
        return False
    (family,) = struct.unpack_from("=H", address)
    if len(address) < _FAMILIES.get(family, _MAX_ADDRESS + 1):
        return False
    (port,) = struct.unpack_from("!H", address, 2)
    if port in refused_ports or port in _NAME_PORTS:
        return False
    if family == socket.AF_INET:
        return ipaddress.IPv4Address(address[4:8]).is_loopback
    host = ipaddress.IPv6Address(address[8:24])
    if host.ipv4_mapped is not None:
        return host.ipv4_mapped.is_loopback
    return host.is_loopback


def _read_memory(thread: int, start: int, length: int) -> bytes:
    with open(f"/proc/{thread}/mem", "rb", buffering=0) as memory:
        return os.pread(memory.fileno(), length, start)


def _find_process(thread: int) -> int:
    with open(f"/proc/{thread}/status", encoding="ascii", errors="replace") as status:
        for line in status:
            if line.startswith("Tgid:"):
                return int(line.split()[1])
    raise OSError(errno.ESRCH, "the process has ended")
