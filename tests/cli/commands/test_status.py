"""`portico status`: what runs, and why the rest does not."""

import asyncio
import sys
import time
from typing import Any

import pytest

from portico.demo import make_demo_servers
from portico.storage.gateway_store import GatewayStore
from portico.storage.rows import LedgerRow
from tests.cli.conftest import EVERYTHING, Home

SECRET = "sk-live-4f9a8b7c6d5e4f3a2b1c"


def _servers() -> dict[str, Any]:
    crash = "import sys; print(f'no disk, token={sys.argv[1]}', file=sys.stderr); sys.exit(3)"
    return {
        "good": EVERYTHING,
        "crash": {"command": sys.executable, "args": ["-c", crash, SECRET]},
        "missing": {"command": "no-such-command-anywhere"},
        "broken": {"functions": "no.such.module"},
        "off": {"command": "x", "disabled": True},
    }


def test_status_shows_what_is_wrong_with_each_server(home: Home) -> None:
    home.write({"servers": _servers()})
    ran = home.run("status", "--json")
    assert ran.code == 1
    assert ran.data["ok"] is False
    found = {server["name"]: server for server in ran.data["servers"]}
    assert {name: one["state"] for name, one in found.items()} == {
        "good": "ready", "crash": "down", "missing": "down", "broken": "down", "off": "off",
    }  # fmt: skip
    assert found["good"]["tools"] > 0
    assert found["good"]["era"] in ("legacy", "modern")
    assert "no-such-command-anywhere" in found["missing"]["reason"]
    assert "no disk" in found["crash"]["stderr"] or "no disk" in found["crash"]["reason"]
    assert SECRET not in ran.out + ran.err
    text = home.run("status", "--offline")
    assert text.code == 0
    assert "good: known" in text.out


def test_all_well_is_exit_code_0(home: Home) -> None:
    ran = home.run("status")
    assert ran.code == 0
    assert ran.out.count(": ready, functions, ") == len(make_demo_servers())


@pytest.mark.parametrize("words", [["status"], ["status", "--json"], ["call", "hub.x", "--json"]])
def test_advice_about_a_missing_variable_is_shown_whole(home: Home, words: list[str]) -> None:
    home.write({"servers": {"hub": {"command": "x", "env": {"HUB_TOKEN": "${GITHUB_TOKEN}"}}}})
    ran = home.run(*words)
    assert ran.code == 1
    assert "${GITHUB_TOKEN" in ran.out
    assert "***" not in ran.out


def test_status_shows_where_use_is_kept_and_what_was_saved(home: Home) -> None:
    ran = home.run("status", "--json")
    assert ran.data.keys() == {"ok", "servers", "categories", "database", "tokens", "search"}
    assert ran.data["categories"] == len(home.run("browse", "--json").data["categories"])
    assert ran.data["database"] == {
        "kind": "SQLite",
        "place": str(home.folder / "data"),
        "problem": "",
    }
    assert ran.data["tokens"] == {"sessions": 0, "listing": 0, "shown": 0, "saved": 0, "answers": 0}
    out = home.run("status").out
    assert f"\ndatabase: SQLite, {home.folder / 'data'}\n" in out
    assert "\ntokens: no client was shown anything yet\n" in out


def test_status_adds_up_what_every_session_was_shown(home: Home) -> None:
    place = f"sqlite:///{(home.folder / 'use.db').as_posix()}"
    home.write(
        {"servers": {"text": {"functions": "portico.demo.text:TOOLS"}}, "database_url": place}
    )
    asyncio.run(_two_sessions(place))
    data = home.run("status", "--json").data
    assert data["tokens"] == {
        "sessions": 2,
        "listing": 20_000,
        "shown": 1_500,
        "saved": 18_500,
        "answers": 7,
    }
    said = (
        "tokens: 1,500 shown in 2 sessions; listing every tool would have cost 20,000: "
        "18,500 saved (92%)"
    )
    assert said in home.run("status").out.splitlines()


async def _two_sessions(place: str) -> None:
    record, now = GatewayStore(place, None), time.time()
    rows = [
        LedgerRow("a", "one", "", now, now, 12_000, 1_000, 4),
        LedgerRow("b", "two", "", now, now, 8_000, 500, 3),
    ]
    await record.add_usage([], [], rows)
    await record.close()


def test_an_unreachable_database_is_shown_without_its_password_and_breaks_nothing_else(
    home: Home,
) -> None:
    url = "postgresql://porter:sEcr3t-w0rd@127.0.0.1:9/records"
    home.write({"servers": {"text": {"functions": "portico.demo.text:TOOLS"}}, "database_url": url})
    ran = home.run("status", "--json")
    assert ran.code == 0
    assert ran.data["database"]["kind"] == "PostgreSQL"
    assert ran.data["database"]["place"] == "records at 127.0.0.1:9"
    assert ran.data["database"]["problem"]
    text = home.run("status")
    assert "database: PostgreSQL, records at 127.0.0.1:9 — " in text.out
    for words in (
        ["browse"],
        ["search", "slugify"],
        ["tokens"],
        ["describe", "text.slugify", "--detail", "full"],
    ):
        answered = home.run(*words)
        assert answered.code == 0, words
        assert "sEcr3t" not in answered.out + answered.err
    refused = home.run("usage")
    assert refused.code == 1
    assert "the record of calls cannot be read" in refused.err
    assert "See that PostgreSQL runs" in refused.err
    for words in (["config"], ["config", "--sources"], ["config", "--json"]):
        assert "sEcr3t" not in home.run(*words).out
    assert home.run("config", "--json").data["config"]["database_url"] == "***"
    tiers = home.run("tiers")
    assert tiers.code == 0
    assert "the record of calls cannot be read" in tiers.err
    assert home.run("tiers", "--recompute").code == 1
    assert "sEcr3t" not in ran.out + ran.err + text.out + text.err + refused.err
