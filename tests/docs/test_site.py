"""The site is built of the pages as they are, without a warning and without the network."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, name_page

pytestmark = pytest.mark.slow
DOCS = ROOT / "docs"
BUILT = "PORTICO_SITE"
"""The site's folder, set by `.ci/run`, which has built it in the same way."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if BUILT in os.environ:
        return Path(os.environ[BUILT])
    for package in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(
            package, reason="the site's generator is not installed: pip install -e '.[docs]'"
        )
    made = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        "-b",
        "html",
        "-d",
        f"{made}/.read",
    ]
    done = subprocess.run(
        [*command, str(DOCS), str(made)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return made


def test_every_page_is_in_the_site_and_in_its_navigation(site: Path) -> None:
    first = (site / "index.html").read_text(encoding="utf-8")
    for page in DOCS.glob("**/*.md"):
        made = page.relative_to(DOCS).with_suffix(".html").as_posix()
        assert (site / made).is_file(), name_page(page)
        if made != "index.html" and not made.startswith("decisions/0"):
            assert f'href="{made}"' in first, name_page(page)


def test_a_link_that_leaves_the_pages_leads_to_the_repository(site: Path) -> None:
    page = (site / "reference" / "scripts.html").read_text(encoding="utf-8")
    assert re.search(r'href="https://[^"]+/SECURITY\.md"', page)


def test_a_link_between_pages_stays_in_the_site(site: Path) -> None:
    page = (site / "how-to" / "monitoring.html").read_text(encoding="utf-8")
    assert 'href="../reference/metrics.html"' in page


def test_nothing_in_the_site_is_fetched_from_elsewhere(site: Path) -> None:
    for page in site.glob("**/*.html"):
        fetched = re.findall(
            r'<(?:script|link|img)\b[^>]*?(?:src|href)="(https?:[^"]+)"', page.read_text("utf-8")
        )
        assert not fetched, f"{page.name}: {fetched}"
