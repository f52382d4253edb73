"""`config` shows what is in force and hides what is secret; `status` shows what runs and why the rest does not."""

import asyncio
import sys
import time
from typing import Any

import pytest

from portico.storage.gateway_store import GatewayStore
from portico.storage.rows import LedgerRow

from .conftest import EVERYTHING, Home

SECRET = "sk-live-4f9a8b7c6d5e4f3a2b1c"


def _configuration() -> dict[str, Any]:
    return {
        "servers": {
            "one": {
                "command": "server-one",
                "env": {"API_KEY": SECRET},
                "args": ["--token", SECRET],
            },
            "two": {
                "url": "https://example.org/mcp",
                "headers": {"Authorization": f"Bearer {SECRET}"},
            },
            "three": {"command": "x", "env": {"NAME": "${FROM_OUTSIDE}"}},
        },
        "profiles": {"small": {"exposure": "full"}},
        "gateway": {"port": 9000},
    }


@pytest.mark.parametrize("words", [[], ["--sources"], ["--json"], ["--json", "--sources"]])
def test_no_secret_is_ever_shown(home: Home, words: list[str]) -> None:
    home.write(_configuration())
    ran = home.run("config", *words, env={"PORTICO_TOKEN": f"tok-{SECRET}", "FROM_OUTSIDE": SECRET})
    assert ran.code == 0
    assert SECRET not in ran.out + ran.err
    assert "server-one" in ran.out or "--sources" in words


def test_every_key_has_a_source(home: Home) -> None:
    path = home.write(_configuration())
    ran = home.run(
        "config", "--json", "--sources", env={"PORTICO_LOG_LEVEL": "info", "FROM_OUTSIDE": "x"}
    )
    assert ran.data["config"]["gateway"]["port"] == 9000
    assert ran.data["sources"]["gateway.port"] == "portico.yaml:1"
    assert ran.data["sources"]["log_level"] == "env PORTICO_LOG_LEVEL"
    assert ran.data["sources"]["exposure"] == "default"
    assert ran.data["files"] == [str(path)]


def test_the_text_can_be_saved_and_used(home: Home) -> None:
    home.write(
        {
            "servers": {"t": {"functions": "portico.demo.text:TOOLS", "tags": ["words"]}},
            "exposure": "full",
        }
    )
    shown = home.run("config").out
    (home.folder / "again.yaml").write_text(shown, encoding="utf-8")
    again = home.run("config", "--config", "again.yaml", "--json")
    assert again.code == 0, again.err
    assert again.data["config"] == home.run("config", "--json").data["config"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("servers: {a: {comand: x}}", "Did you mean command?"),
        ("servers: [", "portico.yaml:2"),
        ("exposure: everything", "exposure"),
        ("srvers: {}", "Did you mean servers?"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_refused_with_its_place(
    home: Home, text: str, reason: str
) -> None:
    (home.folder / "portico.yaml").write_text(text, encoding="utf-8")
    for words in (["config"], ["search", "x"], ["stdio"], ["serve"]):
        ran = home.run(*words)
        assert (ran.code, ran.out) == (2, ""), words
        assert reason in ran.err
        assert "Traceback" not in ran.err


def test_a_data_folder_that_cannot_be_used_costs_only_the_memory(home: Home) -> None:
    (home.folder / "file").write_text("")
    ran = home.run("browse", env={"PORTICO_DATA_DIR": str(home.folder / "file")})
    assert ran.code == 0
    assert "nothing will be remembered" in ran.err


def test_the_traceback_is_there_for_who_asks(home: Home) -> None:
    assert "Traceback" in home.run("browse", "nowhere", env={"PORTICO_DEBUG": "1"}).err


def _servers() -> dict[str, Any]:
    crash = "import sys; print(f'no disk, token={sys.argv[1]}', file=sys.stderr); sys.exit(3)"
    return {
        "good": EVERYTHING,
        "crash": {"command": sys.executable, "args": ["-c", crash, SECRET]},
        "missing": {"command": "no-such-command-anywhere"},
        "broken": {"functions": "no.such.module"},
        "off": {"command": "x", "disabled": True},
    }


def test_status_tells_what_is_wrong_with_whom(home: Home) -> None:
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
    assert ran.out.count(": ready, functions, ") == 8


@pytest.mark.parametrize(
    "words", [["status"], ["search", "anything"], ["status", "--json"], ["call", "hub.x", "--json"]]
)
def test_advice_about_a_missing_variable_is_shown_whole(home: Home, words: list[str]) -> None:
    home.write({"servers": {"hub": {"command": "x", "env": {"HUB_TOKEN": "${GITHUB_TOKEN}"}}}})
    ran = home.run(*words)
    assert ran.code == 1
    assert "${GITHUB_TOKEN" in ran.out
    assert "***" not in ran.out


def test_status_tells_where_use_is_kept_and_what_was_saved(home: Home) -> None:
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
    said = "tokens: 1,500 shown in 2 sessions; listing every tool would have cost 20,000: 18,500 saved (92%)"
    assert said in home.run("status").out.splitlines()


async def _two_sessions(place: str) -> None:
    record, now = GatewayStore(place, None), time.time()
    rows = [
        LedgerRow("a", "one", "", now, now, 12_000, 1_000, 4),
        LedgerRow("b", "two", "", now, now, 8_000, 500, 3),
    ]
    await record.add_usage([], [], rows)
    await record.close()


def test_a_database_that_is_away_is_told_without_its_password_and_costs_nothing_else(
    home: Home,
) -> None:
    url = "postgresql://porter:sEcr3t-w0rd@127.0.0.1:9/house"
    home.write({"servers": {"text": {"functions": "portico.demo.text:TOOLS"}}, "database_url": url})
    ran = home.run("status", "--json")
    assert ran.code == 0
    assert ran.data["database"]["kind"] == "PostgreSQL"
    assert ran.data["database"]["place"] == "house at 127.0.0.1:9"
    assert ran.data["database"]["problem"]
    text = home.run("status")
    assert "database: PostgreSQL, house at 127.0.0.1:9 — " in text.out
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
