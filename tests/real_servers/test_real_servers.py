"""Servers written by third parties offer the same and answer the same through Portico as they do
directly."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shutil
from collections.abc import Generator
from contextlib import AbstractAsyncContextManager, AsyncExitStack

import psutil
import pytest

from portico.config import Config
from portico.testing import gateway_over, serve_http
from tests.real_servers import catalogue, installation, run_checks, runs, sandbox
from tests.real_servers.catalogue import Raw, Server
from tests.real_servers.comparison import differences, normalize_answer, without_envelope
from tests.real_servers.http_wire import HttpConversation
from tests.real_servers.installation import NotInstalled
from tests.real_servers.jsonrpc_client import Conversation
from tests.real_servers.runs import Place, Run
from tests.real_servers.server_processes import MARK, Hosted, host_server

pytestmark = [pytest.mark.slow, pytest.mark.network, pytest.mark.timeout(240)]

CATALOGUE = catalogue.load()
NAMES = sorted(CATALOGUE.servers)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Generator[Place]:
    try:
        found = installation.find(CATALOGUE)
    except NotInstalled as missing:
        pytest.skip(str(missing))
    with sandbox.web_page() as page:
        yield Place(found, tmp_path_factory.mktemp("real"), page)


class Compared:
    """Runs each server once over all four ways in, when the first test asks for it."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._runs: dict[str, list[Run | BaseException]] = {}

    async def run(self, server: Server, way: int) -> Run:
        if server.name not in self._runs:
            self._runs[server.name] = await runs.all_ways(server, self._place)
        run = self._runs[server.name][way]
        if isinstance(run, BaseException):
            raise run
        return run


@pytest.fixture(scope="module")
def compared(place: Place) -> Compared:
    return Compared(place)


@pytest.fixture(params=NAMES)
def server(request: pytest.FixtureRequest) -> Server:
    return usable(CATALOGUE.servers[request.param])


def usable(server: Server) -> Server:
    if server.needs and not shutil.which(server.needs):
        pytest.skip(f"{server.name} needs {server.needs} on the PATH")
    return server


async def test_the_server_is_what_the_table_says(server: Server, compared: Compared) -> None:
    assert run_checks.of_direct(server, await compared.run(server, runs.DIRECT)) == []


async def test_full_exposure_offers_the_same_and_answers_the_same(
    server: Server, compared: Compared
) -> None:
    direct, full = await compared.run(server, runs.DIRECT), await compared.run(server, runs.FULL)
    assert run_checks.of_full(server, direct, full) == []


async def test_a_client_of_the_other_era_gets_the_same_through_a_transparent_gateway(
    server: Server, compared: Compared
) -> None:
    direct, transparent = (
        await compared.run(server, runs.DIRECT),
        await compared.run(server, runs.TRANSPARENT),
    )
    assert run_checks.of_transparent(server, direct, transparent) == []


async def test_the_meta_tools_find_describe_and_call_its_tools(
    server: Server, compared: Compared
) -> None:
    direct, meta = await compared.run(server, runs.DIRECT), await compared.run(server, runs.META)
    assert run_checks.of_meta(server, direct, meta) == []


async def test_all_servers_work_behind_one_gateway_and_none_outlives_it(
    place: Place, compared: Compared
) -> None:
    mark = secrets.token_hex(8)
    servers = [
        server
        for server in CATALOGUE.servers.values()
        if not server.needs or shutil.which(server.needs)
    ]
    direct = {server.name: await compared.run(server, runs.DIRECT) for server in servers}
    async with AsyncExitStack() as stack:
        hosts = [
            await stack.enter_async_context(together(server, place, mark)) for server in servers
        ]
        config = Config.model_validate(
            {"servers": {host.server.name: host.config() for host in hosts}}
        )
        async with gateway_over(config=config, listed=False) as gateway:
            await asyncio.wait_for(gateway.wait_until_listed(), 150)
            states = {
                status.name: (status.state, status.reason) for status in gateway.list_statuses()
            }
            assert states == {server.name: ("ready", "") for server in servers}
            offered = {
                name: len(entry.tools)
                for name, entry in gateway.get_view().snapshot.servers.items()
            }
            assert offered == {server.name: server.tools for server in servers}
            async with serve_http(gateway) as url, HttpConversation("modern", url).opened() as talk:
                answers = await asyncio.gather(*(first_call(talk, host) for host in hosts))
                wrong = [
                    difference
                    for host, answer in zip(hosts, answers, strict=True)
                    for difference in differences(
                        run_checks.annotate_blocks(
                            without_envelope(direct[host.server.name].answers[0]), answer
                        ),
                        without_envelope(answer),
                        host.server.name,
                    )
                ]
                assert wrong == []
                for host in hosts:
                    tool = gateway.get_view().snapshot.resolve_tool(
                        f"{host.server.name}.{host.server.questions[0].tool}"
                    )
                    found = await runs.search(talk, tool.description)
                    # The same server is here by several transports: any of its twins will do.
                    twins = [
                        it
                        for it in gateway.get_view().snapshot.tools.values()
                        if it.description == tool.description
                    ]
                    assert any(f"{twin.address}(" in found for twin in twins), found
            running = find_marked(mark)
            assert len(running) >= sum(server.transport == "stdio" for server in servers)
        _, alive = psutil.wait_procs(running, timeout=30)
        assert alive == []
        assert find_marked(mark) == []


def together(server: Server, place: Place, mark: str) -> AbstractAsyncContextManager[Hosted]:
    return host_server(
        server, place.installation, place.folder / "together" / server.name, place.page, mark
    )


async def first_call(talk: Conversation, host: Hosted) -> Raw:
    question = host.questions()[0]
    params = {
        "name": f"{host.server.name}.{question.tool}",
        "arguments": question.params["arguments"],
    }
    answer = await talk.request("tools/call", {"name": "call_tool", "arguments": params})
    return normalize_answer(answer, host.places, question.volatile)


def find_marked(mark: str) -> list[psutil.Process]:
    """Every process that carries a run's mark in its environment, anyone who its parent is by
    now."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found
