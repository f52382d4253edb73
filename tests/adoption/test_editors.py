"""Texts of all shapes: an entry goes in and out, and nothing else changes."""

import json
import tempfile
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.adoption import json_editor, toml_editor
from portico.adoption.backups import Backups
from portico.adoption.clients import ClientConfigLocation, find_client
from portico.adoption.diff import MAX_LINE_CHARS, render_diff
from portico.adoption.installation import (
    apply_install,
    apply_uninstall,
    plan_install,
    plan_uninstall,
)

ENTRY = {
    "command": "C:\\Program Files\\portico.exe",
    "args": ["stdio", "--config", 'a "quoted" \u2713 path'],
}
KEYS = ("mcpServers", "portico")
BLANKS = (
    "",
    "",
    " ",
    "  ",
    "\t",
    "\n",
    "\r\n",
    "\n\n    ",
    " // a } comment\n",
    '/* { " */',
    "\n  /* two\n lines */\n",
)
NAMES = st.one_of(
    st.sampled_from(["mcpServers", "a", "portico", "//", "{", 'q"', "é"]), st.text(max_size=4)
)
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-9, 10**20), st.text(max_size=6), st.just("// no comment")
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=6,
)
SERVERS = st.dictionaries(NAMES.filter(lambda name: name != "portico"), VALUES, max_size=3)


def rendered(value: Any, random: Random) -> str:
    """JSON as somebody's editor, formatter or hand might have left it."""

    def blank() -> str:
        return random.choice(BLANKS)

    def joined(parts: list[str], ends: str) -> str:
        inside = ",".join(f"{blank()}{part}{blank()}" for part in parts)
        comma = f",{blank()}" if parts and random.random() < 0.3 else ""
        return f"{ends[0]}{inside or blank()}{comma}{ends[1]}"

    if isinstance(value, dict):
        members = cast("dict[str, Any]", value).items()
        return joined(
            [
                json.dumps(key, ensure_ascii=random.random() < 0.5)
                + f"{blank()}:{blank()}{rendered(inner, random)}"
                for key, inner in members
            ],
            "{}",
        )
    if isinstance(value, list):
        return joined([rendered(inner, random) for inner in cast("list[Any]", value)], "[]")
    return json.dumps(value, ensure_ascii=random.random() < 0.5)


