"""Writes every generated page; with `--check`, only reports those that differ from the code."""

import sys

from docs.generate.pages import PAGES, stale


def main(arguments: list[str]) -> int:
    """Write or check the pages; return 1 if a page differs in a check."""
    check = "--check" in arguments
    differing = stale()
    for path, text in differing.items():
        if not check:
            path.write_text(text, encoding="utf-8")
        print(path.name, "differs" if check else "written")  # noqa: T201
    print(f"{len(PAGES) - len(differing)} of {len(PAGES)} pages were as the code is.")  # noqa: T201
    return 1 if differing and check else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
