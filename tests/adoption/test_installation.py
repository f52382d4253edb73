"""Clients' files: Portico goes into each as that client would write it, and out again without a
trace."""

import json
import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from portico.adoption.backups import Backups
from portico.adoption.client_documents import parse_document
from portico.adoption.client_entries import (
    EntryVariables,
    find_duplicates,
    make_http_entry,
    make_stdio_entry,
)
from portico.adoption.clients import (
    Client,
    ClientConfigLocation,
    find_client,
    list_clients,
    list_locations,
)
from portico.adoption.file_replacement import write_file
from portico.adoption.installation import (
    InstallPlan,
    apply_install,
    apply_uninstall,
    choose_location,
    is_installed,
    plan_install,
    plan_uninstall,
)
from portico.config import BackendConfig, Config
from portico.errors import ConfigError

FIXTURES = Path(__file__).parents[1] / "fixtures" / "clients" / "install"
FILES = {
    ("claude-desktop", "user"): "claude_desktop_config.json",
    ("claude-code", "user"): "claude.json",
    ("claude-code", "local"): "claude.json",
    ("claude-code", "project"): "mcp.json",
    ("cursor", "user"): "cursor_mcp.json",
    ("vscode", "user"): "vscode_mcp.json",
    ("windsurf", "user"): "mcp_config.json",
    ("codex", "user"): "config.toml",
    ("gemini", "user"): "gemini_settings.json",
    ("zed", "user"): "zed_settings.json",
    ("cline", "user"): "cline_mcp_settings.json",
}
ROUGH: dict[str, Callable[[bytes], bytes]] = {
    "as it is": lambda data: data,
    "with a byte order mark": lambda data: b"\xef\xbb\xbf" + data,
    "in UTF-16": lambda data: b"\xff\xfe" + data.decode().encode("utf-16-le"),
    "with CRLF": lambda data: data.replace(b"\n", b"\r\n"),
    "without a last newline": lambda data: data.rstrip(b"\n"),
    "with tabs": lambda data: data.replace(b"  ", b"\t"),
    "with blank lines": lambda data: data + b"\n\n",
}
SMALL: dict[str, bytes | None] = {
    "missing": None,
    "empty": b"",
    "blank": b" \r\n\t\r\n",
    "a byte order mark": b"\xef\xbb\xbf",
    "{}": b"{}",
    "{ }": b"{ }\n",
    "on two lines": b"{\n}\n",
    "only a comment": b"// nothing yet",
    "an empty map": b'{"mcpServers": {}, "servers": {}, "context_servers": {}}',
    "an empty map on lines": b'{\n  "mcpServers": {\n  }\n}\n',
    "a comment in an empty map": b'{\n  "mcpServers": { /* none */ },\n}\n',
    "minified": b'{"a":[1,{"b":null}],"mcpServers":{"x":{"url":"http://x"}},"z":"}"}',
}
ENTRY = {
    "command": "/opt/portico/bin/portico",
    "args": ["stdio", "--config", "/home/ada/portico.yaml"],
}


def nothing(servers: Any) -> tuple[str, ...]:
    return ()


def place_of(name: str, scope: str, home: Path) -> tuple[Client, ClientConfigLocation]:
    wanted = find_client(name)
    there = list_locations(wanted, home, home / "work", "linux", {})
    return wanted, choose_location(wanted, there, scope, None)


def written(place: ClientConfigLocation, data: bytes | None) -> None:
    if data is not None:
        place.path.parent.mkdir(parents=True, exist_ok=True)
        place.path.write_bytes(data)


def now(place: ClientConfigLocation) -> bytes | None:
    return place.path.read_bytes() if place.path.exists() else None


def data_of(place: ClientConfigLocation) -> dict[str, Any]:
    return dict(parse_document(place, place.path.read_bytes()).data)


