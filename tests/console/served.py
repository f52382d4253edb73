"""A gateway with its console, on a thread of its own, so that a test can drive a browser."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import SecretStr

from portico.api.gateway_services import ClientInstalling, ConfigEditing, ConfigReport
from portico.auth.authenticator import KeyRing
from portico.auth.console_sessions import ConsoleSessions
from portico.auth.keys import create_key
from portico.config import Config
from portico.console.files import ConsoleFiles
from portico.gateway import GatewayRuntime
from portico.gateway.rest_app import RestApp
from portico.server.http.app import make_app, make_server
from portico.storage.rows import KeyRow
from tests.gateways import TIMEOUT_S, run_gateway

T = TypeVar("T")


class TestKeys:
    """The keys of a gateway, which a test makes and revokes, and their texts by name."""

    __test__ = False

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.ring = KeyRing(clock=lambda: self.now)
        self.texts: dict[str, str] = {}
        self._rows: dict[str, KeyRow] = {}

    def add(self, name: str, **rights: Any) -> str:
        row, self.texts[name] = create_key(name, self.now, **rights)
        self._rows[name] = row
        self.ring.replace(self._rows.values())
        return self.texts[name]

    def revoke(self, name: str) -> None:
        self._rows[name] = replace(self._rows[name], revoked_at=self.now)
        self.ring.replace(self._rows.values())


@dataclass
class ServedConsole:
    """A gateway that is served, with everything a test may change."""

    gateway: GatewayRuntime
    root: str
    keys: TestKeys
    sessions: ConsoleSessions
    port: int = field(default=0)


@asynccontextmanager
async def serve_console(
    backends: Mapping[str, Any] | None,
    config: Config | None = None,
    *,
    keys: TestKeys | None = None,
    token: str | None = None,
    sessions: ConsoleSessions | None = None,
    data_dir: Path | None = None,
    port: int = 0,
    console: bool = True,
    config_editing: ConfigEditing | None = None,
    clients: ClientInstalling | None = None,
    sources: Mapping[str, str] | None = None,
) -> AsyncGenerator[ServedConsole]:
    """Serve a gateway with its REST API and its console."""
    keys = keys or TestKeys()
    sessions = sessions or ConsoleSessions()
    config = config or Config()
    if token is not None:
        own = config.gateway.model_copy(update={"token": SecretStr(token)})
        config = config.model_copy(update={"gateway": own})
    async with run_gateway(backends, config, data_dir=data_dir) as gateway:
        gateway.keys = keys.ring
        api = RestApp(
            gateway,
            lambda: ConfigReport(gateway.config, sources or {}),
            sessions,
            lambda: config_editing,
            lambda: clients,
        )
        app = make_app(
            gateway.get_endpoints(),
            token=token,
            keys=keys.ring,
            api=api,
            console=ConsoleFiles() if console else None,
            sessions=sessions,
            publish=gateway.bus.publish,
        )
        server = make_server(app, "127.0.0.1", port)
        serving = asyncio.create_task(server.serve())
        try:
            while not server.started:
                if serving.done():
                    await serving
                await asyncio.sleep(0.01)
            bound = server.servers[0].sockets[0].getsockname()[1]
            yield ServedConsole(gateway, f"http://127.0.0.1:{bound}", keys, sessions, bound)
        finally:
            api.close()
            server.should_exit = True
            await asyncio.wait_for(serving, TIMEOUT_S)


class GatewayThread:
    """An event loop on a thread, in which gateways are served."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="gateway", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(TIMEOUT_S)

    def call(self, work: Callable[[], T]) -> T:
        """Call a function there and return its result."""

        async def run() -> T:
            return work()

        return self.run(run())

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(TIMEOUT_S)

    @contextmanager
    def serve(self, backends: Mapping[str, Any] | None, **options: Any) -> Generator[ServedConsole]:
        """Serve a console in this thread for the duration of the context."""
        leave = self.call(asyncio.Event)
        ready: asyncio.Future[ServedConsole] = self._loop.create_future()

        async def hold() -> None:
            try:
                async with serve_console(backends, **options) as served:
                    ready.set_result(served)
                    await leave.wait()
            except BaseException as error:
                if not ready.done():
                    ready.set_exception(error)
                raise

        holding = asyncio.run_coroutine_threadsafe(hold(), self._loop)

        async def wait_ready() -> ServedConsole:
            return await ready

        served = self.run(wait_ready())
        try:
            yield served
        finally:
            self._loop.call_soon_threadsafe(leave.set)
            holding.result(TIMEOUT_S)


@contextmanager
def open_thread() -> Generator[GatewayThread]:
    thread = GatewayThread()
    try:
        yield thread
    finally:
        thread.close()
