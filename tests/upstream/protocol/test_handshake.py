"""Finding out which era the other side speaks, as a conversation over a pipe that the test holds
both ends of."""

import asyncio
from typing import Any

import pytest

from portico.errors import BackendUnavailable, RemoteError
from portico.upstream.backend import Era, InitializeInfo, Raw
from portico.upstream.protocol import handshake
from portico.upstream.protocol.handshake import (
    AmbiguousEra,
    ProbeFailed,
    ProtocolSetting,
    parse_discovery,
    parse_initialize_result,
    perform_handshake,
)

TEST_TIMEOUT_S = 240.0
DISCOVERED: Raw = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
INITIALIZED: Raw = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "s"},
}
NEVER = object()
"""An answer that does not come."""
GONE = BackendUnavailable("the server exited")


class Script:
    """A pipe whose other side answers each method as the test says; what was sent is in `sent`."""

    def __init__(self, discover: object, initialize: object = INITIALIZED) -> None:
        self._answers = {"server/discover": discover, "initialize": initialize}
        self.sent: list[str] = []
        self.released = asyncio.Event()

    async def request(self, method: str, params: Raw | None = None) -> Raw:
        self.sent.append(method)
        answer: Any = self._answers[method]
        if answer is NEVER:
            await self.released.wait()
            raise GONE
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def notify(self, method: str, params: Raw | None = None) -> None:
        self.sent.append(method)


