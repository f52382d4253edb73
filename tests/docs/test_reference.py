"""The reference is as the code is, and everything in the code has its heading there."""

import json
import re
from pathlib import Path

import pytest
from docs.generate import cli, errors, metrics, pages, rest

from portico.catalog.categories import TAXONOMY
from portico.config_file import iter_keys
from portico.meta_tools import tool_definitions
from portico.observability.audit import AuditEntry, AuditLog
from portico.policy.decision import Approval
from portico.profiles.prompts import PROMPTS
from portico.profiles.resources import RESOURCES, TEMPLATES
from portico.storage.audit_file import AuditFile
from tests.docs.blocks import ROOT

REFERENCE = ROOT / "docs" / "reference"


def headings(name: str) -> list[str]:
    """The headings of a page that are names: those in code."""
    return re.findall(
        r"^#{2,4} `([^`]+)`$", (REFERENCE / name).read_text(encoding="utf-8"), re.MULTILINE
    )


@pytest.mark.parametrize("name", pages.PAGES)
def test_a_generated_page_is_as_the_code_is(name: str):
    written = (REFERENCE / name).read_text(encoding="utf-8")
    assert written == pages.filled_in(name), "run: python -m docs.generate"


def test_every_setting_has_its_heading():
    assert {key.dotted_name for key in iter_keys()} <= set(headings("configuration.md"))


def test_every_variable_is_named_beside_its_setting():
    written = (REFERENCE / "configuration.md").read_text(encoding="utf-8")
    for key in iter_keys():
        said = written.partition(f"#### `{key.dotted_name}`\n")[2].partition("####")[0]
        assert key.help in said
        assert key.environment_variable is None or f"`{key.environment_variable}`" in said


def test_every_command_has_its_heading():
    assert headings("cli.md") == [f"portico {name}" for name in cli.commands()]


def test_every_meta_tool_has_its_heading_and_an_example():
    assert headings("meta-tools.md") == list(tool_definitions.META_TOOL_NAMES)
    written = (REFERENCE / "meta-tools.md").read_text(encoding="utf-8")
    assert (
        written.count("```json\n")
        == written.count("```text\n")
        == len(tool_definitions.META_TOOL_NAMES)
    )


def test_every_parameter_of_a_meta_tool_has_its_row():
    written = (REFERENCE / "meta-tools.md").read_text(encoding="utf-8")
    for name in tool_definitions.META_TOOL_NAMES:
        said = written.partition(f"## `{name}`\n")[2].partition("\n## ")[0]
        for parameter in tool_definitions.PARAMETERS[name]["properties"]:
            assert f"\n| `{parameter}` |" in said


def test_every_route_has_its_heading():
    assert sorted(headings("rest.md")) == sorted(rest.routes())


def test_every_resource_template_and_prompt_has_its_heading():
    ours = [one["uri"] for one in RESOURCES] + [one["uriTemplate"] for one in TEMPLATES]
    assert headings("resources.md") == [*ours, *(one["name"] for one in PROMPTS)]


def test_every_metric_has_its_heading():
    assert sorted(headings("metrics.md")) == sorted(metrics.scrape_metrics())


def test_every_error_has_its_heading_and_its_advice():
    names = [error.__name__ for error, _ in errors.tree()]
    assert headings("errors.md") == names
    assert errors.ADVICE.keys() == set(names)


def test_every_category_has_its_row():
    rows = re.findall(
        r"^\| `([a-z-]+)` \|",
        (REFERENCE / "categories.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert rows == [category.key for category in TAXONOMY]


def test_every_field_of_the_audit_log_has_its_row(tmp_path: Path):
    log = AuditLog(AuditFile(tmp_path / "audit.jsonl", max_bytes=10_000, files=1), lambda: b"key")
    approval = Approval("1", "key ana", "rest")
    entry = AuditEntry("a.b", "hash", {}, "ok", trace_id="1", destructive=True, rule="default")
    log.write(entry._replace(approval=approval))
    log.close()
    table = (
        (REFERENCE / "audit.md")
        .read_text(encoding="utf-8")
        .partition("| field |")[2]
        .partition("\n\n")[0]
    )
    reported = [
        name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])
    ]
    assert reported == [*json.loads((tmp_path / "audit.jsonl").read_text(encoding="utf-8"))]


def test_a_page_without_its_mark_is_not_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "errors.md").write_text("# The errors\n", encoding="utf-8")
    monkeypatch.setattr(pages, "REFERENCE", tmp_path)
    with pytest.raises(ValueError, match="has no line"):
        pages.filled_in("errors.md")
