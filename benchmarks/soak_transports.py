"""The ways in of the soak's clients: bare HTTP and bare pipes in both eras, and the SDK's client
for realism.

Each asks one request at a time or several at once, and gives the whole answer back. Anyone who is
cancelled hangs up: over HTTP by closing that connection, over pipes by `notifications/cancelled`,
as clients do.
"""

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from benchmarks import processes
from benchmarks.light_clients import LEGACY
from benchmarks.programs import MODERN

Message = dict[str, Any]
_META = "io.modelcontextprotocol/"
_MOST = 2**22
OPEN_S = 30.0
IDLE_S = 2.0
"""After which a connection is not used again: servers close idle ones, and a request must not meet
that."""
SIP, SIP_S = 2_048, 0.02
"""How a slow reader reads."""
CAPABILITIES: Message = {"elicitation": {"form": {}}}


class Lost(Exception):
    """The connection went before the answer came."""


class SoakTransport(Protocol):
    """One client's way in."""

    async def open(self) -> None: ...

    async def ask(self, method: str, params: Message, *, slow: bool = False) -> Message:
        """The whole answer; a question that comes before it is answered by the word in it."""
        ...

    async def close(self) -> None: ...


def reply_to(question: Message) -> Message:
    """Return what the user says to a server's question: its last word, so that the server receives
    to whom
    it
    spoke."""
    return {
        "action": "accept",
        "content": {"word": str(question.get("message", "")).strip("?").split()[-1]},
    }


def _about(name: str) -> Message:
    reported = {
        "protocolVersion": MODERN,
        "clientCapabilities": CAPABILITIES,
        "clientInfo": {"name": name, "version": "1"},
    }
    return {_META + key: value for key, value in reported.items()}


async def _ask_with_answers(
    ask: Callable[[str, Message], Any], method: str, params: Message, *, modern: bool
) -> Message:
    """Ask, and answer whatever has to be answered first in the new era."""
    message = await ask(method, params)
    while modern and (result := message.get("result") or {}).get("resultType") == "input_required":
        replies = {
            key: reply_to(one["params"]) for key, one in result.get("inputRequests", {}).items()
        }
        state = {"requestState": result["requestState"]} if "requestState" in result else {}
        message = await ask(method, {**params, "inputResponses": replies, **state})
    return message


