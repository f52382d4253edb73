"""The examples on the embedding pages run, and the reference covers everything exported."""

import re
from pathlib import Path

import pytest

import portico

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = (DOCS / "how-to" / "embed.md", DOCS / "reference" / "python.md")
BLOCKS = [
    pytest.param(block, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, block in enumerate(
        re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    )
]


@pytest.mark.parametrize("block", BLOCKS)
def test_every_example_runs(block: str, capfd: pytest.CaptureFixture[str]):
    exec(compile(block, "example", "exec"), {"__name__": "__main__"})
    printed = capfd.readouterr()
    assert len(printed.out.splitlines()) >= 1
    assert printed.err == ""


def test_everything_that_is_exported_is_in_the_reference():
    page = PAGES[1].read_text("utf-8")
    missing = [
        name
        for name in portico.__all__
        if name[0] != "_" and f"`{name}`" not in page and name != "Format"
    ]
    assert missing == []
    assert "## Formats" in page


def test_links_lead_to_files():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8")):
            assert (page.parent / target).is_file(), target
