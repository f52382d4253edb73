"""Large answers and messages over HTTP: what leaves in pieces is what the server said, in the order
it said it."""

import pytest

from portico.config import Config
from portico.testing import FakeBackend, gateway_over, serve_http
from portico.upstream.backend import Era, Raw, RequestOptions
from portico.upstream.protocol.envelope import LOG_LEVEL_KEY
from tests.interaction.fake_servers import fake, text
from tests.interaction.raw_clients import call, raw_http, result

LONG = 'é "quoted" \n' * 50_000
FULL = Config(exposure="full", prefix="always")
LIKE_OURS = "portico-large-" + "0" * 32


def contents() -> list[Raw]:
    rows = [{"uri": "file:///large", "text": f"row {number}"} for number in range(5_000)]
    return [{"uri": "file:///large", "text": LONG}, {"uri": LIKE_OURS, "text": LIKE_OURS}, *rows]


def server() -> FakeBackend:
    backend = fake("talks", "half")

    async def talks(params: Raw, how: RequestOptions) -> Raw:
        if params["name"] == "half":
            return text("cut \ud83d" + LONG)
        assert how.relay is not None
        for data in ("first", [LONG] * 3, "last"):
            await how.relay.notify("notifications/message", {"level": "error", "data": data})
        return text("done")

    backend.on("tools/call", talks)
    backend.listing["resources"] = [{"uri": "file:///large", "name": "large"}]
    backend.on("resources/read", lambda _, __: {"contents": contents()})
    return backend


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_large_resource_arrives_as_it_was_read(era: Era) -> None:
    async with (
        gateway_over({"s": server()}, FULL) as gateway,
        serve_http(gateway) as url,
        raw_http(url, era) as client,
    ):
        found = await result(client, "resources/read", {"uri": "file:///large"})
        texts = [one["text"] for one in contents()]
        assert [one["text"] for one in found["contents"]] == texts
        again = await result(client, "resources/read", {"uri": "file:///large"})
        assert [one["text"] for one in again["contents"]] == texts, (
            "the connection is in order after a large answer"
        )


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_half_a_pair_in_a_large_answer_is_replaced(era: Era) -> None:
    async with (
        gateway_over({"s": server()}, FULL) as gateway,
        serve_http(gateway) as url,
        raw_http(url, era) as client,
    ):
        answer = await call(client, "s__half")
        assert answer["result"]["content"][0]["text"] == f"cut �{LONG}"


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_large_log_message_arrives_in_its_place_and_before_the_answer(era: Era) -> None:
    async with (
        gateway_over({"s": server()}, FULL) as gateway,
        serve_http(gateway) as url,
        raw_http(url, era) as client,
    ):
        params = {
            "name": "s__talks",
            "arguments": {},
            "_meta": {LOG_LEVEL_KEY: "debug"} if era == "modern" else {},
        }
        assert (await result(client, "tools/call", params))["content"] == text("done")["content"]
        assert [message["params"]["data"] for message in client.unprompted] == [
            "first",
            [LONG] * 3,
            "last",
        ]
