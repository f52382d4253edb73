"""Which answers of REST are compressed."""

import gzip

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.testclient import TestClient

from portico.api.app import OPENAPI_PATH
from portico.api.compression import MAX_BYTES, MIN_BYTES, Compression
from tests.api.api_client import V1, backend, make_tools, open_api

PLAIN = {"Accept-Encoding": "identity"}
GZIP = {"Accept-Encoding": "gzip"}


async def test_a_list_is_compressed_for_who_accepts_it_and_is_the_same():
    async with open_api({"git": backend(*make_tools("git", 40))}) as api:
        plain = await api.http.get(f"{V1}/tools", headers=PLAIN)
        packed = await api.http.get(f"{V1}/tools", headers=GZIP)
        assert "content-encoding" not in plain.headers
        assert packed.headers["content-encoding"] == "gzip"
        assert int(packed.headers["content-length"]) < len(plain.content) / 2
        assert packed.json() == plain.json()
        assert "Accept-Encoding" in packed.headers["vary"]


async def test_the_tag_of_a_compressed_answer_is_weak_and_is_recognised():
    async with open_api({"git": backend(*make_tools("git", 40))}) as api:
        packed = await api.http.get(OPENAPI_PATH, headers=GZIP)
        tag = packed.headers["etag"]
        assert tag.startswith('W/"')
        again = await api.http.get(OPENAPI_PATH, headers={**GZIP, "If-None-Match": tag})
        assert again.status_code == 304


async def test_an_answer_to_a_request_that_does_something_is_not_compressed():
    async with open_api({"git": backend(*make_tools("git", 1))}) as api:
        body = {"tool": "x" * 1_000, "arguments": {}}
        done = await api.http.post(f"{V1}/calls", json=body, headers=GZIP)
        assert "content-encoding" not in done.headers


def test_small_large_and_other_answers_stay_as_they_are():
    def answer(request: Request) -> Response:
        content = "x" * int(request.query_params["bytes"])
        return Response(content, media_type=request.query_params["type"])

    client = TestClient(Compression(Starlette(routes=[Route("/", answer)])))
    for size, media_type, is_compressed in (
        (MIN_BYTES, "application/json", True),
        (MAX_BYTES, "application/json", True),
        (MIN_BYTES - 1, "application/json", False),
        (MAX_BYTES + 1, "application/json", False),
        (MIN_BYTES, "text/event-stream", False),
        (MIN_BYTES, "application/problem+json", False),
    ):
        with client.stream("GET", "/", params={"bytes": size, "type": media_type}) as reply:
            raw = b"".join(reply.iter_raw())
        assert (reply.headers.get("content-encoding") == "gzip") == is_compressed, (
            size,
            media_type,
        )
        assert len(gzip.decompress(raw) if is_compressed else raw) == size
