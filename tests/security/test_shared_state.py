"""Clients of 2026-07-28 over HTTP with one token and one name: nothing that is kept for one is
found by the other."""

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from portico.config import BackendConfig, Config
from portico.testing import FakeBackend, gateway_over, serve_http
from portico.upstream.backend import Era, Raw
from tests.fixtures.counter import counter
from tests.interaction.fake_servers import fake, text, tool
from tests.interaction.raw_clients import Message, RawClient, call, raw_http, raw_lines, result

HANDLE = "portico/session"
TOKENS = ["", "a token that nobody guesses"]
LINK = "office://made-up"


def office() -> FakeBackend:
    """A server that destroys, fails, links to something unlisted, and answers at length."""
    erase: Raw = {**tool("erase"), "annotations": {"destructiveHint": True}}
    backend = FakeBackend([erase, tool("link"), tool("long")])
    backend.on_call("erase", lambda _: text("erased"))
    backend.on_call(
        "link", lambda _: {"content": [{"type": "resource_link", "uri": LINK, "name": "made up"}]}
    )
    backend.on_call("long", lambda _: text("line\n" * 40_000))
    backend.on(
        "resources/read", lambda params, _: {"contents": [{"uri": params["uri"], "text": "linked"}]}
    )
    return backend


@dataclass
class Two:
    """Two clients of one gateway that differ only in the handles they were issued."""

    ann: RawClient
    bob: RawClient
    office: FakeBackend

    @property
    def erased(self) -> int:
        return sum(
            params["name"] == "erase"
            for method, params in self.office.requests
            if method == "tools/call"
        )


@asynccontextmanager
async def two(token: str) -> AsyncGenerator[Two]:
    backend = office()
    async with (
        gateway_over({"office": backend}) as gateway,
        serve_http(gateway, token=token or None) as url,
        raw_http(url, "modern", token=token) as ann,
        raw_http(url, "modern", token=token) as bob,
    ):
        yield Two(ann, bob, backend)


def words(answer: Message) -> str:
    return "\n".join(
        block["text"] for block in answer["result"]["content"] if block["type"] == "text"
    )


def get_issued_handle(answer: Message) -> str | None:
    """The handle that an answer issues, if it does."""
    return answer["result"].get("_meta", {}).get(HANDLE)


async def store_value(client: RawClient, value: int, **more: str) -> Message:
    return await call(
        client, "run_code", code=f"store('secret', {value}); result('kept')", language="lua", **more
    )


async def load_value(client: RawClient, handle: str = "", **more: str) -> Message:
    arguments: Message = {
        "code": "result({found = load('secret') or 0})",
        "language": "lua",
        **more,
    }
    meta: Message = {"_meta": {HANDLE: handle}} if handle else {}
    return await client.request("tools/call", {"name": "run_code", "arguments": arguments, **meta})


def get_found(answer: Message) -> int:
    return answer["result"]["structuredContent"]["found"]


@pytest.mark.parametrize("token", TOKENS, ids=["no token", "one token"])
async def test_what_a_script_stores_is_found_with_the_handle_it_was_issued_and_not_by_the_same_name(
    token: str,
) -> None:
    async with two(token) as they:
        handle = get_issued_handle(await store_value(they.ann, 1))
        nothing = await load_value(they.bob)
        assert get_found(nothing) == 0
        assert handle is not None
        assert "session" in words(nothing), "it says how what was stored is found"
        assert get_found(await load_value(they.ann)) == 0
        assert get_found(await load_value(they.ann, handle)) == 1, "as a program brings it"
        again = await load_value(they.ann, session=handle)
        assert get_found(again) == 1, "as a model passes it"
        assert get_issued_handle(again) is None
        other = get_issued_handle(await store_value(they.bob, 2))
        assert other not in (None, handle)
        assert get_found(await load_value(they.ann, handle)) == 1


async def test_the_answer_of_a_script_that_stored_something_says_in_words_how_to_come_back() -> (
    None
):
    async with two("") as they:
        answer = await store_value(they.ann, 1)
        assert f'session: "{get_issued_handle(answer)}"' in words(answer)
        kept_nothing = await call(they.ann, "run_code", code="result(1)", language="lua")
        assert get_issued_handle(kept_nothing) is None


