"""What bad input gets over REST, and what every answer has."""

import logging
from typing import Any

import pytest

from portico.api.problems import ProblemDetails
from portico.profiles.profile_state import ProfileState
from tests.api.serving import V1, backend, many, side_door

TOKEN = "s3cret-t0ken-of-the-test"

WRONG = [
    "tools?limit=0", "tools?limit=101", "tools?limit=x", "tools?limit=", "tools?page=0", "tools?offset=-1",
    "tools?max_latency_ms=nan", "tools?max_latency_ms=inf", "tools?max_latency_ms=-1", "tools?min_success_rate=1.1",
    "tools?max_tokens=1", "tools?max_tokens=1000000", "tools?max_latency=100", "tools/hot?x=1", "calls?ok=perhaps",
    "calls?before=99999999999999999999999", "tools?query=" + "x" * 4_001, "tools?server=" + "x" * 300,
    "servers?page_size=101", "stats?x", "tools?tags=" + "&tags=".join("x" * 30),
]  # fmt: skip


@pytest.mark.parametrize("path", WRONG, ids=lambda path: path[:40])
async def test_parameters_that_cannot_be_used_are_named(path: str):
    async with side_door({"git": backend(*many("git", 2))}) as side:
        reply = await side.http.get(f"{V1}/{path}")
        assert (reply.status_code, reply.headers["content-type"]) == (
            422,
            "application/problem+json",
        )
        problem = ProblemDetails.model_validate(reply.json())
        assert problem.problems or problem.kind == "unknown_name"
        assert problem.advice
        assert len(reply.content) < 2_000


async def test_a_misspelt_parameter_gets_the_nearest():
    async with side_door({"git": backend(*many("git", 2))}) as side:
        problem = await side.get("tools?max_latncy_ms=1", status=422)
        assert problem["nearest"][0] == "max_latency_ms"
        assert "min_success_rate" in problem["advice"]


@pytest.mark.parametrize(
    "query", ["limit=1&limit=2", "server=git&server=mail", "query=a&query=b", "page=1&page=1"]
)
async def test_a_parameter_that_is_given_twice_is_refused(query: str):
    async with side_door({"git": backend(*many("git", 2))}) as side:
        problem = await side.get(f"tools?{query}", status=422)
        assert problem["problems"] == [f"{query.partition('=')[0]}: It is given more than once"]


async def test_a_flood_of_wrong_parameters_is_counted_and_a_few_are_named():
    async with side_door({"git": backend(*many("git", 2))}) as side:
        problem = await side.get(
            "tools?" + "&".join(f"limt{at}" for at in range(7_000)), status=422
        )
        assert problem["problems"][-1] == "… and 6992 more"
        assert problem["nearest"] == ["limit"]


ODD_TEXT = [
    "%00",
    "%ED%A0%80",
    "%FF%FE",
    "%F0%9F%8E%89",
    "%E2%80%AE",
    "%0A%0D",
    "..%2F..%2Fetc",
    "%1B%5B31m",
    "'%22%3C%3E",
]


@pytest.mark.parametrize("text", ODD_TEXT)
async def test_odd_text_is_answered_like_any_other(text: str):
    async with side_door({"git": backend(*many("git", 2))}) as side:
        for path in ("tools?query={}", "tools?server={}", "tools?category={}", "tools?tags={}", "tools/git/{}",
                     "tools/{}/x", "tools/category/{}", "servers/{}", "calls?server={}", "calls?tool={}",
                     "tools?version={}", "{}"):  # fmt: skip
            reply = await side.http.get(f"{V1}/{path.format(text)}")
            assert reply.status_code in (200, 404, 409, 422), path
            if reply.status_code != 200:
                ProblemDetails.model_validate(reply.json())


async def test_what_is_not_there_and_methods_that_are_not_for_it_are_problems():
    async with side_door({"git": backend(*many("git", 2))}) as side:
        for path in (
            "/api",
            "/api/",
            "/api/v1",
            "/api/v2/tools",
            "/api/v1/tools/",
            "/api/v1/nothing",
            "/api/v1/tools/hot/",
        ):
            reply = await side.http.get(path)
            assert reply.status_code == 404, path
            assert "/api/docs" in reply.json()["advice"] or reply.json()["kind"] == "unknown_name"
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "NONSENSE"):
            for path in ("tools", "tools/hot", "tools/git/git_0", "calls", "stats/tokens"):
                reply = await side.http.request(method, f"{V1}/{path}", content=b"{}")
                assert reply.status_code == 405, (method, path)
                assert reply.headers["allow"] == "GET, HEAD"
                assert ProblemDetails.model_validate(reply.json()).advice
        assert (await side.http.get("/apix")).headers["content-type"].startswith("text/plain")