class HttpTransport:
    """Bare HTTP: a connection for each request under way, kept for the next; a session in the old
    era."""

    def __init__(self, url: str, era: str, name: str) -> None:
        self._at, self._modern, self._name = urlsplit(url), era == "modern", name
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter, float]] = []
        self._ids = count(1)
        self._session = ""

    async def open(self) -> None:
        if self._modern:
            return
        hello = {
            "protocolVersion": LEGACY,
            "capabilities": CAPABILITIES,
            "clientInfo": _info(self._name),
        }
        async with asyncio.timeout(OPEN_S):
            answer = await self._post(
                {"id": next(self._ids), "method": "initialize", "params": hello}
            )
            if answer is None or "result" not in answer:
                raise Lost(f"initialize was answered {answer}")
            await self._post({"method": "notifications/initialized"})

    async def ask(self, method: str, params: Message, *, slow: bool = False) -> Message:
        async def once(method: str, params: Message) -> Message:
            given = {**params, "_meta": _about(self._name)} if self._modern else params
            answer = await self._post(
                {"id": next(self._ids), "method": method, "params": given}, slow=slow
            )
            if answer is None:
                raise Lost("the stream ended without an answer")
            return answer

        return await _ask_with_answers(once, method, params, modern=self._modern)

    async def close(self) -> None:
        with contextlib.suppress(OSError, Lost, TimeoutError):
            async with asyncio.timeout(OPEN_S):
                if self._session:
                    await self._exchange("DELETE", b"", {}, None)
        self.cut()
        self.forget()

    def cut(self) -> None:
        """Lose every connection; the session goes on."""
        for _, writer, _ in self._free:
            writer.close()
        self._free.clear()

    def forget(self) -> None:
        """Leave the session behind without a word."""
        self._session = ""

    @property
    def in_session(self) -> bool:
        return bool(self._session)

    async def _post(self, message: Message, *, slow: bool = False) -> Message | None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        about = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
        }
        if self._modern:
            named = message.get("params", {}).get("name")
            about |= {"mcp-protocol-version": MODERN, "mcp-method": message["method"]}
            about |= {"mcp-name": named} if named else {}
        return await self._exchange("POST", body, about, message.get("id"), slow=slow)

    async def _exchange(
        self, verb: str, body: bytes, about: Message, wanted: int | None, *, slow: bool = False
    ) -> Message | None:
        reader, writer = await self._connection()
        if self._session:
            about = {**about, "mcp-session-id": self._session, "mcp-protocol-version": LEGACY}
        lines = [
            f"{verb} {self._at.path} HTTP/1.1",
            f"host: {self._at.netloc}",
            f"content-length: {len(body)}",
        ]
        request = "\r\n".join(
            [*lines, *(f"{name}: {value}" for name, value in about.items()), "", ""]
        )
        whole = False
        try:
            writer.write(request.encode() + body)
            head = await reader.readuntil(b"\r\n\r\n")
            found, whole = await self._read(head.decode("latin-1"), reader, wanted, slow=slow)
            return found
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise Lost(repr(error)) from error
        finally:
            if whole:
                self._free.append((reader, writer, time.monotonic()))
            else:
                writer.close()

    async def _connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while self._free:
            reader, writer, since = self._free.pop()
            if time.monotonic() - since < IDLE_S and not reader.at_eof():
                return reader, writer
            writer.close()
        return await asyncio.open_connection(self._at.hostname, self._at.port, limit=_MOST)

    async def _read(
        self, head: str, reader: asyncio.StreamReader, wanted: int | None, *, slow: bool
    ) -> tuple[Message | None, bool]:
        first, *lines = head.strip().split("\r\n")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
        }
        status = int(first.split(" ")[1])
        self._session = headers.get("mcp-session-id", self._session)
        if headers.get("transfer-encoding") != "chunked":
            body = await _read_slowly(reader, int(headers.get("content-length", 0)), slow=slow)
            if wanted is None:
                return None, True
            try:
                return json.loads(body), True
            except ValueError:
                return {
                    "error": {
                        "code": f"HTTP {status}",
                        "message": body[:300].decode("utf-8", "replace"),
                    }
                }, True
        text, found = b"", None
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            text += await _read_slowly(reader, size, slow=slow)
            await reader.readexactly(2)
            *events, text = text.replace(b"\r\n", b"\n").split(b"\n\n")
            for event in events:
                data = b"\n".join(
                    line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:")
                )
                message = json.loads(data) if data else {}
                if message.get("id") == wanted and "method" not in message:
                    found = message
                elif "method" in message and "id" in message:
                    await self._reply(message)
        await reader.readexactly(2)
        if found is None and text.strip().startswith(b"{"):
            found = json.loads(text)
        return found, True

    async def _reply(self, question: Message) -> None:
        await self._post_reply(
            {"id": question["id"], "result": reply_to(question.get("params") or {})}
        )

    async def _post_reply(self, message: Message) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        about = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
        }
        await self._exchange("POST", body, about, None)


async def _read_slowly(reader: asyncio.StreamReader, size: int, *, slow: bool) -> bytes:
    if not slow:
        return await reader.readexactly(size)
    parts: list[bytes] = []
    while size:
        await asyncio.sleep(SIP_S)
        parts.append(part := await reader.readexactly(min(SIP, size)))
        size -= len(part)
    return b"".join(parts)


def _info(name: str) -> Message:
    return {"name": name, "version": "1"}


