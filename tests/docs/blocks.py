"""The code blocks of a page, and how a page marks those that run.

A comment on the line before a block says what the tests do with it. Readers do not see it:

    <!-- runnable -->                 by its language: yaml and json load as a configuration,
    console is run command
                                      by command, python is executed (await works), other languages
                                      are scripts
    <!-- runnable: run_code -->       a script for `run_code`, on the servers of `portico demo`
    <!-- runnable: run_workflow -->   what is passed to `run_workflow`, there too
    <!-- file: portico.yaml -->       the block is written to this file first; a later command finds
    it
    <!-- output -->                   what the block before it printed
    <!-- runnable, exit: 1 -->        its last command ends with this code

In expected output `…` stands for any text in its line, and a line of its own for any lines.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
ASSIGNMENT = re.compile(r"[A-Z][A-Z0-9_]*=")
"""A word of a command line that sets a variable."""
_WORDS = {"runnable", "file", "exit", "output"}
_BY_LANGUAGE = {
    "yaml": "configuration",
    "json": "configuration",
    "console": "console",
    "python": "python",
    "javascript": "run_code",
    "typescript": "run_code",
    "lua": "run_code",
}


@dataclass(frozen=True)
class Block:
    """One block and its marks."""

    page: Path
    line: int
    language: str
    text: str
    marks: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def kind(self) -> str:
        """Return how it is run; empty where it is not."""
        if "runnable" not in self.marks:
            return ""
        return self.marks["runnable"] or _BY_LANGUAGE.get(self.language, "")

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def name_page(page: Path) -> str:
    """A page as tests are named by it."""
    return str(page.relative_to(ROOT)).replace("\\", "/")


def blocks(page: Path, text: str | None = None) -> Iterator[Block]:
    """Every fenced block of a page, in order. Raises ValueError for a mark that would do
    nothing."""
    marks: dict[str, str] = {}
    lines = iter(
        enumerate((page.read_text(encoding="utf-8") if text is None else text).splitlines(), 1)
    )
    for number, line in lines:
        where = f"{page.name}:{number}"
        if opened := re.match(r"( *)(`{3,})\s*([\w-]*)(.*)", line):
            indent, fence, language, more = opened.groups()
            if "runnable" in more:
                raise ValueError(f"{where}: write <!-- runnable --> on the line before the block")
            inside: list[str] = []
            for _, body in lines:
                if body.strip() == fence:
                    break
                inside.append(body.removeprefix(indent))
            yield Block(page, number, language, "".join(f"{one}\n" for one in inside), marks)
            marks = {}
        elif comment := re.fullmatch(r"\s*<!--(.*?)-->\s*", line):
            marks = _marks(comment[1], where)
        elif line.strip() and marks:
            raise ValueError(f"{where}: a block should stand here, because a mark stands above")


def _marks(text: str, where: str) -> dict[str, str]:
    """Return what a comment marks; nothing where it is just a comment."""
    parts = [part.partition(":") for part in text.split(",")]
    found = {name.strip(): value.strip() for name, _, value in parts}
    if found.keys() <= _WORDS:
        return found
    if "runnable" in text.split(",")[0].split(":")[0]:
        raise ValueError(
            f"{where}: a mark has the words {', '.join(sorted(_WORDS))}, separated by commas"
        )
    return {}


def commands(block: Block) -> Iterator[tuple[str, list[str]]]:
    """Each command of a console block, with the lines that are shown after it."""
    command, shown = "", list[str]()
    for line in block.text.splitlines():
        if command.endswith("\\"):
            command = command[:-1] + line.strip()
        elif line.startswith("$ "):
            if command:
                yield command, shown
            command, shown = line[2:], []
        elif command:
            shown.append(line)
    if command:
        yield command, shown


def matches(expected: list[str], said: str) -> bool:
    """Decide whether what was said is what a page shows."""
    pattern = ""
    for line in "\n".join(expected).strip().splitlines():
        if line.strip() == "…":
            pattern += r"(?:[^\n]*\n)*?"
        else:
            pattern += (
                r"[^\n]*".join(re.escape(part.rstrip()) for part in line.rstrip().split("…"))
                + r"[ ]*\n"
            )
    return re.fullmatch(pattern, said.strip() + "\n") is not None