def installed(
    wanted: Client, place: ClientConfigLocation, backups: Backups, **more: Any
) -> InstallPlan:
    entry = make_stdio_entry(wanted, [ENTRY["command"]], ENTRY["args"], EntryVariables())  # type: ignore[list-item]
    plan = plan_install(
        wanted, place, more.pop("entry", entry), backups, more.pop("behind", nothing), **more
    )
    apply_install(plan, backups)
    return plan


def uninstalled(place: ClientConfigLocation, backups: Backups) -> InstallPlan:
    plan = plan_uninstall(place, backups)
    apply_uninstall(plan, backups)
    return plan


@pytest.fixture
def backups(tmp_path: Path) -> Backups:
    return Backups(tmp_path / "data" / "clients")


ALWAYS = [
    (*file, rough)
    for file in FILES
    for rough in ("as it is", "with a byte order mark", "with CRLF")
]
RARELY = [
    (name, "user", rough)
    for name in ("claude-desktop", "zed", "codex")
    for rough in ("in UTF-16", "without a last newline", "with tabs", "with blank lines")
]


@pytest.mark.parametrize(("name", "scope", "rough"), [*ALWAYS, *RARELY], ids=str)
def test_a_real_file_gets_the_entry_keeps_the_rest_and_is_restored_byte_for_byte(
    name: str, scope: str, rough: str, tmp_path: Path, backups: Backups
) -> None:
    wanted, place = place_of(name, scope, tmp_path)
    before = ROUGH[rough]((FIXTURES / FILES[name, scope]).read_bytes())
    written(place, before)
    kept = parse_document(place, before)
    plan = installed(wanted, place, backups)
    after = parse_document(place, place.path.read_bytes())
    assert plan.outcome == "added"
    assert after.servers["portico"]["command"] == ENTRY["command"]
    assert {key: value for key, value in after.servers.items() if key != "portico"} == kept.servers
    assert _lines_kept(kept.text, after.text)
    again = plan_install(wanted, place, after.servers["portico"], backups, nothing)
    assert (again.outcome, again.has_changes) == ("unchanged", False)
    assert uninstalled(place, backups).outcome == "restored"
    assert now(place) == before
    assert not backups.folder.exists()


def _lines_kept(before: str, after: str) -> bool:
    """Whether every line is still there, in order, but for a comma or a brace's contents."""
    rest = iter(after.splitlines())
    return all(
        any(line == other or line.rstrip("}\r ") in other for other in rest)
        for line in before.splitlines()
    )


EVERY = [(known.name, small) for known in list_clients() for small in ("missing", "empty")]
FEW = [
    (name, small)
    for name in ("cursor", "zed", "codex")
    for small in SMALL
    if small not in ("missing", "empty")
]


@pytest.mark.parametrize(("name", "small"), [*EVERY, *FEW], ids=str)
def test_a_missing_empty_or_tiny_file_is_filled_and_emptied_again(
    name: str, small: str, tmp_path: Path, backups: Backups
) -> None:
    wanted, place = place_of(name, "user", tmp_path)
    before = SMALL[small]
    if place.format == "toml" and before is not None and before.strip(b"\xef\xbb\xbf \r\n\t"):
        before = b"a.b = 1 # x"
    written(place, before)
    installed(wanted, place, backups)
    assert (
        parse_document(place, place.path.read_bytes()).servers["portico"]["args"] == ENTRY["args"]
    )
    assert uninstalled(place, backups).outcome == ("removed" if before is None else "restored")
    assert now(place) == before
    assert before is not None or not place.path.parent.exists() or place.path.parent == tmp_path


@pytest.mark.parametrize(("name", "scope"), FILES, ids=str)
def test_later_edits_stay_and_only_the_entry_is_removed(
    name: str, scope: str, tmp_path: Path, backups: Backups
) -> None:
    wanted, place = place_of(name, scope, tmp_path)
    before = (FIXTURES / FILES[name, scope]).read_bytes()
    written(place, before)
    installed(wanted, place, backups)
    comment = b"\n# mine\n" if place.format == "toml" else b"\n \n"
    place.path.write_bytes(comment + place.path.read_bytes())
    plan = uninstalled(place, backups)
    assert plan.outcome == "taken out"
    assert place.path.read_bytes() == comment + before
    assert uninstalled(place, backups).outcome == "absent"


