"""Answers to invalid input over REST, and headers of every answer."""

import logging
from typing import Any

import pytest

from portico.api.responses import ProblemDetails
from portico.profiles.profile_state import ProfileState
from tests.api.api_client import V1, backend, make_tools, open_api

TOKEN = "s3cret-t0ken-of-the-test"

WRONG = [
    "tools?limit=0", "tools?limit=101", "tools?limit=x", "tools?limit=", "tools?page=0",
        "tools?offset=-1",
    "tools?max_latency_ms=nan", "tools?max_latency_ms=inf", "tools?max_latency_ms=-1",
        "tools?min_success_rate=1.1",
    "tools?max_tokens=1", "tools?max_tokens=1000000", "tools?max_latency=100", "tools/hot?x=1",
        "calls?ok=perhaps",
    "calls?before=99999999999999999999999", "tools?query=" + "x" * 4_001,
        "tools?server=" + "x" * 300,
    "servers?page_size=101", "stats?x", "tools?tags=" + "&tags=".join("x" * 30),
]  # fmt: skip


@pytest.mark.parametrize("path", WRONG, ids=lambda path: path[:40])
async def test_parameters_that_cannot_be_used_are_named(path: str):
    async with open_api({"git": backend(*make_tools("git", 2))}) as api:
        reply = await api.http.get(f"{V1}/{path}")
        assert (reply.status_code, reply.headers["content-type"]) == (
            422,
            "application/problem+json",
        )
        problem = ProblemDetails.model_validate(reply.json())
        assert problem.problems or problem.kind == "unknown_name"
        assert problem.advice
        assert len(reply.content) < 2_000


async def test_a_misspelt_parameter_gets_the_nearest():
    async with open_api({"git": backend(*make_tools("git", 2))}) as api:
        problem = await api.get("tools?max_latncy_ms=1", status=422)
        assert problem["nearest"][0] == "max_latency_ms"
        assert "min_success_rate" in problem["advice"]


@pytest.mark.parametrize(
    "query", ["limit=1&limit=2", "server=git&server=mail", "query=a&query=b", "page=1&page=1"]
)
async def test_a_parameter_that_is_given_twice_is_refused(query: str):
    async with open_api({"git": backend(*make_tools("git", 2))}) as api:
        problem = await api.get(f"tools?{query}", status=422)
        assert problem["problems"] == [f"{query.partition('=')[0]}: It is given more than once"]


async def test_a_flood_of_wrong_parameters_is_counted_and_a_few_are_named():
    async with open_api({"git": backend(*make_tools("git", 2))}) as api:
        problem = await api.get("tools?" + "&".join(f"limt{at}" for at in range(190)), status=422)
        assert problem["problems"][-1] == "… and 182 more"
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
    async with open_api({"git": backend(*make_tools("git", 2))}) as api:
        for path in ("tools?query={}", "tools?server={}", "tools?category={}", "tools?tags={}",
            "tools/git/{}",
                     "tools/{}/x", "tools/category/{}", "servers/{}", "calls?server={}",
                         "calls?tool={}",
                     "tools?version={}", "{}"):  # fmt: skip
            reply = await api.http.get(f"{V1}/{path.format(text)}")
            assert reply.status_code in (200, 404, 409, 422), path
            if reply.status_code != 200:
                ProblemDetails.model_validate(reply.json())


async def test_what_is_not_there_and_methods_that_are_not_for_it_are_problems():
    async with open_api({"git": backend(*make_tools("git", 2))}) as api:
        for path in (
            "/api",
            "/api/",
            "/api/v1",
            "/api/v2/tools",
            "/api/v1/tools/",
            "/api/v1/nothing",
            "/api/v1/tools/hot/",
        ):
            reply = await api.http.get(path)
            assert reply.status_code == 404, path
            assert "/api/docs" in reply.json()["advice"] or reply.json()["kind"] == "unknown_name"
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "NONSENSE"):
            for path in ("tools", "tools/hot", "tools/git/git_0", "load", "stats/tokens"):
                reply = await api.http.request(method, f"{V1}/{path}", content=b"{}")
                assert reply.status_code == 405, (method, path)
                assert reply.headers["allow"] == "GET, HEAD"
                assert ProblemDetails.model_validate(reply.json()).advice
        assert (await api.http.get("/apix")).headers["content-type"].startswith("text/plain")


