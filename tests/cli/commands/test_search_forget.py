"""`search --forget` drops what use has taught, says how much it was, and needs no query."""

import asyncio

from portico.gateway import RECORD_FILE
from portico.storage.gateway_store import GatewayStore
from portico.storage.rows import PlanRow
from tests.cli.conftest import Home


def test_what_was_learnt_is_forgotten_and_counted(home: Home) -> None:
    assert home.run("call", "notes.list_notes").code == 0
    ran = home.run("search", "--forget")
    assert ran.code == 0
    assert "and the use of 1 tool." in ran.out
    assert "Nothing was learnt yet" in home.run("search", "--forget").out


def test_forgetting_can_be_narrowed_to_a_server(home: Home) -> None:
    assert home.run("call", "notes.list_notes").code == 0
    ran = home.run("search", "--forget", "--server", "clock", "--json")
    assert (ran.code, ran.data["server"], ran.data["forgotten"]["used"]) == (0, "clock", 0)
    assert home.run("search", "--forget", "--server", "notes", "--json").data["forgotten"] == {
        "followed": 0,
        "together": 0,
        "used": 1,
        "unreadable": 0,
        "plans": 0,
    }


def test_forgetting_where_nothing_was_ever_learnt_makes_no_file(home: Home) -> None:
    assert home.run("search", "--forget").code == 0
    assert not (home.folder / "data" / "habits.sqlite3").exists()


def test_forgetting_takes_no_query_and_searching_needs_one(home: Home) -> None:
    for arguments, words in (
        (("search", "--forget", "mail"), "--forget takes no query"),
        (("search",), "search needs a QUERY"),
    ):
        ran = home.run(*arguments)
        assert ran.code == 2
        assert words in ran.err


def test_with_learning_off_nothing_is_learnt(home: Home) -> None:
    ran = home.run("call", "notes.list_notes", env={"PORTICO_LEARNING__SCOPE": "off"})
    assert ran.code == 0
    assert not (home.folder / "data" / "habits.sqlite3").exists()


def test_forgetting_removes_what_was_set_aside(home: Home) -> None:
    aside = home.folder / "data" / "habits.sqlite3.unreadable"
    aside.parent.mkdir(exist_ok=True)
    aside.write_text("no database")
    ran = home.run("search", "--forget")
    assert ran.code == 0
    assert "Deleted 1 file that could not be read." in ran.out
    assert not aside.exists()


def test_forgetting_a_profile_says_where_all_profiles_learn_together(home: Home) -> None:
    home.write(
        {
            "profiles": {"work": {}},
            "learning": "shared",
            "servers": {"notes": {"functions": "portico.demo.notes:TOOLS"}},
        }
    )
    assert home.run("call", "notes.list_notes").code == 0
    ran = home.run("search", "--forget", "--profile", "work")
    assert ran.code != 0
    assert "all profiles learn together here" in ran.err
    assert "Without --profile" in ran.err
    assert "the use of 1 tool" in home.run("search", "--forget").out


def test_plans_that_worked_are_forgotten_too_but_not_with_one_server(home: Home) -> None:
    path = home.folder / "data" / RECORD_FILE
    path.parent.mkdir(exist_ok=True)

    async def kept() -> None:
        record = GatewayStore(None, path)
        await record.add_plans([PlanRow("a", "/me", "", "", "[]", "{}", 1, 1.0)])
        await record.close()

    asyncio.run(kept())
    assert (
        home.run("search", "--forget", "--server", "notes", "--json").data["forgotten"]["plans"]
        == 0
    )
    ran = home.run("search", "--forget")
    assert "1 plan that worked" in ran.out
    assert "Nothing was learnt yet" in home.run("search", "--forget").out
