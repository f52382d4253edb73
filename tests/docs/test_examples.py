"""Every example that a page marks runs; every command line that a page shows can be typed."""

import shlex
import sys
from collections.abc import Iterator
from itertools import dropwhile
from pathlib import Path

import pytest

from portico.cli.command_table import app
from portico.scripts.sandbox.script import LANGUAGES
from tests.docs.blocks import ASSIGNMENT, PAGES, ROOT, Block, blocks, commands, matches, name_page
from tests.docs.run_blocks import Page

MARKED = [page for page in PAGES if any(block.marks for block in blocks(page))]


def find_commands(page: Path) -> Iterator[tuple[Block, list[str]]]:
    """Every command line of ours on a page."""
    for block in blocks(page):
        for command, _ in commands(block) if block.language == "console" else ():
            words = shlex.split(command, comments=True)
            program, *arguments = list(dropwhile(ASSIGNMENT.match, words)) or [""]
            if program == "portico":
                yield block, arguments


@pytest.fixture
def page_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder whose modules are forgotten afterwards: another page may have others of the same
    name."""
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize("page", MARKED, ids=name_page)
def test_every_runnable_block_runs(page: Path, page_folder: Path):
    with pytest.MonkeyPatch.context() as patch:
        shared = Page(page_folder, patch)
        for block in blocks(page):
            shared.run(block)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if any(find_commands(page))], ids=name_page
)
def test_every_command_line_of_ours_can_be_typed(page: Path):
    for block, words in find_commands(page):
        # `portico COMMAND` names no command; `portico install CLIENT` names one.
        if words and words[0].islower():
            assert words[0] in set(app), f"{block.where}: there is no command {words[0]}"
            app.parse_args(words, exit_on_error=False, print_error=False)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name in ("README.md", "tutorial.md")], ids=name_page
)
def test_nothing_that_a_newcomer_copies_is_left_untried(page: Path):
    for block in blocks(page):
        if block.language in ("yaml", "json", "python"):
            assert block.marks, (
                f"{block.where}: mark it <!-- runnable --> (tests/docs/blocks.py says how)"
            )


def test_every_script_language_has_an_example_that_runs():
    page = ROOT / "docs" / "reference" / "scripts.md"
    assert {block.language for block in blocks(page) if block.kind == "run_code"} == set(LANGUAGES)


def test_workflows_have_examples_of_steps_and_of_intents():
    page = ROOT / "docs" / "reference" / "workflows.md"
    examples = [block.text for block in blocks(page) if block.kind == "run_workflow"]
    assert any('"steps"' in text for text in examples)
    assert any('"intent"' in text for text in examples)


# How examples are read


def test_a_mark_is_of_the_next_block_only():
    text = "<!-- runnable, exit: 1 -->\n\n```console\n$ a\n```\n\n```yaml\nb: 1\n```\n"
    first, second = blocks(ROOT / "README.md", text)
    assert (first.kind, first.marks["exit"], second.kind) == ("console", "1", "")


@pytest.mark.parametrize(
    "text",
    [
        "<!-- runnable -->\nSome words.\n\n```yaml\nb: 1\n```\n",
        "<!-- runnable as yaml, please -->\n```yaml\nb: 1\n```\n",
        "```yaml runnable\nb: 1\n```\n",
    ],
)
def test_a_mark_that_would_do_nothing_is_refused(text: str):
    with pytest.raises(ValueError, match=r"README\.md:"):
        list(blocks(ROOT / "README.md", text))


def test_a_block_in_a_list_is_read_without_its_indent():
    (block,) = blocks(
        ROOT / "README.md",
        "- So:\n\n  <!-- runnable: run_code -->\n  ```python\n  a = 1\n  a\n  ```\n",
    )
    assert (block.kind, block.text) == ("run_code", "a = 1\na\n")


@pytest.mark.parametrize(
    ("expected", "said", "same"),
    [
        (["one", "two"], "one\ntwo\n", True),
        (["one"], "one\ntwo\n", False),
        (["one", "…"], "one\ntwo\nthree\n", True),
        (["… 3 tools …"], "units: 3 tools in all\n", True),
        (["… 3 tools"], "units: 4 tools\n", False),
        (["…", "last"], "last\n", True),
    ],
)
def test_an_ellipsis_stands_for_anything(expected: list[str], said: str, same: bool):
    assert matches(expected, said) is same


def test_a_command_that_fails_fails_the_page(page_folder: Path):
    (block,) = blocks(
        ROOT / "README.md", "<!-- runnable -->\n```console\n$ portico describe no.such\n```\n"
    )
    with pytest.MonkeyPatch.context() as patch, pytest.raises(AssertionError, match="ended with 1"):
        Page(page_folder, patch).run(block)


def test_a_server_that_cannot_be_used_fails_the_page(page_folder: Path):
    (block,) = blocks(
        ROOT / "README.md", "<!-- runnable -->\n```yaml\nservers: {a: {comand: x}}\n```\n"
    )
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Exception, match="comand"):
        Page(page_folder, patch).run(block)


def test_blocks_of_a_page_share_files_and_names(page_folder: Path):
    text = (
        "<!-- file: mine.py -->\n```python\ndef double(n: int) -> int:\n    'Twice as "
        "much.'\n    return 2 * n\n```\n"
        "<!-- file: portico.yaml -->\n```yaml\nservers: {mine: {functions: mine}}\n```\n"
        "<!-- runnable -->\n```console\n$ portico call mine.double n=21\n42\n```\n"
        "<!-- runnable -->\n```python\nimport asyncio, mine\nawait asyncio.sleep(0)\n"
        "print(mine.double(4))\n```\n"
        "<!-- output -->\n```text\n8\n```\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        page = Page(page_folder, patch)
        for block in blocks(ROOT / "README.md", text):
            page.run(block)
