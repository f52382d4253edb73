"""Reading: bytes become values with their lines, in YAML and in the JSON that editors write."""

import json
import re
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.config_file.draft import ConfigFinding
from portico.config_file.tree_reader import FASTEST_LOADER, ConfigNode, read_tree


def plain(node: ConfigNode | None) -> Any:
    if node is None:
        return None
    if node.entries is not None:
        return {key: plain(child) for key, child in node.entries.items()}
    return [plain(child) for child in node.items] if node.items is not None else node.value


LOADERS = st.sampled_from([FASTEST_LOADER, yaml.SafeLoader])
"""The library comes without its C part on some machines."""


def read(
    text: str, file: str = "file.json", loader: Any = FASTEST_LOADER
) -> tuple[Any, list[ConfigFinding]]:
    node, findings = read_tree(text.encode(), file, loader)
    return plain(node), findings


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=15,
)


@settings(deadline=None)
@given(VALUES, st.booleans(), st.sampled_from([None, 1, "\t"]))
def test_every_json_value_is_read_as_json_reads_it(
    value: Any, ascii_only: bool, indent: int | str | None
):
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert read(text) == (value, [])


@settings(deadline=None)
@given(VALUES)
def test_comments_and_trailing_commas_change_nothing(value: Any):
    text = re.sub(r"(?<=[^\[{\s])(?=\n *[\]}])", ",", json.dumps(value, indent=1))
    noisy = "\n".join(f'{line} // x " , }} ]\n/* {{\n */' for line in text.splitlines())
    assert read(noisy) == (value, [])


@settings(deadline=None)
@given(st.dictionaries(st.text(min_size=1), VALUES, min_size=1, max_size=4))
def test_json_inside_a_yaml_file_is_read_as_json(value: dict[str, Any]):
    assert read(json.dumps(value, indent="\t"), "portico.yaml") == (value, [])


TAME = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(st.characters(exclude_categories=["Cs", "Cc"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1), inner, max_size=4
        )
    ),
    max_leaves=15,
)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(["a", "b", "c"]), TAME, min_size=1), st.booleans(), LOADERS)
def test_what_a_yaml_writer_writes_is_read_back(value: dict[str, Any], flow: bool, loader: Any):
    text = yaml.safe_dump(value, default_flow_style=flow, allow_unicode=True)
    assert read(text, "file.yaml", loader) == (value, [])


def test_every_key_and_item_has_its_line():
    for file, text in (
        ("f.json", '{\n\n "a": {\n  "b":\n   [1,\n    2]\n }\n}'),
        ("f.yaml", "\n\na:\n  b:\n    - 1\n    - 2\n"),
    ):
        root, _ = read_tree(text.encode(), file)
        assert root is not None
        assert root.entries is not None
        a = root.entries["a"]
        assert a.entries is not None
        b = a.entries["b"]
        assert b.items is not None
        assert [a.line, b.line, *(item.line for item in b.items)] == [3, 4, 5, 6]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('{"a": 1\n "b": 2}', 2, 'expected , or }, found "b"'),
        ('{"a": [1 2]}', 1, "expected , or ], found 2"),
        ('{\n"a" 1}', 2, "expected : after the key 'a', found 1"),
        ("{\na: 1}", 2, "expected a key in double quotes, found a"),
        ("{'a': 1}", 1, "expected a key in double quotes, found 'a'"),
        ('{"a": True}', 1, "expected a value, found True"),
        ('{"a": 01}', 1, "expected a value, found 01"),
        ('{"a":\n "open}', 2, "this text is not closed"),
        ('{"a": 1 /* open }', 1, "this comment is not closed"),
        ('{"a": "C:\\Users"}', 1, "Write \\\\ for a backslash"),
        ('{"a": 1', 1, "found the end of the file"),
        ('{"a": }', 1, "expected a value, found }"),
        ("{} {}", 1, "expected the end of the file, found {"),
        ('{"a": 1,\n"a": 2}', 2, "written twice: lines 1 and 2"),
        ("[" * 200, 1, "nested deeper than 100 levels"),
    ],
)
def test_broken_json_is_reported_with_its_line(text: str, line: int, words: str):
    _, findings = read(text)
    assert findings[0].line == line
    assert words in str(findings[0])


@settings(deadline=None)
@given(st.binary(max_size=200), st.sampled_from(["f.json", "f.yaml", "f"]), LOADERS)
def test_no_bytes_break_the_reader(data: bytes, file: str, loader: Any):
    node, findings = read_tree(data, file, loader)
    assert node is None or isinstance(node, ConfigNode)
    assert all(finding.file == file for finding in findings)


@settings(deadline=None)
@given(
    st.text(alphabet="{}[],:'\"\\-?!&*<>|#%@ \t\nab1~=`/", max_size=80),
    st.sampled_from(["f.json", "f.yaml"]),
    LOADERS,
)
def test_no_punctuation_breaks_the_reader(text: str, file: str, loader: Any):
    read_tree(text.encode(), file, loader)


@pytest.mark.parametrize("loader", [FASTEST_LOADER, yaml.SafeLoader])
def test_a_control_character_is_reported_with_its_line(loader: Any):
    _, findings = read("a: 1\nb: \x07\n", "f.yaml", loader)
    assert (findings[0].line, findings[0].advice) == (2, "Remove the control character.")
