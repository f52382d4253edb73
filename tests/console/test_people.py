"""Persons with different rights, the end of a session, and a gateway that restarts."""

from pathlib import Path

import pytest

from portico.auth.console_sessions import ConsoleSessions
from portico.config import Config
from tests.console.browser import Browser, wait_until
from tests.console.served import GatewayThread, TestKeys
from tests.interaction.fake_servers import fake

PROFILES = Config.model_validate({"profiles": {"work": {"servers": ["mail"]}}})
TOKEN = "the token of the configuration"


def sign_in(window: Browser, root: str, credential: str) -> None:
    window.open(f"{root}/console")
    window.fill("#credential", credential)
    window.click("button", "Sign in")
    window.wait_for(".connection", "live")


def ignore_refusals(window: Browser) -> None:
    """The browser itself notes every 401 and 403."""
    assert [line for line in window.read_log() if "status of 40" not in line] == []


def test_each_person_sees_what_its_key_opens(window: Browser, thread: GatewayThread) -> None:
    keys = TestKeys()
    keys.add("ana")
    keys.add("ben", profiles=("work",), is_read_only=True)
    servers = {"mail": fake("read"), "disk": fake("write")}
    with thread.serve(servers, config=PROFILES, keys=keys) as served:
        sign_in(window, served.root, keys.texts["ana"])
        window.wait_for(".figures", "Servers")
        window.open(f"{served.root}/console/servers/disk")
        window.wait_for("button", "Restart")
        window.click("button", "Sign out")
        window.wait_for("label", "Key, or the gateway's token")
        sign_in(window, served.root, keys.texts["ben"])
        window.open(f"{served.root}/console")
        window.wait_for("h1", "Overview")
        window.wait_for(".empty", "Your key opens work")
        window.open(f"{served.root}/console/servers")
        window.wait_for("[role=row]", "mail")
        assert "disk" not in window.text()
        window.open(f"{served.root}/console/servers/disk")
        window.wait_for(".problem", "disk")
        window.open(f"{served.root}/console/servers/mail")
        window.wait_for(".list-box", "mail.read")
        assert "Restart" not in window.text()
        ignore_refusals(window)


def test_a_wrong_key_says_so_and_a_revoked_one_ends_the_session(
    window: Browser, thread: GatewayThread
) -> None:
    keys = TestKeys()
    keys.add("other")
    keys.add("ana")
    with thread.serve({"mail": fake("read")}, keys=keys) as served:
        window.open(f"{served.root}/console/tools")
        window.fill("#credential", "wrong")
        window.click("button", "Sign in")
        window.wait_for(".problem", "not valid")
        window.fill("#credential", keys.texts["ana"])
        window.click("button", "Sign in")
        window.wait_for("h1", "Tools")
        thread.call(lambda: keys.revoke("ana"))
        window.wait_for("label", "Key, or the gateway's token")
        ignore_refusals(window)


def test_a_link_signs_in_once_and_leaves_no_trace_in_the_address(
    window: Browser, thread: GatewayThread
) -> None:
    sessions = ConsoleSessions()
    with thread.serve({"mail": fake("read")}, token=TOKEN, sessions=sessions) as served:
        code = sessions.make_link_code()
        window.open(f"{served.root}/console#code={code}")
        window.wait_for("h1", "Overview")
        assert window.url == f"{served.root}/console"
        window.open("about:blank")
        window.open(f"{served.root}/console/tools")
        window.wait_for("h1", "Tools")
        window.click("button", "Sign out")
        window.wait_for("h1", "Portico")
        window.open("about:blank")
        window.open(f"{served.root}/console#code={code}")
        window.wait_for(".problem", "used already")
        ignore_refusals(window)


@pytest.mark.parametrize("has_token", [False, True])
def test_a_restarted_gateway_is_found_again(
    window: Browser, thread: GatewayThread, tmp_path: Path, has_token: bool
) -> None:
    token = TOKEN if has_token else None
    with thread.serve({"mail": fake("read")}, token=token, data_dir=tmp_path) as served:
        port = served.port
        if has_token:
            sign_in(window, served.root, TOKEN)
        window.open(f"{served.root}/console/servers")
        window.wait_for("[role=row]", "mail")
    window.wait_for(".connection", "gateway not reached")
    servers = {"mail": fake("read"), "disk": fake("read")}
    with thread.serve(servers, token=token, data_dir=tmp_path, port=port) as served:
        if has_token:
            window.wait_for("label", "Key, or the gateway's token")
            window.fill("#credential", TOKEN)
            window.click("button", "Sign in")
        window.wait_for("[role=row]", "disk")
        window.wait_for(".connection", "live")
        wait_until(lambda: "not reached" not in window.text(".connection"))
    window.open("about:blank")
    window.read_log()  # the browser notes each connection that was refused
