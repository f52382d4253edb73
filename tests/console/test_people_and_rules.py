"""Keys, people and rules in the console."""

from pathlib import Path

from portico.auth.authenticator import KeyRing
from portico.auth.console_sessions import ConsoleSessions
from portico.config import Config
from portico.storage.key_store import KeyStore
from tests.console.browser import Browser, wait_until
from tests.console.served import GatewayThread, TestKeys
from tests.console.test_people import TOKEN, ignore_refusals, sign_in
from tests.console.test_screens import make_mail, open_page

CONFIG = Config.model_validate(
    {
        "rules": [
            {"for": ["key:ana"], "tools": ["mail.send"], "may": "deny"},
            {"tools": ["mail.fail"], "may": "ask", "say": "It breaks."},
        ],
        "profiles": {"work": {"servers": ["mail"]}},
    }
)


def test_a_key_is_made_shown_once_rotated_and_revoked(
    window: Browser, thread: GatewayThread, tmp_path: Path
) -> None:
    keys = TestKeys()
    keys.ring = KeyRing(KeyStore(None, tmp_path))
    servers = {"mail": make_mail()}
    with thread.serve(servers, config=CONFIG, data_dir=tmp_path, keys=keys, token=TOKEN) as served:
        thread.run(served.gateway.load_keys())
        sign_in(window, served.root, TOKEN)
        open_page(window, served, "people")
        window.wait_for(".empty", "There are no keys")
        window.click("button", "Make a key")
        window.fill("#key-name", "ana")
        window.click("dialog label", "work")
        window.click("dialog button", "Make it")
        window.wait_for("dialog pre", "portico_")
        text = window.text("dialog pre")
        window.click("dialog button", "I have it")
        window.wait_for(".card-row", "opens work")
        assert text not in window.run("return document.documentElement.outerHTML")
        window.click(".card-row button", "Rotate")
        window.wait_for(".card-row", "stays valid for an hour")
        window.click(".card-row button", "Rotate now")
        window.wait_for("dialog[open]", "stays valid for an hour")
        window.click("dialog button", "I have it")
        wait_until(lambda: len(window.find_all(".card-row [data-tone=ok]")) == 2)
        for left in (1, 0):
            window.click(".card-row button", "Revoke")
            window.click(".card-row button", "Revoke now")
            wait_until(lambda left=left: len(window.find_all(".card-row [data-tone=ok]")) == left)
        window.open("about:blank")
        ignore_refusals(window)


def test_the_first_key_is_shown_until_it_is_closed_and_locks_nobody_out(
    window: Browser, thread: GatewayThread, tmp_path: Path
) -> None:
    keys = TestKeys()
    keys.ring = KeyRing(KeyStore(None, tmp_path))
    sessions = ConsoleSessions()
    servers = {"mail": make_mail()}
    with thread.serve(servers, data_dir=tmp_path, keys=keys, sessions=sessions) as served:
        thread.run(served.gateway.load_keys())
        window.open(f"{served.root}/console/people#code={sessions.make_link_code()}")
        window.wait_for(".empty", "There are no keys")
        window.click("button", "Make a key")
        window.wait_for("dialog .warning", "every client that connects over HTTP needs a key")
        assert "was not opened by" not in window.text("dialog")
        window.fill("#key-name", "ana")
        window.click("dialog button", "Make it")
        window.wait_for("dialog pre", "portico_")
        window.wait_for(".top", "Sign out")
        window.wait_for(".connection", "live")
        window.wait_for("dialog pre", "portico_")
        window.click("dialog button", "I have it")
        window.click("nav.side a", "Connect")
        window.wait_for(".panel", '--header "Authorization: Bearer KEY"')
        window.click("nav.side a", "People and keys")
        window.click(".card-row button", "Revoke")
        window.wait_for(".card-row", "It is the last valid key.")
        window.click(".card-row button", "Revoke now")
        window.wait_for(".panel .warning", "the gateway stays closed")
        window.click("button", "Sign out")
        window.wait_for("main", "goes on asking for one, also when all were revoked")
        window.open("about:blank")
        ignore_refusals(window)


def test_the_first_key_outlives_a_page_that_has_to_sign_in(
    window: Browser, thread: GatewayThread, tmp_path: Path
) -> None:
    keys = TestKeys()
    keys.ring = KeyRing(KeyStore(None, tmp_path))
    with thread.serve({"mail": make_mail()}, data_dir=tmp_path, keys=keys) as served:
        thread.run(served.gateway.load_keys())
        window.open(f"{served.root}/console/people")
        window.click("button", "Make a key")
        window.wait_for("dialog .warning", "was not opened by portico console")
        window.fill("#key-name", "ana")
        window.click("dialog button", "Make it")
        window.wait_for("label", "Key, or the gateway's token")
        window.wait_for("dialog pre", "portico_")
        window.click("dialog button", "I have it")
        wait_until(lambda: not window.find_all("dialog"))
        window.open("about:blank")
        ignore_refusals(window)


def test_rules_are_shown_and_a_call_is_tested_for_somebody(
    window: Browser, thread: GatewayThread, tmp_path: Path
) -> None:
    with thread.serve({"mail": make_mail()}, config=CONFIG, data_dir=tmp_path) as served:
        open_page(window, served, "rules?who=key%3Aana")
        window.wait_for(".rules", "key:ana")
        window.wait_for(".panel", "What key:ana sees: 2")
        window.wait_for(".panel", "1 more exist, and not for this caller.")
        window.fill("#rule-target", "mail.send")
        window.click("button", "Test")
        window.wait_for(".verdict", "rules[0]")
        window.wait_for(".verdict", "does not exist for this caller")
        window.fill("#rule-target", "mail.fail")
        window.fill("#rule-arguments", "not json")
        window.click("button", "Test")
        window.wait_for(".problem", "The arguments are not JSON.")
        window.fill("#rule-arguments", "{}")
        window.click("button", "Test")
        window.wait_for(".verdict", "It breaks.")
        window.open("about:blank")
