"""What the new user does, one step after another, and what came of each."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import subprocess
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.acceptance.calls import (
    Answer,
    CallFailed,
    call_directly,
    call_each,
    call_through,
    call_tool,
)
from tests.acceptance.client_files import DENIED
from tests.acceptance.client_programs import (
    ClientProgram,
    list_portico,
    prepare_programs,
    take_turn,
)
from tests.acceptance.fleet import MARK, Fleet, Started
from tests.acceptance.model_endpoint import ModelEndpoint
from tests.acceptance.processes import find_processes, kill
from tests.acceptance.user import PORTICO, User
from tests.real_servers.http_wire import HttpConversation
from tests.real_servers.jsonrpc_client import Conversation
from tests.real_servers.stdio_wire import StdioConversation

CLIENTS = (
    "claude-code",
    "codex",
    "gemini",
    "claude-desktop",
    "cursor",
    "vscode",
    "windsurf",
    "zed",
    "cline",
)
START_S = 60.0
SETTLE_S = 20.0
STEPS = (
    "before",
    "adopt",
    "install",
    "calls by stdio",
    "start, stop",
    "calls by http",
    "calls by call",
    "deny rules",
    "disable, enable",
    "kill",
    "three clients",
    "gateway killed",
    "clients",
    "uninstall",
)
WAYS = ("directly", "stdio", "http", "call")


@dataclass(frozen=True)
class Check:
    """One thing that must hold."""

    step: str
    what: str
    holds: bool
    detail: str = ""


@dataclass
class Acceptance:
    """One run: who plays with what, and everything that was seen."""

    fleet: Fleet
    user: User
    servers: Sequence[Started]
    model: ModelEndpoint
    checks: list[Check] = field(default_factory=list[Check])
    answers: dict[str, dict[str, Answer]] = field(default_factory=dict[str, dict[str, Answer]])
    say: Callable[[str], None] = print

    async def run(self) -> None:
        """All steps in their order."""
        for step in (self.call_before, self.adopt, self.install, self.call_alone):
            await self._take(step)
        async with self._shared_gateway() as url:
            self.say(f"shared gateway at {url}")
            for shared in (
                self.call_shared,
                self.refuse_denied,
                self.disable_and_enable,
                self.kill_and_call,
                self.serve_three_at_once,
                self.kill_gateway,
                self.list_in_clients,
            ):
                began = time.monotonic()
                await shared(url)
                self.say(f"{shared.__name__}: {time.monotonic() - began:.0f} s")
        for step in (self.take_turns, self.uninstall):
            await self._take(step)

    async def _take(self, step: Callable[[], object]) -> None:
        began = time.monotonic()
        if asyncio.iscoroutine(doing := step()):
            await doing
        self.say(f"{step.__name__}: {time.monotonic() - began:.0f} s")

    def check(self, step: str, what: str, holds: bool, detail: str = "") -> None:
        self.checks.append(Check(step, what, holds, detail))
        if not holds:
            self.say(f"FAILED {step}: {what}: {detail}")

    def find(self, name: str) -> Started:
        return next(started for started in self.servers if started.server.name == name)

    async def call_before(self) -> None:
        """Every server directly, in the user's environment; and those that need a variable of it
        without that."""
        env = self.user.env
        project = str(self.user.files.project)
        self.answers["directly"] = await call_each(
            self.servers, lambda it: call_directly(it, env, project)
        )
        for it in self.servers:
            answer = self.answers["directly"][it.server.name]
            if answer.works != it.server.works:
                wanted = "works" if it.server.works else "fails"
                self.check("before", f"{it.server.name} {wanted}", False, answer.text)
        needy = [it for it in self.servers if it.server.needs]

        async def call_without(it: Started) -> str:
            poor = {key: value for key, value in env.items() if key not in it.server.needs}
            return await call_directly(it, poor, project)

        for name, answer in (await call_each(needy, call_without)).items():
            self.check("before", f"{name} fails without its variables", not answer.works)

    def adopt(self) -> None:
        """`portico adopt` takes over every server, and none that is switched off."""
        # In the project's folder, so that its `.mcp.json` is seen; the rest is done at home, where
        # the adopted configuration is the one that is found.
        ran = self.user.portico("adopt", "--yes", limit_s=300, cwd=self.user.files.project)
        self.check("adopt", "ends well", ran.code == 0, ran.describe())
        self.check("adopt", "no client file changed", not self.user.files.find_changed())
        adopted = self.user.read_config()["servers"]
        for it in self.servers:
            name = it.server.name
            self.check("adopt", f"{name} is adopted", name in adopted, str(sorted(adopted)))
        off = adopted.get("switched-off", {"disabled": True})
        self.check("adopt", "a server that is switched off stays so", off.get("disabled") is True)

    def install(self) -> None:
        """`portico install --replace` into every client."""
        for client in CLIENTS:
            ran = self.user.portico("install", client, "--replace", "--write")
            self.check("install", client, ran.code == 0, ran.describe())
        # A rule that asks a person, servers that cannot be used, and those of one project.
        kept = {"filesystem"} | {
            it.server.name
            for it in self.servers
            if not it.server.works or it.server.clients == ("claude-local",)
        }
        for path, before in self.user.files.before.items():
            now = path.read_text("utf-8")
            is_shared = path.parent == self.user.files.project
            if is_shared or not any(_names_server(before.decode(), it) for it in self.servers):
                continue
            where = path.relative_to(self.user.files.home)
            self.check("install", f"{where} names Portico", str(PORTICO) in now)
            left = {it.server.name for it in self.servers if _names_server(now, it)} - kept
            self.check("install", f"{where} names no server twice", not left, str(sorted(left)))

    async def call_alone(self) -> None:
        """Every server over one `portico stdio`, as a client starts it."""
        async with self._open_stdio().opened() as talk:
            self.answers["stdio"] = await call_each(self.servers, lambda it: _call(talk, it))
        self._compare("stdio")

    async def call_shared(self, url: str) -> None:
        """Every server over HTTP, and by `portico call`, both at the shared gateway."""
        async with HttpConversation("legacy", url).opened() as talk:
            self.answers["http"] = await call_each(self.servers, lambda it: _call(talk, it))
        self._compare("http")
        asked = self.servers
        if any(check.what == "start" and not check.holds for check in self.checks):
            # Each command would start a gateway of its own; a few show enough.
            asked = [self.find(name) for name in ("everything", "fetch", "kubernetes", "remote")]
        self.answers["call"] = await call_each(asked, self._call_by_command)
        self._compare("call")

    async def refuse_denied(self, url: str) -> None:
        """What a client's own rules refused stays refused, and is not offered."""
        async with HttpConversation("legacy", url).opened() as talk:
            for name in DENIED:
                await self._expect_refusal(talk, "deny rules", name)
                server, _, tool = name.partition(".")
                listed = await call_tool(talk, "browse_tools", {"server": server})
                self.check("deny rules", f"{server} is listed", f"{server}." in listed, listed)
                offered = re.search(rf"\b{re.escape(tool)}\(", listed)
                self.check("deny rules", f"{name} is not offered", offered is None, listed)

    async def disable_and_enable(self, url: str) -> None:
        """`portico disable` and `enable`, for a server and for a tool, while the gateway runs."""
        time_server, everything = self.find("time"), self.find("everything")
        async with HttpConversation("legacy", url).opened() as talk:
            for target, it in (("time", time_server), ("everything.echo", everything)):
                for verb, wanted in (("disable", False), ("enable", True)):
                    ran = self.user.portico(verb, target)
                    self.check("disable, enable", f"{verb} {target}", not ran.code, ran.describe())
                    seen = await self._settle(talk, it, wanted)
                    what = f"after {verb} {target} a call is {'answered' if wanted else 'refused'}"
                    self.check("disable, enable", what, seen.works is wanted, seen.text)

    async def kill_and_call(self, url: str) -> None:
        """A server whose process is killed answers the next call."""
        it = self.find("memory")
        async with HttpConversation("legacy", url).opened() as talk:
            await call_each([it], lambda it: _call(talk, it))
            killed = [process for process in find_processes(it) if kill(process)]
            self.check("kill", "there was a process to kill", bool(killed))
            again = (await call_each([it], lambda it: _call(talk, it)))["memory"]
            if not again.works:
                again = await self._settle(talk, it, True)
                self.check("kill", "the first call after it is answered", False, again.text)
            self.check("kill", "a call after it is answered", again.works, again.text)

    async def serve_three_at_once(self, url: str) -> None:
        """Two stdio clients and one over HTTP use the same server processes at the same time."""
        it = self.find("time")
        async with (
            self._open_stdio().opened() as one,
            self._open_stdio().opened() as two,
            HttpConversation("legacy", url).opened() as three,
        ):
            talks = (one, two, three)
            answers = await asyncio.gather(
                *(call_each([it], lambda it, talk=talk: _call(talk, it)) for talk in talks)
            )
            works = [found["time"].works for found in answers]
            self.check("three clients", "each is answered", all(works), str(answers))
            processes = find_processes(it)
            self.check(
                "three clients",
                "they share one process of the server",
                len(processes) == 1,
                f"{len(processes)} processes: {[process.pid for process in processes]}",
            )

    async def kill_gateway(self, url: str) -> None:
        """Two clients are connected when the shared gateway is killed: both go on, one at once
        with a gateway of its own, one with the next shared gateway."""
        it = self.find("calculator")
        async with self._open_stdio().opened() as one, self._open_stdio().opened() as two:
            await call_each([it], lambda it: _call(one, it))
            await call_each([it], lambda it: _call(two, it))
            pid = json.loads(self.user.portico("start", "--json").out)["pid"]
            psutil.Process(pid).kill()
            # Asked in vain where it arrived before the gateway was gone.
            answer = await self._settle(one, it, True)
            self.check("gateway killed", "a client goes on alone", answer.works, answer.text)
            ran = self.user.portico("start")
            self.check("gateway killed", "it starts again", ran.code == 0, ran.describe())
            self.check("gateway killed", "at the same address", url in ran.out, ran.out)
            answer = await self._settle(two, it, True)
            self.check("gateway killed", "a client goes on with it", answer.works, answer.text)

    async def list_in_clients(self, url: str) -> None:
        """Claude Code, Codex and Gemini CLI say of Portico that it is there."""
        for program in self._prepare("lists"):
            holds, line = await asyncio.to_thread(list_portico, program, self.user)
            self.check("clients", f"{program.name}: mcp list", holds, line)

    def take_turns(self) -> None:
        """One scripted turn in each client, with no gateway running, of a tool that needs the
        certificate and the proxy: the client must pass both on."""
        needy = self.find("fetch")
        for program in self._prepare("turns"):
            holds, line = take_turn(program, self.user, self.model, needy)
            self.check("clients", f"{program.name}: a scripted turn", holds, line)

    def _prepare(self, purpose: str) -> list[ClientProgram]:
        copies = self.user.files.home.parent / purpose
        return prepare_programs(self.fleet, self.user, self.model, copies)

    def uninstall(self) -> None:
        """`portico uninstall` everywhere: every file byte for byte as before."""
        for client in CLIENTS:
            ran = self.user.portico("uninstall", client)
            self.check("uninstall", client, ran.code == 0, ran.describe())
        changed = self.user.files.find_changed()
        self.check("uninstall", "every file as it was", not changed, ", ".join(changed))

    async def _expect_refusal(self, talk: Conversation, step: str, name: str) -> None:
        try:
            text = await call_through(talk, name, {})
        except CallFailed as refused:
            words = str(refused)
            unknown = re.search(r"den(y|ied)|not allowed|unknown|no tool|disabled|not known", words)
            self.check(step, f"{name} is refused", bool(unknown), words[:300])
            return
        self.check(step, f"{name} is refused", False, text[:300])

    async def _settle(self, talk: Conversation, it: Started, wanted: bool) -> Answer:
        """The answer once it is as wanted, or the last one before the deadline."""
        deadline = time.monotonic() + SETTLE_S
        while True:
            answer = (await call_each([it], lambda it: _call(talk, it)))[it.server.name]
            if answer.works is wanted or time.monotonic() > deadline:
                return answer
            await asyncio.sleep(0.2)

    def _compare(self, way: str) -> None:
        before = self.answers["directly"]
        for name, answer in self.answers[way].items():
            if before[name].works:
                self.check(f"calls by {way}", f"{name} works", answer.works, answer.text)

    async def _call_by_command(self, it: Started) -> str:
        arguments = (f"{it.server.name}.{it.server.tool}", json.dumps(it.arguments))
        ran = await asyncio.to_thread(self.user.portico, "call", *arguments)
        if ran.code:
            raise CallFailed(ran.describe())
        return ran.out

    def _open_stdio(self) -> StdioConversation:
        command = (str(PORTICO), "stdio", "--config", str(self.user.config))
        return StdioConversation("legacy", command, self.user.env, str(self.user.files.project))

    @asynccontextmanager
    async def _shared_gateway(self) -> AsyncGenerator[str]:
        """`portico start` and `stop`; where that fails, `serve`, so that the rest can be seen."""
        ran = self.user.portico("start")
        self.check("start, stop", "start", ran.code == 0, ran.describe())
        found = re.search(r"http://127\.0\.0\.1:\d+/mcp", ran.out + ran.err)
        if ran.code == 0 and found is not None:
            yield found[0]
            ran = self.user.portico("stop")
            self.check("start, stop", "stop", ran.code == 0, ran.describe())
            left = [it.server.name for it in self.servers if find_processes(it)]
            self.check("start, stop", "no server outlives it", not left, ", ".join(left))
            return
        self.check("start, stop", "start tells the address", found is not None, ran.out[:300])
        async with self._serve() as url:
            yield url

    @asynccontextmanager
    async def _serve(self) -> AsyncGenerator[str]:
        command = (str(PORTICO), "serve", "--port", "0")
        log = self.user.files.home.parent / "serve.log"
        process = await asyncio.to_thread(self._start_logged, command, log)
        try:
            yield await asyncio.to_thread(_read_address, log)
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(process.wait, START_S)

    def _start_logged(self, command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
        with log.open("wb") as sink:
            return subprocess.Popen(
                command,
                env=dict(self.user.env),
                cwd=self.user.files.home,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
            )


def _names_server(text: str, it: Started) -> bool:
    """Whether a client's file has an entry of the server: each entry has its mark."""
    return f'"{it.env[MARK]}"' in text


async def _call(talk: Conversation, it: Started) -> str:
    return await call_through(talk, f"{it.server.name}.{it.server.tool}", it.arguments)


def _read_address(log: Path) -> str:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        said = log.read_text("utf-8", "replace")
        if found := re.search(r"http://127\.0\.0\.1:\d+/mcp", said):
            return found[0]
        time.sleep(0.1)
    raise AssertionError(f"portico serve named no address: {log.read_text('utf-8')}")
