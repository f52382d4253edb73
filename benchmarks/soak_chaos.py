"""Measures what is done to the world of the soak, by a schedule that its seed decides; each deed is
booked
as a fault.

A fault says what it may be felt on and until when. Deeds that nobody may feel are booked too, and
explain nothing.
"""

import asyncio
import contextlib
import json
import math
import random
import signal
import time
from collections.abc import Awaitable, Callable, Sequence

import psutil

from benchmarks.soak_account import Books, Fault
from benchmarks.soak_clients import RECOVERY_S, Client
from benchmarks.soak_transports import StdioTransport
from benchmarks.soak_world import EXTRA, Helper, World, is_sandbox, server_of

TAKEN_S = 4.0
"""How long a changed file may take to be noticed, left alone for a moment, and taken."""
ANSWER_S = 30.0
RECENT = 500
"""Requests among which those under way are looked for."""
_BROKEN = (
    "servers: [",
    "servers: {b00: {comand: nothing}}\n",
    "\x00\x01",
    "limits: {requests: -1}\n",
)


class Chaos:
    """One deed after another until the run is over."""

    def __init__(
        self,
        world: World,
        gateway: psutil.Process,
        clients: Sequence[Client],
        books: Books,
        rng: random.Random,
        per_minute: float,
    ) -> None:
        self._world, self._gateway, self._clients, self._books, self._rng = (
            world,
            gateway,
            clients,
            books,
            rng,
        )
        self._pause = 60 / per_minute
        self._round = 0
        self._pending: set[asyncio.Task[None]] = set()
        self._file = asyncio.Lock()
        self._down: list[Helper] = []
        self.trouble: list[str] = []
        """Deeds that could not be done."""
        self._deeds: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            (6, self._kill_server),
            (2, self._freeze_server),
            (3, self._kill_helper),
            (4, self._kill_sandbox),
            (4, self._kill_client),
            (1, self._kill_own_gateway),
            (2, self._remove_server),
            (2, self._alter_server),
            (1.5, self._add_server),
            (2, self._alter_limits),
            (1.5, self._break_file),
            (2, self._restart_server),
        ]

    async def run(self, until: float) -> None:
        """Deeds at random moments; each is over, and what it took away is back, when this is
        over."""
        weights = [weight for weight, _ in self._deeds]
        while (left := until - time.monotonic()) > 0:
            await asyncio.sleep(min(left, self._rng.uniform(0.5, 1.5) * self._pause))
            _, deed = self._rng.choices(self._deeds, weights)[0]
            task = asyncio.create_task(self._done(deed))
            self._pending.add(task)
            task.add_done_callback(self._pending.discard)
        if self._pending:
            await asyncio.wait(self._pending)

    async def _done(self, deed: Callable[[], Awaitable[None]]) -> None:
        try:
            await deed()
        except psutil.NoSuchProcess:
            pass  # it went by itself meanwhile
        except (psutil.Error, OSError, TimeoutError) as error:
            self.trouble.append(f"{getattr(deed, '__name__', deed)}: {error!r}")

    def _book(self, what: str, *hits: str, lasts: float = 0.0) -> Fault:
        now = time.monotonic()
        self._books.faults.append(
            fault := Fault(what, frozenset(hits), now, now + lasts if lasts else float("inf"))
        )
        return fault

    # --- processes

    async def _children(
        self, wanted: Callable[[psutil.Process], bool]
    ) -> list[tuple[str, psutil.Process]]:
        """Of every gateway: its name, and a process below it."""
        gateways = {"main": self._gateway}
        for client in self._clients:
            if (
                isinstance(client.transport, StdioTransport)
                and (pid := client.transport.pid) is not None
            ):
                with contextlib.suppress(psutil.Error):
                    gateways[client.gateway] = psutil.Process(pid)

        def look() -> list[tuple[str, psutil.Process]]:
            found: list[tuple[str, psutil.Process]] = []
            for name, gateway in gateways.items():
                with contextlib.suppress(psutil.Error):
                    for child in gateway.children(recursive=True):
                        with contextlib.suppress(psutil.Error):
                            if wanted(child):
                                found.append((name, child))
            return found

        return await asyncio.to_thread(look)

    async def _kill_server(self) -> None:
        if not (found := await self._children(lambda one: server_of(one) is not None)):
            return
        gateway, process = self._rng.choice(self._at_work(found) or found)
        self._book("server killed", f"{gateway}/{server_of(process)}", lasts=RECOVERY_S)
        process.kill()

    def _at_work(self, found: list[tuple[str, psutil.Process]]) -> list[tuple[str, psutil.Process]]:
        """Those of whom something is asked now: a fault is for somebody to feel."""
        asked = {
            need
            for one in self._books.asked[-RECENT:]
            if one.ended == math.inf
            for need in one.needs
        }
        return [
            (gateway, one)
            for gateway, one in found
            if f"{gateway}/{server_of(one) or 'sandbox'}" in asked
        ]

    async def _freeze_server(self) -> None:
        if not (found := await self._children(lambda one: server_of(one) is not None)):
            return
        gateway, process = self._rng.choice(self._at_work(found) or found)
        fault = self._book("server frozen", f"{gateway}/{server_of(process)}")
        process.suspend()
        try:
            await asyncio.sleep(self._rng.uniform(0.5, 8))
        finally:
            with contextlib.suppress(psutil.Error):
                process.resume()
            # It may have been found dead just now, and be replaced.
            fault.until = time.monotonic() + RECOVERY_S

    async def _kill_helper(self) -> None:
        if not (up := [one for one in self._world.helpers if one not in self._down]):
            return
        helper = self._rng.choice(up)
        self._down.append(helper)
        gateways = {"main", *(client.gateway for client in self._clients)}
        fault = self._book(
            "HTTP servers killed", *(f"{one}/{name}" for one in gateways for name in helper.names)
        )
        helper.kill()
        try:
            await asyncio.sleep(self._rng.uniform(0.1, 2))
        finally:
            helper.start()
            self._down.remove(helper)
            fault.until = time.monotonic() + RECOVERY_S

    async def _kill_sandbox(self) -> None:
        found = await self._children(is_sandbox)
        for _ in range(50):
            if at_work := self._at_work(found):
                found = at_work
                break
            await asyncio.sleep(0.02)
        if not found:
            return
        gateway, process = self._rng.choice(found)
        self._book("sandbox killed", f"{gateway}/sandbox", lasts=1.0)
        process.kill()

    async def _kill_client(self) -> None:
        client = self._rng.choice(
            [one for one in self._clients if not isinstance(one.transport, StdioTransport)]
        )
        self._book("client killed", client.name, lasts=0.1)
        client.kill.set()

    async def _kill_own_gateway(self) -> None:
        clients = [
            one
            for one in self._clients
            if isinstance(one.transport, StdioTransport) and one.transport.pid is not None
        ]
        if not clients:
            return
        client = self._rng.choice(clients)
        assert isinstance(client.transport, StdioTransport)
        fault = self._book("stdio gateway killed", client.name)
        if (pid := client.transport.pid) is not None:
            psutil.Process(pid).send_signal(signal.SIGKILL)
        client.kill.set()
        while client.kill.is_set():  # noqa: ASYNC110 - the client looks when it is done with something
            await asyncio.sleep(0.05)
        fault.until = time.monotonic() + RECOVERY_S

    # --- configuration

    async def _remove_server(self) -> None:
        name = self._rng.choice([*self._world.fleet.piped, *self._world.fleet.remote])
        config = self._world.main
        if name in config.removed:
            return
        fault = self._book("server removed", f"main/{name}")
        config.removed.add(name)
        await self._written()
        try:
            await asyncio.sleep(self._rng.uniform(2, 5))
        finally:
            config.removed.discard(name)
            await self._written()
            fault.until = time.monotonic() + TAKEN_S + RECOVERY_S

    async def _alter_server(self) -> None:
        name = self._rng.choice(self._world.fleet.piped)
        self._round += 1
        self._world.main.servers[name] = {
            **self._world.main.servers[name],
            "args": self._world.args(name, self._round),
        }
        self._book("(server altered)")
        await self._written()

    async def _add_server(self) -> None:
        servers = self._world.main.servers
        self._book("(server added or dropped)")
        if EXTRA in servers:
            del servers[EXTRA]
        else:
            servers[EXTRA] = {
                **servers["b00"],
                "protocol": "legacy",
                "args": self._world.args(EXTRA, 0),
            }
        await self._written()

    async def _alter_limits(self) -> None:
        name = self._rng.choice(list(self._world.main.servers))
        limits = {"concurrency": self._rng.choice([16, 32, 64])}
        self._world.main.servers[name] = {**self._world.main.servers[name], "limits": limits}
        self._world.main.more = {"budgets": {"discovery": self._rng.choice([1_500, 2_000])}}
        self._book("(limits altered)")
        await self._written()

    async def _break_file(self) -> None:
        self._book("(configuration broken)")
        async with self._file:
            self._world.main.path.write_text(self._rng.choice(_BROKEN))
            await asyncio.sleep(self._rng.uniform(0.1, 2.5))
            self._world.main.write()

    async def _written(self) -> None:
        async with self._file:
            self._world.main.write(at_once=self._rng.random() < 0.7)

    async def _restart_server(self) -> None:
        name = self._rng.choice([*self._world.fleet.piped, *self._world.fleet.remote])
        self._book("(restart asked for)")
        async with asyncio.timeout(ANSWER_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", self._world.port)
            try:
                request = [
                    f"POST /api/v1/servers/{name}/restart HTTP/1.1",
                    f"host: 127.0.0.1:{self._world.port}",
                ]
                writer.write(
                    "\r\n".join(
                        [*request, "content-length: 0", "connection: close", "", ""]
                    ).encode()
                )
                answer = (await reader.read()).decode("utf-8", "replace")
            finally:
                writer.close()
        head, _, body = answer.partition("\r\n\r\n")
        status = head.split(" ")[1] if " " in head else "none"
        # A server that is removed, or killed, at that very moment cannot be started: that is said,
        # and in JSON.
        if status not in ("200", "404", "503") or not _is_json(body):
            self.trouble.append(f"restart of {name}: {answer[:300]}")


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
