"""The lock files agree with pyproject.toml, and known vulnerabilities among them fail the build."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCKS = {name: (ROOT / "requirements" / name).read_text() for name in ("dev.lock", "audit.lock")}
EXTRAS = ("dev", "otel")
JAIL = ("lupa", "pydantic-monty", "pydantic-monty-client", "pydantic-monty-runtime", "quickjs-ng")


def entries(text: str) -> Iterator[tuple[Requirement, list[str]]]:
    """Each locked requirement with its hashes."""
    for entry in re.split(r"\n(?=\S)", text.strip()):
        if not entry.startswith("#"):
            requirement, *hashes = (part.strip() for part in entry.split("\\\n"))
            yield Requirement(requirement), hashes


def list_requirements(extras: tuple[str, ...]) -> Iterator[Requirement]:
    """Every requirement that pyproject.toml states for these extras, those of extras that they name
    included."""
    lines = list(PROJECT["dependencies"])
    for extra in extras:
        lines += PROJECT["optional-dependencies"][extra]
    for line in lines:
        requirement = Requirement(line)
        if canonicalize_name(requirement.name) == PROJECT["name"]:
            yield from list_requirements(tuple(sorted(requirement.extras)))
        else:
            yield requirement


@pytest.mark.parametrize("requirement", sorted(set(list_requirements(EXTRAS)), key=str), ids=str)
def test_every_dependency_is_locked_to_versions_within_its_bounds(requirement: Requirement) -> None:
    name = canonicalize_name(requirement.name)
    locked = [one for one, _ in entries(LOCKS["dev.lock"]) if canonicalize_name(one.name) == name]
    assert locked
    for one in locked:
        (version,) = one.specifier
        assert version.operator == "=="
        assert requirement.specifier.contains(version.version, prereleases=True)


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_file_has_an_exact_version_and_hashes_for_each_package_and_no_address(
    lock: str,
) -> None:
    text = LOCKS[lock]
    assert "://" not in text
    assert not re.search(r"(?m)^\s*--(?!hash=)|^-", text)
    for requirement, hashes in entries(text):
        assert [one.operator for one in requirement.specifier] == ["=="]
        assert requirement.url is None
        assert hashes
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", one) for one in hashes)


@pytest.mark.parametrize("name", JAIL)
def test_each_engine_of_scripts_is_pinned_to_one_version(name: str) -> None:
    (found,) = (one for one in map(Requirement, PROJECT["dependencies"]) if one.name == name)
    assert [one.operator for one in found.specifier] == ["=="]


def run_audit(
    tmp_path: Path, program: str, limit_s: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run the audit with this program, in Python, in the place of pip-audit; `answer(text)` writes
    its report."""
    if sys.platform == "win32":
        pytest.skip("the program in the place of pip-audit is a POSIX script")
    stub = tmp_path / "pip-audit"
    stub.write_text(
        f"#!{sys.executable}\nimport sys, pathlib\nservice = "
        "sys.argv[sys.argv.index('--vulnerability-service') + 1]\n"
        "def answer(text): pathlib.Path(sys.argv[sys.argv.index('--output') + "
        "1]).write_text(text)\n" + program
    )
    stub.chmod(0o755)
    command = [sys.executable, "-m", "tests.dependency_audit", str(stub), "--limit-s", str(limit_s)]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )


def test_a_known_vulnerability_fails_the_build_and_is_named(tmp_path: Path) -> None:
    known = '[{"id": "CVE-1", "fix_versions": ["2.9"]}]'
    report = f'{{"dependencies": [{{"name": "lupa", "version": "2.8", "vulns": {known}}}]}}'
    ended = run_audit(tmp_path, f"answer({report!r}); sys.exit(1)")
    assert ended.returncode == 1
    assert "VULNERABLE: lupa 2.8: CVE-1, fixed in 2.9" in ended.stdout


def test_dependencies_without_a_known_vulnerability_pass(tmp_path: Path) -> None:
    ended = run_audit(
        tmp_path,
        """answer('{"dependencies": [{"name": "lupa", "version": "2.8", "vulns": []}]}')""",
    )
    assert ended.returncode == 0
    assert "1 dependencies audited by pypi, 0 vulnerable" in ended.stdout
    assert "NOT AUDITED" not in ended.stdout


@pytest.mark.parametrize(
    ("program", "limit_s", "reason"),
    [
        ("sys.exit('ConnectionError: name not known')", 60, "ConnectionError: name not known"),
        ("import time; time.sleep(600)", 0.5, "no answer within 0.5 s"),
        (
            """answer('{"dependencies": [{"name": "lupa", "skip_reason": "not found"}]}')""",
            60,
            "it knows none",
        ),
    ],
    ids=[
        "no connection",
        "a database that never answers",
        "a registry that knows no vulnerabilities",
    ],
)
def test_without_a_database_the_build_goes_on_and_says_loudly_that_nothing_was_audited(
    tmp_path: Path, program: str, limit_s: float, reason: str
) -> None:
    ended = run_audit(tmp_path, program, limit_s)
    assert ended.returncode == 0
    assert reason in ended.stdout
    assert "NOT AUDITED: no database of vulnerabilities could be reached" in ended.stdout


def test_a_second_database_is_asked_where_the_first_cannot_be_reached(tmp_path: Path) -> None:
    program = """if service == 'pypi': sys.exit('ConnectionError')
answer('{"dependencies": [{"name": "lupa", "version": "2.8", "vulns": [{"id": "CVE-1"}]}]}')"""
    ended = run_audit(tmp_path, program)
    assert ended.returncode == 1
    assert "NOT AUDITED by pypi: ConnectionError" in ended.stdout
    assert "fixed in no version yet" in ended.stdout
