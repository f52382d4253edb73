"""Signing in to the console, and everything that must not get in."""

from collections.abc import Mapping
from typing import Any

import httpx2
import pytest

from portico.auth.console_sessions import ConsoleSessions
from portico.config import Config
from portico.server.http.auth_failures import BURST
from tests.console.served import ServedConsole, TestKeys, serve_console
from tests.interaction.fake_servers import fake

JSON = {"content-type": "application/json"}
PATH = "/console/session"
TOKEN = "the token of the configuration"
PROFILES = Config.model_validate({"profiles": {"work": {"servers": ["mail"]}}})
BACKENDS = {"mail": fake("read", "write"), "disk": fake("read")}


def open_http(served: ServedConsole, **headers: str) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(base_url=served.root, timeout=240, headers=headers)


async def sign_in(http: httpx2.AsyncClient, **given: str) -> str:
    """Sign in; the cookie stays with the client, the proof is returned."""
    reply = await http.post(PATH, json=given)
    assert reply.status_code == 200, reply.text
    return str(reply.json()["proof"])


async def status(
    http: httpx2.AsyncClient, method: str, path: str, headers: Mapping[str, str], **more: Any
) -> int:
    return (await http.request(method, path, headers=dict(headers), **more)).status_code


async def test_without_a_token_and_keys_this_machine_needs_no_sign_in() -> None:
    async with serve_console(BACKENDS) as served, open_http(served) as http:
        who = (await http.get(PATH)).json()
        assert (who["signed_in"], who["required"], who["kind"]) == (True, False, "local")
        assert who["may"]["administer"]
        assert (await http.get("/")).headers["location"] == "/console"
        assert "set-cookie" not in (await http.get(PATH)).headers


async def test_a_key_signs_in_and_the_cookie_is_for_this_site_alone() -> None:
    async with serve_console(BACKENDS) as served, open_http(served) as http:
        key = served.keys.add("ana")
        assert (await http.get(PATH)).json() == {"signed_in": False, "required": True}
        assert await status(http, "GET", "/api/v1/stats", {}) == 401
        reply = await http.post(PATH, json={"credential": f" {key}\n"})
        cookie = reply.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert "Secure" not in cookie
        assert f"portico_session_{served.port}=" in cookie
        assert reply.headers["cache-control"] == "no-store"
        headers = {"x-portico-proof": reply.json()["proof"]}
        who = (await http.get(PATH, headers=headers)).json()
        assert (who["id"], who["name"]) == ("key ana", "ana")
        assert not who["may"]["administer"]
        assert await status(http, "GET", "/api/v1/stats", headers) == 200
        behind_tls = {"x-forwarded-proto": "https"}
        reply = await http.post(PATH, json={"credential": key}, headers=behind_tls)
        assert "Secure" in reply.headers["set-cookie"]


ATTACKS: list[tuple[str, dict[str, str]]] = [
    ("the cookie alone, as a form or an image of another page would send it", {}),
    ("a wrong proof", {"x-portico-proof": "A" * 43}),
    ("the cookie as its own proof", {"x-portico-proof": "{cookie}"}),
    ("an empty proof", {"x-portico-proof": ""}),
    ("the proof as a bearer token", {"authorization": "Bearer {proof}"}),
    ("the cookie as a bearer token", {"authorization": "Bearer {cookie}"}),
    ("the proof alone", {"x-portico-proof": "{proof}", "cookie": ""}),
    (
        "two cookies of the name",
        {"x-portico-proof": "{proof}", "cookie": "{name}={cookie}; {name}={cookie}"},
    ),
    ("another port's cookie", {"x-portico-proof": "{proof}", "cookie": "{name}1={cookie}"}),
]