async def meet(
    pipe: Script, protocol: ProtocolSetting = "auto", remembered: Era | None = None, **options: Any
) -> InitializeInfo:
    async with asyncio.timeout(TEST_TIMEOUT_S):
        return await perform_handshake(pipe, protocol, remembered, **options)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The length of the timeout is no part of the behaviour."""
    monkeypatch.setattr(handshake, "PROBE_TIMEOUT_S", 0.01)


async def test_a_modern_server_needs_no_handshake():
    pipe = Script(DISCOVERED)
    assert (await meet(pipe)).era == "modern"
    assert pipe.sent == ["server/discover"]


@pytest.mark.parametrize("code", [-32601, -32602, -32600, -32603, -32022, -32000, 0])
async def test_whatever_code_refuses_the_probe_the_handshake_follows(code: int):
    pipe = Script(RemoteError(code, "no"))
    assert (await meet(pipe)).era == "legacy"
    assert pipe.sent == ["server/discover", "initialize", "notifications/initialized"]


@pytest.mark.parametrize(
    "answer", [{}, {"supportedVersions": ["2025-11-25"]}, {"supportedVersions": "2026-07-28"}]
)
async def test_an_answer_to_the_probe_without_a_modern_version_is_a_refusal(answer: Raw):
    assert (await meet(Script(answer))).era == "legacy"


@pytest.mark.usefixtures("impatient")
async def test_an_unanswered_probe_is_followed_by_the_handshake():
    pipe = Script(NEVER)
    assert (await meet(pipe)).era == "legacy"
    assert pipe.sent == ["server/discover", "initialize", "notifications/initialized"]


@pytest.mark.usefixtures("impatient")
async def test_a_server_that_refuses_the_handshake_after_the_probe_was_spoilt_by_the_probe():
    with pytest.raises(ProbeFailed) as caught:
        await meet(
            Script(NEVER, RemoteError(-32600, "initialize must come first")),
            initialize_timeout=0.01,
        )
    assert isinstance(caught.value.__cause__, RemoteError)


async def test_a_server_that_dies_of_the_probe_is_reported_as_such():
    pipe = Script(GONE)
    with pytest.raises(ProbeFailed) as caught:
        await meet(pipe)
    assert caught.value.__cause__ is GONE
    assert pipe.sent == ["server/discover"]


@pytest.mark.parametrize("then", [GONE, RemoteError(-32600, "too late"), NEVER])
async def test_a_server_that_refuses_the_probe_and_is_of_no_use_afterwards_was_spoilt_by_it(
    then: object,
):
    with pytest.raises(ProbeFailed):
        await meet(Script(RemoteError(-32601, "no"), then), initialize_timeout=0.01)


async def test_a_remembered_legacy_server_is_not_probed():
    pipe = Script(NEVER)
    assert (await meet(pipe, remembered="legacy")).era == "legacy"
    assert pipe.sent == ["initialize", "notifications/initialized"]


async def test_a_remembered_legacy_server_that_has_become_modern_says_so_and_is_discovered():
    pipe = Script(
        DISCOVERED,
        RemoteError(-32022, "Unsupported protocol version", {"supported": ["2026-07-28"]}),
    )
    assert (await meet(pipe, remembered="legacy")).era == "modern"


async def test_a_remembered_modern_server_that_has_become_legacy_gets_the_handshake():
    assert (await meet(Script(RemoteError(-32601, "no")), remembered="modern")).era == "legacy"


async def test_a_protocol_set_to_legacy_is_never_probed():
    pipe = Script(DISCOVERED, RemoteError(-32022, "Unsupported protocol version"))
    with pytest.raises(RemoteError, match="Unsupported"):
        await meet(pipe, "legacy")
    assert pipe.sent == ["initialize"]


async def test_a_protocol_set_to_modern_is_never_initialized():
    pipe = Script({"supportedVersions": ["2025-11-25"]})
    with pytest.raises(BackendUnavailable, match="does not speak 2026-07-28") as caught:
        await meet(pipe, "modern")
    assert "protocol: auto" in caught.value.advice
    assert pipe.sent == ["server/discover"]


async def test_a_caller_that_gives_up_leaves_no_request_behind():
    pipe = Script(NEVER)
    meeting = asyncio.create_task(perform_handshake(pipe, "auto", None))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert pipe.sent == ["server/discover"]
    meeting.cancel()
    await asyncio.wait({meeting}, timeout=TEST_TIMEOUT_S)
    assert meeting.cancelled()
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("version", ["2026-07-28", "1999-01-01", "2024-11-05"])
def test_whatever_version_a_handshake_names_it_was_a_handshake(version: str):
    hello = parse_initialize_result({**INITIALIZED, "protocolVersion": version})
    assert (hello.era, hello.protocol_version) == ("legacy", version)


@pytest.mark.parametrize("wrong", [{}, {"capabilities": None, "serverInfo": [], "instructions": 7}])
def test_an_introduction_of_the_wrong_types_is_read_as_an_empty_one(wrong: Raw):
    for hello in (
        parse_initialize_result(wrong),
        parse_discovery({**DISCOVERED, **wrong, "capabilities": None}),
    ):
        assert hello is not None
        assert (hello.capabilities, hello.server_info, hello.instructions) == ({}, {}, "")


def test_a_modern_server_names_itself_in_the_meta_of_its_discovery():
    meta = {"io.modelcontextprotocol/serverInfo": {"name": "modern"}}
    hello = parse_discovery({**DISCOVERED, "_meta": meta, "instructions": "Read me."})
    assert hello is not None
    assert (hello.server_info, hello.instructions) == ({"name": "modern"}, "Read me.")


# --- a pipe that is in one era for good


class Late(Script):
    """Answers the probe only once the handshake behind it has come."""

    def __init__(self, initialize: object) -> None:
        super().__init__(DISCOVERED, initialize)
        self._asked: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def request(self, method: str, params: Raw | None = None) -> Raw:
        if method == "server/discover":
            await self._asked
        else:
            self._asked.set_result(None)
            await asyncio.sleep(0.01)
        return await super().request(method, params)


@pytest.mark.usefixtures("impatient")
async def test_a_server_that_took_both_the_probe_and_the_handshake_is_in_an_unclear_era():
    with pytest.raises(AmbiguousEra):
        await meet(Late(INITIALIZED), single_era=True)
    assert (await meet(Late(INITIALIZED))).era == "modern"


@pytest.mark.usefixtures("impatient")
async def test_a_server_that_took_the_probe_and_refused_the_handshake_is_modern():
    assert (
        await meet(Late(RemoteError(-32022, "Unsupported protocol version")), single_era=True)
    ).era == "modern"