@pytest.mark.parametrize("token", TOKENS, ids=["no token", "one token"])
async def test_no_other_client_approves_a_destructive_step_by_last(token: str) -> None:
    async with two(token) as they:
        steps = [{"id": "gone", "tool": "office.erase", "arguments": {}}]
        stopped = words(await call(they.ann, "run_workflow", steps=steps))
        assert "Stopped for approval" in stopped
        for client in (they.bob, they.ann):
            refused = await call(client, "run_workflow", resume="last")
            assert refused["result"]["isError"]
            assert "resume" in words(refused), "it says what to pass instead"
            assert "session" in words(refused)
        assert they.erased == 0
        run = re.search(r'resume="([\w-]+)"', stopped)
        assert run is not None
        assert "finished" in words(await call(they.ann, "run_workflow", resume=run[1]))
        assert they.erased == 1


async def test_last_is_the_last_run_of_the_handle_that_was_brought() -> None:
    async with two(TOKENS[1]) as they:
        mine, others = (
            get_issued_handle(await store_value(they.ann, 1)),
            get_issued_handle(await store_value(they.bob, 2)),
        )
        steps = [{"id": "gone", "tool": "office.erase", "arguments": {}}]
        await call(they.ann, "run_workflow", steps=steps, session=mine)
        assert (await call(they.bob, "run_workflow", resume="last", session=others))["result"][
            "isError"
        ]
        assert they.erased == 0
        assert "finished" in words(
            await call(they.ann, "run_workflow", resume="last", session=mine)
        )
        assert they.erased == 1


async def test_a_handle_opens_no_session_state_and_a_session_id_is_valid_in_it_alone() -> None:
    async with (
        gateway_over({"office": office()}) as gateway,
        serve_http(gateway) as url,
        raw_http(url, "legacy") as ann,
        raw_http(url, "legacy") as bob,
        raw_http(url, "modern") as eve,
    ):
        stopped = words(
            await call(ann, "run_workflow", steps=[{"id": "gone", "tool": "office.erase"}])
        )
        run = re.search(r'resume="([\w-]+)"', stopped)
        large = re.search(
            r"portico://result/([\w-]+)", str(await call(ann, "call_tool", name="office.long"))
        )
        assert run is not None
        assert large is not None
        for client in (bob, eve):
            for resume in ("last", run[1]):
                assert (await call(client, "run_workflow", resume=resume))["result"]["isError"]
            assert (await call(client, "read_result", result_id=large[1]))["result"]["isError"]
        assert "line" in words(await call(ann, "read_result", result_id=large[1]))
        assert "finished" in words(await call(ann, "run_workflow", resume="last"))


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_client_on_a_pipe_needs_no_handle(era: Era) -> None:
    async with (
        gateway_over({"office": office()}) as gateway,
        raw_lines(gateway.get_endpoint(), era) as client,
    ):
        answer = await store_value(client, 1)
        assert get_issued_handle(answer) is None
        assert get_found(await load_value(client)) == 1
        await call(client, "run_workflow", steps=[{"id": "gone", "tool": "office.erase"}])
        assert "finished" in words(await call(client, "run_workflow", resume="last"))


@pytest.mark.parametrize("token", TOKENS, ids=["no token", "one token"])
async def test_a_large_result_is_read_by_its_id_without_a_handle(token: str) -> None:
    async with two(token) as they:
        answer = await call(they.ann, "call_tool", name="office.long")
        large = re.search(r"portico://result/([\w-]+)", str(answer))
        assert large is not None
        assert "line" in words(await call(they.ann, "read_result", result_id=large[1]))
        whole = await result(they.ann, "resources/read", {"uri": f"portico://result/{large[1]}"})
        assert whole["contents"][0]["text"].startswith("line")