@pytest.mark.parametrize(
    "headers", [headers for _, headers in ATTACKS], ids=[n for n, _ in ATTACKS]
)
async def test_what_a_stranger_can_make_a_browser_send_opens_nothing(
    headers: dict[str, str],
) -> None:
    async with serve_console(BACKENDS) as served, open_http(served) as http:
        proof = await sign_in(http, credential=served.keys.add("ana"))
        name = f"portico_session_{served.port}"
        cookie = http.cookies[name]
        words = {"proof": proof, "cookie": cookie, "name": name}
        sent = {key: value.format(**words) for key, value in headers.items()}
        if "cookie" not in sent:
            sent["cookie"] = f"{name}={cookie}"
        http.cookies.clear()
        for method, path in (
            ("GET", "/api/v1/stats"),
            ("GET", "/api/v1/events"),
            ("POST", "/api/v1/calls"),
            ("POST", "/api/v1/servers/mail/restart"),
            ("POST", "/mcp"),
            ("DELETE", PATH),
        ):
            body: Any = {"json": {"tool": "mail.write"}} if method == "POST" else {}
            assert await status(http, method, path, sent, **body) == 401, path
        assert (await http.get(PATH, headers=sent)).json()["signed_in"] is False
        good = {"x-portico-proof": proof, "cookie": f"{name}={cookie}"}
        assert await status(http, "GET", "/api/v1/stats", good) == 200


async def test_a_session_is_for_the_console_and_rest_not_for_mcp_or_metrics() -> None:
    async with serve_console(BACKENDS) as served, open_http(served) as http:
        proof = await sign_in(http, credential=served.keys.add("ana"))
        headers = {"x-portico-proof": proof}
        frame = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        assert await status(http, "POST", "/mcp", headers, json=frame) == 401


@pytest.mark.parametrize("origin", ["https://evil.example", "http://127.0.0.1:1", "null"])
async def test_no_other_page_changes_anything_even_with_cookie_and_proof(origin: str) -> None:
    async with serve_console(BACKENDS) as served, open_http(served) as http:
        key = served.keys.add("ana")
        proof = await sign_in(http, credential=key)
        headers = {"x-portico-proof": proof, "origin": origin}
        for method, path in (("POST", "/api/v1/servers/mail/restart"), ("DELETE", PATH)):
            assert await status(http, method, path, {**headers, **JSON}) == 403
        reply = await http.post(PATH, json={"credential": key}, headers={"origin": origin})
        assert reply.status_code == 403
        own = {"x-portico-proof": proof, "origin": served.root, **JSON}
        assert await status(http, "POST", "/api/v1/servers/mail/restart", own) == 200


async def test_only_json_signs_in_and_only_for_this_host() -> None:
    async with serve_console(BACKENDS) as served, open_http(served) as http:
        key = served.keys.add("ana")
        assert (await http.post(PATH, data={"credential": key})).status_code == 415
        assert (await http.post(PATH, content=b"[1]", headers=JSON)).status_code == 422
        assert (await http.post(PATH, content=b" " * 20_000, headers=JSON)).status_code == 413
        assert (await http.put(PATH)).status_code == 405
        elsewhere = {"host": "evil.example"}
        for path in (PATH, "/console", "/", f"{PATH}/x"):
            assert (await http.get(path, headers=elsewhere)).status_code == 421


async def test_a_session_ends_when_its_key_is_revoked_and_when_it_signs_out() -> None:
    async with serve_console(BACKENDS) as served, open_http(served) as http:
        served.keys.add("other")
        headers = {"x-portico-proof": await sign_in(http, credential=served.keys.add("ana"))}
        assert await status(http, "GET", "/api/v1/stats", headers) == 200
        served.keys.revoke("ana")
        assert await status(http, "GET", "/api/v1/stats", headers) == 401
        headers = {"x-portico-proof": await sign_in(http, credential=served.keys.add("ben"))}
        name = f"portico_session_{served.port}"
        stolen = {**headers, "cookie": f"{name}={http.cookies[name]}"}
        assert await status(http, "DELETE", PATH, headers) == 200
        assert await status(http, "GET", "/api/v1/stats", stolen) == 401


