"""Every module that ARCHITECTURE.md and GLOSSARY.md name exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "GLOSSARY.md"])
def test_every_named_module_exists(page: str):
    text = (ROOT / page).read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z_/]+\.py)`", text)) | set(re.findall(r"`([a-z_/]+/)`", text))
    named -= {"origins/", "results/", "gateways/", "contained/", "bundles/", "packages/"}
    assert len(named) > 10
    missing = sorted(name for name in named if not (ROOT / "src" / "portico" / name).exists())
    assert not missing


def test_every_package_is_in_the_table():
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    source = ROOT / "src" / "portico"
    packages = {f"{one.name}/" for one in source.iterdir() if (one / "__init__.py").exists()}
    missing = sorted(one for one in packages if f"`{one}`" not in text)
    assert not missing