@pytest.mark.parametrize("name", ["claude-desktop", "cursor", "codex"])
def test_servers_that_portico_has_are_taken_out_on_request_and_come_back(
    name: str, tmp_path: Path, backups: Backups
) -> None:
    wanted, place = place_of(name, "user", tmp_path)
    before = (FIXTURES / FILES[name, "user"]).read_bytes()
    written(place, before)
    servers = parse_document(place, before).servers
    known = next(key for key, entry in servers.items() if "command" in entry)
    config = Config(
        servers={
            "mine": BackendConfig(command=servers[known]["command"], args=servers[known]["args"])
        }
    )

    def behind(found: Any) -> dict[str, str]:
        return find_duplicates(found, config)

    plain = plan_install(wanted, place, ENTRY, backups, behind)
    assert (plain.duplicate_servers, plain.replaced_servers, plain.remaining_servers) == (
        (known,),
        (),
        tuple(servers),
    )
    plan = installed(wanted, place, backups, behind=behind, replace_duplicates=True)
    assert plan.replaced_servers == (known,)
    after = parse_document(place, place.path.read_bytes())
    assert {*after.servers} == {*servers, "portico"} - {known}
    edited = (
        after.text.replace("linear", "linear2").replace("high", "low").replace("Alt+Space", "Alt+P")
    )
    place.path.write_text(edited)
    assert edited != after.text
    assert uninstalled(place, backups).replaced_servers == (known,)
    again = parse_document(place, place.path.read_bytes())
    assert again.servers[known] == servers[known]
    assert "portico" not in again.servers
    assert len(again.servers) == len(servers)


@pytest.mark.parametrize("name", [name for name, scope in FILES if scope == "user"])
def test_taken_out_servers_come_back_byte_for_byte_where_nothing_was_edited(
    name: str, tmp_path: Path, backups: Backups
) -> None:
    wanted, place = place_of(name, "user", tmp_path)
    before = (FIXTURES / FILES[name, "user"]).read_bytes()
    written(place, before)
    installed(wanted, place, backups, behind=tuple, replace_duplicates=True)
    assert [*parse_document(place, place.path.read_bytes()).servers] == ["portico"]
    uninstalled(place, backups)
    assert now(place) == before


def test_uninstall_after_two_installs_restores_the_original(
    tmp_path: Path, backups: Backups
) -> None:
    wanted, place = place_of("zed", "user", tmp_path)
    before = (FIXTURES / "zed_settings.json").read_bytes()
    written(place, before)
    installed(wanted, place, backups)
    other = {**ENTRY, "args": ["stdio", "--exposure", "full"]}
    assert installed(wanted, place, backups, entry=other).outcome == "updated"
    assert data_of(place)["context_servers"]["portico"]["args"] == other["args"]
    uninstalled(place, backups)
    assert now(place) == before


def test_edits_between_two_installs_survive_the_uninstall(tmp_path: Path, backups: Backups) -> None:
    wanted, place = place_of("windsurf", "user", tmp_path)
    written(place, (FIXTURES / "mcp_config.json").read_bytes())
    installed(wanted, place, backups)
    text = place.path.read_text().replace('"disabled": false', '"disabled": true')
    place.path.write_text(text)
    installed(wanted, place, backups, entry={**ENTRY, "args": ["stdio"]})
    uninstalled(place, backups)
    expected = (
        (FIXTURES / "mcp_config.json").read_text().replace('"disabled": false', '"disabled": true')
    )
    assert place.path.read_text() == expected


