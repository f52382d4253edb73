"""`portico stdio` as a bridge: copies lines between a client and the gateway that already runs.

The gateway serves the connection as it serves a pipe: with a session of its own, in whatever era
the client speaks. The bridge reads only what it needs when the gateway ends in mid-session: ids of
unanswered requests, which then get an error at once, and what opened the session, which it repeats
at the gateway that comes back. A client that asks something meanwhile and has waited
`ALONE_AFTER_S` gets a gateway of its own, as without a shared one: most clients never start a
server again that has ended. Standard library only, and no event loop: there is one of these for
each client.
"""

import json
import os
import re
import signal
import socket
import sys
import threading
import time

from portico import __version__
from portico.cli.local_gateway.connection import (
    MAX_REPLY_BYTES,
    ChannelRefused,
    GatewayGone,
    LineConnection,
    open_first_channel,
)
from portico.cli.local_gateway.registration import identify_configuration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, NoReturn

    from portico.cli.local_gateway.registration import ServedConfiguration

ALONE_AFTER_S = 5.0
"""A gateway that is restarted is back earlier."""
RETRY_S = 0.25
MAX_RETRY_S = 2.0
REPLAY_TIMEOUT_S = 10.0
START_TIMEOUT_S = 60.0
CHUNK_BYTES = 65_536
MAX_READ_BYTES = 16 * 2**20
"""Longer lines of the client are passed on unread."""
_INTERNAL_ERROR = -32603
_OWN_ID = "portico-bridge"
_ANSWER = re.compile(rb'\A\{"jsonrpc":"2\.0","id":(\d{1,18}|"[^"\\]{1,200}"),"(?:result|error)"')
"""How the gateway begins an answer."""
_LISTS = ("tools", "resources", "prompts")


def run_bridge(files: "Sequence[str]", profile: str | None, exposure: str | None) -> None:
    """Serve this client through a running gateway, and end the process with it.

    Returns if no gateway runs for this configuration.
    """
    configuration = identify_configuration(files, exposure)
    request = {"open": "stdio", "profile": profile}
    channel = open_first_channel(configuration, request)
    if channel is None:
        return
    if channel.registration.version != __version__:
        _print_note(
            f"The running gateway is Portico {channel.registration.version}, this is "
            f"{__version__}: `portico restart` brings it up to date."
        )
    command = [sys.executable, "-m", "portico", "stdio", "--alone"]
    for file in configuration.files:
        command += ["--config", file]
    if profile is not None:
        command += ["--profile", profile]
    if exposure is not None:
        command += ["--exposure", exposure]
    Bridge(configuration, request, command, channel).run()


