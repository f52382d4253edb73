"""An application that is made late is made once, off the loop, and again only where that failed."""

import asyncio
import threading

import httpx2
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp

from portico.server.http.app import LazyApp


def client(app: ASGIApp) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://late")


async def test_it_is_made_once_however_many_come_first_and_not_before() -> None:
    made: list[str] = []

    def make() -> ASGIApp:
        made.append(threading.current_thread().name)
        return PlainTextResponse("here")

    late = LazyApp(make)
    assert made == []
    async with client(late) as asking:
        answers = await asyncio.gather(*(asking.get("/") for _ in range(5)))
    assert [answer.text for answer in answers] == ["here"] * 5
    assert len(made) == 1
    assert made[0] != threading.main_thread().name


async def test_what_could_not_be_made_is_tried_again() -> None:
    tries: list[int] = []

    def make() -> ASGIApp:
        tries.append(1)
        if len(tries) == 1:
            raise ImportError("not now")
        return PlainTextResponse("here")

    async with client(LazyApp(make)) as asking:
        with pytest.raises(ImportError):
            await asking.get("/")
        assert (await asking.get("/")).text == "here"
