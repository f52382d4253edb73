"""`portico login` and `portico logout`, as processes, with a browser that needs no person."""

import asyncio
import json
import subprocess
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from portico.cli.commands.login import has_display
from tests.cli.conftest import CommandResult, Home, Start
from tests.upstream.oauth.authorization_server import (
    ProtectedServer,
    ScriptedIssuer,
    run_authorization_server,
    run_protected_server,
    visit,
)

TIMEOUT_S = 240.0


@dataclass
class Remote:
    issuer: ScriptedIssuer
    server: ProtectedServer
    home: Home
    start: Start

    async def run(self, *arguments: str) -> CommandResult:
        return await asyncio.to_thread(self.home.spawn, *arguments)

    async def begin(self, *arguments: str) -> tuple["subprocess.Popen[bytes]", str]:
        """Start a sign-in; return it, and the address that it shows."""
        process = self.start(*arguments)
        stream = process.stderr if "--json" in arguments else process.stdout
        assert stream is not None
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                line = (await asyncio.to_thread(stream.readline)).decode().strip()
                if line.startswith("http://"):
                    return process, line

    async def sign_in(self, *arguments: str) -> tuple[int, str]:
        """Sign in through the browser; return exit code and output."""
        process, url = await self.begin("login", *arguments)
        redirect_uri = parse_qs(urlsplit(url).query)["redirect_uri"][0]
        ended_at = await visit(url, redirect_uri)
        async with httpx2.AsyncClient(timeout=TIMEOUT_S) as browser:
            forged = await browser.get(f"{redirect_uri}?state=guessed&code=x")
            assert forged.status_code == 404
            assert (await browser.get(ended_at)).status_code == 200
        out, err = await asyncio.to_thread(process.communicate, timeout=TIMEOUT_S)
        return process.returncode, (out + err).decode()


@pytest.fixture
async def remote(home: Home, start: Start) -> AsyncGenerator[Remote]:
    async with AsyncExitStack() as stack:
        issuer = await stack.enter_async_context(run_authorization_server())
        server = await stack.enter_async_context(run_protected_server(issuer))
        home.write({"servers": {"notes": {"url": server.url}}})
        yield Remote(issuer, server, home, start)


async def test_login_shows_the_address_first_and_keeps_what_comes_back(remote: Remote) -> None:
    before = await remote.run("status")
    assert before.code == 1
    assert "notes: needs sign-in" in before.out
    assert "portico login notes" in before.out
    code, said = await remote.sign_in("notes")
    assert (code, "notes is signed in to." in said) == (0, True)
    called = await remote.run("call", "notes.whoami")
    assert (called.code, called.out.strip()) == (0, "you are ana")
    gone = await remote.run("logout", "notes")
    assert gone.out == "The sign-in to notes is forgotten.\n"
    assert "needs a sign-in" in (await remote.run("call", "notes.whoami")).err
    assert (await remote.run("logout", "notes")).out == "Nobody was signed in to notes.\n"


async def test_a_second_login_uses_the_same_client_and_port(remote: Remote) -> None:
    for _ in range(2):
        code, said = await remote.sign_in("notes", "--json")
        assert code == 0
        (answer,) = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
        (signed_in,) = answer["signed_in"]
        assert (signed_in["server"], signed_in["issuer"]) == ("notes", remote.issuer.issuer)
    asked = [params for _, path, params in remote.issuer.requests if path == "/authorize"]
    assert remote.issuer.count("/register") == 1
    assert asked[0]["redirect_uri"] == asked[1]["redirect_uri"]


async def test_an_address_from_another_machine_is_pasted(remote: Remote) -> None:
    process, url = await remote.begin("login", "notes", "--paste")
    ended_at = await visit(url, parse_qs(urlsplit(url).query)["redirect_uri"][0])
    pasted = f"{ended_at}\n".encode()
    out, err = await asyncio.to_thread(process.communicate, pasted, timeout=TIMEOUT_S)
    assert (process.returncode, b"notes is signed in to." in out) == (0, True), err
    wrong = await asyncio.to_thread(
        remote.home.spawn, "login", "notes", "--paste", stdin="http://127.0.0.1:1/callback\n"
    )
    assert "not the address that the browser ended at" in wrong.err


async def test_all_servers_that_need_it(remote: Remote) -> None:
    remote.home.write(
        {
            "servers": {
                "notes": {"url": remote.server.url},
                "plain": {"functions": "portico.demo.text:TOOLS"},
                "keyed": {"url": remote.server.url, "headers": {"Authorization": "Bearer x"}},
            }
        }
    )
    code, said = await remote.sign_in("--all")
    assert (code, said.count("is signed in to.")) == (0, 1)
    assert (await remote.run("login", "--all")).out == "No server needs a sign-in.\n"


async def test_a_server_that_wants_a_sign_in_is_added_and_then_signed_in_to(remote: Remote) -> None:
    added = await remote.run("add", "more", "--url", remote.server.url)
    assert added.code == 0, added.err
    assert "more wants a person to sign in: portico login more" in added.out
    code, said = await remote.sign_in("more")
    assert (code, "more is signed in to." in said) == (0, True)
    assert (await remote.run("call", "more.whoami")).code == 0


async def test_what_cannot_be_signed_in_to(remote: Remote) -> None:
    remote.home.write({"servers": {"plain": {"functions": "portico.demo.text:TOOLS"}}})
    assert "not signed in to with OAuth" in (await remote.run("login", "plain")).err
    assert "say which server" in (await remote.run("login")).err
    assert "there is no server" in (await remote.run("login", "plan")).err


async def test_doctor_says_who_has_to_sign_in(remote: Remote) -> None:
    found = await remote.run("doctor", "--json")
    ids = [one["id"] for one in json.loads(found.out)["findings"]]
    assert "server.sign_in" in ids


@pytest.mark.parametrize(
    ("environ", "platform", "seen"),
    [
        ({"DISPLAY": ":0"}, "linux", True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", True),
        ({}, "linux", False),
        ({"DISPLAY": ":10", "SSH_CONNECTION": "a b"}, "linux", False),
        ({}, "darwin", True),
        ({"SSH_TTY": "/dev/pts/1"}, "darwin", False),
        ({}, "win32", True),
    ],
)
def test_a_browser_is_opened_only_where_somebody_sees_it(
    environ: dict[str, str], platform: str, seen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed: Any = monkeypatch
    changed.setattr("sys.platform", platform)
    assert has_display(environ) is seen


async def test_a_person_has_an_own_account(remote: Remote) -> None:
    assert (
        "one account by everybody"
        in (await remote.run("login", "notes", "--person", "key ana")).err
    )
    remote.home.write(
        {"servers": {"notes": {"url": remote.server.url, "auth": {"per_user": True}}}}
    )
    code, _ = await remote.sign_in("notes", "--person", "key ana")
    assert code == 0
    assert "Nobody was signed in" in (await remote.run("logout", "notes")).out
    gone = await remote.run("logout", "notes", "--person", "key ana")
    assert "is forgotten" in gone.out