def test_what_a_person_added_to_the_entry_stays_when_it_is_updated(
    tmp_path: Path, backups: Backups
) -> None:
    wanted, place = place_of("cline", "user", tmp_path)
    installed(wanted, place, backups)
    data = data_of(place)
    data["mcpServers"]["portico"] |= {"autoApprove": ["search_tools"], "timeout": 90}
    place.path.write_text(json.dumps(data))
    installed(wanted, place, backups, entry={**ENTRY, "args": ["stdio"]})
    mine = data_of(place)["mcpServers"]["portico"]
    assert mine == {**ENTRY, "args": ["stdio"], "autoApprove": ["search_tools"], "timeout": 90}


def test_two_scopes_in_one_file_are_undone_in_either_order(
    tmp_path: Path, backups: Backups
) -> None:
    before = (FIXTURES / "claude.json").read_bytes()
    for order in (("user", "local"), ("local", "user")):
        wanted, user = place_of("claude-code", "user", tmp_path)
        both = {"user": user, "local": place_of("claude-code", "local", tmp_path)[1]}
        written(user, before)
        installed(wanted, user, backups)
        installed(wanted, both["local"], backups)
        for scope in order:
            uninstalled(both[scope], backups)
        assert json.loads(user.path.read_bytes()) == json.loads(before)
        assert not backups.folder.exists()


