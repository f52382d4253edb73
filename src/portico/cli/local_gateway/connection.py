"""Finds the running gateway of a configuration and opens a channel to it.

    gateway = find_gateway(identify_configuration(options.config or ()))
    if gateway is not None:
        reply = gateway.request("GET", "/api/v1/servers")      # any path of the REST API
        reply.status, reply.body                               # body: the JSON object
        gateway.registration.pid, .url, .version, .address

`find_gateway` returns None if no gateway of this user serves this configuration: never another
user's, never another configuration's, never a program that took over a port. Each call of `request`
opens a channel of its own; a `RunningGateway` holds nothing open. Standard library only.
"""

import json
import os
import socket

from portico.cli.local_gateway.registration import (
    Registration,
    ServedConfiguration,
    compute_digest,
    list_registrations,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CONNECT_TIMEOUT_S = 10.0
"""Time to connect and prove both sides; long, because a busy machine may be slow to answer."""
REQUEST_TIMEOUT_S = 10.0
MAX_LINE_BYTES = 64 * 1024
MAX_REPLY_BYTES = 64 * 2**20
LOOPBACK = "127.0.0.1"


class GatewayGone(Exception):
    """The gateway does not answer, or what answers is not the gateway."""


class ChannelRefused(Exception):
    """The gateway does not open this channel; the text says why."""


class RestReply:
    """Status and JSON object of an answer of the REST API."""

    def __init__(self, status: int, body: "dict[str, Any]") -> None:
        self.status = status
        self.body = body


class RunningGateway:
    """A gateway that has proved to be the one of its registration."""

    def __init__(self, registration: Registration) -> None:
        self.registration = registration

    def open_channel(self, request: "dict[str, Any]", content: bytes = b"") -> "Channel":
        """Open a channel; raises GatewayGone or ChannelRefused. `content` follows the request."""
        channel = Channel(self.registration)
        try:
            channel.open(request, content)
        except BaseException:
            channel.close()
            raise
        return channel

    def request(
        self,
        method: str,
        path: str,
        body: "dict[str, Any] | None" = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> RestReply:
        """Ask the REST API; raises GatewayGone, also if it takes longer than `timeout_s`."""
        content = b"" if body is None else json.dumps(body).encode()
        request = {"open": "rest", "method": method, "path": path, "content_bytes": len(content)}
        try:
            channel = self.open_channel(request, content)
        except ChannelRefused as refused:
            raise GatewayGone(str(refused)) from None
        with channel:
            channel.socket.settimeout(timeout_s)
            reply = channel.read_object(MAX_REPLY_BYTES)
        return RestReply(int(reply["status"]), dict(reply["body"]))

    def inspect(self, request: "dict[str, Any]") -> "dict[str, Any]":
        """Ask for facts that no client sees (`inspection`); raises GatewayGone or PorticoError."""
        try:
            channel = self.open_channel({"open": "inspect", **request})
        except ChannelRefused as refused:
            raise GatewayGone(str(refused)) from None
        with channel:
            channel.socket.settimeout(REQUEST_TIMEOUT_S)
            answer = channel.read_object(MAX_REPLY_BYTES)
        if "error" in answer:
            from portico.errors import PorticoError

            raise PorticoError(str(answer["error"]), advice=str(answer["advice"]))
        return answer


class LineConnection:
    """A socket whose other end sends lines."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._received = bytearray()

    def send(self, data: bytes) -> None:
        """Send everything; raises GatewayGone."""
        try:
            self.socket.sendall(data)
        except OSError as error:
            raise GatewayGone(str(error)) from None

    def read_object(self, max_bytes: int) -> "dict[str, Any]":
        """Read a line with a JSON object; raises GatewayGone."""
        while b"\n" not in self._received:
            if len(self._received) > max_bytes:
                raise GatewayGone("its answer is too long")
            self._received += self._receive()
        line, _, rest = self._received.partition(b"\n")
        self._received = rest
        try:
            found = json.loads(line)
        except ValueError:
            raise GatewayGone("its answer is not JSON") from None
        if not isinstance(found, dict):
            raise GatewayGone("its answer is not an object")
        return found

    def read_exactly(self, size: int) -> bytes:
        """Read so many bytes; raises GatewayGone if the gateway ends before."""
        while len(self._received) < size:
            self._received += self._receive()
        data = bytes(self._received[:size])
        del self._received[:size]
        return data

    def take_received(self) -> bytes:
        """Return bytes that were read beyond the answer."""
        data = bytes(self._received)
        self._received.clear()
        return data

    def end_requests(self) -> None:
        """Say that no more requests come; raises OSError."""
        self.socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()

    def _receive(self) -> bytes:
        try:
            data = self.socket.recv(65_536)
        except OSError as error:
            raise GatewayGone(str(error) or type(error).__name__) from None
        if not data:
            raise GatewayGone("it closed the connection")
        return data


class Channel(LineConnection):
    """One authenticated connection to a gateway."""

    def __init__(self, registration: Registration) -> None:
        try:
            super().__init__(_connect(registration.address))
        except OSError as error:
            raise GatewayGone(str(error)) from None
        self.registration = registration
        self.answer: dict[str, Any] = {}
        """What the gateway said when it opened the channel."""

    def __enter__(self) -> "Channel":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self, request: "dict[str, Any]", content: bytes) -> None:
        """Prove both sides, say what is wanted, and wait until it is granted."""
        key = self.registration.key
        nonce = os.urandom(16).hex()
        self.send(json.dumps({"portico": 1, "nonce": nonce}).encode() + b"\n")
        hello = self.read_object(MAX_LINE_BYTES)
        theirs = str(hello.get("nonce"))
        # From here on it is certain who listens; before, nothing but a nonce was sent.
        if hello.get("proof") != compute_digest(key, "gateway", nonce, theirs):
            raise GatewayGone("what listens there is another program")
        proof = compute_digest(key, "client", nonce, theirs)
        self.send(json.dumps({**request, "proof": proof}).encode() + b"\n" + content)
        self.answer = self.read_object(MAX_LINE_BYTES)
        if "refused" in self.answer:
            raise ChannelRefused(str(self.answer["refused"]))
        self.socket.settimeout(None)


def find_gateway(configuration: ServedConfiguration) -> RunningGateway | None:
    """Return the newest gateway of this user that serves this configuration and answers."""
    found = open_first_channel(configuration, {"open": "ping"})
    if found is None:
        return None
    found.close()
    return RunningGateway(found.registration)


def open_first_channel(
    configuration: ServedConfiguration, request: "dict[str, Any]", content: bytes = b""
) -> "Channel | None":
    """Open a channel to the newest gateway that grants it; None if there is none."""
    for registration in list_registrations(configuration):
        try:
            return RunningGateway(registration).open_channel(request, content)
        except (GatewayGone, ChannelRefused):
            continue
    return None


def _connect(address: str) -> socket.socket:
    kind, _, where = address.partition(":")
    if kind == "unix" and hasattr(socket, "AF_UNIX"):
        found = socket.socket(socket.AF_UNIX)
        target: Any = where
    elif kind == "tcp" and where.startswith(f"{LOOPBACK}:"):
        found = socket.socket(socket.AF_INET)
        target = (LOOPBACK, int(where.rpartition(":")[2]))
    else:
        raise OSError("an address that is not local")
    found.settimeout(CONNECT_TIMEOUT_S)
    try:
        found.connect(target)
    except BaseException:
        found.close()
        raise
    return found
