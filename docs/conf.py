"""How the site is made of these pages: `sphinx-build -W --keep-going -n -b html docs site`.

The pages are plain Markdown that a repository's browser shows as well: links are relative paths to
files, and nothing in them is Sphinx's. What the site needs beside them is here: its navigation, and
where links lead that leave the folder.
"""

import posixpath
import re
from importlib.metadata import version as installed
from pathlib import Path

from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parent
REPOSITORY = "https://github.com/portico-mcp/portico"

project = "Portico"
author = "The Portico authors"
version = release = installed("portico-mcp")
extensions = ["myst_parser"]
exclude_patterns = ["generate", "**/__pycache__"]
html_theme = "furo"
html_title = f"Portico {release}"
html_copy_source = False
html_show_sphinx = False
nitpicky = True
myst_heading_anchors = 4
myst_enable_extensions = ["strikethrough"]
# What a client's file may hold (comments, trailing commas) is no JSON to a highlighter.
suppress_warnings = ["misc.highlighting_failure"]

NAVIGATION: dict[str, tuple[tuple[str, tuple[str, ...]], ...]] = {
    "index": (
        ("Begin", ("tutorial", "comparison")),
        ("How to", ("how-to/*",)),
        ("How to connect", ("how-to/clients/*",)),
        ("Explanation", ("explanation/progressive-disclosure", "explanation/*")),
        (
            "Reference",
            (
                "reference/configuration",
                "reference/cli",
                "reference/meta-tools",
                "reference/resources",
                "reference/rest",
                "reference/python",
                "reference/*",
            ),
        ),
        ("Requirements and decisions", ("requirements", "decisions/index")),
    ),
    "decisions/index": (("", ("*",)),),
}
"""What stands under which page, in this order; a pattern takes whatever is left, so that a new page
needs no entry."""


def _navigation(page: str) -> str:
    """The tables of contents of a page. They are added here, because a repository's browser would
    show them as code."""
    parts: list[str] = []
    for caption, entries in NAVIGATION.get(page, ()):
        # Sphinx complains of an entry that matches nothing, and some pages are still to be written.
        there = [entry for entry in entries if any((DOCS / page).parent.glob(f"{entry}.md"))]
        if there:
            head = [
                "```{toctree}",
                ":hidden:",
                ":glob:",
                *([f":caption: {caption}"] if caption else []),
            ]
            parts += ["", *head, "", *there, "```"]
    return "\n".join(parts)


def _outward(page: str, text: str) -> str:
    """Links to what is no page or picture of the site lead to the repository."""

    def led(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(f"docs/{page}"), link[1]))
        if target.startswith("docs/") and target.endswith((".md", ".png")):
            return link[0]
        if (DOCS.parent / target / "index.md").is_file() and target.startswith("docs/"):
            folder = posixpath.relpath(target, posixpath.dirname(f"docs/{page}") or ".")
            return f"]({folder}/index.md{link[2] or ''})"
        return f"]({REPOSITORY}/blob/main/{target}{link[2] or ''})"

    return re.sub(r"\]\((?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)", led, text)


def _read(_: Sphinx, page: str, content: list[str]) -> None:
    content[0] = _outward(page, content[0]) + "\n" + _navigation(page)


def setup(app: Sphinx) -> None:
    """Hear of every page that is read."""
    app.connect("source-read", _read)
