"""Where each client keeps its servers, on each system, and what its name is."""

from pathlib import Path

import pytest

from portico.adoption.clients import ClientConfigLocation, find_client, list_clients, list_locations
from portico.adoption.installation import choose_location
from portico.errors import ConfigError, UnknownName

HOME, CWD = Path("/home/ada"), Path("/home/ada/work")
EVERYWHERE = {
    "claude-code": [".claude.json", ".claude.json", "work/.mcp.json"],
    "cursor": [".cursor/mcp.json", "work/.cursor/mcp.json"],
    "windsurf": [
        ".codeium/windsurf/mcp_config.json",
        ".codeium/windsurf-next/mcp_config.json",
        ".codeium/mcp_config.json",
    ],
    "codex": [".codex/config.toml", "work/.codex/config.toml"],
    "gemini": [".gemini/settings.json", "work/.gemini/settings.json"],
}
FIRST = {
    ("claude-desktop", "linux"): ".config/Claude/claude_desktop_config.json",
    ("claude-desktop", "darwin"): "Library/Application Support/Claude/claude_desktop_config.json",
    ("claude-desktop", "win32"): "AppData/Roaming/Claude/claude_desktop_config.json",
    ("vscode", "linux"): ".config/Code/User/mcp.json",
    ("vscode", "darwin"): "Library/Application Support/Code/User/mcp.json",
    ("vscode", "win32"): "AppData/Roaming/Code/User/mcp.json",
    ("zed", "linux"): ".config/zed/settings.json",
    ("zed", "darwin"): ".config/zed/settings.json",
    ("zed", "win32"): "AppData/Roaming/Zed/settings.json",
    ("cline", "linux"): ".cline/data/settings/cline_mcp_settings.json",
    ("cline", "darwin"): ".cline/data/settings/cline_mcp_settings.json",
}
MAPS = {
    "vscode": ("servers",),
    "codex": ("mcp_servers",),
    "zed": ("context_servers",),
}


def locate(
    name: str, platform: str = "linux", home: Path = HOME
) -> tuple[ClientConfigLocation, ...]:
    return list_locations(find_client(name), home, home / "work", platform, {})


@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
@pytest.mark.parametrize("name", EVERYWHERE)
def test_files_in_the_home_are_in_the_same_place_on_every_system(name: str, platform: str) -> None:
    assert [place.path for place in locate(name, platform)] == [
        HOME / path for path in EVERYWHERE[name]
    ]


@pytest.mark.parametrize(("name", "platform"), FIRST, ids=str)
def test_other_files_are_where_the_system_keeps_settings(name: str, platform: str) -> None:
    assert locate(name, platform)[0].path == HOME / FIRST[name, platform]


@pytest.mark.parametrize("known", list_clients(), ids=lambda known: known.name)
def test_every_client_has_a_file_for_this_person_and_a_map_in_it(known: object) -> None:
    name = getattr(known, "name", "")
    first = locate(name)[0]
    assert (first.scope, first.legacy) == ("user", False)
    assert first.keys == MAPS.get(name, ("mcpServers",))
    assert first.format == ("toml" if name == "codex" else "json")
    assert all(place.path.is_absolute() for place in locate(name))


def test_cline_is_also_found_where_the_editor_keeps_its_extensions() -> None:
    expected = HOME / ".config/Code - Insiders/User/globalStorage/saoudrizwan.claude-dev/settings"
    assert expected / "cline_mcp_settings.json" in [place.path for place in locate("cline")]