async def test_a_revoked_session_ends_its_stream_of_events() -> None:
    async with serve_console(BACKENDS) as served, open_http(served) as http:
        served.keys.add("other")
        headers = {"x-portico-proof": await sign_in(http, credential=served.keys.add("ana"))}
        async with http.stream("GET", "/api/v1/events", headers=headers) as stream:
            lines = stream.aiter_lines()
            assert (await anext(lines)).startswith("id: ")
            assert await status(http, "DELETE", PATH, headers) == 200
            async for _ in lines:
                pass  # it ends


async def test_a_link_signs_the_user_of_this_machine_in_once() -> None:
    sessions = ConsoleSessions()
    async with serve_console(BACKENDS, token=TOKEN, sessions=sessions) as served:
        code = sessions.make_link_code()
        async with open_http(served) as http:
            headers = {"x-portico-proof": await sign_in(http, code=code)}
            who = (await http.get(PATH, headers=headers)).json()
            assert (who["kind"], who["may"]["administer"]) == ("local", True)
            async with http.stream("GET", "/api/v1/events", headers=headers) as stream:
                assert (await anext(stream.aiter_lines())).startswith("id: ")
        async with open_http(served) as http:
            reply = await http.post(PATH, json={"code": code})
            assert reply.status_code == 401
            assert "portico console" in reply.json()["detail"]


async def test_guessing_is_slow_and_says_nothing() -> None:
    async with serve_console(BACKENDS, token=TOKEN) as served, open_http(served) as http:
        codes = [
            (await http.post(PATH, json={"credential": f"guess {number}"})).status_code
            for number in range(BURST + 5)
        ]
        assert codes[:BURST] == [401] * BURST
        assert codes[-1] == 429


RIGHTS: dict[str, dict[str, int]] = {
    # request: status for a key of everything, a read-only one, one of the profile `work`
    "GET /api/v1/calls": {"all": 200, "read": 200, "work": 403},
    "GET /api/v1/stats": {"all": 200, "read": 200, "work": 403},
    "GET /api/v1/servers": {"all": 200, "read": 200, "work": 200},
    "GET /api/v1/servers/disk": {"all": 200, "read": 200, "work": 404},
    "GET /api/v1/servers/mail/log": {"all": 200, "read": 200, "work": 403},
    "GET /api/v1/keys": {"all": 403, "read": 403, "work": 403},
    "GET /api/v1/config": {"all": 403, "read": 403, "work": 403},
    "POST /api/v1/keys": {"all": 403, "read": 403, "work": 403},
    "POST /api/v1/servers/mail/restart": {"all": 200, "read": 403, "work": 403},
}


@pytest.mark.parametrize("who", ["all", "read", "work"])
async def test_a_session_has_the_rights_of_its_credential_and_no_more(who: str) -> None:
    keys = TestKeys()
    keys.add("all")
    keys.add("read", is_read_only=True)
    keys.add("work", profiles=("work",))
    async with serve_console(BACKENDS, PROFILES, keys=keys) as served, open_http(served) as http:
        headers = {**JSON, "x-portico-proof": await sign_in(http, credential=keys.texts[who])}
        for request, expected in RIGHTS.items():
            method, path = request.split()
            found = await status(http, method, path, headers)
            assert found == expected[who], (request, found)
        may = (await http.get(PATH, headers=headers)).json()["may"]
        assert may["restart"] == (RIGHTS["POST /api/v1/servers/mail/restart"][who] == 200)
        assert may["see_calls"] == (RIGHTS["GET /api/v1/calls"][who] == 200)
        assert may["see_use"] == (RIGHTS["GET /api/v1/stats"][who] == 200)
        assert may["administer"] is False


async def test_where_the_console_is_off_nothing_of_it_is_there() -> None:
    async with serve_console(BACKENDS, console=False) as served, open_http(served) as http:
        for path in ("/", "/console", PATH):
            assert (await http.get(path)).status_code == 404