BROKEN = {
    "not closed": (b'{\n  "mcpServers": {\n', 3, "not JSON"),
    "a missing comma": (b'{\n  "a": 1\n  "b": 2\n}', 3, "comma"),
    "a list": (b"[1]", 1, "list"),
    "a map that is none": (b'{\n\n  "mcpServers": ["x"]\n}', 3, "mcpServers is not a map"),
    "null": (b'{"mcpServers": null}', 1, "mcpServers is not a map"),
    "somebody else's": (
        b'{\n  "mcpServers": {\n    "portico": {"command": "door"}}}',
        3,
        "somebody else's",
    ),
    "two maps": (b'{"mcpServers": {},\n"mcpServers": {}}', 2, "written twice"),
    "not text": (b'{"a": "\xff"}', 1, "not utf-8"),
    "nested too deeply": (b"[" * 100_000, 1, "nested"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_or_foreign_file_is_refused_with_its_line_and_left_alone(
    what: str, tmp_path: Path, backups: Backups
) -> None:
    wanted, place = place_of("cursor", "user", tmp_path)
    data, line, says = BROKEN[what]
    written(place, data)
    with pytest.raises(ConfigError, match=says) as refused:
        installed(wanted, place, backups)
    assert (refused.value.file, refused.value.line) == (str(place.path), line)
    assert refused.value.advice
    assert now(place) == data
    assert not backups.folder.exists()


TOML = {
    "not TOML": (b"a = 1\nb = \n", 2, "not TOML"),
    "on one line": (b'a = 1\nmcp_servers = { x = { url = "y" } }\n', 2, "cannot be changed"),
    "no map": (b"mcp_servers = 1\n", 1, "not a map"),
    "an array": (b"a = 1\n[[mcp_servers]]\nx = 1\n", 2, "not a map"),
    "somebody else's": (
        b'a = 1\n\n[mcp_servers.portico]\ncommand = "door"\n',
        3,
        "somebody else's",
    ),
}


@pytest.mark.parametrize("what", TOML)
def test_a_toml_file_that_cannot_be_changed_is_refused_with_its_line(
    what: str, tmp_path: Path, backups: Backups
) -> None:
    wanted, place = place_of("codex", "user", tmp_path)
    data, line, says = TOML[what]
    written(place, data)
    with pytest.raises(ConfigError, match=says) as refused:
        installed(wanted, place, backups)
    assert (refused.value.file, refused.value.line) == (str(place.path), line)
    assert now(place) == data
    if "one line" in what:
        assert (
            tomllib.loads(refused.value.advice.partition("\n")[2])["mcp_servers"]["portico"]
            == ENTRY
        )


def test_an_entry_in_one_line_of_toml_is_not_damaged_by_taking_it_out(
    tmp_path: Path, backups: Backups
) -> None:
    _, place = place_of("codex", "user", tmp_path)
    data = b'[mcp_servers]\nportico = { command = "portico", args = ["stdio"] }\n'
    written(place, data.replace(b"[mcp_servers]\n", b"[mcp_servers]\na = { url = 'x' }\n"))
    assert uninstalled(place, backups).outcome == "taken out"
    assert now(place) == b"[mcp_servers]\na = { url = 'x' }\n"
    inline = b'mcp_servers = { portico = { command = "portico", args = ["stdio"] } }\n'
    written(place, inline)
    with pytest.raises(ConfigError, match="cannot be taken out"):
        uninstalled(place, backups)
    assert now(place) == inline
    other = b'[mcp_servers.a]\nurl = "x"\n' + data.replace(b"[mcp_servers]\n", b"[mcp_servers.b]\n")
    written(place, other)
    with pytest.raises(ConfigError):
        apply_install(
            plan_install(
                find_client("codex"),
                place,
                ENTRY,
                backups,
                lambda servers: ["c"],
                replace_duplicates=True,
            ),
            backups,
        )
    assert now(place) == other


def test_a_server_that_is_there_twice_is_not_taken_out(tmp_path: Path, backups: Backups) -> None:
    wanted, place = place_of("cursor", "user", tmp_path)
    data = b'{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}'
    written(place, data)
    with pytest.raises(ConfigError, match="a is written twice"):
        installed(wanted, place, backups, behind=tuple, replace_duplicates=True)
    assert now(place) == data


@pytest.mark.skipif(os.name == "nt", reason="modes are a POSIX matter")
def test_a_read_only_file_is_left_alone_even_for_root(tmp_path: Path, backups: Backups) -> None:
    wanted, place = place_of("cursor", "user", tmp_path)
    written(place, b"{}")
    place.path.chmod(0o444)
    with pytest.raises(ConfigError, match="read-only"):
        installed(wanted, place, backups)
    assert now(place) == b"{}"
    assert not backups.folder.exists()


def test_a_folder_in_place_of_the_file_or_a_file_in_place_of_its_folder_is_reported(
    tmp_path: Path, backups: Backups
) -> None:
    wanted, place = place_of("cursor", "user", tmp_path)
    place.path.mkdir(parents=True)
    with pytest.raises(ConfigError, match="is a folder"):
        installed(wanted, place, backups)
    wanted, place = place_of("gemini", "user", tmp_path)
    place.path.parent.write_text("a file")
    with pytest.raises(ConfigError, match="cannot be"):
        installed(wanted, place, backups)
    assert place.path.parent.read_text() == "a file"
    assert not backups.folder.exists()


@pytest.mark.skipif(os.name == "nt", reason="links need rights on Windows")
def test_a_linked_file_stays_a_link_and_keeps_its_mode(tmp_path: Path, backups: Backups) -> None:
    wanted, place = place_of("zed", "user", tmp_path)
    real = tmp_path / "dotfiles" / "zed.json"
    real.parent.mkdir()
    before = (FIXTURES / "zed_settings.json").read_bytes()
    real.write_bytes(before)
    real.chmod(0o640)
    place.path.parent.mkdir(parents=True)
    place.path.symlink_to(real)
    installed(wanted, place, backups)
    assert place.path.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    assert b"portico" in real.read_bytes()
    uninstalled(place, backups)
    assert place.path.is_symlink()
    assert real.read_bytes() == before
    assert [*real.parent.iterdir()] == [real]


def test_a_file_that_changes_between_reading_and_writing_is_left_to_the_other_writer(
    tmp_path: Path, backups: Backups
) -> None:
    wanted, place = place_of("claude-code", "user", tmp_path)
    written(place, b"{}")
    plan = plan_install(wanted, place, ENTRY, backups, nothing)
    place.path.write_bytes(b'{"numStartups": 2}')
    with pytest.raises(ConfigError, match="changed by another program"):
        apply_install(plan, backups)
    assert now(place) == b'{"numStartups": 2}'
    assert [*tmp_path.glob(".claude.json*")] == [place.path]
    assert not is_installed(place, backups)


@pytest.mark.skipif(os.name == "nt", reason="modes are a POSIX matter")
def test_backups_and_new_files_are_for_this_person_only(tmp_path: Path, backups: Backups) -> None:
    wanted, place = place_of("claude-code", "user", tmp_path)
    installed(wanted, place, backups)
    assert place.path.stat().st_mode & 0o777 == 0o600
    wanted, place = place_of("cursor", "user", tmp_path)
    written(place, b"{}")
    installed(wanted, place, backups)
    files = [file for file in backups.folder.rglob("*") if file.is_file()]
    assert len(files) == 3
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}


def test_without_its_record_an_entry_is_still_known_and_taken_out(
    tmp_path: Path, backups: Backups
) -> None:
    wanted, place = place_of("vscode", "user", tmp_path)
    before = (FIXTURES / "vscode_mcp.json").read_bytes()
    written(place, before)
    installed(wanted, place, backups)
    backups.drop(place)
    assert is_installed(place, backups)
    assert uninstalled(place, backups).outcome == "taken out"
    assert now(place) == before


def test_a_damaged_record_does_no_harm(tmp_path: Path, backups: Backups) -> None:
    wanted, place = place_of("vscode", "user", tmp_path)
    before = (FIXTURES / "vscode_mcp.json").read_bytes()
    written(place, before)
    installed(wanted, place, backups)
    next(backups.folder.rglob("record.json")).write_text("{")
    uninstalled(place, backups)
    assert now(place) == before


@pytest.mark.parametrize("known", list_clients(), ids=lambda known: known.name)
def test_an_address_is_written_in_each_clients_own_spelling(known: Client) -> None:
    url = "http://127.0.0.1:8420/mcp"
    spelled: dict[str, dict[str, str]] = {
        "claude-code": {"type": "http", "url": url},
        "cursor": {"url": url},
        "vscode": {"type": "http", "url": url},
        "windsurf": {"serverUrl": url},
        "codex": {"url": url},
        "gemini": {"httpUrl": url},
        "zed": {"url": url},
        "cline": {"type": "streamableHttp", "url": url},
    }
    if known.name == "claude-desktop":
        with pytest.raises(ConfigError, match="takes no address"):
            make_http_entry(known, url, send_token=False)
    else:
        assert make_http_entry(known, url, send_token=False) == spelled[known.name]
        assert ("PORTICO_TOKEN" in json.dumps(make_http_entry(known, url, send_token=True))) == (
            known.bearer_template is not None
        )


def test_an_address_of_ours_is_known_by_its_record(tmp_path: Path, backups: Backups) -> None:
    wanted, place = place_of("gemini", "user", tmp_path)
    entry = make_http_entry(wanted, "http://127.0.0.1:8420/mcp", send_token=False)
    installed(wanted, place, backups, entry=entry)
    assert installed(wanted, place, backups).outcome == "updated"
    assert "httpUrl" not in data_of(place)["mcpServers"]["portico"]
    assert uninstalled(place, backups).outcome == "removed"


def test_a_large_file_of_claude_code_is_handled(tmp_path: Path, backups: Backups) -> None:
    wanted, place = place_of("claude-code", "user", tmp_path)
    history = [
        {"display": f"line {number}\n" * 20, "pastedContents": {}} for number in range(7_000)
    ]
    before = json.dumps(
        {"projects": {"/p": {"history": history}}, "mcpServers": {}}, indent=2
    ).encode()
    assert len(before) > 1_500_000
    written(place, before)
    installed(wanted, place, backups)
    assert data_of(place)["mcpServers"]["portico"]
    uninstalled(place, backups)
    assert now(place) == before


def test_writing_leaves_nothing_behind_when_the_folder_cannot_take_it(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("x")
    with pytest.raises(ConfigError, match="cannot be"):
        write_file(blocked / "under" / "mcp.json", b"{}", None)
    assert [*tmp_path.iterdir()] == [blocked]
