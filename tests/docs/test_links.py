"""Every link between the documents leads somewhere, and every page can be found from the first
one."""

import re
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, name_page

DOCUMENTS = [
    *ROOT.glob("*.md"),
    *sorted(ROOT.glob("docs/**/*.md")),
    ROOT / "benchmarks" / "RESULTS.md",
    ROOT / "training" / "README.md",
]


def links(document: Path) -> list[str]:
    return re.findall(r"\]\((?![a-z]+:)([^)\s]+)\)", document.read_text(encoding="utf-8"))


def anchors(document: Path) -> set[str]:
    """Return what headings are linked by: lower case, without punctuation, spaces as hyphens; twins
    are
    numbered."""
    text = re.sub(
        r"^(`{3,}).*?^\1", "", document.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6} (.+)$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        number, one = 0, slug
        while one in found:
            number += 1
            one = f"{slug}-{number}"
        found.add(one)
    return found


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_page)
def test_every_link_between_documents_leads_somewhere(document: Path):
    for link in links(document):
        target, _, anchor = link.partition("#")
        file = (document.parent / target) if target else document
        assert file.exists(), link
        assert not anchor or anchor in anchors(file), f"{link}: no such heading"


def test_every_page_can_be_found_from_the_first():
    first = ROOT / "docs" / "index.md"
    seen: set[Path] = set()
    ahead = [first]
    while ahead:
        page = ahead.pop().resolve()
        if page not in seen and page.suffix == ".md" and page.is_relative_to(ROOT / "docs"):
            seen.add(page)
            ahead += [
                page.parent / target for link in links(page) if (target := link.partition("#")[0])
            ]
    lost = {name_page(page) for page in (ROOT / "docs").glob("**/*.md")} - {
        name_page(page) for page in seen
    }
    assert not lost, "add them to docs/index.md, or link them from the page they belong to"