@st.composite
def jsonc(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    data: dict[str, Any] = draw(st.dictionaries(NAMES, VALUES, max_size=3))
    data.pop("mcpServers", None)
    if draw(st.booleans()):
        data["mcpServers"] = draw(SERVERS)
    data = dict(draw(st.permutations(list(data.items()))))
    random = draw(st.randoms(use_true_random=False))
    style = draw(st.sampled_from(["rough", "indented", "tight"]))
    if style == "rough":
        blank = random.choice(BLANKS)
        return f"{blank}{rendered(data, random)}{random.choice(BLANKS)}", data
    text = (
        json.dumps(data, indent=draw(st.sampled_from([2, 4, "\t"])))
        if style == "indented"
        else json.dumps(data)
    )
    return (text.replace("\n", "\r\n") if draw(st.booleans()) else text), data


@settings(max_examples=60)
@given(jsonc())
def test_an_entry_can_be_added_to_any_json_and_removed(
    document: tuple[str, dict[str, Any]],
) -> None:
    text, data = document
    assert json_editor.parse(text) == data
    put = json_editor.set_value(text, KEYS, ENTRY)
    servers = data.get("mcpServers", {})
    assert json_editor.parse(put) == {**data, "mcpServers": {**servers, "portico": ENTRY}}
    for name in servers:
        key = ("mcpServers", name)
        assert json_editor.get_raw(put, key) == json_editor.get_raw(text, key)
    out = json_editor.remove(put, KEYS)
    assert json_editor.parse(out) == {**data, "mcpServers": servers}
    again = json_editor.set_value(put, KEYS, {"command": "other"})
    assert json_editor.parse(again)["mcpServers"]["portico"] == {"command": "other"}


@settings(max_examples=60)
@given(jsonc(), st.randoms(use_true_random=False))
def test_any_member_can_be_taken_out_and_put_back_as_it_was_written(
    document: tuple[str, dict[str, Any]], random: Random
) -> None:
    text, data = document
    servers = data.get("mcpServers", {})
    if not servers:
        return
    name = random.choice(list(servers))
    keys = ("mcpServers", name)
    out = json_editor.remove(text, keys)
    assert json_editor.parse(out) == {
        **data,
        "mcpServers": {key: servers[key] for key in servers if key != name},
    }
    back = json_editor.set_raw(out, keys, str(json_editor.get_raw(text, keys)))
    assert json_editor.parse(back) == data


TOML_VALUES = (
    "1",
    "true",
    '"text # no comment"',
    "'lit[eral'",
    '"""\n[mcp_servers.portico]\n# no \\""" comment\n"""',
    "'''\n[x]\n'''",
    '[\n  "a", # one ]\n  [1, 2],\n]',
    '{ a = 1, "b.c" = [ "}" ] }',
    "1979-05-27T07:32:00Z",
    "nan",
)
TOML_BLANKS = ("", "", "\n", "# [mcp_servers.portico]\n", "\n\n", "   # indented\n")


@st.composite
def toml(draw: st.DrawFn) -> str:
    random = draw(st.randoms(use_true_random=False))
    headers = draw(
        st.lists(
            st.sampled_from(
                [
                    "[mcp_servers.a]",
                    '[mcp_servers."b.c"]',
                    "[ mcp_servers . d ]",
                    "[mcp_servers.a.env]",
                    "[tui]",
                    "[[x]]",
                ]
            ),
            unique=True,
        )
    )
    parts: list[str] = []
    for header in ["", *headers]:
        parts.append(
            f"{random.choice(TOML_BLANKS)}{header}\n" if header else random.choice(TOML_BLANKS)
        )
        for number in range(random.randrange(3)):
            note = random.choice(("", " # said"))
            parts.append(
                f"{random.choice(('', '  '))}k{number} = {random.choice(TOML_VALUES)}{note}\n"
            )
        parts.append(random.choice(TOML_BLANKS))
    text = "".join(parts)
    text = text.rstrip("\n") if draw(st.booleans()) else text
    return text.replace("\n", "\r\n") if draw(st.booleans()) else text


def plain(data: Any) -> str:
    return json.dumps(data, default=str, sort_keys=True)


@settings(max_examples=60)
@given(toml())
def test_a_table_can_be_added_to_any_toml_and_removed(text: str) -> None:
    keys = ("mcp_servers", "portico")
    data = toml_editor.parse(text)
    put = toml_editor.set_value(text, keys, ENTRY)
    assert put.startswith(text)
    assert plain(toml_editor.parse(put)) == plain(
        {**data, "mcp_servers": {**data.get("mcp_servers", {}), "portico": ENTRY}}
    )
    assert plain(toml_editor.parse(toml_editor.remove(put, keys))) == plain(data)
    other = toml_editor.set_value(put, keys, {"url": "http://x"})
    assert toml_editor.parse(other)["mcp_servers"]["portico"] == {"url": "http://x"}
    for name in data.get("mcp_servers", {}):
        here = ("mcp_servers", name)
        raw = toml_editor.get_raw(put, here)
        back = toml_editor.set_raw(toml_editor.remove(put, here), here, str(raw))
        assert plain(toml_editor.parse(back)) == plain(toml_editor.parse(put))


@settings(max_examples=15)
@given(
    st.one_of(
        jsonc().map(lambda document: (document[0], "json")), toml().map(lambda text: (text, "toml"))
    )
)
def test_installing_and_uninstalling_leaves_any_file_as_it_was(document: tuple[str, str]) -> None:
    text, language = document
    before = text.encode("utf-8", "surrogatepass")
    with tempfile.TemporaryDirectory() as folder:
        path, backups = Path(folder, "file"), Backups(Path(folder, "kept"))
        path.write_bytes(before)
        keys = ("mcp_servers",) if language == "toml" else ("mcpServers",)
        place = ClientConfigLocation("user", path, cast("Any", language), keys)
        apply_install(
            plan_install(find_client("cursor"), place, ENTRY, backups, lambda servers: ()), backups
        )
        assert path.read_bytes() != before
        apply_uninstall(plan_uninstall(place, backups), backups)
        assert path.read_bytes() == before


def test_a_comment_stays_on_the_line_that_it_is_about() -> None:
    text = '{\n  "mcpServers": {\n    "a": {} // about a\n    // about nothing\n  }\n}\n'
    put = json_editor.set_value(text, KEYS, {"url": "u"})
    assert put == (
        '{\n  "mcpServers": {\n    "a": {}, // about a\n    "portico": {\n      "url": "u"\n    }\n'
        "    // about nothing\n  }\n}\n"
    )
    assert json_editor.remove(put, KEYS) == text


def test_a_comment_never_swallows_what_follows_a_member_that_is_taken_out() -> None:
    text = '{"mcpServers": { // here\n "portico": {}, "b": 1 }}'
    assert json_editor.parse(json_editor.remove(text, KEYS)) == {"mcpServers": {"b": 1}}


@pytest.mark.parametrize(
    "secret", ["ghp_notARealToken0000000000000000000000", "sk-notARealKey00000000"]
)
def test_the_difference_shows_what_is_new_and_masks_what_was_there(secret: str) -> None:
    text = json.dumps({"mcpServers": {"a": {"command": "x", "env": {"TOKEN": secret}}}}, indent=2)
    put = json_editor.set_value(text, KEYS, ENTRY)
    shown = render_diff(text, put, "mcp.json")
    assert secret not in "\n".join(shown)
    assert '+    "portico": {' in shown
    assert secret not in "\n".join(render_diff(put, text, "mcp.json", mask_new_lines=True))


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize(
    "entry",
    [
        {"args": ["--api-key", "hunter hunter"]},
        {"args": ["-e", "hunter=hunter"]},
        {"env": {"PASSWORD": 'hunter \\" hunter'}},
    ],
)
def test_an_inconspicuous_secret_is_masked_by_its_flag(
    entry: dict[str, Any], indent: int | None
) -> None:
    text = json.dumps({"mcpServers": {"a": {"command": "x", **entry}}}, indent=indent)
    put = json_editor.set_value(text, KEYS, ENTRY)
    shown = "\n".join(render_diff(text, put, "mcp.json"))
    assert "hunter" not in shown
    assert "portico" in shown


def test_a_line_that_gets_a_comma_is_no_new_line() -> None:
    text = '{"mcpServers": {\n "a": {"command": "x", "env": {"API_KEY": "hunter2"}}\n}}'
    shown = render_diff(text, json_editor.set_value(text, KEYS, ENTRY), "mcp.json")
    assert "hunter2" not in "\n".join(shown)
    assert any(line.startswith("+") and '"portico"' in line for line in shown)


def test_the_difference_of_one_endless_line_is_short() -> None:
    text = json.dumps({"a": ["word"] * 100_000, "mcpServers": {}, "z": ["word"] * 100_000})
    shown = render_diff(text, json_editor.set_value(text, KEYS, ENTRY), "mcp.json")
    assert max(map(len, shown)) <= 2 * MAX_LINE_CHARS + 10
    assert any(line.startswith("+") and "portico" in line for line in shown)


def test_the_difference_counts_lines_as_the_file_does() -> None:
    lines = [f"line {number}" for number in range(100)]
    shown = render_diff("\n".join(lines), "\n".join([*lines[:50], "new", *lines[50:]]), "f")
    assert shown[2] == "@@ -48,6 +48,7 @@"
    assert "+new" in shown