class ClientSession:
    """What the client has opened and still waits for."""

    def __init__(self) -> None:
        self.pending: dict[int | str, str] = {}
        """Methods of unanswered requests, by id."""
        self.protocol_version = ""
        """What `initialize` has agreed on; empty in the modern era."""
        self._opening: dict[str, dict[str, Any]] = {}
        """Messages that a new session has to repeat, in their order."""

    def read_request(self, line: bytes) -> None:
        """Remember what a line of the client asks for."""
        message = _parse_object(line) if len(line) <= MAX_READ_BYTES else {}
        method = message.get("method")
        if not isinstance(method, str):
            return
        id = message.get("id")
        if isinstance(id, int | str):
            self.pending[id] = method
        params = message.get("params")
        values: dict[str, Any] = params if isinstance(params, dict) else {}
        if method == "notifications/cancelled":
            self.pending.pop(values.get("requestId", ""), None)
        elif method in ("initialize", "notifications/initialized", "logging/setLevel"):
            self._opening[method] = message
        elif method == "resources/subscribe":
            self._opening[f"subscribe {values.get('uri')}"] = message
        elif method == "resources/unsubscribe":
            self._opening.pop(f"subscribe {values.get('uri')}", None)

    def read_answer(self, line: bytes) -> None:
        """Forget the request that a line of the gateway (or its first bytes) answers."""
        match = _ANSWER.match(line)
        if match is None:
            return
        method = self.pending.pop(json.loads(match[1]), None)
        if method == "initialize":
            result = _parse_object(line).get("result")
            if isinstance(result, dict):
                self.protocol_version = str(result.get("protocolVersion", ""))

    def reopen(self, channel: LineConnection, timeout_s: float) -> list[bytes]:
        """Open the session again at a new gateway; return lines for the client.

        Raises GatewayGone, or ChannelRefused if the new gateway does not speak the same version.
        """
        channel.socket.settimeout(timeout_s)
        lines: list[bytes] = []
        for message in self._opening.values():
            own_id = f"{_OWN_ID}-{message.get('id')}"
            copied = {**message, "id": own_id} if "id" in message else message
            channel.send(json.dumps(copied).encode() + b"\n")
            if "id" not in message:
                continue
            while (answer := channel.read_object(MAX_REPLY_BYTES)).get("id") != own_id:
                lines.append(json.dumps(answer).encode() + b"\n")
            if message["method"] == "initialize":
                lines += self._check_initialized(answer)
        channel.socket.settimeout(None)
        return lines

    def _check_initialized(self, answer: "dict[str, Any]") -> list[bytes]:
        """Return notifications that every list may have changed."""
        result: dict[str, Any] = answer.get("result") or {}
        if result.get("protocolVersion") != self.protocol_version:
            raise ChannelRefused("the new gateway speaks another protocol version")
        offered: dict[str, Any] = result.get("capabilities") or {}
        return [
            json.dumps({"jsonrpc": "2.0", "method": f"notifications/{kind}/list_changed"}).encode()
            + b"\n"
            for kind in _LISTS
            if (offered.get(kind) or {}).get("listChanged")
        ]


