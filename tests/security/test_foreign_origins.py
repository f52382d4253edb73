"""A page of another origin can change nothing, and passes no preflight request."""

import httpx2
import pytest

from portico.testing import gateway_over, serve_http
from tests.api.api_client import V1, backend, make_tools, open_api
from tests.interaction.fake_servers import fake
from tests.interaction.raw_clients import ACCEPT, hello

TOKEN = "s3cret-t0ken-of-the-test"
RESTART = f"{V1}/servers/git/restart"
JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    "origin", ["http://localhost:3000", "http://127.0.0.1:3000", "http://127.0.0.1", "http://x"]
)
async def test_a_page_of_another_port_restarts_nothing(origin: str) -> None:
    git = backend(*make_tools("git", 1))
    async with open_api({"git": git}) as side:
        refused = await side.http.post(RESTART, headers={**JSON, "origin": origin})
        assert (refused.status_code, git.connections) == (403, 1)


async def test_a_page_of_another_port_restarts_nothing_with_the_token_either() -> None:
    git = backend(*make_tools("git", 1))
    async with open_api({"git": git}, token=TOKEN) as side:
        headers = {"authorization": f"Bearer {TOKEN}", "origin": "http://localhost:3000"}
        assert (await side.http.post(RESTART, headers=headers)).status_code == 403
        assert git.connections == 1


@pytest.mark.parametrize(
    "kind", ["application/x-www-form-urlencoded", "multipart/form-data", "text/plain", None]
)
async def test_what_a_form_can_send_restarts_nothing(kind: str | None) -> None:
    git = backend(*make_tools("git", 1))
    async with open_api({"git": git}) as side:
        headers = {"content-type": kind} if kind else {}
        refused = await side.http.post(RESTART, headers=headers)
        assert (refused.status_code, git.connections) == (415, 1)
        assert "application/json" in refused.json()["advice"]


async def test_its_own_page_and_programs_restart_a_server() -> None:
    git = backend(*make_tools("git", 1))
    async with open_api({"git": git}) as side:
        assert (
            await side.http.post(RESTART, headers={**JSON, "origin": "http://127.0.0.1:8420"})
        ).status_code == 200
        assert (await side.http.post(RESTART, headers=JSON)).status_code == 200
    async with open_api({"git": backend(*make_tools("git", 1))}, token=TOKEN) as side:
        assert (
            await side.http.post(RESTART, headers={"authorization": f"Bearer {TOKEN}"})
        ).status_code == 200


async def test_no_page_of_another_port_is_given_leave_to_speak_mcp() -> None:
    async with (
        gateway_over({"s": fake("run")}) as gateway,
        serve_http(gateway) as url,
        httpx2.AsyncClient(timeout=240) as http,
    ):
        page = {"origin": "http://localhost:3000"}
        asked = {
            "access-control-request-method": "POST",
            "access-control-request-headers": "content-type",
        }
        preflight = await http.options(url, headers={**page, **asked})
        assert not [name for name in preflight.headers if name.startswith("access-control-")]
        frame = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello()}
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
            sent = await http.post(
                url, json=frame, headers={**ACCEPT, **page, "content-type": kind}
            )
            assert 400 <= sent.status_code < 500, kind
