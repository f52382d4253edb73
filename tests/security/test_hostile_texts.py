"""YAML, JSON and TOML made to do harm: counted before they are unfolded, and parsed where they hold
nobody up."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from portico.config_file import load as load_config
from portico.errors import BackendUnavailable, ConfigError
from portico.upstream.backends.openapi.backend import OpenApiBackend
from portico.upstream.backends.openapi.loader import load_description
from portico.upstream.backends.openapi.reader import DescriptionSource
from portico.upstream.backends.openapi.schemas import is_supported_pattern
from portico.upstream.backends.openapi.tools import ConfiguredParameters

HEAD: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "T"},
    "servers": [{"url": "http://x.example"}],
}


def laughs(levels: int = 30, width: int = 9) -> str:
    """A few lines whose aliases stand for more values than any memory holds."""
    lines = ["a0: &a0 [lol, lol]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * width)}]" for n in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("portico.yaml", laughs() + "\nservers: *a29\n", "aliases counted"),
        ("portico.yaml", "x: &x {<<: *x}\nservers: {}\n", "names nothing written before it"),
        ("portico.yaml", "servers: " + "[" * 100_000, "nested deeper"),
        ("portico.yaml", "servers:\n  " + "- " * 100_000, "nested deeper"),
        ("portico.yaml", "servers: " + "{a: " * 100_000, "nested deeper"),
        (".mcp.json", '{"mcpServers": ' + "[" * 100_000, "nested deeper"),
        ("portico.toml", "x = " + "[" * 100_000, "nested deeper"),
        ("portico.toml", ".".join(["a"] * 20_000) + " = 1\n", "nested deeper"),
    ],
)
def test_a_configuration_that_unfolds_without_end_is_refused(
    tmp_path: Path, name: str, text: str, says: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=says):
        load_config([tmp_path / name], environ={}, cwd=tmp_path)


def cpu_of_children() -> float:
    import resource

    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime


def large(**more: Any) -> dict[str, Any]:
    operations = {
        f"/{number}": {"get": {"operationId": f"op{number}", "summary": "x" * 100}}
        for number in range(2_000)
    }
    return {**HEAD, "paths": operations, **more}


@pytest.mark.skipif(sys.platform == "win32", reason="how long children worked is told on POSIX")
@pytest.mark.parametrize("form", ["json", "yaml", "a part"])
async def test_a_large_description_is_parsed_in_a_process_of_its_own(
    tmp_path: Path, form: str
) -> None:
    place = tmp_path / "api.json"
    document = large()
    if form == "a part":
        item = {"get": {"operationId": "op", "description": "x" * 400_000}}
        (tmp_path / "part.json").write_text(json.dumps(item))
        document = {**HEAD, "paths": {"/x": {"$ref": "part.json"}}}
    text = json.dumps(document)
    place.write_text("# YAML\n" + text if form == "yaml" else text)
    before = cpu_of_children()
    found = await OpenApiBackend("api", str(place)).load_current()
    assert cpu_of_children() > before
    assert found == load_description(
        DescriptionSource("api", str(place)), ConfiguredParameters((), ())
    )
    assert len(found.load_definitions()) == len(found.plans) == len(document["paths"])


@pytest.mark.skipif(sys.platform == "win32", reason="how long children worked is told on POSIX")
async def test_a_small_description_needs_no_process(tmp_path: Path) -> None:
    (tmp_path / "api.json").write_text(json.dumps({**HEAD, "paths": {"/x": {"get": {}}}}))
    before = cpu_of_children()
    found = await OpenApiBackend("api", str(tmp_path / "api.json")).load_current()
    assert (cpu_of_children(), list(found.plans)) == (before, ["get_x"])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("openapi: 3.1.0\nx: " + "[" * 200_000, "nested deeper"),
        ('{"openapi": "3.1.0", "x": ' + "[" * 200_000, "no JSON"),
        ("x" * 200_000, "no object"),
        (json.dumps({**HEAD, "paths": {}, "x": "x" * 200_000}), "no operations"),
    ],
)
async def test_what_is_wrong_with_a_large_description_is_said_as_with_any_other(
    tmp_path: Path, text: str, says: str
) -> None:
    (tmp_path / "api.yaml").write_text(text)
    with pytest.raises(BackendUnavailable, match=says) as refused:
        await OpenApiBackend("api", str(tmp_path / "api.yaml")).load_current()
    assert refused.value.advice


@pytest.mark.parametrize(
    "pattern",
    [
        r"(\pL{50}){20}",
        r"[\p{L}\p{N}]{1,255}",
        r"((x{99}){99}){99}",
        r"\pL" * 100,
        "x" * 100_000,
        "x{1,99999999999999999999}",
    ],
)
def test_a_pattern_that_takes_long_to_compile_is_left_out_without_trying(pattern: str) -> None:
    assert not is_supported_pattern(pattern)


@pytest.mark.parametrize(
    "pattern",
    [r"^[a-z0-9_-]{1,64}$", r"^\d{4}-\d{2}-\d{2}$", r"^\p{L}+$", r"[0-9a-f]{8}(-[0-9a-f]{4}){3}"],
)
def test_patterns_that_people_write_stay(pattern: str) -> None:
    assert is_supported_pattern(pattern)
