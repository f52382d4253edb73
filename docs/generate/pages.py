"""The generated pages and their expected text."""

from collections.abc import Callable
from pathlib import Path

from docs.generate import (
    cli,
    configuration,
    environment,
    errors,
    metatools,
    metrics,
    python,
    resources,
    rest,
)
from portico.config_file.json_schema import render_schema

REFERENCE = Path(__file__).resolve().parents[1] / "reference"
SCHEMA = REFERENCE / "portico.schema.json"
MARK = "<!-- Written by `python -m docs.generate` from here on: change the code, not this text. -->"
PAGES: dict[str, Callable[[], str]] = {
    "configuration.md": configuration.page,
    "environment.md": environment.page,
    "cli.md": cli.page,
    "meta-tools.md": metatools.page,
    "rest.md": rest.page,
    "resources.md": resources.page,
    "metrics.md": metrics.page,
    "errors.md": errors.page,
    "python.md": python.page,
}


def filled_in(name: str) -> str:
    """Return a page with everything below its mark generated again."""
    head, mark, _ = (REFERENCE / name).read_text(encoding="utf-8").partition(MARK)
    if not mark:
        raise ValueError(f"{name} has no line {MARK}")
    return f"{head}{MARK}\n\n{PAGES[name]().strip()}\n"


def stale() -> dict[Path, str]:
    """Return the pages that differ from the code, with their expected text."""
    found = {REFERENCE / name: filled_in(name) for name in PAGES}
    found[SCHEMA] = render_schema()
    return {
        path: text
        for path, text in found.items()
        if not path.exists() or text != path.read_text(encoding="utf-8")
    }
