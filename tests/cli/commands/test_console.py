"""`console`: the address of the running gateway's console, signed in."""

from urllib.parse import urlsplit

import httpx2

from tests.cli.conftest import Home
from tests.cli.local_gateway.conftest import SERVERS, Serve, serve

__all__ = ["serve"]


def test_without_credentials_it_is_the_address_alone(home: Home, serve: Serve) -> None:
    home.write({"servers": SERVERS})
    serve()
    url = home.run("console", "--json").data["url"]
    assert url.endswith("/console")
    assert httpx2.get(url).status_code == 200
    assert home.run("console").out.strip() == url


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
