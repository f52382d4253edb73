"""`portico config`: what is in force, where it came from, and no secrets."""

from typing import Any

import pytest

from tests.cli.conftest import Home

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
            "rules": [{"for": ["local"], "tools": ["t.*"], "may": "ask"}],
            "approvals": {"self": False},
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


def test_the_traceback_is_shown_on_request(home: Home) -> None:
    assert "Traceback" in home.run("browse", "nowhere", env={"PORTICO_DEBUG": "1"}).err