async def test_an_internal_error_is_logged_and_not_shown(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def broken(self: ProfileState) -> Any:
        raise RuntimeError("a secret of the gateway")

    async with open_api({"git": backend(*make_tools("git", 2))}) as api:
        monkeypatch.setattr(ProfileState, "get_server_states", broken)
        with caplog.at_level(logging.ERROR):
            problem = await api.get("stats", status=500)
        assert problem["detail"] == "the gateway failed on this; its log says why"
        assert problem["advice"]
        assert "a secret of the gateway" in caplog.text
        monkeypatch.undo()
        assert await api.get("stats")


async def test_every_answer_has_safe_headers():
    async with open_api({"git": backend(*make_tools("git", 2))}) as api:
        for path in (
            "tools/hot",
            "tools/git/nothing",
            "tools?limit=0",
            "nothing",
            "stats",
            "../docs",
            "../openapi.json",
        ):
            headers = (await api.http.get(f"{V1}/{path}")).headers
            assert headers["x-content-type-options"] == "nosniff"
            vary = "Authorization, Cookie, X-Portico-Proof"
            assert headers["vary"].removeprefix("Accept-Encoding, ") == vary
            assert "default-src 'none'" in headers["content-security-policy"]
            assert "access-control-allow-origin" not in headers


async def test_the_page_for_people_needs_nothing_from_elsewhere():
    async with open_api({"git": backend(*make_tools("git", 2))}) as api:
        reply = await api.http.get("/api/docs")
        assert reply.headers["content-type"] == "text/html; charset=utf-8"
        assert "style-src 'sha256-" in reply.headers["content-security-policy"]
        assert "<script" not in reply.text
        assert "http" not in reply.text.replace("httpx", "")
        for path, operations in (await api.get("/api/openapi.json"))["paths"].items():
            for method in operations:
                assert f"{method.upper()} {path}" in reply.text


async def test_the_description_names_every_route_and_what_can_go_wrong():
    async with open_api({"git": backend(*make_tools("git", 2))}) as api:
        found = await api.get("/api/openapi.json")
        operations = {
            f"{method.upper()} {path.removeprefix(V1)}": operation
            for path, methods in found["paths"].items()
            for method, operation in methods.items()
        }
        assert sorted(operations) == [
            "DELETE /keys/{name}",
            "GET /approvals",
            "GET /calls",
            "GET /calls/refused",
            "GET /calls/{call_id}",
            "GET /changes",
            "GET /clients",
            "GET /config",
            "GET /events",
            "GET /keys",
            "GET /load",
            "GET /people",
            "GET /rules",
            "GET /servers",
            "GET /servers/{name}",
            "GET /servers/{name}/log",
            "GET /servers/{name}/sign-in",
            "GET /stats",
            "GET /stats/daily",
            "GET /stats/tokens",
            "GET /tools",
            "GET /tools/categories",
            "GET /tools/category/{name}",
            "GET /tools/hot",
            "GET /tools/{server}/{tool}",
            "GET /v0.1/servers",
            "GET /v0.1/servers/{name}/versions",
            "GET /v0.1/servers/{name}/versions/{version}",
            "POST /approvals/{id}",
            "POST /calls",
            "POST /changes/{name}",
            "POST /clients/{name}",
            "POST /config/changes",
            "POST /config/undo",
            "POST /keys",
            "POST /keys/{name}/rotate",
            "POST /rules/effect",
            "POST /rules/seen",
            "POST /rules/test",
            "POST /servers/{name}/restart",
            "POST /servers/{name}/sign-in",
        ]
        for name, operation in operations.items():
            responses = operation["responses"]
            assert {"200", "401", "403", "421", "422"} <= responses.keys()
            assert ("304" in responses) == name.startswith("GET ")
            assert list(responses["422"]["content"]) == ["application/problem+json"]
            assert operation["summary"]
            assert operation["description"]
        assert "HTTPValidationError" not in found["components"]["schemas"]


@pytest.mark.parametrize(
    "path", ["/api/v1/tools/hot", "/api/docs", "/api/openapi.json", "/api/nothing", "/api"]
)
async def test_without_the_token_every_request_is_refused(path: str):
    async with open_api({"git": backend(*make_tools("git", 2))}, token=TOKEN) as api:
        for headers in (
            {},
            {"authorization": f"Bearer {TOKEN}x"},
            {"authorization": f"Basic {TOKEN}"},
        ):
            reply = await api.http.get(f"{path}?token={TOKEN}", headers=headers)
            assert reply.status_code == 401
            assert reply.headers["www-authenticate"].startswith("Bearer")
            assert ProblemDetails.model_validate(reply.json()).advice
            assert reply.headers["cache-control"] == "no-store"
            assert TOKEN not in reply.text
        inside = await api.http.get(path, headers={"authorization": f"Bearer {TOKEN}"})
        assert inside.status_code in (200, 404)


async def test_other_hosts_and_origins_are_refused():
    async with open_api({"git": backend(*make_tools("git", 2))}, allowed_hosts=("box.lan",)) as api:
        for path in ("/api/v1/tools/hot", "/api/docs", "/api/nothing"):
            for host in (
                "evil.example",
                "localhost.evil.example",
                "127.0.0.1:80@evil.example",
                "127.0.0.1:x",
                "[::]",
            ):
                reply = await api.http.get(path, headers={"host": host})
                assert reply.status_code == 421, host
                assert ProblemDetails.model_validate(reply.json()).advice
            for origin in (
                "https://evil.example",
                "null",
                "http://localhost.evil.example",
                "http://localhost:1/x://",
            ):
                reply = await api.http.get(path, headers={"origin": origin})
                assert reply.status_code == 403, origin
                assert ProblemDetails.model_validate(reply.json()).advice
            for headers in (
                {"host": "box.lan:1"},
                {"host": "[::1]:8420", "origin": "http://localhost:5173"},
            ):
                assert (await api.http.get(path, headers=headers)).status_code != 421
            twice = [("origin", "http://localhost"), ("origin", "http://localhost")]
            assert (await api.http.get(path, headers=twice)).status_code == 400


async def test_thousands_of_parameters_are_refused_unread():
    async with open_api({"git": backend(*make_tools("git", 2))}) as api:
        query = "&".join(f"limt{at}" for at in range(7_000))
        problem = await api.get(f"tools?{query}", status=422)
        assert problem["detail"] == "the query has more than 200 parameters"
        assert "problems" not in problem
