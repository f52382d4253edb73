"""The published schema accepts what the file reader accepts, and refuses what it refuses."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from portico.config_file import load
from portico.config_file.json_schema import DIALECT, build_schema
from portico.errors import ConfigError
from tests.docs.blocks import blocks

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
FORMS = """
gateway: {port: "${PORT:-8420}", token: "${TOKEN:-}"}
learning: off
usage: false
inherit_env: AWS_*
limits: {max_request_bytes: 4MB}
x-base: &base {command: x}
profiles:
  plain:
  small: {servers: [a], budgets: {discovery: 500}}
servers:
  a: {<<: *base, env: {DEBUG: no, PORT: 1, HOME: }, args: [-v, 3], disabled: false}
  b: {url: "https://x", type: streamable-http, headers: }
  c: {commands: {up: uptime -p, list: [ls, "{folder}"]}}
  d: {command: [npx, -y, x], timeout: 5000, disabledTools: [a]}
"""
MISTAKES: dict[str, Any] = {
    "a misspelled key": {"exposur": "full"},
    "a misspelled key of a server": {"servers": {"a": {"comand": "x"}}},
    "a wrong choice": {"exposure": "everything"},
    "a port that is text": {"gateway": {"port": "many"}},
    "a port that is too large": {"gateway": {"port": 70_000}},
    "servers in a list": {"servers": [{"command": "x"}]},
    "arguments that are a number": {"servers": {"a": {"command": "x", "args": 3}}},
    "a switch that is a list": {"servers": {"a": {"command": "x", "disabled": []}}},
    "something that Portico sets itself": {"servers": {"a": {"command": "x", "problem": "y"}}},
    "a profile's unknown key": {"profiles": {"p": {"server": ["a"]}}},
    "an unknown meta-tool": {"metatools": {"search": True}},
}


@pytest.fixture(scope="module")
def validator() -> Any:
    return jsonschema_rs.validator_for(build_schema())


def documents() -> Iterator[tuple[str, Any]]:
    for path in (ROOT / "examples").rglob("portico.yaml"):
        yield str(path.relative_to(ROOT)), yaml.safe_load(path.read_text())
    for page in PAGES:
        for block in blocks(page):
            if block.kind == "configuration" and block.language == "yaml":
                yield block.where, yaml.safe_load(block.text)


@pytest.mark.parametrize(
    "document", [one for _, one in documents()], ids=[name for name, _ in documents()]
)
def test_every_documented_configuration_is_valid(validator: Any, document: Any) -> None:
    assert [error.message for error in validator.iter_errors(document)] == []


def test_every_form_that_is_read_is_valid(validator: Any, tmp_path: Path) -> None:
    path = tmp_path / "portico.yaml"
    path.write_text(FORMS)
    load([path], environ={}, cwd=tmp_path)
    assert [error.message for error in validator.iter_errors(yaml.safe_load(FORMS))] == []


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_what_is_refused_is_invalid(validator: Any, mistake: Any, tmp_path: Path) -> None:
    path = tmp_path / "portico.yaml"
    path.write_text(yaml.safe_dump(mistake))
    with pytest.raises(ConfigError):
        load([path], environ={}, cwd=tmp_path)
    assert not validator.is_valid(mistake)


def test_a_wrong_key_or_type_anywhere_in_an_example_is_invalid(validator: Any) -> None:
    document = yaml.safe_load((ROOT / "examples" / "commands" / "portico.yaml").read_text())
    assert validator.is_valid(document)
    for name, server in document["servers"].items():
        for wrong in ({"no_such_key": 1}, {"tags": 5}, {"disabled": "perhaps"}):
            changed = copy.deepcopy(document)
            changed["servers"][name] = {**server, **wrong}
            assert not validator.is_valid(changed)


def test_the_schema_says_what_it_is_and_describes_every_key() -> None:
    schema = build_schema()
    assert schema["$schema"] == DIALECT
    properties = schema["properties"] | schema["$defs"]["BackendConfig"]["properties"]
    assert all(one.get("description") for one in properties.values())
    assert "written" not in properties
