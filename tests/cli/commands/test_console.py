"""`console`: the address of the running gateway's console, signed in."""

from urllib.parse import urlsplit

import httpx2

from tests.cli.conftest import TIMEOUT_S, Home
from tests.cli.local_gateway.conftest import SERVERS, Serve, serve
from tests.console.browser import wait_until

__all__ = ["serve"]


def test_without_credentials_it_begins_a_session_that_outlives_the_first_key(
    home: Home, serve: Serve
) -> None:
    home.write({"servers": SERVERS})
    serve()
    url, _, code = home.run("console", "--json").data["url"].partition("#code=")
    assert url.endswith("/console")
    with httpx2.Client() as http:
        assert http.get(url).status_code == 200
        reply = http.post(f"{url}/session", json={"code": code})
        assert reply.status_code == 200, reply.text
        proof = reply.json()["proof"]
        home.run("keys", "add", "ana")
        wait_until(lambda: httpx2.get(f"{url}/session").json()["required"], TIMEOUT_S)
        who = http.get(f"{url}/session", headers={"x-portico-proof": proof}).json()
    assert (who["kind"], who["may"]["administer"]) == ("local", True)


def test_with_a_token_it_signs_in_once(home: Home, serve: Serve) -> None:
    home.write({"servers": SERVERS, "gateway": {"token": "a-token-of-this-test"}})
    serve()
    url = home.run("console", "--json").data["url"]
    code = urlsplit(url).fragment.removeprefix("code=")
    path = f"{url.partition('#')[0]}/session"
    assert len(code) >= 40
    assert httpx2.get(path).json()["signed_in"] is False
    assert httpx2.post(path, json={"code": code}).status_code == 200
    assert httpx2.post(path, json={"code": code}).status_code == 401
    assert "signs in once" in home.run("console").out


def test_where_it_is_off_that_is_said(home: Home, serve: Serve) -> None:
    home.write({"servers": SERVERS, "gateway": {"console": False}})
    serve()
    failed = home.run("console")
    assert (failed.code, "gateway.console" in failed.err) == (1, True)


def test_without_a_gateway_it_says_how_to_start_one(home: Home) -> None:
    home.write({"servers": SERVERS})
    failed = home.run("console")
    assert (failed.code, "`portico start`" in failed.err) == (1, True)
