"""Write every generated page anew; with `--check`, only say which are no longer as the code is."""

import sys

from docs.generate.pages import PAGES, stale


def main(arguments: list[str]) -> int:
    """The exit code: 1 where a page differs and only a look was wanted."""
    differing = stale()
    for path, text in differing.items():
        if "--check" not in arguments:
            path.write_text(text, encoding="utf-8")
        print(path.name, "differs" if "--check" in arguments else "written")  # noqa: T201 - this is the answer
    print(f"{len(PAGES) - len(differing)} of {len(PAGES)} pages were as the code is.")  # noqa: T201
    return 1 if differing and "--check" in arguments else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
