"""The build fails when a promise has no proof, or names one that does not exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests import promises, promises_doing, promises_running, promises_security, promises_using
from tests.promises import HOUSE, SEARCH, SHOWN, Promise
from tests.promises_doing import DOING
from tests.promises_running import RUNNING
from tests.promises_security import REVIEWED
from tests.promises_using import USING

PROMISES = (
    *promises.PROMISES,
    *promises_doing.PROMISES,
    *promises_running.PROMISES,
    *promises_using.PROMISES,
    *promises_security.PROMISES,
)

ROOT = Path(__file__).resolve().parent.parent
SECTIONS = {
    HOUSE: {
        "the project",
        "config",
        "upstream",
        "the raw layer",
        "catalog",
        "the door",
        "meta-tools",
        "CLI",
        "public test kit",
        "must show",
    },
    SEARCH: {
        "search",
        "the encoder",
        "typos, abbreviations, other languages",
        "knowing when nothing fits",
        "learning from use",
        "explain",
        "incremental",
        "public benchmark",
        "must show",
    },
    SHOWN: {
        "1 Storage",
        "2 Statistics, 3 Tiers",
        "4 Categories, 9 Capability index",
        "5 Budgets, 8 Token ledger",
        "6 Resources, prompts; 7 REST",
        "the rows of the seeds",
    },
    DOING: {
        "1 One pipeline",
        "2 Cache, 3 Result handles, 4 Shapes",
        "5 run_code, 6 State between scripts",
        "7 run_workflow",
        "8 Isolation, 9 Exposure semantic",
        "must show",
    },
    RUNNING: {
        "1 Supervisor",
        "2 Hot reload",
        "3 Relays",
        "4 Backpressure and limits",
        "5 Doctor",
        "6 Observability",
        "must show",
    },
    USING: {
        "1 Adoption",
        "2 OpenAPI and command backends",
        "3 Python API",
        "4 Documentation, 5 README",
        "6 Speed, 7 Peers",
        "must show",
    },
    REVIEWED: {
        "1 Nothing holds the event loop",
        "2 Nothing is shared by a claimed name",
        "3 Findings 4 to 21",
        "4 A lock file",
        "must show",
    },
}
"""The deliverables of each issue, and what it must show."""


@cache
def names_in(path: Path) -> frozenset[str]:
    """The names of the tests in a file, a class's as `Class::name`."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            members = (
                item
                for item in node.body
                if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)
            )
            found.update(f"{node.name}::{item.name}" for item in members)
    return frozenset(name for name in found if name.rpartition("::")[2].startswith("test_"))


def missing(proof: str) -> str | None:
    """Why a proof proves nothing; None when it is there."""
    path, _, name = proof.partition("::")
    file = ROOT / path
    if not file.is_file():
        return f"{path} does not exist"
    if path == ".ci/run" and not name:
        return None
    if path.startswith("benchmarks/") and not name:
        return None if "__main__" in file.read_text(encoding="utf-8") else f"{path} cannot be run"
    if not re.fullmatch(r"tests/(\w+/)*test_\w+\.py", path):
        return f"{path} is no file of tests"
    return None if name in names_in(file) else f"{path} has no test {name!r}"


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.id)
def test_every_promise_has_a_proof_that_exists(promise: Promise) -> None:
    assert promise.proofs, f"nothing proves: {promise.sentence}"
    assert [why for proof in promise.proofs if (why := missing(proof))] == []


def test_every_promise_is_told_apart_and_says_where_it_was_made() -> None:
    ids = [promise.id for promise in PROMISES]
    assert len(ids) == len(set(ids))
    for promise in PROMISES:
        assert re.fullmatch(r"[a-z]+(\.[a-z0-9-]+)+", promise.id)
        assert promise.sentence.endswith(".")
        assert promise.source


def test_every_part_of_every_issue_is_promised() -> None:
    promised = {f"{issue}: {part}" for issue, parts in SECTIONS.items() for part in parts}
    assert {promise.source for promise in PROMISES} == promised


@pytest.mark.parametrize(
    ("proof", "why"),
    [
        ("tests/nowhere.py::test_x", "does not exist"),
        ("tests/test_promises.py::test_nothing_of_the_kind", "has no test"),
        ("tests/promises.py::Promise", "no file of tests"),
        ("benchmarks/none.py", "does not exist"),
        ("tests/test_promises.py", "has no test"),
        ("tests/test_promises.py::missing", "has no test"),
    ],
)
def test_a_proof_that_is_none_is_found_out(proof: str, why: str) -> None:
    assert why in (missing(proof) or "")
