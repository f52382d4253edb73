"""Figures of the README can be measured again (tests/docs runs its examples)."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "module", sorted(set(re.findall(r"python -m ((?:benchmarks|tests|docs)\.\w+)", README)))
)
def test_every_measurement_in_the_readme_can_be_run(module: str):
    path = ROOT.joinpath(*module.split("."))
    assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()