class StdioTransport:
    """A gateway of one's own, over its pipes."""

    def __init__(
        self, config: Path, log: Path, era: str, name: str, stray: Callable[[str], None]
    ) -> None:
        self._config, self._log, self._modern, self._name, self._stray = (
            config,
            log,
            era == "modern",
            name,
            stray,
        )
        self._ids = count(1)
        self._waiting: dict[int, asyncio.Future[Message]] = {}
        self._left: set[int] = set()
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """Of its gateway, while that runs."""
        return (
            self._process.pid
            if self._process is not None and self._process.returncode is None
            else None
        )

    async def open(self) -> None:
        command = [sys.executable, "-m", "portico", "stdio", "--config", str(self._config)]
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                cwd=processes.REPOSITORY,
                limit=_MOST,
            )
        self._waiting, self._left = {}, set()
        self._reading = asyncio.create_task(self._read(self._process, self._waiting, self._left))
        if not self._modern:
            hello = {
                "protocolVersion": LEGACY,
                "capabilities": CAPABILITIES,
                "clientInfo": _info(self._name),
            }
            async with asyncio.timeout(OPEN_S):
                await self._once("initialize", hello)
            self._send({"method": "notifications/initialized"})

    async def ask(self, method: str, params: Message, *, slow: bool = False) -> Message:
        return await _ask_with_answers(self._once, method, params, modern=self._modern)

    async def _once(self, method: str, params: Message) -> Message:
        if self.pid is None:
            raise Lost("its gateway does not run")
        number = next(self._ids)
        waiting = self._waiting[number] = asyncio.get_running_loop().create_future()
        given = {**params, "_meta": _about(self._name)} if self._modern else params
        try:
            self._send({"id": number, "method": method, "params": given})
            return await waiting
        except asyncio.CancelledError:
            self._left.add(number)
            with contextlib.suppress(Lost):
                self._send({"method": "notifications/cancelled", "params": {"requestId": number}})
            raise
        finally:
            self._waiting.pop(number, None)

    def _send(self, message: Message) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        if self._process.stdin.is_closing():
            raise Lost("its gateway has gone")
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def _read(
        self,
        process: asyncio.subprocess.Process,
        waiting: dict[int, asyncio.Future[Message]],
        left: set[int],
    ) -> None:
        assert process.stdout is not None
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while line := await process.stdout.readline():
                message = json.loads(line)
                if "method" in message:
                    if "id" in message:
                        with contextlib.suppress(Lost):
                            self._send(
                                {
                                    "id": message["id"],
                                    "result": reply_to(message.get("params") or {}),
                                }
                            )
                elif (one := waiting.get(message.get("id"))) is not None:
                    if not one.done():
                        one.set_result(message)
                elif message.get("id") not in left:
                    self._stray(f"{self._name}: {line[:300]!r}")
        for one in waiting.values():
            if not one.done():
                one.set_exception(Lost("its gateway ended"))

    async def close(self) -> None:
        if self._process is None:
            return
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(OPEN_S):
                await self._process.wait()
        except TimeoutError:
            self._stray(f"{self._name}: its gateway did not end within {OPEN_S:g} s of its stdin")
            self._process.kill()
            await self._process.wait()
        if self._reading is not None:
            await asyncio.wait({self._reading}, timeout=OPEN_S)


class SdkTransport:
    """The SDK's client, as most programs use it; it is opened and closed by one task, as it
    demands."""

    def __init__(self, url: str, era: str, name: str) -> None:
        self._url, self._era, self._name = url, era, name
        self._over = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None
        self._client: Any = None

    async def open(self) -> None:
        ready = asyncio.get_running_loop().create_future()
        self._keeping = asyncio.create_task(self._keep(ready))
        async with asyncio.timeout(OPEN_S):
            await asyncio.wait({ready, self._keeping}, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            raise Lost(f"it could not be opened: {self._keeping.exception()!r}")

    async def _keep(self, ready: "asyncio.Future[None]") -> None:
        from mcp import Client
        from mcp_types import ElicitResult, Implementation

        async def elicited(context: Any, params: Any) -> ElicitResult:
            return ElicitResult(**reply_to({"message": params.message}))

        info = Implementation(name=self._name, version="1")
        mode = "legacy" if self._era == "legacy" else MODERN
        client = Client(self._url, mode=mode, client_info=info, elicitation_callback=elicited)
        async with client as self._client:
            ready.set_result(None)
            await self._over.wait()

    async def ask(self, method: str, params: Message, *, slow: bool = False) -> Message:
        from mcp.shared.exceptions import MCPError

        assert method == "tools/call"
        try:
            result = await self._client.call_tool(params["name"], params["arguments"])
        except MCPError as error:
            return {"error": {"code": error.error.code, "message": error.error.message}}
        return {"result": result.model_dump(mode="json", by_alias=True, exclude_none=True)}

    async def close(self) -> None:
        self._over.set()
        if self._keeping is not None:
            await asyncio.wait({self._keeping}, timeout=OPEN_S)