async def test_what_goes_wrong_inside_is_logged_and_not_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def broken(self: ProfileState) -> Any:
        raise RuntimeError("a secret of the house")

    async with side_door({"git": backend(*many("git", 2))}) as side:
        monkeypatch.setattr(ProfileState, "get_server_states", broken)
        with caplog.at_level(logging.ERROR):
            problem = await side.get("stats", status=500)
        assert problem["detail"] == "the gateway failed on this; its log says why"
        assert problem["advice"]
        assert "a secret of the house" in caplog.text
        monkeypatch.undo()
        assert await side.get("stats")


async def test_every_answer_has_safe_headers():
    async with side_door({"git": backend(*many("git", 2))}) as side:
        for path in (
            "tools/hot",
            "tools/git/nothing",
            "tools?limit=0",
            "nothing",
            "stats",
            "../docs",
            "../openapi.json",
        ):
            headers = (await side.http.get(f"{V1}/{path}")).headers
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["vary"] == "Authorization"
            assert "default-src 'none'" in headers["content-security-policy"]
            assert "access-control-allow-origin" not in headers


async def test_the_page_for_people_needs_nothing_from_elsewhere():
    async with side_door({"git": backend(*many("git", 2))}) as side:
        reply = await side.http.get("/api/docs")
        assert reply.headers["content-type"] == "text/html; charset=utf-8"
        assert "style-src 'sha256-" in reply.headers["content-security-policy"]
        assert "<script" not in reply.text
        assert "http" not in reply.text.replace("httpx", "")
        for path, operations in (await side.get("/api/openapi.json"))["paths"].items():
            for method in operations:
                assert f"{method.upper()} {path}" in reply.text


async def test_the_description_names_every_route_and_what_can_go_wrong():
    async with side_door({"git": backend(*many("git", 2))}) as side:
        found = await side.get("/api/openapi.json")
        assert sorted(found["paths"]) == [
            f"{V1}/{path}"
            for path in (
                "calls", "servers", "servers/{name}", "servers/{name}/restart", "stats", "stats/tokens", "tools",
                "tools/categories", "tools/category/{name}", "tools/hot", "tools/{server}/{tool}",
            )
        ]  # fmt: skip
        for path, operations in found["paths"].items():
            ((method, operation),) = operations.items()
            assert method == ("post" if path.endswith("/restart") else "get")
            responses = operation["responses"]
            assert {"200", "401", "403", "421", "422"} <= responses.keys()
            assert ("304" in responses) == (method == "get")
            assert list(responses["422"]["content"]) == ["application/problem+json"]
            assert operation["summary"]
            assert operation["description"]
        assert "HTTPValidationError" not in found["components"]["schemas"]


@pytest.mark.parametrize(
    "path", ["/api/v1/tools/hot", "/api/docs", "/api/openapi.json", "/api/nothing", "/api"]
)
async def test_without_the_token_nobody_comes_in(path: str):
    async with side_door({"git": backend(*many("git", 2))}, token=TOKEN) as side:
        for headers in (
            {},
            {"authorization": f"Bearer {TOKEN}x"},
            {"authorization": f"Basic {TOKEN}"},
        ):
            reply = await side.http.get(f"{path}?token={TOKEN}", headers=headers)
            assert reply.status_code == 401
            assert reply.headers["www-authenticate"].startswith("Bearer")
            assert ProblemDetails.model_validate(reply.json()).advice
            assert reply.headers["cache-control"] == "no-store"
            assert TOKEN not in reply.text
        inside = await side.http.get(path, headers={"authorization": f"Bearer {TOKEN}"})
        assert inside.status_code in (200, 404)


async def test_other_hosts_and_other_pages_are_kept_out():
    async with side_door({"git": backend(*many("git", 2))}, allowed_hosts=("box.lan",)) as side:
        for path in ("/api/v1/tools/hot", "/api/docs", "/api/nothing"):
            for host in (
                "evil.example",
                "localhost.evil.example",
                "127.0.0.1:80@evil.example",
                "127.0.0.1:x",
                "[::]",
            ):
                reply = await side.http.get(path, headers={"host": host})
                assert reply.status_code == 421, host
                assert ProblemDetails.model_validate(reply.json()).advice
            for origin in (
                "https://evil.example",
                "null",
                "http://localhost.evil.example",
                "http://localhost:1/x://",
            ):
                reply = await side.http.get(path, headers={"origin": origin})
                assert reply.status_code == 403, origin
                assert ProblemDetails.model_validate(reply.json()).advice
            for headers in (
                {"host": "box.lan:1"},
                {"host": "[::1]:8420", "origin": "http://localhost:5173"},
            ):
                assert (await side.http.get(path, headers=headers)).status_code != 421
            twice = [("origin", "http://localhost"), ("origin", "http://localhost")]
            assert (await side.http.get(path, headers=twice)).status_code == 400
