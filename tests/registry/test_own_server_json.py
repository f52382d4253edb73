"""Portico's own `server.json`: valid, of this version, and usable by `portico add` itself."""

import json
import tomllib
from pathlib import Path

import jsonschema_rs

from portico import __version__
from portico.registry.package_launch import plan_package
from portico.registry.server_json import parse_server_json
from tests.registry.server_schema import SCHEMA_URL, SERVER_SCHEMA

REPOSITORY = Path(__file__).parents[2]


def test_it_keeps_the_rules_of_the_schema_it_names() -> None:
    found = json.loads((REPOSITORY / "server.json").read_text())
    assert found["$schema"] == SCHEMA_URL
    assert not list(jsonschema_rs.Draft202012Validator(SERVER_SCHEMA).iter_errors(found))
    broken = {**found, "name": "portico", "description": "x" * 101, "packages": [{}]}
    assert len(list(jsonschema_rs.Draft202012Validator(SERVER_SCHEMA).iter_errors(broken))) >= 3


def test_it_is_of_this_package_and_version() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    found = json.loads((REPOSITORY / "server.json").read_text())
    package = found["packages"][0]
    assert package["identifier"] == project["name"]
    assert found["version"] == package["version"] == __version__ == project["version"]
    assert f"mcp-name: {found['name']}" in (REPOSITORY / "README.md").read_text()


def test_portico_can_start_what_it_says() -> None:
    server = parse_server_json((REPOSITORY / "server.json").read_bytes(), "server.json")
    plan = plan_package(server.packages[0], {})
    assert plan.entry == {
        "command": "uvx",
        "args": ["--from", "portico-mcp==0.1.0", "portico", "stdio"],
    }
