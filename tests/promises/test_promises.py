"""The build fails when a requirement has no promise, or a promise no proof that exists."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.promises import ROOT, Promise, load_promises, load_requirements

PROMISES = tuple(load_promises())
DISCLOSURE_ROW = re.compile(r"[A-E]\d+")
DISCLOSURE_TESTS = ROOT / "tests" / "requirements"


@cache
def names_in(path: Path) -> frozenset[str]:
    """Return the names of the tests in a file, a class's as `Class::name`."""
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


def find_fault(proof: str) -> str | None:
    """Return why a proof proves nothing, or None if it is valid."""
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
    assert [fault for proof in promise.proofs if (fault := find_fault(proof))] == []


def test_every_promise_has_its_own_id_and_is_a_sentence() -> None:
    ids = [promise.id for promise in PROMISES]
    assert len(ids) == len(set(ids))
    for promise in PROMISES:
        assert re.fullmatch(r"[a-z-]+(\.[a-z0-9-]+)+", promise.id)
        assert promise.sentence.endswith(".")


def test_every_requirement_is_promised_and_every_promise_keeps_a_requirement() -> None:
    required = [row for row in load_requirements() if not DISCLOSURE_ROW.fullmatch(row)]
    assert len(required) == len(set(required))
    assert {promise.requirement for promise in PROMISES} == set(required)


@pytest.mark.parametrize("row", [*filter(DISCLOSURE_ROW.fullmatch, load_requirements())])
def test_every_row_of_tool_disclosure_has_a_test_of_its_name(row: str) -> None:
    names = [name for file in DISCLOSURE_TESTS.glob("test_*.py") for name in names_in(file)]
    assert any(row.lower() in name.split("_") for name in names)


@pytest.mark.parametrize(
    ("proof", "fault"),
    [
        ("tests/nowhere.py::test_x", "does not exist"),
        ("tests/promises/test_promises.py::test_nothing_of_the_kind", "has no test"),
        ("tests/promises/__init__.py::Promise", "no file of tests"),
        ("benchmarks/none.py", "does not exist"),
        ("tests/promises/test_promises.py", "has no test"),
        ("tests/promises/test_promises.py::find_fault", "has no test"),
    ],
)
def test_an_invalid_proof_is_found(proof: str, fault: str) -> None:
    assert fault in (find_fault(proof) or "")