@pytest.mark.parametrize("token", TOKENS, ids=["no token", "one token"])
async def test_clients_of_one_name_have_each_their_own_instance_of_a_stateful_server(
    token: str,
) -> None:
    command, *arguments = counter()
    server = BackendConfig(
        command=command, args=tuple(arguments), isolation="session", protocol="legacy"
    )
    async with (
        gateway_over(config=Config(servers={"own": server})) as gateway,
        serve_http(gateway, token=token or None) as url,
        raw_http(url, "modern", token=token) as ann,
        raw_http(url, "modern", token=token) as bob,
    ):
        first = await call(ann, "call_tool", name="own.count")
        second = await call(bob, "call_tool", name="own.count")
        assert [words(one).split()[0] for one in (first, second)] == ["1", "1"]
        mine = get_issued_handle(first)
        assert mine not in (None, get_issued_handle(second))
        assert words(await call(ann, "call_tool", name="own.count", session=mine)).split()[0] == "2"


@pytest.mark.parametrize("token", TOKENS, ids=["no token", "one token"])
async def test_a_link_that_one_client_was_given_leads_no_other_anywhere(token: str) -> None:
    async with two(token) as they:
        await call(they.ann, "call_tool", name="office.link")
        refused = await they.bob.request("resources/read", {"uri": LINK})
        assert "portico://backend/SERVER/resource/URI" in refused["error"]["message"], (
            "it says how it is read"
        )
        by_server = await result(
            they.ann, "resources/read", {"uri": f"portico://backend/office/resource/{LINK}"}
        )
        assert by_server["contents"][0]["text"] == "linked"
        handle = get_issued_handle(await store_value(they.ann, 1))
        await call(they.ann, "call_tool", name="office.link", session=handle)
        brought = await result(they.ann, "resources/read", {"uri": LINK, "_meta": {HANDLE: handle}})
        assert brought["contents"][0]["text"] == "linked"


@pytest.mark.parametrize("token", TOKENS, ids=["no token", "one token"])
async def test_a_handle_that_was_not_issued_here_is_refused_for_scripts_too(token: str) -> None:
    async with two(token) as they:
        refused = await store_value(they.ann, 1, session="made-up")
        assert refused["result"]["isError"]
        assert "Call without a session" in words(refused)


async def test_a_server_does_not_receive_the_handle_of_its_caller() -> None:
    backend = fake("run")
    async with (
        gateway_over({"s": backend}) as gateway,
        serve_http(gateway) as url,
        raw_http(url, "modern") as client,
    ):
        code = "store('a', 1); result(s.run():await())"
        handle = get_issued_handle(await call(client, "run_code", code=code, language="lua"))
        assert handle is not None
        await call(client, "run_code", code=code, language="lua", session=handle)
    assert handle not in str(backend.requests)


async def test_the_answer_to_a_question_goes_on_in_the_instance_that_asked() -> None:
    asked: list[str] = []

    def run(params: Raw, _: object) -> Raw:
        asked.append(params.get("requestState", ""))
        if asked[-1]:
            return text("answered")
        request = {
            "method": "elicitation/create",
            "params": {"message": "Who?", "requestedSchema": {"type": "object"}},
        }
        return {
            "resultType": "input_required",
            "inputRequests": {"who": request},
            "requestState": "its own",
        }

    backend = fake("run", era="modern")
    backend.on("tools/call", run)
    token = TOKENS[1]
    async with gateway_over({"s": backend}) as gateway, serve_http(gateway, token=token) as url:
        await result_of_search(url, token)
        gateway.upstreams["s"].isolated = True
        async with raw_http(url, "modern", token=token, elicitation={}) as client:
            params: Message = {"name": "call_tool", "arguments": {"name": "s.run"}}
            question = await result(client, "tools/call", params)
            opened = backend.connections
            back = {"inputResponses": {"who": {"action": "accept", "content": {}}}}
            answer = await client.request(
                "tools/call", {**params, **back, "requestState": question["requestState"]}
            )
            assert words(answer).startswith("answered")
            assert asked == ["", "its own"]
            assert backend.connections == opened, "no other instance was begun for the answer"


async def result_of_search(url: str, token: str) -> None:
    """Wait until the server is known."""
    async with raw_http(url, "modern", token=token) as client:
        await call(client, "search_tools", query="run")