class OwnGateway(LineConnection):
    """A gateway that only this client uses; requests go by one socket, answers by another."""

    def __init__(self, requests: socket.socket, answers: socket.socket) -> None:
        super().__init__(answers)
        self._requests = requests

    def send(self, data: bytes) -> None:
        """Send everything; raises GatewayGone."""
        try:
            self._requests.sendall(data)
        except OSError as error:
            raise GatewayGone(str(error)) from None

    def end_requests(self) -> None:
        """Say that no more requests come; raises OSError."""
        self._requests.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close both."""
        self._requests.close()
        self.socket.close()


class Bridge:
    """One client on stdin and stdout, and its connection to the gateway."""

    def __init__(
        self,
        configuration: "ServedConfiguration",
        request: "dict[str, Any]",
        alone_command: "Sequence[str]",
        channel: LineConnection,
    ) -> None:
        """`alone_command` serves this client without a shared gateway."""
        self._configuration = configuration
        self._request = request
        self._alone_command = alone_command
        self._session = ClientSession()
        self._changed = threading.Condition()
        """Guards the session and the channel."""
        self._channel: LineConnection | None = channel
        self._waiting_since: float | None = None
        """When the client sent the first line that no gateway has taken yet."""
        self._is_client_done = False
        self._is_in_line = False
        """The last line written to the client is not complete."""

    def run(self) -> "NoReturn":
        """Copy until the client or the gateway ends; ends the process."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: os._exit(0))
        threading.Thread(target=self._copy_requests, daemon=True).start()
        channel = self._channel
        while channel is not None:
            self._copy_answers(channel)
            channel = self._replace_channel(channel)
        os._exit(0)

    def _copy_requests(self) -> None:
        rest = bytearray()
        while chunk := _read_stdin():
            rest += chunk
            *lines, last = rest.split(b"\n")
            for line in lines:
                self._send(bytes(line) + b"\n")
            rest = last
        if rest:
            self._send(bytes(rest) + b"\n")
        with self._changed:
            self._is_client_done = True
            channel = self._channel
        if channel is None:
            os._exit(0)
        try:
            # The gateway ends the connection when it has answered what was asked.
            channel.end_requests()
        except OSError:
            os._exit(0)

    def _send(self, line: bytes) -> None:
        with self._changed:
            if self._channel is None:
                self._waiting_since = time.monotonic()
            while self._channel is None:
                self._changed.wait()
            self._waiting_since = None
            channel = self._channel
            self._session.read_request(line)
        try:
            channel.send(line)
        except GatewayGone:
            return  # the reader notices too, and answers what is pending

    def _copy_answers(self, channel: LineConnection) -> None:
        """Copy to the client until the gateway ends."""
        head = b""
        data = channel.take_received()
        while True:
            *ends, last = data.split(b"\n")
            with self._changed:
                for end in ends:
                    self._session.read_answer(head + end)
                    head = b""
            if len(head) < CHUNK_BYTES:
                head += last
            if data:
                self._is_in_line = bool(last)
                _write_stdout(data)
            try:
                data = channel.socket.recv(CHUNK_BYTES)
            except OSError:
                return
            if not data:
                return

    def _replace_channel(self, channel: LineConnection) -> LineConnection | None:
        """Answer what is pending, and connect again; None if the client has gone."""
        channel.close()
        with self._changed:
            if self._is_client_done:
                return None
            self._channel = None
            pending = list(self._session.pending)
            self._session.pending.clear()
        self._refuse(pending)
        found, lines = self._reconnect()
        _write_stdout(b"".join(lines))
        with self._changed:
            self._channel = found
            self._changed.notify_all()
        return found

    def _reconnect(self) -> tuple[LineConnection, list[bytes]]:
        """Open the session at the next shared gateway, or at one of this client's own."""
        retry_s = RETRY_S
        while not self._has_waited_long():
            channel = open_first_channel(self._configuration, self._request)
            if channel is None:
                time.sleep(retry_s)
                retry_s = min(retry_s * 1.2, MAX_RETRY_S)
                continue
            try:
                return channel, self._session.reopen(channel, REPLAY_TIMEOUT_S)
            except GatewayGone:
                channel.close()
            except ChannelRefused as refused:
                _end(f"The session cannot go on: {refused}.")
        _print_note(
            "The shared gateway has ended and did not come back: this client has one of its own "
            "from now on. `portico start` starts the shared one for new sessions."
        )
        try:
            alone = _start_alone(self._alone_command)
            return alone, self._session.reopen(alone, START_TIMEOUT_S)
        except (OSError, GatewayGone, ChannelRefused) as error:
            _end(f"The session cannot go on: {error}.")

    def _has_waited_long(self) -> bool:
        """Whether the client has waited so long for an answer that it gets its own gateway."""
        with self._changed:
            since = self._waiting_since
        return since is not None and time.monotonic() - since > ALONE_AFTER_S

    def _refuse(self, ids: "Sequence[int | str]") -> None:
        if self._is_in_line:
            _write_stdout(b"\n")
            self._is_in_line = False
        text = "the shared gateway ended before it had answered; whether it ran is not known"
        for id in ids:
            error = {"code": _INTERNAL_ERROR, "message": text}
            _write_stdout(json.dumps({"jsonrpc": "2.0", "id": id, "error": error}).encode() + b"\n")


def _start_alone(command: "Sequence[str]") -> LineConnection:
    """Start a gateway that serves this client; it ends when the connection is closed."""
    import subprocess

    if sys.platform == "win32":
        raise OSError("the shared gateway did not come back; `portico start` starts it")
    # One for each way: an event loop takes what arrives where it writes for the end of its reader.
    own_requests, its_requests = socket.socketpair()
    own_answers, its_answers = socket.socketpair()
    with its_requests, its_answers:
        stdin = its_requests.fileno()
        stdout = its_answers.fileno()
        subprocess.Popen(command, stdin=stdin, stdout=stdout)  # noqa: S603 - this program itself
    return OwnGateway(own_requests, own_answers)


def _parse_object(line: bytes) -> "dict[str, Any]":
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _read_stdin() -> bytes:
    try:
        return os.read(0, CHUNK_BYTES)
    except OSError:
        return b""


def _write_stdout(data: bytes) -> None:
    try:
        while data:
            data = data[os.write(1, data) :]
    except OSError:
        os._exit(0)  # the client has gone


def _print_note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - for the client's log


def _end(text: str) -> "NoReturn":
    _print_note(text)
    os._exit(1)
