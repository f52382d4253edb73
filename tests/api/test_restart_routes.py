"""Restarting a server over REST."""

from typing import Any

import pytest

from portico.api import models
from portico.api.responses import ProblemDetails
from portico.errors import BackendUnavailable
from portico.testing import FakeBackend
from tests.api.api_client import V1, backend, make_tools, open_api

TOKEN = "s3cret-t0ken-of-the-test"
JSON = {"content-type": "application/json"}


class Talking(FakeBackend):
    """A server that wrote something before it failed."""

    def diagnostics(self) -> dict[str, Any]:
        return {"stderr": ["reading settings", "no login with API_TOKEN=hidden-1"]}


async def test_a_restart_answers_with_the_new_state():
    git = backend(*make_tools("git", 2))
    async with open_api({"my-git": git, "mail": backend(*make_tools("mail", 1))}) as api:
        reply = await api.http.post(f"{V1}/servers/My_Git/restart", headers=JSON)
        assert reply.status_code == 200
        body = reply.json()
        models.ServerRestart.model_validate(body)
        assert (body["server"], body["state"], body["restarts"]) == ("my-git", "ready", 1)
        assert git.connections == 2
        assert reply.headers["cache-control"] == "no-store"


async def test_a_failed_restart_reports_the_reason_and_stderr_without_secrets():
    broken = Talking()
    broken.refuses = BackendUnavailable(
        "exited (stderr: API_TOKEN=hidden-2 is wrong)", advice="Set API_TOKEN."
    )
    async with open_api({"gone": broken}) as api:
        reply = await api.http.post(f"{V1}/servers/gone/restart", headers=JSON)
        assert reply.status_code == 503
        problem = ProblemDetails.model_validate(reply.json())
        assert problem.detail.startswith("gone is known but unavailable")
        assert (problem.kind, problem.advice) == ("unavailable", "Set API_TOKEN.")
        assert problem.stderr[0] == "reading settings"
        assert "hidden" not in reply.text
        broken.refuses = None
        assert (await api.http.post(f"{V1}/servers/gone/restart", headers=JSON)).json()[
            "state"
        ] == "ready"


async def test_an_unknown_server_gets_the_nearest_names():
    async with open_api({"git": backend(*make_tools("git", 2))}) as api:
        reply = await api.http.post(f"{V1}/servers/gti/restart", headers=JSON)
        assert (reply.status_code, reply.json()["nearest"]) == (404, ["git"])


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "PATCH"])
async def test_looking_at_it_restarts_nothing(method: str):
    git = backend(*make_tools("git", 2))
    async with open_api({"git": git}) as api:
        reply = await api.http.request(method, f"{V1}/servers/git/restart")
        assert (reply.status_code, reply.headers["allow"], git.connections) == (405, "POST", 1)
        if method != "HEAD":
            assert ProblemDetails.model_validate(reply.json()).advice == "Use POST."


async def test_other_pages_other_hosts_and_strangers_restart_nothing():
    git = backend(*make_tools("git", 2))
    async with open_api({"git": git}, token=TOKEN) as api:
        path, known = f"{V1}/servers/git/restart", {"authorization": f"Bearer {TOKEN}"}
        assert (await api.http.post(path)).status_code == 401
        assert (
            await api.http.post(path, headers={**known, "origin": "https://evil.example"})
        ).status_code == 403
        assert (
            await api.http.post(path, headers={**known, "host": "evil.example"})
        ).status_code == 421
        assert (await api.http.post(f"{path}?now=1", headers=known)).status_code == 422
        assert git.connections == 1
        assert (await api.http.post(path, headers=known)).status_code == 200
