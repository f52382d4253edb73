"""The clients of the soak: each does one thing after another, now and then several at once, and
books every request."""

import asyncio
import random
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.soak_account import (
    CROSSED,
    ERROR,
    HUNG,
    LEFT,
    LOST,
    OK,
    Asked,
    Books,
    Fault,
    outcome,
)
from benchmarks.soak_transports import HttpTransport, Lost, SoakTransport, StdioTransport

LINE = 400
"""Characters of a line in a server's large answer."""

DEADLINE_S = 30.0
"""Far above every limit in the configuration: anyone who waits so long waits for ever."""
RECOVERY_S = 3.0
"""How long a server that died may be missed: it restarts with the next call, on a busy machine.
"""
ABANDONS = 0.2
"""How many of the killed clients never come back: their sessions stay for as long as the gateway
keeps idle ones."""
SESSION = "portico/session"
_HANDLE = re.compile(r"portico://result/([\w-]+)")
_CODE = {
    "python": (
        "import asyncio\n"
        "a, b = await asyncio.gather({one}(nonce='{x}', delay_ms={ms}), {two}(nonce='{y}'))\n"
        "result({{'a': [a['nonce'], a['server']], 'b': [b['nonce'], b['server']]}})"
    ),
    "lua": (
        "local a = {one}({{nonce='{x}', delay_ms={ms}}}):await()\n"
        "local b = {two}({{nonce='{y}'}}):await()\n"
        "result({{a={{a.nonce, a.server}}, b={{b.nonce, b.server}}}})"
    ),
    "javascript": (
        "const [a, b] = await Promise.all([{one}({{nonce: '{x}', delay_ms: {ms}}}), "
        "{two}({{nonce: '{y}'}})]);\n"
        "result({{a: [a.nonce, a.server], b: [b.nonce, b.server]}});"
    ),
    "typescript": (
        "const made = await Promise.all([{one}({{nonce: '{x}', delay_ms: {ms}}}), "
        "{two}({{nonce: '{y}'}})]);\n"
        "const [a, b]: any[] = made;\n"
        "result({{a: [a.nonce, a.server] as string[], b: [b.nonce, b.server]}});"
    ),
}


@dataclass(frozen=True)
class Target:
    """One server as clients know it."""

    name: str
    says: str
    """The name in its answers."""
    tools: frozenset[str]
    isolated: bool = False


Action = Callable[[], Awaitable[None]]