@pytest.mark.parametrize(
    ("name", "platform", "variable", "value", "path"),
    [
        (
            "claude-desktop",
            "linux",
            "XDG_CONFIG_HOME",
            "/x",
            "/x/Claude/claude_desktop_config.json",
        ),
        ("claude-desktop", "win32", "APPDATA", "/r", "/r/Claude/claude_desktop_config.json"),
        ("claude-code", "linux", "CLAUDE_CONFIG_DIR", "/c", "/c/.claude.json"),
        ("vscode", "linux", "XDG_CONFIG_HOME", "~/x", "/home/ada/x/Code/User/mcp.json"),
        ("vscode", "linux", "XDG_CONFIG_HOME", "relative", "/home/ada/.config/Code/User/mcp.json"),
        (
            "vscode",
            "darwin",
            "XDG_CONFIG_HOME",
            "/x",
            "/home/ada/Library/Application Support/Code/User/mcp.json",
        ),
        ("codex", "linux", "CODEX_HOME", "/cx", "/cx/config.toml"),
        ("gemini", "linux", "GEMINI_CLI_HOME", "/g", "/g/.gemini/settings.json"),
        ("zed", "linux", "FLATPAK_XDG_CONFIG_HOME", "/f", "/f/zed/settings.json"),
        ("cline", "linux", "CLINE_DIR", "/cl", "/cl/data/settings/cline_mcp_settings.json"),
        ("cline", "linux", "CLINE_MCP_SETTINGS_PATH", "/m.json", "/m.json"),
    ],
)
def test_variables_move_files_as_they_do_for_the_client(
    name: str, platform: str, variable: str, value: str, path: str
) -> None:
    assert list_locations(find_client(name), HOME, CWD, platform, {variable: value})[
        0
    ].path == Path(path)


def test_the_packaged_claude_of_windows_has_a_roaming_folder_of_its_own(tmp_path: Path) -> None:
    package = tmp_path / "AppData" / "Local" / "Packages" / "Claude_pzs8sxrjxfjjc"
    package.mkdir(parents=True)
    first, second = locate("claude-desktop", "win32", tmp_path)
    assert (
        first.path == package / "LocalCache" / "Roaming" / "Claude" / "claude_desktop_config.json"
    )
    assert second.path == tmp_path / "AppData" / "Roaming" / "Claude" / "claude_desktop_config.json"


def test_a_folders_own_servers_of_claude_code_are_in_the_file_of_the_home() -> None:
    local = next(place for place in locate("claude-code") if place.scope == "local")
    assert local.keys == ("projects", "/home/ada/work", "mcpServers")


def test_the_file_that_exists_is_preferred_and_one_that_is_no_longer_written_never_is(
    tmp_path: Path,
) -> None:
    wanted, found = find_client("vscode"), locate("vscode", home=tmp_path)
    assert (
        choose_location(wanted, found, None, None).path == tmp_path / ".config/Code/User/mcp.json"
    )
    insiders = tmp_path / ".config/Code - Insiders/User"
    insiders.mkdir(parents=True)
    assert choose_location(wanted, found, None, None).path == insiders / "mcp.json"
    user = tmp_path / ".config/Code/User"
    user.mkdir(parents=True)
    (user / "settings.json").write_text("{}")
    assert choose_location(wanted, found, None, None).path == user / "mcp.json"
    (insiders / "mcp.json").write_text("{}")
    assert choose_location(wanted, found, None, None).path == insiders / "mcp.json"


def test_an_unknown_scope_is_reported_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="no scope project") as error:
        choose_location(find_client("windsurf"), locate("windsurf"), "project", None)
    assert "user" in error.value.advice


def test_a_named_file_has_the_clients_map(tmp_path: Path) -> None:
    place = choose_location(
        find_client("zed"), locate("zed"), None, str(tmp_path / "elsewhere.json")
    )
    assert (place.path, place.keys) == (tmp_path / "elsewhere.json", ("context_servers",))


@pytest.mark.parametrize(
    "name", ["claude-desktop", "Claude Desktop", "claude_desktop", " CLAUDE-DESKTOP "]
)
def test_a_client_is_known_however_its_name_is_written(name: str) -> None:
    assert find_client(name).name == "claude-desktop"


def test_a_wrong_name_gets_the_nearest_names_back() -> None:
    with pytest.raises(UnknownName) as error:
        find_client("windsrf")
    assert error.value.nearest[0] == "windsurf"
    with pytest.raises(UnknownName, match="'zzzzzzzz'") as error:
        find_client("zzzzzzzz")
    assert "claude-desktop, claude-code" in error.value.advice