class Client:
    """One client for the whole run; what it speaks through may be killed and opened again."""

    def __init__(
        self,
        name: str,
        gateway: str,
        transport: Callable[[], SoakTransport],
        targets: Sequence[Target],
        books: Books,
        rng: random.Random,
        *,
        rate: float,
        claims: bool = False,
        plain: bool = False,
    ) -> None:
        """`claims`: it uses servers that keep a state for each client; `plain`: it never hangs
        up."""
        self.name, self.gateway = name, gateway
        self._make, self._books, self._rng, self._rate, self._plain = (
            transport,
            books,
            rng,
            rate,
            plain,
        )
        self._targets = [one for one in targets if claims or not one.isolated]
        self.transport: SoakTransport = transport()
        self.kill = asyncio.Event()
        self._generation = 0
        self._opened = False
        self._handles: dict[str, str] = {}
        kinds: list[tuple[float, Action]] = [
            (40, self._echo),
            (6, self._burst),
            (4, self._large),
            (8, self._search),
            (5, self._describe),
            (7, self._code),
            (4, self._flow),
            (3, self._ask),
            (1.5, self._fail),
            (0.4, self._hang),
            (0.3, self._crash),
            (1, self._unknown),
        ]
        kinds += [(4, self._claim)] * claims
        kinds += [] if plain else [(3, self._leave), (1.5, self._sip), (1.5, self._reopen)]
        self._weights, self._actions = (
            [weight for weight, _ in kinds],
            [action for _, action in kinds],
        )

    async def live(self, until: float) -> None:
        """Until the run is over; it has to be open."""
        while (left := until - time.monotonic()) > 0:
            await asyncio.sleep(min(left, self._rng.expovariate(self._rate)))
            action = asyncio.ensure_future(self._rng.choices(self._actions, self._weights)[0]())
            killed = asyncio.ensure_future(self.kill.wait())
            await asyncio.wait({action, killed}, return_when=asyncio.FIRST_COMPLETED)
            killed.cancel()
            if self.kill.is_set():
                action.cancel()
                await asyncio.wait({action})
                await self._killed()
                self.kill.clear()
            else:
                await action
        await self.transport.close()

    async def open(self) -> None:
        """Say hello, where the era has that."""
        record = self._book("open", frozenset())
        try:
            await self.transport.open()
        except (Lost, OSError, TimeoutError) as error:
            self._note(record, HUNG if isinstance(error, TimeoutError) else LOST, "", repr(error))
        except asyncio.CancelledError:
            self._note(record, LEFT)
            raise
        else:
            self._opened = True
            self._note(record, OK)

    async def _killed(self) -> None:
        """Its connections are gone. Mostly it comes back with the session it had; else that is left
        to the gateway."""
        if not isinstance(self.transport, HttpTransport):
            await self._again()
            return
        self.transport.cut()
        # Killed while it opened a session: there is none to come back with.
        if not self._opened or self._rng.random() < ABANDONS:
            self._books.abandoned += self.transport.in_session
            self.transport.forget()
            await self._again()

    async def _again(self) -> None:
        self._opened = False
        await self.transport.close()
        self._generation += 1
        self._handles.clear()
        self.transport = self._make()
        await self.open()

    # --- one request

    def _book(
        self,
        what: str,
        needs: frozenset[str],
        nonces: frozenset[str] = frozenset(),
        wants: str = OK,
    ) -> Asked:
        whole = needs | {self.gateway, self.name}
        self._books.asked.append(
            record := Asked(self.name, what, whole, nonces, time.monotonic(), wants)
        )
        return record

    def _note(self, record: Asked, how: str, kind: str = "", said: str = "") -> None:
        record.ended, record.outcome, record.kind, record.said = (
            time.monotonic(),
            how,
            kind,
            said[:500],
        )

    async def _call(
        self,
        what: str,
        tool: str,
        arguments: dict[str, Any],
        servers: Sequence[Target] = (),
        nonces: Sequence[str] = (),
        marks: Sequence[str] = (),
        *,
        wants: str = OK,
        leave_after: float | None = None,
        slow: bool = False,
        sandbox: bool = False,
    ) -> dict[str, Any]:
        """Ask, book, and give the answer where it was a right one."""
        needs = {f"{self.gateway}/{one.name}" for one in servers} | (
            {f"{self.gateway}/sandbox"} if sandbox else set()
        )
        own = frozenset(nonces)
        record = self._book(what, frozenset(needs), own, wants)
        try:
            async with asyncio.timeout(leave_after or DEADLINE_S):
                message = await self.transport.ask(
                    "tools/call", {"name": tool, "arguments": arguments}, slow=slow
                )
        except TimeoutError:
            self._note(record, LEFT if leave_after else HUNG)
            return {}
        except (Lost, OSError) as error:
            self._note(record, LOST, "", repr(error))
            if isinstance(self.transport, StdioTransport):
                await asyncio.sleep(0.2)
            return {}
        except asyncio.CancelledError:
            self._note(record, LEFT)
            raise
        how, kind = outcome(message, own, [*nonces, *marks], failing=wants == ERROR)
        self._note(record, how, kind, str(message) if how in (ERROR, CROSSED) else "")
        return message["result"] if how == OK else {}

    def _nonce(self) -> str:
        return f"~{self._rng.getrandbits(64):016x}~"

    def _one(self, tool: str = "echo") -> Target:
        return self._rng.choice(
            [one for one in self._targets if tool in one.tools and not one.isolated]
        )

    # --- what it does

    async def _echo(self) -> None:
        tool = self._rng.choice(["echo", "peek"])
        server, nonce = self._one(tool), self._nonce()
        delay = self._rng.choice([0, 0, 5, 50, 200, 600])
        given = {
            "nonce": nonce,
            "delay_ms": delay,
            "size": self._rng.choice([0, 0, 0, 2_000, 8_000]),
        }
        call = {"name": f"{server.name}.{tool}", "arguments": given}
        await self._call(tool, "call_tool", call, [server], [nonce], [server.says])

    async def _burst(self) -> None:
        await asyncio.gather(*(self._echo() for _ in range(self._rng.randint(3, 6))))

    async def _large(self) -> None:
        server, nonce = self._one(), self._nonce()
        size = self._rng.choice([60_000, 150_000, 400_000])
        call = {"name": f"{server.name}.echo", "arguments": {"nonce": nonce, "size": size}}
        result = await self._call("large", "call_tool", call, [server], [nonce])
        if found := _HANDLE.search(str(result)):
            last = f"{nonce} line {size // LINE - 1} "
            read = {"result_id": found[1], "grep": last}
            await self._call("read_result", "read_result", read, [], [nonce], [last])

    async def _sip(self) -> None:
        server, nonce = self._one(), self._nonce()
        call = {"name": f"{server.name}.echo", "arguments": {"nonce": nonce, "size": 20_000}}
        await self._call("slow reader", "call_tool", call, [server], [nonce], slow=True)

    async def _search(self) -> None:
        nonce = self._nonce()
        await self._call(
            "search", "search_tools", {"query": f"say back {nonce}", "limit": 4}, [], [nonce]
        )

    async def _describe(self) -> None:
        server = self._one()
        name = f"{server.name}.echo"
        await self._call(
            "describe", "describe_tools", {"names": [name]}, [server], [], ["delay_ms"]
        )

    async def _code(self) -> None:
        language = self._rng.choice(list(_CODE))
        one, two, x, y = self._one(), self._one(), self._nonce(), self._nonce()
        spelt = {"one": f"{one.name}.echo", "two": f"{two.name}.echo", "x": x, "y": y}
        code = _CODE[language].format(**spelt, ms=self._rng.choice([0, 0, 50, 200]))
        call = {"code": code, "language": language}
        await self._call(
            language, "run_code", call, [one, two], [x, y], [one.says, two.says], sandbox=True
        )

    async def _flow(self) -> None:
        one, two, three = self._one(), self._one(), self._one()
        x, y = self._nonce(), self._nonce()
        steps = [
            {"id": "a", "tool": f"{one.name}.echo", "arguments": {"nonce": x, "delay_ms": 20}},
            {"id": "b", "tool": f"{two.name}.echo", "arguments": {"nonce": y}},
            {
                "id": "c",
                "tool": f"{three.name}.echo",
                "arguments": {"nonce": "${a.nonce}${b.nonce}"},
            },
        ]
        marks = [x + y, three.says]
        await self._call(
            "workflow", "run_workflow", {"steps": steps}, [one, two, three], [x, y], marks
        )

    async def _ask(self) -> None:
        asking = [one for one in self._targets if "ask" in one.tools]
        if not asking:
            return
        server, nonce = self._rng.choice(asking), self._nonce()
        call = {"name": f"{server.name}.ask", "arguments": {"nonce": nonce}}
        marks = [f'"word": "{nonce}"', server.says]
        await self._own("question", call, server, nonce, marks)

    async def _claim(self) -> None:
        server, nonce = (
            self._rng.choice([one for one in self._targets if one.isolated]),
            self._nonce(),
        )
        owner = f"{self.name}#{self._generation}"
        call = {"name": f"{server.name}.claim", "arguments": {"nonce": nonce, "owner": owner}}
        await self._own("claim", call, server, nonce, [f'"owner": "{owner}"'])

    async def _own(
        self, what: str, call: dict[str, Any], server: Target, nonce: str, marks: Sequence[str]
    ) -> None:
        """A call of a server that may keep a state for each client: with the handle that an earlier
        answer gave."""
        if handle := self._handles.get(server.name):
            call["session"] = handle
        result = await self._call(what, "call_tool", call, [server], [nonce], marks)
        if given := (result.get("_meta") or {}).get(SESSION):
            self._handles[server.name] = given
        elif not result:
            self._handles.pop(server.name, None)

    async def _fail(self) -> None:
        await self._failing("fail")

    async def _hang(self) -> None:
        await self._failing("hang")

    async def _crash(self) -> None:
        server = self._one("crash")
        fault = Fault(
            "crash of a call", frozenset({f"{self.gateway}/{server.name}"}), time.monotonic()
        )
        self._books.faults.append(fault)
        try:
            await self._failing("crash", server)
        finally:
            fault.until = time.monotonic() + RECOVERY_S

    async def _failing(self, tool: str, server: Target | None = None) -> None:
        server, nonce = server or self._one(tool), self._nonce()
        call = {"name": f"{server.name}.{tool}", "arguments": {"nonce": nonce}}
        await self._call(tool, "call_tool", call, [server], [nonce], wants=ERROR)

    async def _unknown(self) -> None:
        await self._call(
            "unknown", "call_tool", {"name": "nobody.nothing", "arguments": {}}, wants=ERROR
        )

    async def _leave(self) -> None:
        server, nonce = self._one(), self._nonce()
        call = {"name": f"{server.name}.echo", "arguments": {"nonce": nonce, "delay_ms": 2_000}}
        after = self._rng.uniform(0.01, 0.6)
        await self._call("hangs up", "call_tool", call, [server], [nonce], leave_after=after)

    async def _reopen(self) -> None:
        if isinstance(self.transport, HttpTransport):
            await self._again()
